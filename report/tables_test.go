package report

import (
	"testing"

	"github.com/reprise-rl/reprise/results"
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
			Target: 0.5, Baseline: []results.SeedEvals{{Seed: 1, Evals: c.baseline}}, Replay: []results.SeedEvals{{Seed: 1, Evals: c.replay}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := savedText(found.Seeds[0]); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		above := name == "both from the start"
		if label := comparisonHeadline(&results.Comparison{Compare: found}).BigLabel; (label == "both arms begin at the target") != above {
			t.Errorf("%s: the headline says %q", name, label)
		}
	}
}
