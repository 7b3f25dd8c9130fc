package study

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// tiny is a run that takes a fraction of a second.
func tiny(t testing.TB, assignments ...string) run.Config {
	t.Helper()
	c, err := run.Load("", append([]string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1", "policy.positions=32",
		"task.max=10", "task.held_out=20", "warmup.steps=5", "warmup.batch=8", "generate.max_tokens=4",
		"pipeline.batch=16", "pipeline.group=4", "pipeline.workers=3", "replay.capacity=48", "learner.learning_rate=0.001",
		"evaluate.every=4", "evaluate.samples=0", "budget.compute=0", "budget.updates=8", "checkpoint.every=3",
	}, assignments...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// trial is a study of given arms that finds nothing.
func trial(name string, arms ...Arm) Study {
	return Study{
		Name: name, Title: "A trial", Source: "[T] fig. 1", Lead: []string{"What is asked."},
		Arms: func(Options) []Arm { return arms },
		Judge: func(*Found) (Judgement, error) {
			return Judgement{Findings: []results.Finding{{Claim: "runs end", Verdict: results.CannotTell}}}, nil
		},
	}
}

// sizes are arms that differ in the table's capacity.
func sizes(t testing.TB, capacities ...string) (arms []Arm) {
	t.Helper()
	for _, n := range capacities {
		arms = append(arms, Arm{"buffer " + n, tiny(t, "replay.capacity="+n)})
	}
	return arms
}

// log notes what a runner tells.
type log struct {
	mu           sync.Mutex
	total, ended int      // as planned
	begun        []string // runs, as they began or went on
	warmed       []string // runs that made a warm start
	done         []Ended
}

// listen has a runner tell the log, besides whom it tells already.
func (l *log) listen(r Runner) Runner {
	hooks, onEnd := r.Hooks, r.OnEnd
	r.OnPlan = func(total, ended int) { l.total, l.ended = total, ended }
	r.OnEnd = func(e Ended) {
		l.done = append(l.done, e)
		if onEnd != nil {
			onEnd(e)
		}
	}
	r.Warmup = func(arm string, seed uint64, _ run.Config) func(int, float64) {
		name := (&job{arm: arm, seed: seed}).String()
		return func(step int, _ float64) {
			if step == 1 {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.warmed = append(l.warmed, name)
			}
		}
	}
	r.Hooks = func(arm string, seed uint64, c run.Config) run.Hooks {
		l.mu.Lock()
		l.begun = append(l.begun, (&job{arm: arm, seed: seed}).String())
		l.mu.Unlock()
		if hooks != nil {
			return hooks(arm, seed, c)
		}
		return run.Hooks{}
	}
	return r
}

// names lists the runs that ended, in order.
func (l *log) names() (list []string) {
	for _, e := range l.done {
		list = append(list, (&job{arm: e.Arm, seed: e.Seed}).String())
	}
	return list
}

// carryOut runs a study to its end.
func carryOut(t testing.TB, r Runner) (*results.Study, *log) {
	t.Helper()
	l := new(log)
	s, err := l.listen(r).Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// written returns what the runs of a folder of studies wrote, apart from the time that they took and what checkpoints hold beside the weights.
func written(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	folders, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%s has no runs: %v", dir, err)
	}
	for _, folder := range folders {
		for _, name := range []string{results.ConfigFile, results.MetricsFile, results.EvalFile, results.SummaryFile, "checkpoint/model.safetensors"} {
			text, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				t.Error(err)
			}
			files[filepath.Base(folder)+"/"+name] = string(text)
		}
	}
	return files
}

func TestAStudyRunsEveryArmWithEverySeedInOrder(t *testing.T) {
	dir := t.TempDir()
	r := Runner{Study: trial("sizes", sizes(t, "32", "48")...), Options: Options{Seeds: 2}, Dir: dir, AtOnce: 1, Command: "reprise study sizes"}
	s, l := carryOut(t, r)
	want := []string{"arm buffer 32, seed 1", "arm buffer 48, seed 1", "arm buffer 32, seed 2", "arm buffer 48, seed 2"}
	if got := l.names(); !slices.Equal(got, want) || !slices.Equal(l.begun, want) {
		t.Errorf("ended %v\nbegun %v\nwant  %v", got, l.begun, want)
	}
	if want := []string{want[0], want[2]}; !slices.Equal(l.warmed, want) {
		t.Errorf("warm starts made for %v, want them made once for a seed: %v", l.warmed, want)
	}
	if l.total != 4 || l.ended != 0 || l.done[3].Count != 4 || l.done[3].Total != 4 {
		t.Errorf("planned %d runs, %d ended before; the last is %d of %d", l.total, l.ended, l.done[3].Count, l.done[3].Total)
	}
	read, err := results.ReadStudy(filepath.Join(dir, "sizes"))
	if err != nil {
		t.Fatal(err)
	}
	if len(read.Arms) != 2 || read.Seeds != 2 || len(read.Sheet.Findings) != 1 || !read.Ended.Equal(s.Ended) {
		t.Errorf("study.json: %+v", read)
	}
	for _, a := range read.Arms {
		for i, folder := range a.Folders {
			found, err := results.ReadRun(filepath.Join(dir, "sizes", folder))
			if err != nil {
				t.Fatal(err)
			}
			capacity := strings.TrimPrefix(a.Name, "buffer ")
			if found.Summary.Ended != "budget" || found.Seed != uint64(i+1) || !strings.Contains(found.Config, "capacity: "+capacity+"\n") {
				t.Errorf("%s, %s: %s, seed %d", a.Name, folder, found.Summary.Ended, found.Seed)
			}
		}
	}
	if differs := read.Arms[1].Differs; !slices.Equal(differs, []string{"replay.capacity: 48"}) || len(read.Arms[0].Differs) != 0 {
		t.Errorf("the arms differ by %v, the first by %v", differs, read.Arms[0].Differs)
	}
}

func TestAFinishedRunIsNeverRepeated(t *testing.T) {
	dir := t.TempDir()
	r := Runner{Study: trial("sizes", sizes(t, "32", "48")...), Options: Options{Seeds: 1}, Dir: dir, AtOnce: 2}
	carryOut(t, r)
	before := written(t, dir)
	_, again := carryOut(t, r)
	if again.total != 2 || again.ended != 2 || len(again.begun)+len(again.done)+len(again.warmed) != 0 {
		t.Errorf("planned %d, ended before %d, begun %v", again.total, again.ended, again.begun)
	}
	if !maps.Equal(written(t, dir), before) {
		t.Error("the files of the runs have changed")
	}
	r.Options.Seeds = 2
	if _, more := carryOut(t, r); more.ended != 2 || len(more.begun) != 2 {
		t.Errorf("with another seed: ended before %d, begun %v", more.ended, more.begun)
	}
}

func TestStudiesAndArmsShareTheRunsOfAConfiguration(t *testing.T) {
	dir := t.TempDir()
	carryOut(t, Runner{Study: trial("first", sizes(t, "32", "48")...), Options: Options{Seeds: 1}, Dir: dir})
	shared := tiny(t, "replay.capacity=48", "name=another", "checkpoint.every=5")
	arms := []Arm{{"small", tiny(t, "replay.capacity=40")}, {"middle", shared}, {"middle again", shared}}
	second := trial("second", arms...)
	judged := false
	second.Judge = func(f *Found) (Judgement, error) {
		judged = f.Of("middle").Seed(1) != nil && f.Of("middle").Seed(1) == f.Of("middle again").Seed(1) && f.Of("small").Seed(2) == nil
		return Judgement{}, nil
	}
	s, l := carryOut(t, Runner{Study: second, Options: Options{Seeds: 1}, Dir: dir})
	if l.total != 2 || l.ended != 1 || !slices.Equal(l.begun, []string{"arm small, seed 1"}) {
		t.Errorf("planned %d runs, %d were there, begun %v", l.total, l.ended, l.begun)
	}
	if !judged {
		t.Error("arms of one configuration do not share their runs")
	}
	if a := s.Arms; a[1].Folders[0] != a[2].Folders[0] || a[0].Folders[0] == a[1].Folders[0] {
		t.Errorf("folders %v, %v, %v", a[0].Folders, a[1].Folders, a[2].Folders)
	}
	if fact := factOf(s, "Runs"); !strings.HasPrefix(fact, "2 runs in ") {
		t.Errorf("fact: %s", fact)
	}
	if n := len(written(t, dir)); n != 3*5 {
		t.Errorf("%d files of three runs", n)
	}
}

func TestAStoppedStudyGoesOnToTheBytesOfOneThatWasNot(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32", "48", "64")...), Options: Options{Seeds: 2}, AtOnce: 2, Dir: t.TempDir()}
	carryOut(t, r)
	want := written(t, r.Dir)
	r.Dir = t.TempDir()
	for _, at := range []int{3, 17, 9} { // updates of all runs after which it is stopped
		ctx, cancel := context.WithCancel(context.Background())
		var mu sync.Mutex
		updates := 0
		stopping := r
		stopping.Hooks = func(string, uint64, run.Config) run.Hooks {
			return run.Hooks{OnUpdate: func(results.Update) {
				mu.Lock()
				defer mu.Unlock()
				if updates++; updates == at {
					cancel()
				}
			}}
		}
		l := new(log)
		if _, err := l.listen(stopping).Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped after %d updates: %v", at, err)
		}
		if _, err := os.Stat(filepath.Join(r.Dir, "sizes")); err == nil {
			t.Error("a study that was stopped has a folder with a result")
		}
		cancel()
	}
	_, l := carryOut(t, r)
	if l.ended == 0 || l.ended == 6 {
		t.Errorf("%d of 6 runs had ended when the study went on", l.ended)
	}
	got := written(t, r.Dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s differs from that of the study that was not stopped", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}
