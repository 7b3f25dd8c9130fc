package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
)

// judged returns a small run whose rewards come from a script in Python, by default the one of the tutorial.
func judged(t *testing.T, script string, assignments ...string) Config {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not there")
	}
	dir := t.TempDir()
	questions := filepath.Join(dir, "questions.jsonl")
	text, err := exec.Command("python3", "../../examples/verifier/questions.py").Output()
	if err == nil {
		err = os.WriteFile(questions, text, 0o600)
	}
	path := "../../examples/verifier/verify.py"
	if script != "" && err == nil {
		path = filepath.Join(dir, "verify.py")
		err = os.WriteFile(path, []byte(script), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := small(t, assignments...)
	c.Task = map[string]any{"name": "external", "train_file": questions, "command": []any{"python3", path},
		"held_out": 12, "timeout": 300}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRunsJudgedByAProgramWriteTheSameBytes(t *testing.T) {
	tests.LongShared(t)
	t.Parallel()
	c := judged(t, "", "warmup.until=0.9", "budget.updates=8")
	dir := t.TempDir()
	sum := train(t, c, filepath.Join(dir, "one"))
	train(t, c, filepath.Join(dir, "two"))
	sameRuns(t, filepath.Join(dir, "two"), filepath.Join(dir, "one"))
	if !strings.Contains(written(t, filepath.Join(dir, "one"))["metrics.jsonl"], `"reward"`) || sum.Updates != 8 {
		t.Errorf("%d updates", sum.Updates)
	}
}

// failing notes each of its starts, and dies at its 150th question until a file tells it not to.
const failing = `
import json, os, sys
with open(sys.argv[0] + ".starts", "a") as f:
    f.write("started\n")
n = 0
for line in sys.stdin:
    n += 1
    if n == 150 and not os.path.exists(sys.argv[0] + ".fixed"):
        sys.exit("out of memory")
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "reward": len(set(asked["response"])) / 16}), flush=True)
`

func TestARunWhoseProgramFailsStopsAndIsResumed(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := judged(t, failing, "warmup.until=0")
	script := c.Task["command"].([]any)[1].(string)
	dir := filepath.Join(t.TempDir(), "run")
	start, err := Begin(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Train(context.Background(), c, start, dir, Hooks{})
	var failure *Failure
	if !errors.As(err, &failure) ||
		!strings.Contains(err.Error(), `verifier "python3 `+script+`" ended (exit status 1)`) {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(script+".fixed", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(context.Background(), c, dir, Hooks{}); err != nil {
		t.Fatal(err)
	}
	if starts, err := os.ReadFile(script + ".starts"); strings.Count(string(starts), "\n") != 2 {
		t.Errorf("the program was started %d times by the run and its resumption, %v",
			strings.Count(string(starts), "\n"), err)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := Train(context.Background(), c, start, whole, Hooks{}); err != nil {
		t.Fatal(err)
	}
	sameRuns(t, dir, whole)
}

// noting writes its process id into a file and rewards everything.
const noting = `
import json, os, sys
with open(sys.argv[0] + ".pid", "w") as f:
    f.write(str(os.getpid()))
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "reward": 1}), flush=True)
`

func TestTheProgramEndsWithAStartThatDoesNotTrain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c Config, s *Start) error{
		"closed": func(_ Config, s *Start) error { return errors.Join(s.Close(), s.Close()) },
		"refused by Train": func(c Config, s *Start) error {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, results.ConfigFile), nil, 0o600); err != nil {
				return err
			}
			if _, err := Train(context.Background(), c, s, dir, Hooks{}); err == nil ||
				!strings.Contains(err.Error(), "already holds a run") {
				return fmt.Errorf("a run in an occupied folder: %w", err)
			}
			return nil
		},
	} {
		c := judged(t, noting, "warmup.until=0.9")
		start, err := Begin(context.Background(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(c.Task["command"].([]any)[1].(string) + ".pid")
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			t.Fatal(err)
		}
		program, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Signal(syscall.Signal(0)); err != nil {
			t.Fatalf("%s: the program does not wait for the run: %v", name, err)
		}
		if err := end(c, start); err != nil {
			t.Error(err)
		}
		if err := program.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: the program still runs: %v", name, err)
		}
	}
}
