package run

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/results"
)

func noise(t testing.TB, dir string, o NoiseOptions) *results.Noise {
	t.Helper()
	n, err := MeasureNoise(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// solving is a small run whose policy is right at times from the start.
func solving(t testing.TB, assignments ...string) Config {
	t.Helper()
	return small(t, append([]string{"warmup.steps=200", "warmup.batch=32", "warmup.learning_rate=0.01"}, assignments...)...)
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

func TestTheNoiseOfARunIsMeasuredAtItsLastCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, solving(t, "replay.capacity=96"), dir)
	before := contents(t, dir)
	o := NoiseOptions{Held: 64, Fresh: 50, Seed: 3}
	n := noise(t, dir, o)
	if !reflect.DeepEqual(contents(t, dir), before) {
		t.Error("the run's folder has changed")
	}
	if n.Proxy || n.Version != sum.Version || n.Seed != sum.Seed || n.Run != dir || n.Held != 64 || n.Fresh != 52 { // 13 groups of 4
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
	if first.Last != 0 || first.Rollouts != 52 || !(first.Variance > 0) || held != 64 || len(n.MicroBatches) != 5 || !n.Residual.Known() {
		t.Errorf("measured %+v", n)
	}
	if text := strings.Join(n.Warnings, " "); !strings.Contains(text, "too few") || strings.Contains(text, "not ended") {
		t.Errorf("warnings %q", n.Warnings)
	}
	if again := noise(t, dir, o); !reflect.DeepEqual(again, n) {
		t.Errorf("measured again it is\n%+v\nbefore\n%+v", again, n)
	}
	o.Seed++
	if other := noise(t, dir, o); other.ByStaleness[0].Variance == first.Variance || other.MicroBatches[0].Variance == n.MicroBatches[0].Variance {
		t.Error("another seed gives the same rollouts")
	}
}

// Where a loss clips, the clipped tokens have no gradient; a learning rate that moves far makes many.
func TestClippingIsLeftOutUnlessItIsAskedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	train(t, solving(t, "learner.learning_rate=0.003", "learner.clip_low=0.01", "learner.clip_high=0.01", "replay.capacity=96"), dir)
	free, clipped := noise(t, dir, NoiseOptions{Held: 96, Fresh: 64}), noise(t, dir, NoiseOptions{Held: 96, Fresh: 64, Clipped: true})
	stale := func(n *results.Noise) float64 { return n.MicroBatches[0].Variance / n.ByStaleness[0].Variance } // fresh ones are never clipped
	if free.Clipped || !clipped.Clipped || !(stale(clipped) < 0.5*stale(free)) {
		t.Errorf("stale rollouts scatter %v times as fresh ones without clipping and %v times with it", stale(free), stale(clipped))
	}
	for n, want := range map[*results.Noise]string{free: "measured without clipping", clipped: "they have no gradient"} {
		if text := strings.Join(n.Warnings, " "); !strings.Contains(text, want) {
			t.Errorf("warnings %q: want one that says %q", n.Warnings, want)
		}
	}
}

func TestWithoutClippingNoRatioIsTooFar(t *testing.T) {
	for _, assignments := range [][]string{
		{"learner.clip_low=0.01", "learner.clip_high=0.01", "learner.dual_clip=1.5", "learner.max_log_ratio=0.05"},
		{"learner.objective=grpo_off", "learner.clip=0.01"},
		{"learner.objective=ppo", "learner.clip_low=0.01"},
	} {
		c := small(t, assignments...)
		c.Learner = c.Learner.unclipped()
		learning, err := c.learning()
		if err == nil {
			err = learning.Validate()
		}
		if err != nil || learning.MaxLogRatio != 0 {
			t.Fatalf("%v: %+v, %v", assignments, learning, err)
		}
		surrogate := objective.GRPO{}
		switch o := learning.Objective.(type) {
		case objective.GRPO:
			surrogate = o
		case objective.PPO:
			surrogate = o.Surrogate
		case objective.OffPolicyGRPO:
			if o.Clip < 1e9 {
				t.Errorf("%v: clipped at %v", assignments, o.Clip)
			}
			continue
		}
		if surrogate.ClipLow != 1 || surrogate.ClipHigh < 1e9 || surrogate.DualClip != 0 {
			t.Errorf("%v: clipped as %+v", assignments, surrogate)
		}
	}
}

func TestTheNoiseOfRunsOfEveryKindIsMeasured(t *testing.T) {
	for name, want := range map[string]string{
		"queue": "GPUs waited", "turns": "GPUs waited", "positive": "retention positive", "priorities, mixed": "sampler prioritized",
		"prompts replayed": "Prompts are replayed", "off-policy, reference swapped": "", "critic": "", "reinforce++": "", "batch advantages": "top_p", "four trainers": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			sum := train(t, solving(t, modes()[name]...), dir)
			n := noise(t, dir, NoiseOptions{Held: 32, Fresh: 32})
			if n.Proxy || !n.RolloutCost.Known() || len(n.ByStaleness) == 0 || n.Held == 0 {
				t.Errorf("measured %+v", n)
			}
			if text := strings.Join(n.Warnings, " "); !strings.Contains(text, want) {
				t.Errorf("warnings %q: want one that says %q", n.Warnings, want)
			}
			if mu := n.RolloutCost.Float(); want == "GPUs waited" && math.Abs(mu/sum.RolloutCost-1) > 0.05 {
				t.Errorf("of GPUs that waited the rollout cost is %v by the time that they worked, want %v", mu, sum.RolloutCost)
			}
		})
	}
}

