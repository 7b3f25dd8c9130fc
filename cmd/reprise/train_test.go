package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// smallUpdates is the length of a small run: long enough to interrupt.
const smallUpdates = 250

// small returns the arguments of a run that takes about a second and exercises every part.
func small(dir string, more ...string) []string {
	args := []string{"train", "-c", os.DevNull, "--out", dir} // the defaults of all keys
	for _, assignment := range append([]string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
		"policy.positions=32",
		"task.max=10", "task.held_out=20", "warmup.steps=5", "warmup.batch=8", "generate.max_tokens=4",
		"pipeline.batch=16", "pipeline.group=4", "pipeline.workers=3", "replay.capacity=48",
		"learner.learning_rate=0.001",
		"evaluate.every=20", "evaluate.samples=2", "evaluate.pass_at=[1, 2]", "budget.compute=0",
		fmt.Sprint("budget.updates=", smallUpdates), "checkpoint.every=7",
	}, more...) {
		args = append(args, "--set", assignment)
	}
	return args
}

// uninterrupted trains a small run, once for all tests, and returns its folder.
var uninterrupted = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(shared, "whole")
	out, err := exec.Command(binary, append(small(dir), "--json")...).Output()
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "stdout"), out, 0o644)
})

func whole(t *testing.T) string {
	t.Helper()
	dir, err := uninterrupted()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sameAsUninterrupted(t *testing.T, dir string, but ...string) {
	t.Helper()
	tests.SameFiles(t, dir, whole(t), append(but, results.TimingFile, "stdout")...)
}

// stop starts the program, sends it a signal once the metrics files that match a pattern have the given lines in all,
// and returns how it ended.
func stop(t *testing.T, signal os.Signal, logs string, lines int, args []string) outcome {
	t.Helper()
	c := exec.Command(binary, args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	deadline := time.After(2 * time.Minute)
	for n := 0; n < lines; {
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself after %d lines: %v\n%s", n, err, stderr.String())
		case <-deadline:
			c.Process.Kill()
			t.Fatalf("%d lines in two minutes, %d wanted", n, lines)
		case <-poll.C:
			n = 0
			found, _ := filepath.Glob(logs) // absent at first
			for _, path := range found {
				text, _ := os.ReadFile(path)
				n += bytes.Count(text, []byte("\n"))
			}
		}
	}
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	code := exitOf(t, <-ended)
	return outcome{stdout.String(), stderr.String(), code}
}

func TestRunWritesItsFolderAndOnlyJSONToStandardOutput(t *testing.T) {
	t.Parallel()
	dir := whole(t)
	var printed, written results.Summary
	decode(t, read(t, dir, "stdout"), &printed)
	decode(t, read(t, dir, results.SummaryFile), &written)
	if printed.Updates != smallUpdates || printed.Ended != "budget" || written.Updates != printed.Updates ||
		written.Compute != printed.Compute {
		t.Errorf("printed %+v\nwrote %+v", printed, written)
	}
	run, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Updates) != smallUpdates || len(run.Timings) != smallUpdates || len(run.Evals) < 3 {
		t.Errorf("%d lines of metrics, %d of timing, %d evaluations", len(run.Updates), len(run.Timings),
			len(run.Evals))
	}
	if page := read(t, dir, results.ReportFile); !strings.Contains(page, "<svg") {
		t.Error("report.html has no figure")
	}
	var c completion
	decode(t, succeeds(t, "", "generate", "--model", filepath.Join(dir, results.CheckpointDir), "--prompt", "1+2=",
		"--json"), &c)
}

// The pages, the checkpoint and the state to resume from included.
func TestTwoRunsOfOneConfigurationAndSeedWriteTheSameFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), filepath.Base(whole(t)))
	succeeds(t, "", append(small(dir), "--quiet")...)
	sameAsUninterrupted(t, dir)
}

