package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
)

// stubborn rewards everything, notes its process id, and outlives the end of its input and the signals of terminals.
const stubborn = `
import json, os, signal, sys
for s in (signal.SIGINT, signal.SIGTERM):
    signal.signal(s, lambda *_: print("signalled", file=sys.stderr, flush=True))
with open(sys.argv[1], "w") as f:
    f.write(str(os.getpid()))
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "reward": 0.5}), flush=True)
while True:
    signal.pause()
`

// endless is a run judged by a script. Paths follow: questions, script, file for the process id.
const endless = `
task: {name: external, train_file: %s, command: [python3, %s, %s]}
policy: {hidden: 16, intermediate: 24, layers: 1, heads: 2, kv_heads: 1, positions: 32}
warmup: {steps: 0}
pipeline: {batch: 16, group: 4, workers: 3}
replay: {capacity: 48}
evaluate: {samples: 0}
budget: {compute: 0, updates: 1000000}
`

// Ctrl-C in a terminal reaches the whole process group. The verifier must not see it, because the run still needs its
// rewards, and must end with the run.
func TestAVerifierLivesAsLongAsItsRun(t *testing.T) {
	t.Parallel()
	python(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		var questions bytes.Buffer
		for i := range 40 {
			fmt.Fprintf(&questions, `{"question": "%d=", "answer": "%d"}`+"\n", i, i)
		}
		for name, text := range map[string]string{
			"verify.py": stubborn, "questions.jsonl": questions.String(),
			"c.yaml": fmt.Sprintf(endless, at("questions.jsonl"), at("verify.py"), at("pid")),
		} {
			if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command(binary, "train", "-c", at("c.yaml"), "--out", at("run"))
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		errors, err := os.Create(at("stderr"))
		if err != nil {
			t.Fatal(err)
		}
		c.Stderr = errors // the verifier has it too
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		tests.Until(t, "two updates", func() bool {
			text, _ := os.ReadFile(filepath.Join(at("run"), results.MetricsFile))
			return bytes.Count(text, []byte("\n")) >= 2
		})
		if err := syscall.Kill(-c.Process.Pid, signal); err != nil {
			t.Fatal(err)
		}
		code := exitOf(t, c.Wait())
		pid := read(t, at("pid"))
		tests.Until(t, "the end of process "+pid, func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
		if text := read(t, at("stderr")); signal == syscall.SIGINT && (code != 130 ||
			strings.Contains(text, "signalled") || !strings.Contains(text, "stopped with a checkpoint")) {
			t.Errorf("exit code %d after Ctrl-C, and\n%s", code, text)
		}
	}
}
