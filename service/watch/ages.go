package watch

import (
	"fmt"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/service"
)

// priorityBars are the draws of a prioritized sampler by the age that they fall on.
func priorityBars(shares []replay.AgeShare) []bar {
	if len(shares) == 0 {
		return nil
	}
	last := int64(shares[len(shares)-1].Age)
	step := stepTo(last)
	type group struct{ probability, base, units float64 }
	groups := make([]group, last/step+1)
	for _, s := range shares {
		g := &groups[int64(s.Age)/step]
		g.probability += s.Probability
		g.base += s.Base * float64(s.Units)
		g.units += float64(s.Units)
	}
	var list []bar
	for i, g := range groups {
		b := bucket{from: int64(i) * step, to: int64(i+1)*step - 1}
		list = append(list, bar{
			label: b.label(), value: g.probability,
			about: fmt.Sprintf("age %s: %s of the draws, among %s with a mean priority base of %s", b.about(), percent(g.probability), plural(uint64(g.units), "unit"), amount(ratio(g.base, g.units))),
		})
	}
	return list
}

// essBars are the effective sample sizes by age. Ages for which nothing was reported have no bar of a height.
func essBars(list []replay.AgeESS) []bar {
	if len(list) == 0 {
		return nil
	}
	last := int64(list[len(list)-1].Last)
	step := stepTo(last)
	type group struct{ ess, tokens float64 }
	groups := make([]group, last/step+1)
	for _, a := range list {
		for age := int64(a.First); age <= int64(a.Last); age++ { // a range of ages counts evenly
			g := &groups[age/step]
			tokens := a.Tokens / float64(a.Last-a.First+1)
			g.ess += a.ESS * tokens
			g.tokens += tokens
		}
	}
	var bars []bar
	for i, g := range groups {
		b := bucket{from: int64(i) * step, to: int64(i+1)*step - 1}
		about := fmt.Sprintf("age %s: nothing was reported", b.about())
		if g.tokens > 0 {
			about = fmt.Sprintf("age %s: %s of the tokens count, measured on %s", b.about(), percent(g.ess/g.tokens), amount(g.tokens))
		}
		bars = append(bars, bar{label: b.label(), value: ratio(g.ess, g.tokens), about: about})
	}
	return bars
}

// meanESS is the effective sample size over all ages, as a share in (0, 1]; 0 if nothing was reported.
func meanESS(v *service.TableView) float64 {
	var ess, tokens float64
	for _, a := range v.ESSByAge {
		ess += a.ESS * a.Tokens
		tokens += a.Tokens
	}
	return ratio(ess, tokens)
}
