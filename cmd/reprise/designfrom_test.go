package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

// noisy is the noise of a run that a theory describes exactly, in a unit of its own.
func noisy(dir string, cost, fresh, exponent, rho, unit float64) *results.Noise {
	n := &results.Noise{
		Run: dir, Seed: 1, Version: 90, Held: 4000, Fresh: 2000, RolloutCost: results.Num(cost), NewPerUpdate: results.Num(fresh),
		Mean: results.Num(2 * unit), Common: results.Num(rho / fresh), CommonError: results.Num(0.1 * rho / fresh), Residual: results.Num(0.02),
	}
	k := 2*exponent + 1
	n.ByStaleness = []results.StaleNoise{{Rollouts: 2000, Variance: unit / k, Error: results.Num(0.01 * unit / k)}}
	for s := 1; s <= 20; s++ { // staleness s stands for all from s to s+1
		v := unit / k * (math.Pow(float64(s)+1, k) - math.Pow(float64(s), k))
		n.ByStaleness = append(n.ByStaleness, results.StaleNoise{First: s, Last: s, Age: float64(s), Rollouts: 200, Variance: v, Error: results.Num(0.05 * v)})
	}
	for b := 1; b <= 16; b *= 2 {
		v := 2 * unit * (1/float64(b) + rho/fresh)
		n.MicroBatches = append(n.MicroBatches, results.BatchNoise{Draws: b, Batches: 4000 / b, Variance: v, Dealt: v})
	}
	return n
}

// proxy is what a run without a checkpoint tells.
func proxy(dir string, cost float64) *results.Noise {
	n := &results.Noise{Run: dir, Proxy: true, RolloutCost: results.Num(cost), NewPerUpdate: results.Num(50), Warnings: []string{"No gradients could be taken."}}
	n.ByStaleness = []results.StaleNoise{{Tokens: 1000, Variance: 1}, {First: 1, Last: 1, Age: 1, Tokens: 500, Variance: 1.1}, {First: 2, Last: 5, Age: 3.5, Tokens: 500, Variance: 1.4}}
	return n
}

