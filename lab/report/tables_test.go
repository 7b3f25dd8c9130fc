package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// A seed on which nothing can be said of savings has a dash for them, whatever the reason.
func TestSavingsOfASeedAreWordedOrADash(t *testing.T) {
	evals := func(compute, pass1 float64) []results.Eval {
		list := []results.Eval{{Pass1: 0.1}, {Compute: compute, Pass1: pass1}, {Compute: 2 * compute, Pass1: pass1}}
		if compute == 0 {
			list = list[1:]
		}
		return list
	}
	for name, c := range map[string]struct {
		baseline, replay []results.Eval
		want             string
	}{
		"half":                {evals(100, 0.9), evals(50, 0.9), "50%"},
		"twice":               {evals(50, 0.9), evals(100, 0.9), "−100%"},
		"replay alone":        {evals(50, 0.2), evals(100, 0.9), "only replay arrived"},
		"baseline alone":      {evals(50, 0.9), evals(100, 0.2), "–"},
		"neither":             {evals(50, 0.2), evals(100, 0.2), "–"},
		"both from the start": {evals(0, 0.9), evals(0, 0.9), "–"},
	} {
		found, err := results.NewCompare(results.Protocol{
			Target: 0.5, Baseline: []results.SeedEvals{{Seed: 1, Evals: c.baseline}},
			Replay: []results.SeedEvals{{Seed: 1, Evals: c.replay}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := savedText(found.Seeds[0]); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		above := name == "both from the start"
		label := comparisonHeadline(&results.Comparison{Compare: found}).BigLabel
		if (label == "both arms begin at the target") != above {
			t.Errorf("%s: the headline says %q", name, label)
		}
	}
}

// played is an arm of one run of an environment: pass@1 goes from 0.2 to 0.6 and the reward from -3 to 2, where experts
// come to the given bound.
func played(seed uint64, expert, chance *results.Bound) *arm {
	run := made{arm: results.ReplayArm, seed: seed, updates: 60, rate: 0.01, cost: 500}.make()
	for i := range run.Evals {
		share := float64(i) / float64(len(run.Evals)-1)
		run.Evals[i].Pass1, run.Evals[i].Reward = 0.2+0.4*share, results.Num(-3+5*share)
	}
	for i := range run.Updates {
		run.Updates[i].Turns, run.Updates[i].Success, run.Updates[i].Invalid = results.Num(7), results.Num(0.5),
			results.Num(0.1)
	}
	run.Summary.Expert, run.Summary.Random = expert, chance
	run.Summary.RewardFirst, run.Summary.RewardLast = results.Num(-3), results.Num(2)
	return &arm{label: "run", colour: 1, runs: []*results.Run{run}}
}

func pageOf(t *testing.T, arms ...*arm) string {
	t.Helper()
	var out bytes.Buffer
	if err := newPage(arms, results.Number{}).write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEpisodesAreShownBesideExpertsAndChance(t *testing.T) {
	text := pageOf(t, played(1, &results.Bound{Pass1: 0.97, Reward: 4.5}, &results.Bound{Pass1: 0.11, Reward: -6.25}))
	for _, want := range []string{
		"expert 0.970", "random actions 0.110", "Reward against compute", ">−3.000 / 2.000</td>", ">0.970 / 4.500</td>",
		">0.110 / −6.250</td>",
		"<figcaption>Turns</figcaption>", "<figcaption>Success</figcaption>", "<figcaption>Invalid turns</figcaption>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// The axis of accuracy reaches from one bound to the other, that of reward below 0.
	side := []*arm{played(1, nil, nil)}
	pass := accuracy{measure: pass1, against: byCompute(),
		players: []results.Guide{{Name: "expert", Y: results.Num(0.97)},
			{Name: "chance", Y: results.Num(0.11)}}}.figure(side)
	if p := describe(&pass); !p.Fit() || p.Y.Low > 0.11 || p.Y.High < 0.97 || p.Y.Low < 0 {
		t.Errorf("the axis of accuracy is %+v", p.Y)
	}
	reward := accuracy{measure: heldOutReward, against: byCompute()}.figure(side)
	if p := describe(&reward); !p.Fit() || p.Y.Low > -3 || p.Y.High < 2 {
		t.Errorf("the axis of reward is %+v", p.Y)
	}
}

func TestTasksOfOneTurnShowNothingOfEpisodes(t *testing.T) {
	side := played(1, nil, nil)
	for i := range side.runs[0].Evals {
		e := &side.runs[0].Evals[i]
		e.Reward = results.Num(e.Pass1)
	}
	for i := range side.runs[0].Updates {
		u := &side.runs[0].Updates[i]
		u.Turns, u.Success, u.Invalid = results.Number{}, results.Number{}, results.Number{}
	}
	s := side.runs[0].Summary
	s.RewardFirst, s.RewardLast = results.Number{}, results.Number{}
	text := pageOf(t, side)
	for _, unwanted := range []string{"expert", "andom actions", "Reward against compute", "Held-out reward",
		"<figcaption>Turns", "Invalid turns"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the page has %q", unwanted)
		}
	}
}

func TestBoundsOfDifferentTasksAreNotDrawnTogether(t *testing.T) {
	a, b := &results.Bound{Pass1: 0.9, Reward: 1}, &results.Bound{Pass1: 0.8, Reward: 1}
	for name, c := range map[string]struct {
		one, two *results.Bound
		drawn    int
	}{"the same": {a, &results.Bound{Pass1: 0.9, Reward: 1}, 1}, "two": {a, b, 0}, "one": {a, nil, 0},
		"the other": {nil, a, 0}, "none": {nil, nil, 0}} {
		if got := players([]*arm{played(1, c.one, nil), played(2, c.two, nil)}, passOf); len(got) != c.drawn ||
			c.drawn == 1 && got[0] != (results.Guide{Name: "expert 0.900", Y: results.Num(0.9)}) {
			t.Errorf("%s: %v is drawn, want %d", name, got, c.drawn)
		}
	}
}

func TestTheHalfLifeIsExplainedByTheFormulaThatGivesIt(t *testing.T) {
	for want, p := range map[string]results.Priority{
		"578 versions = (τ/α) ln 2": {Exponent: 0.6, AgeDecay: results.Num(500),
			HalfLife: results.Num(500 / 0.6 * math.Ln2)},
		"347 versions = τ ln 2": {Exponent: 0.6, AgeDecay: results.Num(500), HalfLife: results.Num(500 * math.Ln2)},
		"100 versions":          {Exponent: 0.6, AgeDecay: results.Num(500), HalfLife: results.Num(100)},
		"–":                     {Exponent: 0.6},
	} {
		side := &arm{runs: []*results.Run{{Summary: &results.Summary{Sampling: &results.Sampling{Priority: &p}}}}}
		if got := halfLifeText(side); got != want {
			t.Errorf("half-life %q, want %q", got, want)
		}
	}
}
