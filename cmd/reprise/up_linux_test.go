package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/wire"
)

var kills = flag.Int("kills", 6, "processes that TestUpSurvivesKills kills")

// smallLive is a run on the real clock that takes seconds.
const smallLive = `
task: {name: arithmetic, max: 40}
policy: {hidden: 16, intermediate: 24, layers: 1, heads: 2, kv_heads: 1, positions: 32}
warmup: {steps: 0}
pipeline: {batch: 32, group: 4, workers: 2}
replay: {capacity: 128}
evaluate: {samples: 0, every: 1000}
budget: {compute: 0, updates: %d}
checkpoint: {every: 1}
live: {max_staleness: 2, rows: 8}
`

// startUp starts a run and returns it with its folder.
func startUp(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	c := exec.Command(binary, append([]string{"up", "--http", "off", "--out", dir}, args...)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, &out
}

func writeSmall(t *testing.T, updates int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, smallLive, updates), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitEnd waits for a process, at most two minutes.
func awaitEnd(t *testing.T, c *exec.Cmd, out *bytes.Buffer) int {
	t.Helper()
	slow := time.AfterFunc(2*time.Minute, func() { _ = c.Process.Kill() })
	defer slow.Stop()
	code := exitOf(t, c.Wait())
	if !slow.Stop() {
		t.Fatalf("the run has not ended within two minutes:\n%s", out)
	}
	return code
}

// updates returns the updates that a run has recorded.
func updates(dir string) int {
	var last results.Update
	lastLine(filepath.Join(dir, results.MetricsFile), &last)
	return last.Update
}

func awaitUpdate(t *testing.T, dir string, n int, out *bytes.Buffer) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); updates(dir) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("update %d is not there after two minutes:\n%s", n, out)
		}
	}
}

// statistics starts a service on the data of a run that has ended and asks it for its table.
func statistics(t *testing.T, dir string) (s wire.TableStatistics) {
	t.Helper()
	served := startServe(t, "--data", filepath.Join(dir, serviceDir))
	defer served.stop()
	text := succeeds(t, "", "table", "stats", served.at.GRPC+"/"+liveTable)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A run on the real clock ends with its budget, says what it measured beside what was predicted, and is continued after
// Ctrl-C.
func TestUp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	c, out := startUp(t, dir, "-c", writeSmall(t, 24))
	awaitUpdate(t, dir, 4, out)
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := awaitEnd(t, c, out); code != 130 || !strings.Contains(out.String(), "reprise up --resume --out") {
		t.Errorf("exit code %d after Ctrl-C, want 130 and how to continue:\n%s", code, out)
	}
	stopped := updates(dir)
	c, out = startUp(t, dir, "--resume")
	if code := awaitEnd(t, c, out); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	for _, want := range []string{"Predicted at configured μ", "Trainer waiting", "24 updates (budget)",
		"for each that it trains on"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	sum, err := results.ReadSummary(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := sum.Live
	if stopped < 4 || sum.Updates != 24 || l == nil || !l.RolloutCost.Known() ||
		l.RolloutCost != sum.RolloutCostMeasured || len(l.Predicted) == 0 || l.Engines != 2 || len(l.Restarts) != 0 {
		t.Errorf("stopped at %d, %d updates, %+v", stopped, sum.Updates, l)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !bytes.Contains(page, []byte("On the real clock")) {
		t.Errorf("the report does not show the real clock: %v", err)
	}
	if s := statistics(t, dir); s.Version != 24 {
		t.Errorf("the table is at version %d", s.Version)
	}
	designed := strings.Join(strings.Fields(succeeds(t, "", "design", "--measure", dir, "--noise-scale", "1900")), " ")
	if want := fmt.Sprintf("%.4g units of training", l.RolloutCost.Float()); !strings.Contains(designed, want) ||
		!strings.Contains(designed, "s of 2 engines") {
		t.Errorf("design --measure lacks %q:\n%s", want, designed)
	}
	fails(t, call(t, "", "design", "--measure", filepath.Dir(dir)), "want the folder of a run of reprise up")
	fails(t, call(t, "", "design", "--measure", dir, "--rollout-cost", "2"), "either this or --measure")
	fails(t, call(t, "", "up", "--out", dir, "-c", writeSmall(t, 4)), "holds a run already", "--resume")
}

// Whatever is killed is started again, the run comes to its end, and the table holds whatever the worker was told it
// holds.
func TestUpSurvivesKills(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	c, out := startUp(t, dir, "-c", writeSmall(t, 30+4**kills))
	random := rand.New(rand.NewPCG(1, 2))
	killed := make(map[string]int)
	awaitUpdate(t, dir, 1, out)
	for n := 0; n < *kills; {
		time.Sleep(time.Duration(100+random.IntN(600)) * time.Millisecond)
		children := childrenOf(t, c.Process.Pid)
		if len(children) == 0 {
			break
		}
		victim := children[random.IntN(len(children))]
		if syscall.Kill(victim.pid, syscall.SIGKILL) == nil {
			n++
			killed[victim.verb]++
		}
	}
	if code := awaitEnd(t, c, out); code != 0 {
		t.Fatalf("exit code %d after %v were killed:\n%s", code, killed, out)
	}
	live, err := results.ReadLive(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := statistics(t, dir)
	left := uint64(s.Present)
	for _, n := range s.Evicted {
		left += n
	}
	restarts := 0
	for _, n := range live.Restarts {
		restarts += n
	}
	switch {
	case s.Inserted < uint64(live.Rollouts), killed["rollout"] == 0 && s.Inserted != uint64(live.Rollouts):
		t.Errorf("%d rollouts are in the table, the worker was told of %d; killed: %v, restarted: %v:\n%s", s.Inserted,
			live.Rollouts, killed, live.Restarts, out)
	case left != s.Inserted:
		t.Errorf("%d rollouts entered, %d are there or left", s.Inserted, left)
	case restarts == 0:
		t.Errorf("nothing was started again, killed: %v", killed)
	}
	t.Logf("killed %v; %d rollouts acknowledged, %d in the table; %d updates", killed, live.Rollouts, s.Inserted,
		updates(dir))
}

type child struct {
	pid  int
	verb string
}

// childrenOf returns the processes that a process has started.
func childrenOf(t *testing.T, parent int) (list []child) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(status[bytes.LastIndexByte(status, ')')+1:]))
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if words := strings.Split(string(args), "\x00"); fields[1] == strconv.Itoa(parent) && len(words) > 1 {
			list = append(list, child{pid, words[1]})
		}
	}
	return list
}

// A configuration that no trainer can begin with is refused at once, and a trainer that fails says why.
func TestUpRefusesWhatCannotRun(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]string{
		"live.addresses: none": "live.addresses=[none]",
		"live.rows: 0":         "live.rows=0",
		"prompts.fraction":     "prompts.fraction=0.5",
		"no such file":         "policy.init=nowhere",
	} {
		dir := filepath.Join(t.TempDir(), "run")
		fails(t, call(t, "", "up", "--http", "off", "--out", dir, "-c", writeSmall(t, 4), "--set", set), want)
	}
}
