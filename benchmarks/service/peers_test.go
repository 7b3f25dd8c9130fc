package service

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func TestPeersThatAreNotHereAreToldApart(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := startRedis(t.Context(), Auto, t.TempDir()); !errors.Is(err, errAbsent) || !strings.Contains(err.Error(), "redis-server") {
		t.Errorf("redis: %v", err)
	}
	if _, err := startPython(Auto, t.TempDir()); !errors.Is(err, errAbsent) {
		t.Errorf("python: %v", err)
	}
	var l lab
	if err := l.absent(errAbsent, Auto); err != nil || len(l.missing) != 1 {
		t.Errorf("what auto does not find ends the run: %v", err)
	}
	if err := l.absent(errAbsent, "/usr/bin/redis-server"); err == nil {
		t.Error("what was asked for by name may be missing")
	}
}

func TestARedisElsewhereIsRefused(t *testing.T) {
	_, err := startRedis(t.Context(), "example.org:6379", t.TempDir())
	var setting *SettingError
	if !errors.As(err, &setting) || setting.Key != "redis" {
		t.Error(err)
	}
}

func TestRedisKeepsWhatIsStored(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed here; .ci/run installs it")
	}
	server, err := startRedis(t.Context(), Auto, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, over := range []string{TCP, Unix} {
		c, err := dialRESP(over, server.place.address(over))
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		store, fetch, forget, err := redisContenders(c, 1_000_003, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, contender := range append(store, fetch...) {
			if took, err := contender.run(t.Context(), time.Millisecond); err != nil || took.operations == 0 {
				t.Errorf("%s over %s: %+v, %v", contender.name, over, took, err)
			}
		}
		if err := forget(); err != nil {
			t.Error(err)
		}
		if _, err := fetch[0].run(t.Context(), time.Millisecond); err == nil {
			t.Error("what was removed was fetched")
		}
	}
}

func TestAChildThatEndsAtOnceIsReportedWithItsWords(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no such port >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := start("the server", program)
	if err != nil {
		t.Fatal(err)
	}
	err = c.answers(t.Context(), func() error { return errors.New("refused") })
	if err == nil || !strings.Contains(err.Error(), "the server ended before it answered") || !strings.Contains(err.Error(), "no such port") {
		t.Error(err)
	}
	if err := c.stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("stop: %v", err)
	}
}

func TestOnlyTheEndOfWhatAChildSaysIsKept(t *testing.T) {
	var said tail
	for range 1000 {
		said.Write([]byte(strings.Repeat("a", 99) + "\n"))
	}
	said.Write([]byte("the end"))
	if text := said.String(); len(text) > tailBytes || !strings.HasSuffix(text, "the end") {
		t.Errorf("%d bytes, ending in %q", len(text), text[max(len(text)-10, 0):])
	}
}

func TestTheDiskIsWrittenFromFrontToEndAgainAndAgain(t *testing.T) {
	const block = 64 << 20
	for _, rewrite := range []bool{false, true} {
		d, err := newDiskFile(t.TempDir(), rewrite)
		if err != nil {
			t.Fatal(err)
		}
		first, err := d.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for range diskBytes/block + 1 {
			if took, err := d.contender(block).run(t.Context(), 0); err != nil || took.operations != 1 {
				t.Fatalf("%+v, %v", took, err)
			}
		}
		last, err := d.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		want := int64(block)
		if rewrite {
			want = diskBytes
		}
		if last.Size() != want || rewrite && !os.SameFile(first, last) {
			t.Errorf("written over: %t: the file has %d bytes: want %d", rewrite, last.Size(), want)
		}
		d.close()
		if _, err := os.Stat(d.path); !errors.Is(err, os.ErrNotExist) {
			t.Error("the file is left")
		}
	}
}

func TestContentsAreGroupsOfGoodRolloutsThatDiffer(t *testing.T) {
	groups := content(40, 64, 3)
	rollouts := 0
	for _, g := range groups {
		rollouts += len(g.Rollouts)
	}
	if got := []int{len(groups), rollouts, len(groups[2].Rollouts)}; got[0] != 3 || got[1] != 40 || got[2] != 8 {
		t.Errorf("groups, rollouts, rollouts of the last: %v", got)
	}
	for _, g := range groups {
		if err := g.Validate(rollout.Limits{Vocab: 32000}); err != nil {
			t.Error(err)
		}
	}
	if want := 40 * (64*13 + 13 + int64(len("bench-0003-000000"))); payload(groups) != want {
		t.Errorf("%d bytes: want %d", payload(groups), want)
	}
	if a, b := groups[0].Rollouts[0], content(40, 64, 4)[0].Rollouts[0]; a.Tokens[1] == b.Tokens[1] && a.Tokens[2] == b.Tokens[2] {
		t.Error("two contents are alike")
	}
}

func TestAPythonProcessThatDoesNotAnswerIsAnError(t *testing.T) {
	program := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nread task\necho '{\"error\": \"it broke\"}'\nread task\necho oh >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := runPython(program, "client.py")
	if err != nil {
		t.Fatal(err)
	}
	c := p.contender(python, pythonTask{What: Sample})
	for _, want := range []string{"it broke", "EOF"} {
		if _, err := c.run(context.Background(), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	if err := p.close(); err == nil || !strings.Contains(err.Error(), "oh") {
		t.Errorf("close: %v", err)
	}
}
