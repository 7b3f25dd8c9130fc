package main

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

// mostDrawn is how many points of a profile are drawn, about.
const mostDrawn = 200

// noiseSections returns the section of the noise profile, none for a power law that is given.
func (found *calculation) noiseSections() []results.Section {
	table, isTable := found.theory.Profile.(*design.Table)
	if !isTable && len(found.noise) == 0 {
		return nil
	}
	f := results.Figure{
		Title: "Variance of a rollout's gradient by staleness", Note: "As the calculation uses it: sigma2(s), and sbar2(s + 1), its mean over a buffer that reaches back so far.",
		X: results.Axis{Title: "staleness s, versions"}, Y: results.Axis{Title: "variance", Low: results.Num(0)},
	}
	if isTable {
		f.Curves = tableCurves(table)
	} else {
		f.Title = "n/ESS of importance ratios by age, in place of the variance of gradients"
		f.Note = "The power law is the one nearest to it, each version at its middle."
		f.X.Title, f.Y.Title = "age s, versions", "n/ESS"
		f.Curves = []results.Curve{lawCurve(found.theory.Profile, found.noise)}
	}
	if len(found.noise) > 0 {
		f.Curves = append(f.Curves, measuredPoints(found.noise, len(f.Curves)))
		f.Note += " Points are measured, with their standard errors where those are known; fresh ones are 1."
	}
	return []results.Section{{Title: "The noise profile", Text: found.measured, Figures: []results.Figure{f}}}
}

// tableCurves shows a table of variances.
func tableCurves(table *design.Table) []results.Curve {
	at, mean := results.Curve{Name: "at this staleness", Dashed: true}, results.Curve{Name: "mean up to it", Colour: 1}
	step := max(1, int(table.Reach())/mostDrawn)
	for s := 0; s < int(table.Reach()); s += step {
		at.At = append(at.At, results.Point{X: float64(s), Y: results.Num(table.At(float64(s)))})
		mean.At = append(mean.At, results.Point{X: float64(s), Y: results.Num(table.Mean(float64(s + 1)))})
	}
	return []results.Curve{at, mean}
}

// lawCurve shows a profile from staleness 0 to a little beyond the last measured. A law's variance over a version is about that at its middle.
func lawCurve(profile design.Profile, noise []design.Noise) results.Curve {
	c := results.Curve{Name: "power law", Dashed: true}
	for i := range mostDrawn + 1 {
		s := (lastMeasured(noise) + 1) * float64(i) / mostDrawn
		c.At = append(c.At, results.Point{X: s, Y: results.Num(profile.At(s + 0.5))})
	}
	return c
}

// measuredPoints shows what a profile was fitted to.
func measuredPoints(noise []design.Noise, colour int) results.Curve {
	c := results.Curve{Name: fmt.Sprintf("measured, %d points", len(noise)), Colour: colour, Points: true}
	for _, n := range noise {
		p := results.Point{X: n.Staleness, Y: results.Num(n.Variance)}
		if n.Error > 0 {
			p.Low, p.High = results.Num(math.Max(0, n.Variance-n.Error)), results.Num(n.Variance+n.Error)
		}
		c.At = append(c.At, p)
	}
	return c
}