// A table of steps has steps per update, and gradients of steps.
func TestTheNoiseOfATableOfStepsIsThatOfItsSteps(t *testing.T) {
	c := counts(t, counting{turns: 5, slip: 0.2}, "replay.unit=step", "replay.capacity=96", "pipeline.batch=24")
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, c, dir)
	place, err := findCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := noiseOf(context.Background(), c, dir, place, NoiseOptions{Held: 96, Fresh: 16})
	if err != nil {
		t.Fatal(err)
	}
	if r := n.NewPerUpdate.Float(); r != float64(sum.Inserted)/float64(sum.Version) || n.Fresh <= 16 || n.ByStaleness[0].Rollouts != n.Fresh {
		t.Errorf("measured %+v of %d steps in %d updates", n, sum.Inserted, sum.Version)
	}
}

func TestWithoutACheckpointNoiseIsByProxy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, small(t), dir)
	if err := os.RemoveAll(filepath.Join(dir, results.CheckpointDir)); err != nil {
		t.Fatal(err)
	}
	n := noise(t, dir, NoiseOptions{})
	if !n.Proxy || n.RolloutCost != sum.RolloutCostMeasured || n.NewPerUpdate != sum.NewPerUpdate || n.Common.Known() || len(n.MicroBatches) > 0 {
		t.Errorf("measured %+v", n)
	}
	stale := slices.DeleteFunc(slices.Clone(sum.ESSByAge), func(a results.AgeESS) bool { return a.Age == 0 })
	if n.ByStaleness[0].Variance != 1 || n.ByStaleness[0].Age != 0 || len(n.ByStaleness) != 1+len(stale) || len(stale) == 0 {
		t.Fatalf("%+v of %+v", n.ByStaleness, sum.ESSByAge)
	}
	for i, a := range stale {
		if s := n.ByStaleness[i+1]; s.First != a.Age || s.Last != a.Last || s.Variance != 1/a.ESS {
			t.Errorf("%+v of %+v", s, a)
		}
	}
	if text := strings.Join(n.Warnings, " "); !strings.Contains(text, "no checkpoint") || !strings.Contains(text, "proxy") {
		t.Errorf("warnings %q", n.Warnings)
	}
}

func TestTheNoiseOfARunWhoseTableIsInAServiceIsByProxy(t *testing.T) {
	l := newLab(t)
	dir := filepath.Join(t.TempDir(), "run")
	train(t, l.elsewhere(small(t), "noise"), dir)
	if n := noise(t, dir, NoiseOptions{}); !n.Proxy || !strings.Contains(n.Warnings[0], l.address("noise")) {
		t.Errorf("measured %+v", n)
	}
}

func TestMeasurementsOfNoiseThatCannotBeSayWhatToDo(t *testing.T) {
	refused := func(dir string, o NoiseOptions, want ...string) {
		t.Helper()
		_, err := MeasureNoise(context.Background(), dir, o)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want one with %q", err, w)
			}
		}
	}
	refused(t.TempDir(), NoiseOptions{Held: -1, Fresh: -2}, "held: -1: want", "fresh: -2: want")
	refused(t.TempDir(), NoiseOptions{}, "config.yaml")

	begun := filepath.Join(t.TempDir(), "begun")
	crash(t, small(t), begun, 1)
	refused(begun, NoiseOptions{}, "version 0", "--resume")
	if err := os.RemoveAll(filepath.Join(begun, results.CheckpointDir)); err != nil {
		t.Fatal(err)
	}
	refused(begun, NoiseOptions{}, "no checkpoint", "has not ended", "--resume")

	comparison := t.TempDir()
	if err := os.MkdirAll(results.SeedDir(comparison, results.ReplayArm, 1), 0o755); err != nil {
		t.Fatal(err)
	}
	refused(comparison, NoiseOptions{}, "comparison", "seed-1")

	served := filepath.Join(t.TempDir(), "served")
	if err := createFolder(served, small(t).WithBuffer(Remote{Address: "grpc://127.0.0.1:1/lab", Options: client.Options{Patience: time.Millisecond}})); err != nil {
		t.Fatal(err)
	}
	refused(served, NoiseOptions{}, "127.0.0.1:1/lab", "has not ended")
}

func TestAMeasurementOfNoiseEndsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := interrupted(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := MeasureNoise(ctx, dir, NoiseOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	n := noise(t, dir, NoiseOptions{Held: 16, Fresh: 16})
	if n.Version != sum.Version || !strings.Contains(strings.Join(n.Warnings, " "), "has not ended") {
		t.Errorf("of an interrupted run: %+v", n)
	}
}

func interrupted(t *testing.T, dir string) *results.Summary {
	t.Helper()
	sum := interrupt(t, solving(t, "budget.updates=200"), dir, 5)
	if sum.Ended != "interrupted" {
		t.Fatalf("the run ended by %s", sum.Ended)
	}
	return sum
}
