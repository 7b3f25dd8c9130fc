package study

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/task"
)

// sums is a task whose rewards are no numbers, which ends a run when its first rollouts come in.
type sums struct {
	task.Task
	task.Alphabet
	task.Demonstrator
}

func (sums) Verify(task.Prompt, string) task.Verdict {
	return task.Verdict{Reward: float32(math.NaN())}
}

// failing is an arm that fails with every seed.
func failing(t testing.TB) Arm {
	t.Helper()
	made, err := run.NewTask("arithmetic", []string{"max=10", "held_out=20"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return Arm{"failing", tiny(t).WithTask("sums without end", func(uint64) (task.Task, error) {
		return sums{made, made.(task.Alphabet), made.(task.Demonstrator)}, nil
	})}
}

func TestARunThatEndsWithAnErrorIsAResult(t *testing.T) {
	dir := t.TempDir()
	s := trial("broken", append([]Arm{failing(t)}, sizes(t, "32")...)...)
	var found *Found
	s.Judge = func(f *Found) (Judgement, error) { found = f; return Judgement{}, nil }
	r := Runner{Study: s, Options: Options{Seeds: 2}, Dir: dir, AtOnce: 1}
	result, l := carryOut(t, r)
	if len(l.done) != 4 || l.done[0].Result != nil || l.done[0].Failed == "" || l.done[1].Result == nil || l.done[1].Failed != "" {
		t.Fatalf("ended %+v", l.done)
	}
	bad := found.Of("failing")
	if len(bad.Runs) != 2 || len(bad.Failed) != 2 || !strings.HasPrefix(bad.Failed[1], "seed 2: ") || strings.Contains(bad.Failed[1], dir) {
		t.Fatalf("the judge was given %+v, failed %q", bad.Runs, bad.Failed)
	}
	if r := bad.Seed(2); r == nil || r.Seed != 2 || r.Summary != nil || len(r.Evals) == 0 {
		t.Errorf("the run that failed: %+v", r)
	}
	if ok := found.Of("buffer 32"); len(ok.Failed) != 0 || ok.Seed(1).Summary == nil {
		t.Errorf("the run that did not fail: %+v, failed %q", ok.Runs, ok.Failed)
	}
	if !slices.Equal(result.Arms[0].Failed, bad.Failed) || len(result.Arms[1].Failed) != 0 {
		t.Errorf("study.json has %q and %q", result.Arms[0].Failed, result.Arms[1].Failed)
	}
	if fact := factOf(result, "Runs"); !strings.Contains(fact, "4 runs") || !strings.Contains(fact, "2 ended with an error") {
		t.Errorf("fact: %s", fact)
	}
	if !strings.Contains(bad.Failed[0], "reward") || !strings.Contains(bad.Failed[0], "NaN") {
		t.Errorf("it failed by %q, want its reward named", bad.Failed[0])
	}
	if _, again := carryOut(t, r); again.ended != 4 || len(again.begun) != 0 {
		t.Errorf("the next time %d of 4 had ended, begun %v", again.ended, again.begun)
	}
}

func TestARunThatFailsAfterAnInterruptionHasNoSummary(t *testing.T) {
	p := newPool(t.TempDir())
	dir := p.folder("0123456789abcdef")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(results.WriteConfig(dir, []byte("seed: 3\n")), results.WriteSummary(dir, &results.Summary{Seed: 3, Ended: "interrupted"}),
		fail(dir, &run.Failure{Dir: dir, Err: errors.New("the norm is NaN")}))
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := results.ReadSummary(dir); sum != nil || err != nil {
		t.Errorf("summary %+v, %v", sum, err)
	}
	found, err := gather(&plan{
		arms: []Arm{{Name: "a"}}, jobs: []*job{{arm: "a", seed: 3, digest: "0123456789abcdef"}}, of: map[string][]string{"a": {"0123456789abcdef"}},
	}, p, Options{Seeds: 1})
	if err != nil {
		t.Fatal(err)
	}
	a := found.Of("a")
	if state, err := p.state("0123456789abcdef"); state != finished || err != nil || a.Runs[0].Summary != nil || !slices.Equal(a.Failed, []string{"seed 3: the norm is NaN"}) {
		t.Errorf("state %v, %v; %+v, failed %q", state, err, a.Runs[0], a.Failed)
	}
}

func TestADiskThatRefusesEndsTheStudyAndIsNoResult(t *testing.T) {
	dir := t.TempDir()
	r := Runner{Study: trial("full", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: dir}
	place := ""
	r.Hooks = func(_ string, _ uint64, c run.Config) run.Hooks {
		place = filepath.Join(dir, "runs", c.Name)
		return run.Hooks{OnUpdate: func(u results.Update) {
			if u.Update == 2 { // before the checkpoint of the third: a file is where its folder was
				if err := errors.Join(os.RemoveAll(place), os.WriteFile(place, nil, 0o644)); err != nil {
					t.Error(err)
				}
			}
		}}
	}
	_, err := r.Run(context.Background())
	var path *fs.PathError
	if !errors.As(err, &path) || !strings.Contains(err.Error(), "arm buffer 32, seed 1") {
		t.Fatalf("error %v, want the file system's, of the run", err)
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	r.Hooks = nil
	if _, l := carryOut(t, r); len(l.done) != 1 || l.done[0].Result == nil {
		t.Errorf("once the disk has room again: %+v", l.done)
	}
}

func TestARunThatDiedBeforeItsFirstCheckpointIsBegunAnew(t *testing.T) {
	r := Runner{Study: trial("anew", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	plan, err := newPlan(r.Study, r.Options)
	if err != nil {
		t.Fatal(err)
	}
	dir := newPool(r.Dir).folder(plan.jobs[0].digest)
	if err := errors.Join(os.MkdirAll(dir, 0o755), results.WriteConfig(dir, []byte("seed: 1\n")), os.WriteFile(filepath.Join(dir, results.MetricsFile), []byte("{"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, l := carryOut(t, r); l.ended != 0 || len(l.warmed) != 1 || l.done[0].Result == nil || l.done[0].Result.Updates != 8 {
		t.Errorf("ended before: %d; %+v", l.ended, l.done)
	}
}

func TestARunThatWasKilledGoesOnFromItsCheckpoint(t *testing.T) {
	r := Runner{Study: trial("killed", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	carryOut(t, r)
	want := written(t, r.Dir)
	r.Dir = t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	stopping := r
	stopping.Hooks = func(string, uint64, run.Config) run.Hooks {
		return run.Hooks{OnUpdate: func(u results.Update) { cancel() }}
	}
	if _, err := stopping.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(r.Dir, "runs", "*"))
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	metrics, err := os.OpenFile(filepath.Join(folders[0], results.MetricsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = metrics.WriteString(`{"update": 2, "vers`) // what a kill leaves: a torn line, and no summary
	if err := errors.Join(err, metrics.Close(), os.Remove(filepath.Join(folders[0], results.SummaryFile))); err != nil {
		t.Fatal(err)
	}
	_, l := carryOut(t, r)
	if len(l.warmed) != 0 || len(l.begun) != 1 {
		t.Errorf("warmed up %v, begun %v: want the run to go on", l.warmed, l.begun)
	}
	got := written(t, r.Dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s differs from that of the run that was not killed", name)
		}
	}
}

func TestWhatCannotBeRunIsNamedBeforeTheFirstRun(t *testing.T) {
	bad, worse := tiny(t), tiny(t)
	bad.Pipeline.Workers = 0
	worse.Learner.Objective, worse.Budget.Updates = "gpro", -1
	for name, c := range map[string]struct {
		arms  []Arm
		seeds int
		want  []string
	}{
		"two arms": {[]Arm{{"good", tiny(t)}, {"bad", bad}, {"worse", worse}}, 1, []string{"study two arms", "arm bad: pipeline.workers: 0", "arm worse: ", `learner.objective: "gpro"`, "budget: "}},
		"one name": {[]Arm{{"same", tiny(t)}, {"same", tiny(t)}}, 1, []string{`arm "same": want a name that no other arm has`}},
		"no name":  {[]Arm{{"", tiny(t)}}, 1, []string{`arm ""`}},
		"no arms":  {nil, 1, []string{"arms: none"}},
		"no seeds": {sizes(t, "32"), 0, []string{"--seeds: 0: want 1 or more"}},
	} {
		dir := t.TempDir()
		l := new(log)
		_, err := l.listen(Runner{Study: trial(name, c.arms...), Options: Options{Seeds: c.seeds}, Dir: dir}).Run(context.Background())
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %q in it", name, err, want)
			}
		}
		if entries, _ := os.ReadDir(dir); len(entries)+len(l.begun) != 0 {
			t.Errorf("%s: something was run", name)
		}
	}
}

func TestAWarmStartThatCannotBeMadeEndsTheStudyAndNamesTheArm(t *testing.T) {
	r := Runner{Study: trial("short", Arm{"short", tiny(t, "task.max=1000000", "generate.max_tokens=1")}), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	_, err := r.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "arm short, seed 1: ") || !strings.Contains(err.Error(), "generate.max_tokens: 1") {
		t.Errorf("error %v", err)
	}
}

func TestAJudgesErrorIsTheStudysAndItsRunsStay(t *testing.T) {
	s := trial("unjudged", sizes(t, "32")...)
	unjust := errors.New("no verdict")
	s.Judge = func(*Found) (Judgement, error) { return Judgement{}, unjust }
	r := Runner{Study: s, Options: Options{Seeds: 1}, Dir: t.TempDir()}
	if _, err := r.Run(context.Background()); !errors.Is(err, unjust) || results.IsStudy(Folder(r.Dir, s.Name)) {
		t.Errorf("error %v", err)
	}
	r.Study = trial("judged", sizes(t, "32")...)
	if _, l := carryOut(t, r); l.ended != 1 {
		t.Error("the run was made again")
	}
}

// factOf returns a fact of a study's page.
func factOf(s *results.Study, name string) string {
	i := slices.IndexFunc(s.Sheet.Facts, func(f results.Fact) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return s.Sheet.Facts[i].Text
}
