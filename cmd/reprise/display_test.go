package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/vbauerster/mpb/v8"
)

func TestFit(t *testing.T) {
	t.Parallel()
	parts := []string{"ETA 3m", "pass@1 0.4", "update 7"}
	for width, want := range map[int]string{
		0: "ETA 3m", 17: "ETA 3m", 18: "ETA 3m  pass@1 0.4", 27: "ETA 3m  pass@1 0.4",
		28: "ETA 3m  pass@1 0.4  update 7",
	} {
		if got := fit(parts, width); got != want {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
	}
}

// The compute at which a target was reached is also given in the unit of the budget: 25,000 is half of a budget of 100,
// each unit being an update on 200 rollouts, which cost 1.5 times as much to generate as to learn from.
func TestASummaryHasTheUnitOfTheBudget(t *testing.T) {
	var text strings.Builder
	d := &display{out: &text}
	d.summary(&results.Summary{BatchSize: 200, RolloutCost: 1.5, Pass1Best: results.Num(0.6), Target: results.Num(0.5),
		ToTarget: results.Reach{Reached: true, Update: results.Num(70), Compute: results.Num(25_000)}}, "runs/a")
	got := strings.Join(strings.Fields(text.String()), " ")
	if want := "target 0.50 reached at update 70, compute 25000 (50.0 of budget.compute)"; !strings.Contains(
		got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// screens runs the program in a terminal of the given columns, and passes what it shows to look until that returns true
// or the program ends.
func screens(t *testing.T, columns int, args []string, look func(lines []string) bool) {
	t.Helper()
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("tmux is not installed")
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	do := func(args ...string) ([]byte, error) {
		return exec.Command(tmux, append([]string{"-S", socket, "-f", os.DevNull}, args...)...).Output()
	}
	words := []string{"new-session", "-d", "-x", fmt.Sprint(columns), "-y", "24", binary}
	if out, err := do(append(words, args...)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() { // the server reaps the program and ends: only then is nothing written any more
		out, err := do("display-message", "-p", "#{pane_pid}")
		if pid, e := strconv.Atoi(strings.TrimSpace(string(out))); err == nil && e == nil {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		for err == nil {
			_, err = do("capture-pane", "-p")
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for {
		shown, err := do("capture-pane", "-p")
		if err != nil { // the program has ended, and its terminal with it
			return
		}
		if look(strings.Split(string(shown), "\n")) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestTheLineOfARunFitsItsTerminal(t *testing.T) {
	t.Parallel()
	for columns, wanted := range map[int][]string{
		60: {"ETA", "pass@1"}, 80: {"ETA", "pass@1", "replay ratio"}, 100: {"ETA", "replay ratio", "update", "reward"},
		140: {"ETA", "replay ratio", "update", "reward", "staleness"},
	} {
		t.Run(fmt.Sprint(columns, " columns"), func(t *testing.T) {
			t.Parallel()
			seen := ""
			args := small(filepath.Join(t.TempDir(), "run"), "budget.updates=100000", "warmup.steps=0")
			screens(t, columns, args, func(lines []string) bool {
				for _, line := range lines {
					if strings.Contains(line, "ETA") && !strings.Contains(line, "ETA ?") {
						seen = line
					}
				}
				return seen != ""
			})
			for _, want := range wanted {
				if !strings.Contains(seen, want) {
					t.Errorf("the line %q lacks %s", seen, want)
				}
			}
			if strings.Contains(seen, "…") || utf8.RuneCountInString(seen) > columns || !strings.Contains(seen, "[") {
				t.Errorf("the line %q does not fit", seen)
			}
		})
	}
}

func TestTheBarOfAWarmUpThatEndsEarlyIsFull(t *testing.T) {
	t.Parallel()
	warm, begun := "", false
	args := small(filepath.Join(t.TempDir(), "run"), "budget.updates=100000", "warmup.steps=4000", "warmup.until=0.05")
	screens(t, 100, args, func(lines []string) bool {
		for _, line := range lines {
			if strings.HasPrefix(line, "warm-up") {
				warm = line
			}
			begun = begun || strings.HasPrefix(line, "run ")
		}
		return begun && strings.Contains(warm, "done after")
	})
	if !strings.Contains(warm, "of at most 4000 steps") || strings.Contains(warm, "-]") || strings.Contains(warm, "ETA") {
		t.Errorf("the warm-up ended with the line %q", warm)
	}
}

func TestARunThatHasNothingLeftToDoHasNoBar(t *testing.T) {
	t.Parallel()
	asked := 0
	hooks := newProgress(run.Default()).hooks(func() *mpb.Bar { asked++; return nil })
	for i, of := range []struct {
		news func()
		want int
	}{
		{func() { hooks.OnEval(results.Eval{Update: 30}) }, 0}, // the evaluation at its end
		{func() { hooks.OnEval(results.Eval{}) }, 1},
		{func() { hooks.OnUpdate(results.Update{Update: 31}) }, 2},
	} {
		if of.news(); asked != of.want {
			t.Errorf("after news %d the bar was asked for %d times, want %d", i, asked, of.want)
		}
	}
}

func TestProgressWithoutATerminalIsALineInTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &display{out: &out}
		c := run.Default()
		warm := d.warmup(c)
		for step := range 200 {
			warm(step+1, 1)
			time.Sleep(100 * time.Millisecond)
		}
		hooks := d.hooks(c, "run")
		for update := range 400 {
			hooks.OnUpdate(results.Update{Update: update + 1, Compute: float64(update + 1)})
			hooks.OnEval(results.Eval{Update: update + 1})
			time.Sleep(100 * time.Millisecond)
		}
		const end = "warm-up  done after 200 of at most 600 steps\n"
		warmup, updates, found := strings.Cut(out.String(), end)
		if !found || strings.Count(warmup, "\n") != 2 || strings.Count(updates, "\n") != 4 {
			t.Errorf("want 2 lines, %q, and 4 lines in a minute, got:\n%s", end, out.String())
		}
	})
}

func TestAnInterruptIsAcknowledgedAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	got := stop(t, os.Interrupt, filepath.Join(dir, results.MetricsFile), 3, small(dir))
	first, last, found := strings.Cut(strings.TrimSpace(got.stderr), "\n")
	if !found || !strings.HasPrefix(first, "stopping after this update") ||
		!strings.Contains(last, "--resume --out "+dir) {
		t.Errorf("standard error:\n%s", got.stderr)
	}
}

func TestAnOutThatCannotBeWrittenIsFoundBeforeTheWarmUp(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := fails(t, call(t, "", small(filepath.Join(file, "run"))...), "--out:",
		"choose a folder that you may write to")
	if strings.Contains(out, "warm-up") {
		t.Errorf("the refusal came after the warm-up:\n%s", out)
	}
}

func TestAWrongCallIsALineWithWhatWasMeant(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unknown flag --sed, did you mean --set or --seed?":     {"train", "--sed", "1"},
		"learner.lr: unknown key: want":                         {"train", "--set", "learner.lr=1"},
		"policy.hidden_size: unknown key: want policy.hidden":   {"train", "--set", "policy.hidden_size=1"},
		"pipeline.batch_size: unknown key: want pipeline.batch": {"train", "--set", "pipeline.batch_size=1"},
		"replay.capcity: unknown key: want replay.capacity":     {"train", "--set", "replay.capcity=1"},
	} {
		got := call(t, "", args...)
		if got.code == 0 || !strings.Contains(got.stderr, want) || strings.Count(got.stderr, "\n") > 2 ||
			strings.HasPrefix(want, "un") && strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("reprise %v: exit code %d, standard error:\n%swant %q", args, got.code, got.stderr, want)
		}
	}
}

func TestAnErrorAfterCtrlCSaysHowToGoOnOrThatItWasInterrupted(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"interrupted":   fmt.Errorf("generate job 83145: %w", context.Canceled),
		"stopped; so":   fmt.Errorf("%w; so", interruption("stopped")),
		"no such table": errors.New("no such table"),
	} {
		if got := inWords(err); got != want {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
}
