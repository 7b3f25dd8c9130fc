package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay/browse"
)

// background starts the program and returns its command and its standard output. The test's end kills it.
func background(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	c := exec.Command(binary, args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		if t.Failed() {
			t.Logf("reprise %v:\n%s", args, stderr.String())
		}
	})
	return c, bufio.NewReader(out)
}

// interrupt sends a process Ctrl-C and returns its exit code.
func interrupt(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	return exitOf(t, c.Wait())
}

func TestABoardShowsARunWhileItTrains(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	served, out := background(t, "board", dir, "--listen", "127.0.0.1:0")
	line, err := out.ReadString('\n')
	at := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(line)
	if err != nil || at == "" || !strings.Contains(line, dir) {
		t.Fatalf("the first line is %q: %v", line, err)
	}
	page := func(path string) string {
		_, text := fetch(t, http.DefaultClient, at+path, "")
		return text
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		poll := time.NewTicker(50 * time.Millisecond)
		defer poll.Stop()
		for deadline := time.After(2 * time.Minute); !holds(); {
			select {
			case <-deadline:
				t.Fatalf("never: %s\n%s", what, page(""))
			case <-poll.C:
			}
		}
	}
	evaluated := regexp.MustCompile(`Held-out pass@1 of [0-9.]+ after ([0-9,]+) update`)
	last := func() int {
		if m := evaluated.FindStringSubmatch(page("at/run/")); m != nil {
			n, _ := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
			return n
		}
		return -1
	}
	training, _ := background(t, append(small(filepath.Join(dir, "run"), "budget.updates=100000"), "--quiet")...)
	until("the run is listed", func() bool { return strings.Contains(page(""), `class="state running"`) })
	first := -1
	until("its page has an evaluation", func() bool { first = last(); return first >= 0 })
	until("the curve grows", func() bool { return last() > first })
	if code := interrupt(t, training); code != 130 {
		t.Errorf("the run: exit code %d", code)
	}
	until("the run is listed as interrupted", func() bool {
		return strings.Contains(page(""), `class="state interrupted"`)
	})
	if listed := page("rollouts/find?run=run&limit=1"); !strings.Contains(listed, `"prompt_id"`) {
		t.Errorf("the rollouts of its checkpoint: %s", listed)
	}
	var newest browse.Page
	decode(t, page("rollouts/find?run=run&limit=1"), &newest)
	scored := page(fmt.Sprint("rollouts/score?run=run&id=", newest.Rows[0].ID))
	if !strings.Contains(scored, `"policy":"the policy of the last checkpoint of run","logprobs":[null,`) {
		t.Errorf("a rollout of its checkpoint is scored as %s", scored)
	}
	if code := interrupt(t, served); code != 0 {
		t.Errorf("the board: exit code %d", code)
	}
}

func TestABoardListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"has no password: want 127.0.0.1:PORT": {dir, "--listen", "0.0.0.0:0"},
		"is in use: another program listens there: stop it, or choose another port: --listen 127.0.0.1:": {dir,
			"--listen", taken.Addr().String()},
		"want HOST:PORT":             {dir, "--listen", "6007"},
		"want a folder with runs in": {filepath.Join(dir, "none")},
	} {
		fails(t, call(t, "", append([]string{"board"}, args...)...), want)
	}
}