func TestQuietRunPrintsNothingAndAPlainOneItsResult(t *testing.T) {
	t.Parallel()
	few := []string{"budget.updates=3", "evaluate.every=1"}
	if out := succeeds(t, "", append(small(filepath.Join(t.TempDir(), "run"), few...), "--quiet")...); out != "" {
		t.Errorf("--quiet printed %q", out)
	}
	out := succeeds(t, "", small(filepath.Join(t.TempDir(), "run"), few...)...)
	for _, want := range []string{"warm-up  step 1 of at most 5", "addition, seed 1: 3 updates (budget)",
		"held-out pass@1",
		"report.html"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func TestAnInterruptedRunResumesToTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, lines := range []int{1, 40} {
		dir := filepath.Join(t.TempDir(), "run")
		got := stop(t, os.Interrupt, filepath.Join(dir, results.MetricsFile), lines, append(small(dir), "--json"))
		if got.code != 130 || !strings.Contains(got.stderr, "stopped with a checkpoint; continue with: reprise train "+
			"--resume --out "+dir) {
			t.Errorf("interrupted: exit code %d, standard error:\n%s", got.code, got.stderr)
		}
		var s results.Summary
		if decode(t, got.stdout, &s); s.Ended != "interrupted" || s.Updates < lines || s.Updates >= smallUpdates {
			t.Errorf("ended %q after %d updates, interrupted after %d", s.Ended, s.Updates, lines)
		}
		succeeds(t, "", "train", "--resume", "--out", dir, "--quiet")
		sameAsUninterrupted(t, dir)
	}
}

func TestAKilledRunResumesToTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	for i, lines := range []int{12, 45} { // killed, and killed again when resumed
		args := small(dir)
		if i > 0 {
			args = []string{"train", "--out", dir, "--resume"}
		}
		if got := stop(t, syscall.SIGKILL, filepath.Join(dir, results.MetricsFile), lines, args); got.code != -1 {
			t.Fatalf("killed, but exit code %d:\n%s", got.code, got.stderr)
		}
	}
	succeeds(t, "", "train", "--resume", "--out", dir, "--quiet")
	sameAsUninterrupted(t, dir)
}

func TestARunKilledBeforeItsFirstCheckpointResumes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	stop(t, syscall.SIGKILL, filepath.Join(dir, results.MetricsFile), 3, small(dir, "checkpoint.every=100000"))
	succeeds(t, "", "train", "--resume", "--out", dir, "--quiet")
	if read(t, dir, results.MetricsFile) != read(t, whole(t), results.MetricsFile) {
		t.Error("metrics.jsonl differs from the uninterrupted run's")
	}
}

func TestEveryProblemOfAConfigurationIsPrintedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "my.yaml")
	if err := os.WriteFile(file, []byte("learner: {learning_rate: -1}\npolicy: {heads: 3}\nreplya: {}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "run")
	got := call(t, "", "train", "-c", file, "--set", "replay.capacity=100", "--set", "task.name=chess", "--set",
		"nothing", "--out", out)
	fails(t, got, "the configuration cannot be used:", "learner.learning_rate: -1", "policy.heads: 3",
		"replya: unknown key",
		"replay.capacity: 100: want at least pipeline.batch (1024)", "task.name: chess: want one of", `--set "nothing"`)
	fails(t, call(t, "", "train", "-c", filepath.Join(dir, "none.yaml"), "--out", out), "none.yaml")
	if _, err := os.Stat(out); err == nil {
		t.Error("a refused configuration left a folder")
	}
}

func TestOnlyForceReplacesARun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	args := small(dir, "budget.updates=2")
	succeeds(t, "", append(args, "--quiet")...)
	before := read(t, dir, results.MetricsFile)
	if out := fails(t, call(t, "", args...), dir+" holds a run already", "--resume", "--force"); strings.Contains(out,
		"warm-up") {
		t.Errorf("the refusal came after the warm-up:\n%s", out)
	}
	fails(t, call(t, "", "train", "--resume", "--force", "--out", dir), "leave -c and --force out")
	fails(t, call(t, "", "train", "--resume", "--out", dir, "--set", "seed=2"),
		"--set may change budget.compute and budget.updates only")
	if read(t, dir, results.MetricsFile) != before {
		t.Error("a refused call changed the run")
	}
	succeeds(t, "", append(small(dir, "budget.updates=3"), "--quiet", "--force")...)
	if n := strings.Count(read(t, dir, results.MetricsFile), "\n"); n != 3 {
		t.Errorf("after --force metrics.jsonl has %d lines, want 3", n)
	}
}

