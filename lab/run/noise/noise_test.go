package noise

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/rollout"
)

// starts shares the warm starts of runs that begin alike.
var starts run.Starts

// small is a run that takes a fraction of a second, whose policy is sometimes right from the start.
func small(t testing.TB, assignments ...string) run.Config {
	t.Helper()
	c, err := run.Load("", append([]string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
		"policy.positions=32",
		"task.max=10", "task.held_out=20", "warmup.steps=200", "warmup.batch=32", "warmup.learning_rate=0.01",
		"generate.max_tokens=4",
		"pipeline.batch=16", "pipeline.group=4", "pipeline.workers=3", "replay.capacity=48",
		"learner.learning_rate=0.001",
		"evaluate.every=4", "evaluate.samples=0", "budget.compute=0", "budget.updates=20", "checkpoint.every=7",
	}, assignments...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func begin(t testing.TB, c run.Config) *run.Start {
	t.Helper()
	if err := starts.Expect(c); err != nil { // never released: the tests that follow may begin alike
		t.Fatal(err)
	}
	s, err := starts.Begin(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func train(t testing.TB, c run.Config, dir string) *results.Summary {
	t.Helper()
	sum, err := run.Train(context.Background(), c, begin(t, c), dir, run.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func measured(t testing.TB, dir string, o Options) *results.Noise {
	t.Helper()
	n, err := Measure(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// contents are a folder's files.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestNoiseIsMeasuredAtTheLastCheckpoint(t *testing.T) {
	tests.Long(t)
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, small(t, "replay.capacity=96"), dir)
	before := contents(t, dir)
	o := Options{Held: 64, Fresh: 50, Seed: 3}
	var shares []float64
	o.Progress = func(share float64) { shares = append(shares, share) }
	n := measured(t, dir, o)
	if len(shares) < 64+52 || !slices.IsSorted(shares) || shares[0] <= 0 || shares[len(shares)-1] > 1 {
		t.Errorf("told of progress: %v", shares)
	}
	if !reflect.DeepEqual(contents(t, dir), before) {
		t.Error("the run's folder has changed")
	}
	// 13 groups of 4
	if n.Proxy || n.Version != sum.Version || n.Seed != sum.Seed || n.Run != dir || n.Held != 64 || n.Fresh != 52 {
		t.Errorf("measured %+v", n)
	}
	if r := n.NewPerUpdate.Float(); r != float64(sum.Inserted)/float64(sum.Version) {
		t.Errorf("R is %v, the summary has %d rollouts in %d updates", r, sum.Inserted, sum.Version)
	}
	first, held := n.ByStaleness[0], 0
	for _, s := range n.ByStaleness[1:] {
		held += s.Rollouts
		if !(s.Variance > 0) || s.First > s.Last || s.Age < float64(s.First) || s.Age > float64(s.Last) {
			t.Errorf("staleness %+v", s)
		}
	}
	if first.Last != 0 || first.Rollouts != 52 || !(first.Variance > 0) || held != 64 || len(n.MicroBatches) != 5 ||
		!n.Residual.Known() {
		t.Errorf("measured %+v", n)
	}
	if text := strings.Join(n.Warnings, " "); !strings.Contains(text, "too few") ||
		strings.Contains(text, "not ended") {
		t.Errorf("warnings %q", n.Warnings)
	}
	if again := measured(t, dir, o); !reflect.DeepEqual(again, n) {
		t.Errorf("measured again it is\n%+v\nbefore\n%+v", again, n)
	}
	o.Seed++
	if other := measured(t, dir, o); other.ByStaleness[0].Variance == first.Variance ||
		other.MicroBatches[0].Variance == n.MicroBatches[0].Variance {
		t.Error("another seed gives the same rollouts")
	}
}

// Where a loss clips, the clipped tokens have no gradient; a learning rate that moves far makes many.
func TestNoiseIsMeasuredWithoutClippingByDefault(t *testing.T) {
	tests.Long(t)
	dir := filepath.Join(t.TempDir(), "run")
	train(t, small(t, "learner.learning_rate=0.003", "learner.clip_low=0.01", "learner.clip_high=0.01",
		"replay.capacity=96"), dir)
	free, clipped := measured(t, dir, Options{Held: 96, Fresh: 64}),
		measured(t, dir, Options{Held: 96, Fresh: 64, Clipped: true})
	// fresh ones are never clipped
	stale := func(n *results.Noise) float64 { return n.MicroBatches[0].Variance / n.ByStaleness[0].Variance }
	if free.Clipped || !clipped.Clipped || !(stale(clipped) < 0.5*stale(free)) {
		t.Errorf("stale rollouts scatter %v times as fresh ones without clipping and %v times with it", stale(free),
			stale(clipped))
	}
	for n, want := range map[*results.Noise]string{free: "measured without clipping",
		clipped: "they have no gradient"} {
		if text := strings.Join(n.Warnings, " "); !strings.Contains(text, want) {
			t.Errorf("warnings %q: want one that says %q", n.Warnings, want)
		}
	}
}

func TestAnUnclippedLearnerClipsNoRatio(t *testing.T) {
	l := unclipped(run.Learner{ClipLow: 0.01, ClipHigh: 0.01, Clip: 0.01, DualClip: 1.5, MaxLogRatio: 0.05, Gamma: 0.9})
	if l.ClipLow != 1 || l.ClipHigh < 1e9 || l.Clip < 1e9 || l.DualClip != 0 || l.MaxLogRatio != 0 || l.Gamma != 0.9 {
		t.Errorf("it is %+v", l)
	}
}

func TestTheNoiseOfRunsOfEveryKindIsMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		assignments []string
		warning     string
	}{
		"queue": {[]string{"replay.sampler=lifo", "replay.capacity=0", "pipeline.workers=5", "pipeline.trainers=1"},
			"GPUs waited"},
		"turns": {[]string{"pipeline.mode=sync", "pipeline.sync_updates=2", "pipeline.publish_every=2"}, "GPUs waited"},
		"positive": {[]string{"replay.retention=positive", "replay.positive_fraction=0.5",
			"replay.positive_threshold=0.5",
			"learner.objective=asymre", "learner.mask_zero_variance=true"}, "retention positive"},
		"priorities, mixed": {[]string{"pipeline.mode=sync", "replay.sampler=prioritized", "replay.mix=2",
			"replay.priority_base=reward"},
			"sampler prioritized"},
		"prompts replayed": {[]string{"prompts.fraction=0.5", "prompts.cooldown=2", "prompts.band=0.5"},
			"replays prompts"},
		"off-policy, reference swapped": {[]string{"pipeline.mode=sync", "pipeline.batch_updates=3",
			"pipeline.publish_every=6",
			"learner.objective=grpo_off", "learner.kl_coef=0.1", "learner.reference_every=4"}, ""},
		"critic": {[]string{"learner.objective=ppo", "pipeline.batch_updates=2", "replay.sampler=prioritized",
			"replay.priority_base=td_error"}, ""},
		"reinforce++": {[]string{"learner.objective=reinforce++", "learner.kl_penalty=0.05",
			"learner.reference_every=5"}, ""},
		"batch advantages": {[]string{"learner.advantage=batch", "learner.ratio=sequence", "generate.top_p=0.9"},
			""},
		"four trainers": {[]string{"pipeline.workers=4", "pipeline.trainers=4", "pipeline.weight_sync=token",
			"pipeline.chunk=2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "queue" {
				tests.Long(t)
			}
			dir := filepath.Join(t.TempDir(), "run")
			sum := train(t, small(t, c.assignments...), dir)
			n := measured(t, dir, Options{Held: 32, Fresh: 32})
			if n.Proxy || !n.RolloutCost.Known() || len(n.ByStaleness) == 0 || n.Held == 0 {
				t.Errorf("measured %+v", n)
			}
			if text := strings.Join(n.Warnings, " "); !strings.Contains(text, c.warning) {
				t.Errorf("warnings %q: want one that says %q", n.Warnings, c.warning)
			}
			if mu := n.RolloutCost.Float(); c.warning == "GPUs waited" && math.Abs(mu/sum.RolloutCost-1) > 0.05 {
				t.Errorf("the rollout cost by busy time is %v, want %v", mu, sum.RolloutCost)
			}
		})
	}
}

// A run that asks a few prompts over and over is measured on those.
func TestALimitOfPromptsIsWarnedOf(t *testing.T) {
	tests.Long(t)
	dir := filepath.Join(t.TempDir(), "run")
	train(t, small(t, "prompts.limit=3", "replay.capacity=96"), dir)
	if n := measured(t, dir, Options{Held: 32, Fresh: 32}); !strings.Contains(strings.Join(n.Warnings, " "),
		"first 3 prompts over and over") {
		t.Errorf("warnings %q", n.Warnings)
	}
}

// A table of steps is measured in steps: 30 from 10 episodes in 4 updates, 48 of them used.
func TestCostsAreInUnitsOfTheTable(t *testing.T) {
	u := pipeline.Update{
		Version: 4, Inserted: 10, Stored: 30, Used: 48, Trainers: 2,
		Workers: []pipeline.GPUTime{{Busy: 20}, {Busy: 20}, {Busy: 20}}, Trainer: pipeline.GPUTime{Busy: 20},
	}
	if got := newPerUpdate(u); got != 7.5 {
		t.Errorf("R is %v, want 30/4", got)
	}
	if got := rolloutCost(u); got != 2.4 {
		t.Errorf("mu is %v, want (48/2)/(30/3)", got)
	}
	u.Trainer = pipeline.GPUTime{Busy: 10, Stalled: 10}
	if got := rolloutCost(u); math.Abs(got-60.0/30/(20.0/48)) > 1e-12 {
		t.Errorf("of trainers that waited mu is %v, want busy times, (60/30)/(20/48)", got)
	}
}

func TestNoiseWithoutACheckpointIsMeasuredByProxy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, small(t), dir)
	if err := os.RemoveAll(filepath.Join(dir, results.CheckpointDir)); err != nil {
		t.Fatal(err)
	}
	n := measured(t, dir, Options{})
	if !n.Proxy || n.RolloutCost != sum.RolloutCostMeasured || n.NewPerUpdate != sum.NewPerUpdate || n.Common.Known() ||
		len(n.MicroBatches) > 0 {
		t.Errorf("measured %+v", n)
	}
	stale := slices.DeleteFunc(slices.Clone(sum.ESSByAge), func(a results.AgeESS) bool { return a.Age == 0 })
	if n.ByStaleness[0].Variance != 1 || n.ByStaleness[0].Age != 0 || len(n.ByStaleness) != 1+len(stale) ||
		len(stale) == 0 {
		t.Fatalf("%+v of %+v", n.ByStaleness, sum.ESSByAge)
	}
	for i, a := range stale {
		if s := n.ByStaleness[i+1]; s.First != a.Age || s.Last != a.Last || s.Variance != 1/a.ESS {
			t.Errorf("%+v of %+v", s, a)
		}
	}
	if text := strings.Join(n.Warnings, " "); !strings.Contains(text, "no checkpoint") ||
		!strings.Contains(text, "proxy") {
		t.Errorf("warnings %q", n.Warnings)
	}
}

func TestMeasurementsThatCannotBeMadeSayWhatToDo(t *testing.T) {
	refused := func(dir string, o Options, want ...string) {
		t.Helper()
		_, err := Measure(context.Background(), dir, o)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want one with %q", err, w)
			}
		}
	}
	refused(t.TempDir(), Options{Held: -1, Fresh: -2}, "held: -1: want", "fresh: -2: want")
	refused(t.TempDir(), Options{}, "config.yaml")

	begun := filepath.Join(t.TempDir(), "begun")
	died := errors.New("died")
	func() {
		defer func() {
			if recover() != died { //nolint:errorlint // the very value that was thrown
				t.Fatal("the run did not die where it should")
			}
		}()
		c := small(t)
		run.Train(context.Background(), c, begin(t, c), begun,
			run.Hooks{OnUpdate: func(results.Update) { panic(died) }})
	}()
	refused(begun, Options{}, "version 0", "--resume")
	if err := os.RemoveAll(filepath.Join(begun, results.CheckpointDir)); err != nil {
		t.Fatal(err)
	}
	refused(begun, Options{}, "no checkpoint", "has not ended", "--resume")

	comparison := t.TempDir()
	if err := os.MkdirAll(results.SeedDir(comparison, results.ReplayArm, 1), 0o755); err != nil {
		t.Fatal(err)
	}
	refused(comparison, Options{}, "comparison", "seed-1")
}

func TestAMeasurementEndsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	c := small(t, "budget.updates=200")
	stopped, stop := context.WithCancel(context.Background())
	sum, err := run.Train(stopped, c, begin(t, c), dir, run.Hooks{OnUpdate: func(u results.Update) {
		if u.Update == 5 {
			stop()
			runtime.Gosched()
		}
	}})
	if err != nil || sum.Ended != "interrupted" {
		t.Fatalf("the run ended with %+v, %v", sum, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Measure(ctx, dir, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	n := measured(t, dir, Options{Held: 16, Fresh: 16})
	if n.Version != sum.Version || !strings.Contains(strings.Join(n.Warnings, " "), "has not ended") {
		t.Errorf("of an interrupted run: %+v", n)
	}
}

// Held draws are those of the table, each once; advantages over the batch are taken over all of them.
func TestHeldDrawsAreAUniformChoiceOfTheTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	c := small(t, "learner.advantage=batch", "replay.capacity=96")
	train(t, c, dir)
	s, err := run.OpenSnapshot(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ages := make(map[rollout.ID]int)
	for _, h := range s.Held() {
		ages[h.ID] = h.Age
	}
	draws := heldDraws(s, Options{Held: 1000})
	if len(draws) != len(ages) || len(ages) < 90 {
		t.Fatalf("%d draws of %d rollouts", len(draws), len(ages))
	}
	var sum, squares float64
	for _, d := range draws {
		if age, held := ages[d.ID]; !held || age != int(d.Staleness) || d.Weight != 1 {
			t.Errorf("draw %d has staleness %d and weight %v, its rollout age %d (held: %v)", d.ID, d.Staleness,
				d.Weight, age, held)
		}
		delete(ages, d.ID)
		sum += float64(d.Advantage)
		squares += float64(d.Advantage) * float64(d.Advantage)
	}
	if n := float64(len(draws)); math.Abs(sum/n) > 1e-5 || math.Abs(squares/n-1) > 1e-4 {
		t.Errorf("advantages have mean %v and mean square %v, want 0 and 1", sum/n, squares/n)
	}
	chosen := make(map[rollout.ID]int) // in 400 choices of ten
	for seed := range uint64(400) {
		for _, d := range heldDraws(s, Options{Held: 10, Seed: seed}) {
			chosen[d.ID]++
		}
	}
	chi, want := 0.0, 4000/float64(len(draws))
	for _, d := range draws {
		off := float64(chosen[d.ID]) - want
		chi += off * off / want
	}
	if df := float64(len(draws) - 1); chi > df+5*math.Sqrt(2*df) {
		t.Errorf("chi-square of %v over %v rollouts: the choice is not uniform", chi, df+1)
	}
}
