package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// tables is a service of its own, over a folder that outlives it.
type tables struct {
	t       *testing.T
	dir     string
	process *exec.Cmd
	grpc    string // its address
}

func newTables(t *testing.T) *tables {
	t.Helper()
	s := &tables{t: t, dir: t.TempDir()}
	s.start("127.0.0.1:0")
	t.Cleanup(func() { s.end(os.Kill) })
	return s
}

// start starts the service and waits until it listens.
func (s *tables) start(listen string) {
	s.t.Helper()
	ready := filepath.Join(s.dir, "ready.json")
	os.Remove(ready)
	s.process = exec.Command(binary, "serve", "--listen", listen, "--http", "off", "--data", filepath.Join(s.dir, "data"), "--sync", "off", "--ready-file", ready)
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(time.Minute)
	var where struct{ GRPC string }
	for {
		if text, err := os.ReadFile(ready); err == nil && json.Unmarshal(text, &where) == nil && where.GRPC != "" {
			s.grpc = where.GRPC
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			s.t.Fatal("the service did not listen within a minute")
		}
	}
}

func (s *tables) end(signal os.Signal) {
	if s.process != nil {
		s.process.Process.Signal(signal)
		s.process.Wait()
		s.process = nil
	}
}

func TestARunOnAServiceThatIsKilledWithItGoesOnToTheBytesOfOneWithItsOwnTable(t *testing.T) {
	t.Parallel()
	s := newTables(t)
	dir := filepath.Join(t.TempDir(), "run")
	if got := stop(t, syscall.SIGKILL, filepath.Join(dir, results.MetricsFile), 25, append(small(dir), "--buffer", s.grpc+"/lab")); got.code != -1 {
		t.Fatalf("killed, but exit code %d:\n%s", got.code, got.stderr)
	}
	s.end(os.Kill)
	s.start(strings.TrimPrefix(s.grpc, "grpc://"))
	succeeds(t, "", "train", "--resume", "--out", dir, "--quiet")
	sameAsUninterrupted(t, dir)

	var in run.Inspection
	decode(t, succeeds(t, "", "inspect", dir, "--json"), &in)
	if in.Service != s.grpc+"/lab" || in.Version != smallUpdates || in.Present == 0 || len(in.Top) != 5 {
		t.Errorf("inspection: %+v", in)
	}
	if out := succeeds(t, "", "inspect", dir); !strings.Contains(out, s.grpc+"/lab, as it is now") {
		t.Errorf("inspect does not say where the table is:\n%s", out)
	}
	out := filepath.Join(t.TempDir(), "second")
	few := append(small(out, "budget.updates=2"), "--buffer", s.grpc+"/lab")
	if said := fails(t, call(t, "", few...), "is in use", "--force"); strings.Contains(said, "warm-up") {
		t.Errorf("the refusal came after the warm-up:\n%s", said)
	}
	succeeds(t, "", append(few, "--force", "--quiet")...)
}

func TestAServiceThatCannotBeUsedIsRefusedBeforeTheWarmUp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	for want, more := range map[string][]string{
		"names no table":            {"--buffer", "grpc://127.0.0.1:1"},
		"connection refused":        {"--buffer", "grpc://127.0.0.1:1/lab"},
		"want grpc+tls://":          {"--buffer", "grpc://127.0.0.1:1/lab", "--buffer-ca", "ca.pem"},
		"want none with --compare,": {"--buffer", "grpc://127.0.0.1:1/lab", "--compare"},
	} {
		if said := fails(t, call(t, "", append(small(dir), more...)...), want); strings.Contains(said, "warm-up") {
			t.Errorf("the refusal came after the warm-up:\n%s", said)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%v left a folder", more)
		}
	}
}
