package report

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/results"
)

// guide is a value that a player who is no policy comes to: a dashed line.
type guide struct {
	name string
	y    float64
}

// Plot implements plot.Plotter.
func (g guide) Plot(c draw.Canvas, p *plot.Plot) {
	_, trY := p.Transforms(&c)
	y := trY(g.y)
	c.StrokeLine2(draw.LineStyle{Color: mutedColor.color(), Width: 0.9, Dashes: []vg.Length{2, 2.5}}, c.Min.X, y, c.Max.X, y)
}

// players returns what a number of experts and of random actions is, where every run knows it and all agree.
func players(arms []*arm, of func(*results.Bound) float64) []guide {
	var guides []guide
	for _, p := range []struct {
		name  string
		bound func(*results.Summary) *results.Bound
	}{
		{"expert", func(s *results.Summary) *results.Bound { return s.Expert }},
		{"random actions", func(s *results.Summary) *results.Bound { return s.Random }},
	} {
		var found []*results.Bound
		for _, side := range arms {
			for _, s := range side.summaries() {
				found = append(found, p.bound(s))
			}
		}
		differs := func(b *results.Bound) bool { return b == nil || *b != *found[0] }
		if len(found) > 0 && found[0] != nil && !slices.ContainsFunc(found, differs) {
			guides = append(guides, guide{p.name, of(found[0])})
		}
	}
	return guides
}

func passOf(b *results.Bound) float64   { return b.Pass1 }
func rewardOf(b *results.Bound) float64 { return b.Reward }

// heldOutReward is the mean reward of the greedy evaluation.
func heldOutReward(e results.Eval) results.Number { return e.Reward }

// rewarded reports whether some evaluation's reward is another than its pass@1.
func rewarded(arms []*arm) bool {
	for _, side := range arms {
		for _, run := range side.evals() {
			for _, e := range run {
				if r := e.Reward; r.Known() && (r.Float()-e.Pass1 > 1e-6 || e.Pass1-r.Float() > 1e-6) {
					return true
				}
			}
		}
	}
	return false
}

// episodeMetrics returns what the training section shows of episodes of several turns.
func episodeMetrics() []metric {
	seen := some(func(u *results.Update) bool { return u.Turns.Known() })
	return []metric{
		{"Turns", "mean of new episodes", func(u *results.Update) results.Number { return u.Turns }, seen},
		{"Success", "share of new episodes", func(u *results.Update) results.Number { return u.Success }, seen},
		{"Invalid turns", "share of turns that were no action", func(u *results.Update) results.Number { return u.Invalid }, seen},
	}
}

// episodeColumns is what an arm came to in episodes, and what others do.
func episodeColumns() []column {
	median := func(of func(*results.Summary) results.Number) func(*arm) results.Number {
		return func(a *arm) results.Number { return a.median(of) }
	}
	first := median(func(s *results.Summary) results.Number { return s.RewardFirst })
	last := median(func(s *results.Summary) results.Number { return s.RewardLast })
	return []column{
		{"Held-out reward first / last", func(a *arm) string { return fraction(first(a)) + " / " + fraction(last(a)) }},
		{"Expert, pass@1 / reward", playerText(func(s *results.Summary) *results.Bound { return s.Expert })},
		{"Random actions, pass@1 / reward", playerText(func(s *results.Summary) *results.Bound { return s.Random })},
	}
}

// playerText writes what a player comes to, a dash where there is none.
func playerText(of func(*results.Summary) *results.Bound) func(*arm) string {
	return func(a *arm) string {
		for _, s := range a.summaries() {
			if b := of(s); b != nil {
				return fmt.Sprintf("%.3f / %.3f", b.Pass1, b.Reward)
			}
		}
		return "–"
	}
}