func fittedTo(t *testing.T, all ...*results.Noise) measured {
	t.Helper()
	m, err := fitNoise(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.theory.Validate(); err != nil {
		t.Fatal(err)
	}
	return m
}

func said(sentences []string, want string) bool {
	return slices.ContainsFunc(sentences, func(s string) bool { return strings.Contains(s, want) })
}

func TestTheTheoryIsFittedToWhatRunsSay(t *testing.T) {
	one := fittedTo(t, noisy("a", 5.28, 150, 0.2, 0.3, 1))
	if math.Abs(one.theory.TrainCost*5.28-1) > 1e-12 || !one.correlation || math.Abs(one.theory.Correlation-0.3) > 1e-6 || math.Abs(one.exponent-0.2) > 1e-6 {
		t.Errorf("fitted %+v", one)
	}
	if _, ok := one.theory.Profile.(*design.Table); !ok || one.theory.Profile.Reach() != 21 {
		t.Errorf("the profile is %T up to %v, want a table of staleness 0 to 20", one.theory.Profile, one.theory.Profile.Reach())
	}
	for _, want := range []string{
		"a, seed 1, version 90: gradients of 4000 rollouts of the table, up to 20 versions old, and of 2000 fresh ones",
		"costs 5.28 units", "takes in 150 new rollouts", "1.00 ± 0.01 at 0 (2000 rollouts)", "exponent a = 0.2, off by 0%, and a table that does not fall, off by 0%", "of 2.8 (1/b + c) with c = 0.002 ± 0.0002", "R c = 0.3",
	} {
		if !said(one.how, want) {
			t.Errorf("%q does not say %q", one.how, want)
		}
	}
}

// Seeds differ in the size of their gradients, which does not matter, and in their costs, of which the median counts.
func TestOfSeveralRunsCostsAreMediansAndNoiseIsTakenTogether(t *testing.T) {
	all := []*results.Noise{noisy("a", 5, 150, 0.2, 0.3, 1), noisy("b", 6, 150, 0.2, 0.3, 400), noisy("c", 10, 150, 0.2, 0.3, 0.01)}
	all[1].Warnings = []string{"The run has not ended."}
	m := fittedTo(t, all...)
	alone := fittedTo(t, all[0])
	if math.Abs(m.theory.TrainCost*6-1) > 1e-12 || math.Abs(m.theory.Correlation-0.3) > 1e-6 || math.Abs(m.exponent-alone.exponent) > 1e-6 {
		t.Errorf("fitted %+v, of the first alone %+v", m, alone)
	}
	if !said(m.how, "6 (IQR 5.5 to 8 over 3 runs)") || !said(m.warnings, "b: The run has not ended.") {
		t.Errorf("how %q, warnings %q", m.how, m.warnings)
	}
}

func TestAProxyTellsNoCorrelation(t *testing.T) {
	m := fittedTo(t, proxy("p", 4))
	if _, ok := m.theory.Profile.(design.PowerLaw); !ok || m.correlation || m.theory.Correlation != defaultCorrelation || m.theory.TrainCost != 0.25 || !(m.exponent > 0) {
		t.Errorf("fitted %+v", m)
	}
	doubts := m.doubts.All()
	if !said(doubts, "0.1 is supposed") || said(doubts, "taken as 0") || !said(doubts, "proxy") || !said(m.how, "n/ESS of importance ratios up to age 5") {
		t.Errorf("how %q, doubts %q", m.how, doubts)
	}
	if !strings.Contains(m.noiseFrom, "by proxy") || said(m.how, "rollout's gradient") || !said(m.how, "by age, tokens of the present policy being 1: 1.00 at 0, 1.10 at 1, 1.40 at 3.5.") {
		t.Errorf("a proxy is taken for gradients: from %q, how %q", m.noiseFrom, m.how)
	}
	mixed := fittedTo(t, proxy("p", 4), noisy("a", 5, 150, 0.2, 0.3, 7))
	if _, ok := mixed.theory.Profile.(*design.Table); !ok || !mixed.correlation || math.Abs(mixed.theory.TrainCost*4.5-1) > 1e-12 || !said(mixed.warnings, "1 of 2 runs have no gradients") {
		t.Errorf("fitted %+v", mixed)
	}
}

func TestRunsThatAreNoSeedsOfOneConfigurationAreNamed(t *testing.T) {
	var dirs []string
	for _, text := range []string{"seed: 1", "seed: 2\nname: another", "seed: 3\npipeline: {batch: 512}\nreplay: {capacity: 8192}"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, results.ConfigFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	got, err := differences(dirs)
	if want := dirs[2] + " differs from " + dirs[0] + " in pipeline.batch, replay.capacity: "; err != nil || len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%q, %v, want one sentence that begins with %q", got, err, want)
	}
}

func TestAListOfStalenessesEndsWithTheLast(t *testing.T) {
	long := stalenessText([]*results.Noise{noisy("a", 5, 150, 0.2, 0.3, 1)})
	if got := strings.Count(long, " at "); got != mostStaleness || !strings.Contains(long, " at 0 ") || !strings.HasSuffix(long, " at 20 (200 rollouts)") {
		t.Errorf("%d stalenesses: %s", got, long)
	}
	short := noisy("a", 5, 150, 0.2, 0.3, 1)
	short.ByStaleness = short.ByStaleness[:1]
	if text := stalenessText([]*results.Noise{short}); text != "1.00 ± 0.01 at 0 (2000 rollouts)" {
		t.Errorf("one staleness: %s", text)
	}
}

func TestRunsWithoutARolloutCostAreRefused(t *testing.T) {
	n := noisy("a", 5, 150, 0.2, 0.3, 1)
	n.RolloutCost = results.Number{}
	if _, err := fitNoise([]*results.Noise{n}); err == nil || !strings.Contains(err.Error(), "name a run with updates") {
		t.Errorf("error %v", err)
	}
}

func TestTheCalculatorIsFedFromARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	succeeds(t, "", "train", "-q", "--out", dir, "--set", "policy.hidden=16", "--set", "policy.intermediate=24", "--set", "policy.layers=1",
		"--set", "policy.heads=2", "--set", "policy.kv_heads=1", "--set", "policy.positions=32", "--set", "task.max=10", "--set", "task.held_out=20",
		"--set", "warmup.steps=200", "--set", "warmup.batch=32", "--set", "warmup.learning_rate=0.01", "--set", "generate.max_tokens=4",
		"--set", "pipeline.batch=32", "--set", "pipeline.group=4", "--set", "replay.capacity=256", "--set", "evaluate.every=100",
		"--set", "evaluate.samples=0", "--set", "budget.compute=0", "--set", "budget.updates=30")
	out := succeeds(t, "", "design", "--from", dir, "--json", "--gpus", "8", "--batch", "32", "--group", "4")
	var got struct {
		Cost        float64  `json:"rollout_cost"`
		Correlation float64  `json:"correlation"`
		Measured    []string `json:"measured"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v of %s", err, out)
	}
	if math.Abs(got.Cost/5.28-1) > 0.2 || got.Correlation < 0 || got.Correlation > 1 || !said(got.Measured, dir) || !said(got.Measured, "c = ") {
		t.Errorf("from the run came %+v", got)
	}
	if again := succeeds(t, "", "design", "--from", dir, "--json", "--gpus", "8", "--batch", "32", "--group", "4"); again != out {
		t.Errorf("measured again it says\n%s\nbefore\n%s", again, out)
	}
}
