package results

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestASummaryOfPrioritizedAndPromptReplayReadsBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	if err := WriteConfig(dir, []byte("seed: 1\n")); err != nil {
		t.Fatal(err)
	}
	want := &Summary{
		Format: Format, Seed: 1, Ended: "budget",
		Sampling: &Sampling{
			Sampler: "prioritized", Unit: "rollout", Mix: 2, FreshShare: 0.25, NeverUsed: Num(0.1),
			Priority: &Priority{
				Base: "advantage", Exponent: 0.6, AgeDecay: Num(500), Auto: true, TargetESS: Num(0.8),
				Decay: "after_exponent", HalfLife: Num(578),
				Draws: "stratified", Entry: "max", Beta: Num(0.7), Normalised: "batch",
				ByAge: []AgePriority{{Age: 3, Count: 8, Base: 0.5, Probability: 1}},
			},
		},
		ESSByAge: []AgeESS{{Age: 2, Last: 3, ESS: 0.9, Tokens: 1200}},
		PromptReplay: &PromptReplay{Fraction: 0.75, Band: 0.3, Cooldown: 5, MaxReuse: 10, Held: 40, Replayed: 9,
			Fresh: 3, Reuse: Histogram{{1, 5}}, PassRates: Histogram{{50, 40}}},
	}
	if err := WriteSummary(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRun(dir)
	if err != nil || !reflect.DeepEqual(got.Summary, want) {
		t.Errorf("error %v, read %+v, want %+v", err, got.Summary, want)
	}
}

func TestASummaryWithoutSamplingLeavesItOut(t *testing.T) {
	text, err := encode(&Summary{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"sampling"`, `"ess_by_age"`, `"prompt_replay"`} {
		if bytes.Contains(text, []byte(name)) {
			t.Errorf("an empty summary has %s", name)
		}
	}
}

func TestAnUpdateOfPrioritizedAndPromptReplayReadsBackAsWritten(t *testing.T) {
	want := Update{
		Update: 1, ESS: Num(0.5), ESSRollout: Num(0.7), ChiSquare: Num(1), D2: Num(0.69), WeightMean: Num(0.8),
		WeightMin: Num(0.1), WeightESS: Num(0.9),
		FreshShare: Num(0.25), NeverDrawn: Num(0.2), AgeDecay: Num(500), PromptsHeld: Num(40), PromptShare: Num(0.75),
	}
	text, err := encode(want, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseUpdates(text)
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("error %v, read %+v, want %+v", err, got, want)
	}
}

func TestAnUpdateWithoutTheNewerFieldsIsRead(t *testing.T) {
	got, err := parseUpdates([]byte("{\"update\":1,\"ess\":0.9,\"other\":{\"chi_square\":0.1}}\n"))
	if err != nil || len(got) != 1 {
		t.Fatalf("error %v, read %v", err, got)
	}
	if u := got[0]; u.ChiSquare.Known() || u.WeightMean.Known() || u.NeverDrawn.Known() || u.PromptsHeld.Known() {
		t.Errorf("what was not written is known: %+v", u)
	}
}

func TestParsingChecksTheMetricsOfSampling(t *testing.T) {
	for line, want := range map[string]string{
		`"weight_min":1.1`: "weight_min: 1.1: want 0 to 1", `"weight_mean":-1`: "weight_mean: -1", `"weight_ess":2`: "weight_ess: 2",
		`"fresh_share":2`: "fresh_share: 2", `"never_drawn":2`: "never_drawn: 2", `"prompt_share":2`: "prompt_share: 2", `"ess_rollout":2`: "ess_rollout: 2",
		`"chi_square":-0.5`: "chi_square: -0.5: want 0 or more", `"d2":-1`: "d2: -1", `"age_decay":-1`: "age_decay: -1", `"prompts_held":-1`: "prompts_held: -1",
	} {
		if _, err := parseUpdates([]byte("{\"update\":1," + line + "}\n")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", line, err, want)
		}
	}
	if _, err := parseUpdates([]byte("{\"update\":1,\"chi_square\":-1e-16,\"d2\":-1e-16}\n")); err != nil {
		t.Errorf("a rounding below 0 is refused: %v", err)
	}
}

func TestTheAccuracyOfARunFollowsItsEvaluations(t *testing.T) {
	dir := t.TempDir()
	evals, err := CreateLog[Eval](filepath.Join(dir, EvalFile))
	if err != nil {
		t.Fatal(err)
	}
	for i, accuracy := range []float64{0.4, 0.6, 0.8, 0.7, 0.6} { // the last three are pooled at 0.7
		if err := evals.Append(Eval{Grid: 10 * float64(i), Compute: 10 * float64(i), Update: i, Problems: 50,
			Pass1: accuracy}); err != nil {
			t.Fatal(err)
		}
	}
	earlier := &Summary{Target: Num(0.65), Pass1Best: Num(0.8), ToTarget: Reach{Reached: true, Compute: Num(20)}}
	for _, err := range []error{evals.Close(), WriteConfig(dir, nil), WriteSummary(dir, earlier)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := run.Summary
	if s.Pass1First != Num(0.4) || s.Pass1Last != Num(0.6) || s.Pass1Best != Num(0.8) || !near(s.Pass1Level.Float(), 0.7) {
		t.Errorf("pass@1 first %v, last %v, best %v, level %v: want 0.4, 0.6, 0.8 and 0.7", s.Pass1First, s.Pass1Last,
			s.Pass1Best, s.Pass1Level)
	}
	// 0.65 is halfway from 0.6 at 10 to 0.7 at 20, and 0.98*0.7 = 0.686 at 18.6.
	if !near(s.ToTarget.Compute.Float(), 15) || !near(s.ToLevel.Float(), 18.6) {
		t.Errorf("target at %v, 98%% of the level at %v: want 15 and 18.6", s.ToTarget.Compute, s.ToLevel)
	}
}