func TestForceKeepsFoldersThatHoldNoRun(t *testing.T) {
	t.Parallel()
	for _, files := range [][]string{{"thesis.tex"},
		{"thesis.tex", results.ConfigFile}} { // the second: of another program
		dir := t.TempDir()
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), []byte("title: thesis\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		fails(t, call(t, "", append(small(dir), "--force")...), "--force: "+dir+" does not hold a run")
		for _, f := range files {
			read(t, dir, f)
		}
	}
	empty := t.TempDir()
	succeeds(t, "", append(small(empty, "budget.updates=1"), "--force", "--quiet")...)
}

func TestResumingAFinishedRunSaysThatItsBudgetIsSpent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	succeeds(t, "", append(small(dir, "budget.updates=2"), "--quiet")...)
	if out := succeeds(t, "", "train", "--resume", "--out", dir); !strings.Contains(out, "the budget is spent") {
		t.Errorf("it says:\n%s", out)
	}
	out := succeeds(t, "", "train", "--resume", "--out", dir, "--set", "budget.updates=4")
	if strings.Contains(out, "the budget is spent") {
		t.Errorf("with a larger budget it says:\n%s", out)
	}
}

func TestResumeWithoutARunIsRefused(t *testing.T) {
	t.Parallel()
	fails(t, call(t, "", "train", "--resume", "--out", t.TempDir()), "holds no run: name the folder",
		results.ConfigFile)
}

func TestAComparisonOfOneSeedMakesNoClaim(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "compare")
	args := append(small(dir, "budget.updates=0", "budget.compute=6", "evaluate.every=2"), "--compare", "--json",
		"--log", "tensorboard")
	var printed results.Compare
	decode(t, succeeds(t, "", args...), &printed)
	if printed.Claim || !strings.Contains(printed.Statement, "One seed: no claim") {
		t.Errorf("claim %v, statement %q", printed.Claim, printed.Statement)
	}
	for _, path := range []string{results.CompareFile, results.ReportFile, "baseline/seed-1/metrics.jsonl",
		"replay/seed-1/checkpoint/model.safetensors"} {
		read(t, dir, path)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "seed-1", "events.out.tfevents.*")); len(files) != 2 {
		t.Errorf("event files %v, want one in each arm's folder", files)
	}
	fails(t, call(t, "", args...), dir+" holds a run already")
}

func TestARunKilledWithItsServiceResumesToTheSameBytes(t *testing.T) {
	t.Parallel()
	serve := []string{"--http", "off", "--data", filepath.Join(t.TempDir(), "data"), "--sync", "off"}
	s := startServe(t, serve...)
	dir := filepath.Join(t.TempDir(), "run")
	if got := stop(t, syscall.SIGKILL, filepath.Join(dir, results.MetricsFile), 25,
		append(small(dir), "--buffer", s.at.GRPC+"/lab")); got.code != -1 {
		t.Fatalf("killed, but exit code %d:\n%s", got.code, got.stderr)
	}
	s.kill()
	startServe(t, append(serve, "--listen", strings.TrimPrefix(s.at.GRPC, "grpc://"))...)
	succeeds(t, "", "train", "--resume", "--out", dir, "--quiet")
	table := []string{"table.gob", "table.json", "buffer.json"} // whose table it is
	sameAsUninterrupted(t, dir, table...)

	var in run.Inspection
	decode(t, succeeds(t, "", "inspect", dir, "--json"), &in)
	if in.Service != s.at.GRPC+"/lab" || in.Version != smallUpdates || in.Present == 0 || len(in.Top) != 5 {
		t.Errorf("inspection: %+v", in)
	}
	if out := succeeds(t, "", "inspect", dir); !strings.Contains(out, s.at.GRPC+"/lab, as it is now") {
		t.Errorf("inspect does not say where the table is:\n%s", out)
	}
	out := filepath.Join(t.TempDir(), "second")
	few := append(small(out, "budget.updates=2"), "--buffer", s.at.GRPC+"/lab")
	if said := fails(t, call(t, "", few...), "is in use", "--force"); strings.Contains(said, "warm-up") {
		t.Errorf("the refusal came after the warm-up:\n%s", said)
	}
	succeeds(t, "", append(few, "--force", "--quiet")...)
}

func TestAnUnusableServiceIsRefusedBeforeTheWarmUp(t *testing.T) {
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
