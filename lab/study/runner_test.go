package study

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a run that takes a fraction of a second.
func tiny(t testing.TB, assignments ...string) run.Config {
	t.Helper()
	c, err := run.Load("", append([]string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
		"policy.positions=32",
		"task.max=10", "task.held_out=20", "warmup.steps=5", "warmup.batch=8", "generate.max_tokens=4",
		"pipeline.batch=16", "pipeline.group=4", "pipeline.workers=3", "replay.capacity=48",
		"learner.learning_rate=0.001",
		"evaluate.every=4", "evaluate.samples=0", "budget.compute=0", "budget.updates=8", "checkpoint.every=3",
	}, assignments...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// trial is a study of given arms without a result.
func trial(name string, arms ...Arm) Study {
	return Study{
		Name: name, Title: "A trial", Source: "[T] fig. 1", Lead: []string{"What is asked."},
		Arms: func(Options) []Arm { return arms },
		Judge: func(*Found) (Judgement, error) {
			return Judgement{Findings: []results.Finding{{Claim: "runs end", Verdict: results.Inconclusive}}}, nil
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

// log records what a runner reports.
type log struct {
	mu           sync.Mutex
	total, ended int      // as planned
	begun        []string // runs, as they began or went on
	warmed       []string // runs that made a warm start
	done         []Ended
}

// listen adds the log to the hooks of a runner.
func (l *log) listen(r Runner) Runner {
	hooks, onEnd := r.Hooks, r.OnEnd
	r.OnPlan = func(_ bool, total, ended int) { l.total, l.ended = total, ended }
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
func runStudy(t testing.TB, r Runner) (*results.Study, *log) {
	t.Helper()
	l := new(log)
	s, err := l.listen(r).Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// written returns what the runs of a folder of studies wrote, apart from the time that they took and what checkpoints
// hold beside the weights.
func written(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	folders, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%s has no runs: %v", dir, err)
	}
	for _, folder := range folders {
		for _, name := range []string{results.ConfigFile, results.MetricsFile, results.EvalFile, results.SummaryFile,
			"checkpoint/model.safetensors"} {
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
	r := Runner{Study: trial("sizes", sizes(t, "32", "48")...), Options: Options{Seeds: 2}, Dir: dir, AtOnce: 1,
		Command: "reprise study sizes"}
	s, l := runStudy(t, r)
	want := []string{"arm buffer 32, seed 1", "arm buffer 48, seed 1", "arm buffer 32, seed 2", "arm buffer 48, seed 2"}
	if got := l.names(); !slices.Equal(got, want) || !slices.Equal(l.begun, want) {
		t.Errorf("ended %v\nbegun %v\nwant  %v", got, l.begun, want)
	}
	if want := []string{want[0], want[2]}; !slices.Equal(l.warmed, want) {
		t.Errorf("warm starts made for %v, want them made once for a seed: %v", l.warmed, want)
	}
	if l.total != 4 || l.ended != 0 || l.done[3].Count != 4 || l.done[3].Total != 4 {
		t.Errorf("planned %d runs, %d ended before; the last is %d of %d", l.total, l.ended, l.done[3].Count,
			l.done[3].Total)
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
			if found.Summary.Ended != "budget" || found.Seed != uint64(i+1) ||
				!strings.Contains(found.Config, "capacity: "+capacity+"\n") {
				t.Errorf("%s, %s: %s, seed %d", a.Name, folder, found.Summary.Ended, found.Seed)
			}
		}
	}
	if differs := read.Arms[1].Differs; !slices.Equal(differs, []string{"replay.capacity: 48"}) ||
		len(read.Arms[0].Differs) != 0 {
		t.Errorf("the arms differ by %v, the first by %v", differs, read.Arms[0].Differs)
	}
}

func TestAFinishedRunIsNeverRepeated(t *testing.T) {
	dir := t.TempDir()
	r := Runner{Study: trial("sizes", sizes(t, "32", "48")...), Options: Options{Seeds: 1}, Dir: dir, AtOnce: 2}
	runStudy(t, r)
	before := written(t, dir)
	_, again := runStudy(t, r)
	if again.total != 2 || again.ended != 2 || len(again.begun)+len(again.done)+len(again.warmed) != 0 {
		t.Errorf("planned %d, ended before %d, begun %v", again.total, again.ended, again.begun)
	}
	if !maps.Equal(written(t, dir), before) {
		t.Error("the files of the runs have changed")
	}
	r.Options.Seeds = 2
	if _, more := runStudy(t, r); more.ended != 2 || len(more.begun) != 2 {
		t.Errorf("with another seed: ended before %d, begun %v", more.ended, more.begun)
	}
}

func TestStudiesAndArmsShareRunsOfOneConfiguration(t *testing.T) {
	dir := t.TempDir()
	runStudy(t, Runner{Study: trial("first", sizes(t, "32", "48")...), Options: Options{Seeds: 1}, Dir: dir})
	shared := tiny(t, "replay.capacity=48", "name=another", "checkpoint.every=5")
	arms := []Arm{{"small", tiny(t, "replay.capacity=40")}, {"middle", shared}, {"middle again", shared}}
	second := trial("second", arms...)
	judged := false
	second.Judge = func(f *Found) (Judgement, error) {
		judged = f.Of("middle").Seed(1) != nil && f.Of("middle").Seed(1) == f.Of("middle again").Seed(1) &&
			f.Of("small").Seed(2) == nil
		return Judgement{}, nil
	}
	s, l := runStudy(t, Runner{Study: second, Options: Options{Seeds: 1}, Dir: dir})
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

func TestAStoppedStudyResumesToTheSameBytes(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32", "48", "64")...), Options: Options{Seeds: 2}, AtOnce: 2,
		Dir: t.TempDir()}
	runStudy(t, r)
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
		if _, err := results.ReadStudy(filepath.Join(r.Dir, "sizes")); err == nil {
			t.Error("a study that was stopped has a result")
		}
		cancel()
	}
	_, l := runStudy(t, r)
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

// together counts concurrent runs.
type together struct {
	mu        sync.Mutex
	now, most int
	many      chan struct{} // closed once the wanted number is under way
}

// watch counts the runs of a runner. Runs wait until the wanted number is under way.
func (w *together) watch(r Runner, wanted int) Runner {
	w.many = make(chan struct{})
	r.Hooks = func(string, uint64, run.Config) run.Hooks {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now++
		w.most = max(w.most, w.now)
		if w.now == wanted && w.most == wanted {
			close(w.many)
			wanted = -1 // once
		}
		return run.Hooks{OnUpdate: func(results.Update) { <-w.many }}
	}
	r.OnEnd = func(Ended) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}
	return r
}

func TestAtOnceIsTheNumberOfConcurrentRuns(t *testing.T) {
	for _, atOnce := range []int{1, 3} {
		r := Runner{Study: trial("sizes", sizes(t, "32", "36", "40", "44")...), Options: Options{Seeds: 1},
			Dir: t.TempDir(), AtOnce: atOnce}
		w := new(together)
		s, _ := runStudy(t, w.watch(r, atOnce))
		if w.most != atOnce || s.AtOnce != atOnce {
			t.Errorf("%d runs at once, want %d", w.most, atOnce)
		}
	}
}

// A pilot chooses among arms by runs on base models that the study does not have.
func TestPilotsChooseOnBaseModelsOfTheirOwn(t *testing.T) {
	rates := sizes(t, "32", "40")
	pilots := func(Options) []Pilot {
		return []Pilot{{Name: "capacity", Arms: rates, of: "capacity", by: func(a Runs, _ *results.Run) float64 {
			return float64(a.Config.Replay.Capacity)
		}}}
	}
	s := trial("chosen")
	s.Pilots = pilots
	s.Arms = func(o Options) []Arm { return []Arm{{"buffer", o.choice(pilots(o)[0]).Config}} }
	var judged *Found
	s.Judge = func(f *Found) (Judgement, error) {
		judged = f
		return f.judge([]claim{{source: "s", text: "t", measured: "m",
			by: quantity(f.Arms[0], last, "the accuracy", points).is(above(0))}})
	}
	study, l := runStudy(t, Runner{Study: s, Options: Options{Seeds: 2}, Dir: t.TempDir()})
	if got := judged.Arms[0].Config.Replay.Capacity; got != 40 || len(judged.Arms) != 1 || len(judged.Arms[0].Runs) != 2 {
		t.Errorf("capacity %d was chosen, %d arms were judged", got, len(judged.Arms))
	}
	for i, want := range []string{"arm buffer 32, seed 1001", "arm buffer 40, seed 1001"} {
		if l.begun[i] != want && l.begun[1-i] != want {
			t.Errorf("began %v, want the pilots first", l.begun)
		}
	}
	bases := make(map[uint64]bool)
	for _, seed := range []uint64{1, 2, 3, 1001, 1002, 1003} {
		bases[baseOf(seed)] = true
	}
	if len(bases) != 6 || baseOf(4) != 1 || baseOf(12) != 3 || len(l.done) != 2*3+2 {
		t.Errorf("%d base models, %d runs", len(bases), len(l.done))
	}
	sections := study.Sheet.Sections
	if got := sections[len(sections)-1].Grids[0].Rows[1]; got[2] != "chosen" {
		t.Errorf("the page shows %v", got)
	}
}

func TestPilotsOfALaterStageBuildOnWhatWasChosen(t *testing.T) {
	sizes := sizes(t, "32", "40")
	largest := func(a Runs, _ *results.Run) float64 { return float64(a.Config.Replay.Capacity) }
	steepest := func(a Runs, _ *results.Run) float64 { return -a.Config.Learner.LearningRate }
	s := trial("stages")
	s.Pilots = func(o Options) []Pilot {
		first := Pilot{Name: "capacity", Arms: sizes, of: "capacity", by: largest}
		second := Pilot{Name: "rate", of: "rate", by: steepest, stage: 1}
		for _, rate := range []float64{2e-3, 1e-3} {
			second.Arms = append(second.Arms, Arm{rateName("chosen", rate), withRate(o.choice(first).Config, rate)})
		}
		return []Pilot{second, first}
	}
	s.Arms = func(o Options) []Arm { return []Arm{{"buffer", o.choice(s.Pilots(o)[0]).Config}} }
	var judged *Found
	s.Judge = func(f *Found) (Judgement, error) {
		judged = f
		return f.judge([]claim{{source: "s", text: "t", measured: "m",
			by: quantity(f.Arms[0], last, "the accuracy", points).is(above(0))}})
	}
	dir := t.TempDir()
	want, _ := runStudy(t, Runner{Study: s, Options: Options{Seeds: 1}, Dir: dir})
	c := judged.Arms[0].Config
	if c.Replay.Capacity != 40 || c.Learner.LearningRate != 1e-3 {
		t.Errorf("capacity %d and rate %g were chosen", c.Replay.Capacity, c.Learner.LearningRate)
	}
	a, err := results.ReadArchive(filepath.Join(Folder(dir, s.Name), results.ArchiveFile))
	if err != nil || len(a.Runs) != 3*bases+1 {
		t.Fatalf("%d runs are archived, %v", len(a.Runs), err)
	}
	var again results.Study
	r := Runner{Study: s, Options: Options{Seeds: 1}, Now: time.Now, read: archived(a)}
	if err := r.judge(&again, pool{}); err != nil || !reflect.DeepEqual(again.Sheet.Sections, want.Sheet.Sections) {
		t.Errorf("from the archive %+v, %v", again.Sheet.Sections, err)
	}
}

func TestPilotsAndJudgesHaveProblemsOfTheirOwn(t *testing.T) {
	for seed, want := range map[uint64]string{1: "judge", pilotSeed + 1: "choose"} {
		j, err := newJob(sizes(t, "32")[0], seed)
		if err != nil || j.config.Evaluate.Problems != want || j.config.Evaluate.Temperature != 1 {
			t.Errorf("seed %d: %+v, %v", seed, j.config.Evaluate, err)
		}
	}
}

// The archive of a study is judged as its folder was, to the letter, but for where the runs are.
func TestAnArchiveGivesTheSamePage(t *testing.T) {
	dir := t.TempDir()
	s, err := ByName("off-policiness")
	if err != nil {
		t.Fatal(err)
	}
	r := Runner{Study: s, Options: Options{Seeds: 2, Quick: true}, Dir: dir, Command: "the command"}
	want, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := results.ReadArchive(filepath.Join(Folder(dir, s.Name), results.ArchiveFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := FromArchive(a)
	if err != nil {
		t.Fatal(err)
	}
	where := slices.IndexFunc(want.Sheet.Facts, func(f results.Fact) bool { return f.Name == "Runs" })
	if text := got.Sheet.Facts[where].Text; !strings.HasPrefix(want.Sheet.Facts[where].Text, text+" in ") {
		t.Errorf("%q, want the beginning of %q", text, want.Sheet.Facts[where].Text)
	}
	got.Sheet.Facts[where] = want.Sheet.Facts[where]
	for i := range want.Arms {
		want.Arms[i].Folders = []string{}
	}
	if !reflect.DeepEqual(got.Sheet, want.Sheet) || !reflect.DeepEqual(got.Arms, want.Arms) {
		t.Errorf("from the archive:\n%+v\n%+v\nwant\n%+v\n%+v", got.Sheet.Facts, got.Arms, want.Sheet.Facts, want.Arms)
	}
	for digest := range a.Runs {
		delete(a.Runs, digest)
		break
	}
	if _, err := FromArchive(a); err == nil || !strings.Contains(err.Error(), "the archive has no run ") {
		t.Errorf("without a run: %v", err)
	}
	a.Study = "none"
	if _, err := FromArchive(a); err == nil || !strings.Contains(err.Error(), "want one of opponent") {
		t.Errorf("of an unknown study: %v", err)
	}
}

func TestAStudyGoesOnFromAnArchive(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32", "48")...), Options: Options{Seeds: 1}, AtOnce: 2, Dir: t.TempDir()}
	runStudy(t, r)
	a, err := results.ReadArchive(filepath.Join(Folder(r.Dir, "sizes"), results.ArchiveFile))
	if err != nil {
		t.Fatal(err)
	}
	r.Options.Seeds = 2
	runStudy(t, r)
	whole, err := results.ReadArchive(filepath.Join(Folder(r.Dir, "sizes"), results.ArchiveFile))
	if err != nil {
		t.Fatal(err)
	}
	r.Dir, r.From = t.TempDir(), []*results.Archive{{Study: "other"}, a}
	s, l := runStudy(t, r)
	got, err := results.ReadArchive(filepath.Join(Folder(r.Dir, "sizes"), results.ArchiveFile))
	if err != nil || len(got.Runs) != 4 || !maps.EqualFunc(got.Runs, whole.Runs, func(a, b *results.CondensedRun) bool {
		return reflect.DeepEqual(a.Evals, b.Evals)
	}) {
		t.Errorf("%d runs from the archive of two and two more, want those of the study at once: %v", len(got.Runs), err)
	}
	if l.ended != 2 || len(s.Arms[0].Folders) != 1 {
		t.Errorf("%d runs had ended; folders %v", l.ended, s.Arms[0].Folders)
	}
	r.Options.Quick = true
	want := "--from: other: want an archive of runs made with the same --quick"
	if _, err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an archive of longer runs: %v", err)
	}
}

func TestALockedRunIsLeftForLater(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32", "40", "48")...), Options: Options{Seeds: 1},
		Dir: t.TempDir(), AtOnce: 1}
	plan, err := newPlan(r.Study.Name, r.Study.Arms(r.Options), r.Study.seeds(r.Options.Seeds))
	if err != nil {
		t.Fatal(err)
	}
	held, err := newPool(r.Dir).lock(plan.jobs[0].digest)
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	r.OnEnd = func(e Ended) {
		if e.Count == 2 {
			held.close()
		}
	}
	_, l := runStudy(t, r)
	if got, want := l.names(), []string{"arm buffer 40, seed 1", "arm buffer 48, seed 1",
		"arm buffer 32, seed 1"}; !slices.Equal(got, want) {
		t.Errorf("ended %v, want %v", got, want)
	}
}

func TestAStoppedStudyGoesOnElsewhereFromItsArchive(t *testing.T) {
	here := Runner{Study: trial("sizes", sizes(t, "32", "48")...), Options: Options{Seeds: 2}, Dir: t.TempDir(), AtOnce: 1}
	unfinished := filepath.Join(Folder(here.Dir, "sizes"), UnfinishedFile)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopping := here
	stopping.OnEnd = func(e Ended) {
		if e.Count == 3 {
			cancel()
		}
	}
	if _, err := stopping.Run(ctx); err != context.Canceled {
		t.Fatal(err)
	}
	a, err := results.ReadArchive(unfinished)
	if err != nil || len(a.Runs) != 3 {
		t.Fatalf("%d runs are archived, %v; want 3", len(a.Runs), err)
	}
	elsewhere := here
	elsewhere.Dir, elsewhere.From = t.TempDir(), []*results.Archive{a}
	if _, l := runStudy(t, elsewhere); l.ended != 3 || len(l.begun) != 1 {
		t.Errorf("%d runs had ended, %v were made", l.ended, l.begun)
	}
	runStudy(t, here)
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the study is finished, %v", err)
	}
}

func TestAStudyWaitingForALockedRunCanBeStopped(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	plan, err := newPlan(r.Study.Name, r.Study.Arms(r.Options), r.Study.seeds(r.Options.Seeds))
	if err != nil {
		t.Fatal(err)
	}
	held, err := newPool(r.Dir).lock(plan.jobs[0].digest)
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	defer held.close()
	ctx, cancel := context.WithCancel(context.Background())
	r.OnPlan = func(bool, int, int) { cancel() }
	if _, err := r.Run(ctx); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

// childDir is the environment variable that makes the test program the second process of a test, in that folder.
const childDir = "REPRISE_STUDY_CHILD"

// shared is the study that two processes run at the same time.
func shared(t testing.TB, dir string) Runner {
	return Runner{Study: trial("shared", sizes(t, "32", "36", "40")...), Options: Options{Seeds: 2},
		Dir: dir, AtOnce: 2}
}

func TestSecondProcess(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("runs in the second process of TestTwoProcessesDoEachRunOnce")
	}
	_, l := runStudy(t, shared(t, dir))
	for _, name := range l.begun {
		fmt.Println("\nbegan:", name)
	}
}

func TestTwoProcessesDoEachRunOnce(t *testing.T) {
	dir := t.TempDir()
	other := exec.Command(os.Args[0], "-test.run", "^TestSecondProcess$")
	other.Env = append(os.Environ(), childDir+"="+dir)
	var said strings.Builder
	other.Stdout, other.Stderr = &said, &said
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	_, l := runStudy(t, shared(t, dir))
	if err := other.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	begun := slices.Clone(l.begun)
	for lines := bufio.NewScanner(strings.NewReader(said.String())); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "began: "); ok {
			begun = append(begun, name)
		}
	}
	slices.Sort(begun)
	if unique := slices.Compact(slices.Clone(begun)); len(begun) != 6 || len(unique) != 6 {
		t.Errorf("%d runs were begun, %d different ones, want each of 6 once: %v", len(begun), len(unique), begun)
	}
	t.Logf("this process made %d runs, the other %d", len(l.begun), 6-len(l.begun))
	alone := shared(t, t.TempDir())
	runStudy(t, alone)
	got := written(t, dir)
	for name, text := range written(t, alone.Dir) {
		if got[name] != text {
			t.Errorf("%s differs from that of one process alone", name)
		}
	}
}

// sums is a task whose rewards are NaN, which fails a run at its first rollouts.
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

func TestAFailedRunIsAResult(t *testing.T) {
	dir := t.TempDir()
	s := trial("broken", append([]Arm{failing(t)}, sizes(t, "32")...)...)
	var found *Found
	s.Judge = func(f *Found) (Judgement, error) { found = f; return Judgement{}, nil }
	r := Runner{Study: s, Options: Options{Seeds: 2}, Dir: dir, AtOnce: 1}
	result, l := runStudy(t, r)
	if len(l.done) != 4 || l.done[0].Result != nil || l.done[0].Failed == "" || l.done[1].Result == nil ||
		l.done[1].Failed != "" {
		t.Fatalf("ended %+v", l.done)
	}
	bad := found.Of("failing")
	if len(bad.Runs) != 2 || len(bad.Failed) != 2 || !strings.HasPrefix(bad.Failed[1], "seed 2: ") ||
		strings.Contains(bad.Failed[1], dir) {
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
	if fact := factOf(result, "Runs"); !strings.Contains(fact, "4 runs") ||
		!strings.Contains(fact, "2 ended with an error") {
		t.Errorf("fact: %s", fact)
	}
	if !strings.Contains(bad.Failed[0], "reward") || !strings.Contains(bad.Failed[0], "NaN") {
		t.Errorf("it failed by %q, want its reward named", bad.Failed[0])
	}
	if _, again := runStudy(t, r); again.ended != 4 || len(again.begun) != 0 {
		t.Errorf("the next time %d of 4 had ended, begun %v", again.ended, again.begun)
	}
}

func TestARunThatFailsAfterAnInterruptionHasNoSummary(t *testing.T) {
	p := newPool(t.TempDir())
	dir := p.folder("0123456789abcdef")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(results.WriteConfig(dir, []byte("seed: 3\n")),
		results.WriteSummary(dir, &results.Summary{Seed: 3, Ended: "interrupted"}),
		writeFailure(dir, &run.Failure{Dir: dir, Err: errors.New("the norm is NaN")}))
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := results.ReadSummary(dir); sum != nil || err != nil {
		t.Errorf("summary %+v, %v", sum, err)
	}
	k, err := p.read(&job{arm: "a", seed: 3, digest: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	a := (&plan{arms: []Arm{{Name: "a"}}, of: map[string][]string{"a": {"0123456789abcdef"}}}).found(
		map[string]endedRun{"0123456789abcdef": k}, Options{Seeds: 1}).Of("a")
	if state, err := p.state("0123456789abcdef"); state != finished || err != nil || a.Runs[0].Summary != nil ||
		!slices.Equal(a.Failed, []string{"seed 3: the norm is NaN"}) {
		t.Errorf("state %v, %v; %+v, failed %q", state, err, a.Runs[0], a.Failed)
	}
}

func TestADiskErrorEndsTheStudyAndIsNotAResult(t *testing.T) {
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
	if _, l := runStudy(t, r); len(l.done) != 1 || l.done[0].Result == nil {
		t.Errorf("once the disk has room again: %+v", l.done)
	}
}

func TestARunKilledBeforeItsFirstCheckpointStartsAgain(t *testing.T) {
	r := Runner{Study: trial("anew", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	plan, err := newPlan(r.Study.Name, r.Study.Arms(r.Options), r.Study.seeds(r.Options.Seeds))
	if err != nil {
		t.Fatal(err)
	}
	dir := newPool(r.Dir).folder(plan.jobs[0].digest)
	if err := errors.Join(os.MkdirAll(dir, 0o755), results.WriteConfig(dir, []byte("seed: 1\n")),
		os.WriteFile(filepath.Join(dir, results.MetricsFile), []byte("{"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, l := runStudy(t, r); l.ended != 0 || len(l.warmed) != 1 || l.done[0].Result == nil ||
		l.done[0].Result.Updates != 8 {
		t.Errorf("ended before: %d; %+v", l.ended, l.done)
	}
}

func TestAKilledRunResumesFromItsCheckpoint(t *testing.T) {
	r := Runner{Study: trial("killed", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	runStudy(t, r)
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
	_, l := runStudy(t, r)
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

func TestInvalidArmsAreReportedBeforeTheFirstRun(t *testing.T) {
	bad, worse := tiny(t), tiny(t)
	bad.Pipeline.Workers = 0
	worse.Learner.Objective, worse.Budget.Updates = "gpro", -1
	for name, c := range map[string]struct {
		arms  []Arm
		seeds int
		want  []string
	}{
		"two arms": {[]Arm{{"good", tiny(t)}, {"bad", bad}, {"worse", worse}}, 1,
			[]string{"study two arms", "arm bad: pipeline.workers: 0", "arm worse: ", `learner.objective: "gpro"`,
				"budget: "}},
		"one name": {[]Arm{{"same", tiny(t)}, {"same", tiny(t)}}, 1,
			[]string{`arm "same": want a name that no other arm has`}},
		"no name":  {[]Arm{{"", tiny(t)}}, 1, []string{`arm ""`}},
		"no arms":  {nil, 1, []string{"arms: none"}},
		"no seeds": {sizes(t, "32"), 0, []string{"--seeds: 0: want 1 or more"}},
	} {
		dir := t.TempDir()
		l := new(log)
		_, err := l.listen(Runner{Study: trial(name, c.arms...), Options: Options{Seeds: c.seeds},
			Dir: dir}).Run(context.Background())
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

func TestAFailedWarmStartEndsTheStudyAndNamesTheArm(t *testing.T) {
	r := Runner{Study: trial("short", Arm{"short", tiny(t, "task.max=1000000", "generate.max_tokens=1")}),
		Options: Options{Seeds: 1}, Dir: t.TempDir()}
	_, err := r.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "arm short, seed 1: ") ||
		!strings.Contains(err.Error(), "generate.max_tokens: 1") {
		t.Errorf("error %v", err)
	}
}

func TestAnErrorOfTheJudgeKeepsTheRuns(t *testing.T) {
	s := trial("unjudged", sizes(t, "32")...)
	unjust := errors.New("no verdict")
	s.Judge = func(*Found) (Judgement, error) { return Judgement{}, unjust }
	r := Runner{Study: s, Options: Options{Seeds: 1}, Dir: t.TempDir()}
	if _, err := r.Run(context.Background()); !errors.Is(err, unjust) || results.IsStudy(Folder(r.Dir, s.Name)) {
		t.Errorf("error %v", err)
	}
	r.Study = trial("judged", sizes(t, "32")...)
	if _, l := runStudy(t, r); l.ended != 1 {
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
