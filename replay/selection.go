package replay

import (
	"cmp"
	"slices"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// SelectBy is which rollouts of a group enter a table that takes some of each.
type SelectBy string

// The choices of PODS (Xu et al. 2025, arXiv 2504.13818).
const (
	SelectVariance SelectBy = "variance" // the subset whose rewards have the largest variance
	SelectReward   SelectBy = "reward"   // the largest rewards
)

// Values returns every choice.
func (SelectBy) Values() []string { return texts(SelectVariance, SelectReward) }

// selection is scratch for choices.
type selection struct {
	order, chosen []int     // places in the group: by reward, the largest first; those chosen
	rewards       []float32 // of the chosen, then their advantages
	lowest        []moments // of the smallest rewards, by their number
}

// choose sets a.selection to the rollouts of a group that enter, in their order: all, unless the options select fewer.
//
// A subset of k rewards with the largest variance has the i largest and the k - i smallest for some i (arXiv
// 2504.13818, theorem 1). Of a group of n the choice costs O(n log n). Among equals it is the k largest, or that of the
// smallest i; among equal rewards the first are the largest.
func (t *Table) choose(a *arrivals, g rollout.Group) {
	x, n, k := &a.selection, len(g.Rollouts), t.options.Select
	x.order, x.chosen, x.rewards = x.order[:0], x.chosen[:0], x.rewards[:0]
	for i := range n {
		x.order = append(x.order, i)
	}
	if k == 0 || k >= n {
		x.chosen = append(x.chosen, x.order...)
	} else {
		reward := func(i int) float32 { return g.Rollouts[i].Reward }
		slices.SortStableFunc(x.order, func(i, j int) int { return cmp.Compare(reward(j), reward(i)) })
		largest := k
		if t.options.SelectBy == SelectVariance {
			largest = x.mostVaried(k, reward)
		}
		x.chosen = append(append(x.chosen, x.order[:largest]...), x.order[n-k+largest:]...)
		slices.Sort(x.chosen)
	}
	for _, i := range x.chosen {
		x.rewards = append(x.rewards, g.Rollouts[i].Reward)
	}
}

// moments are sums over some rewards, less one that stands in for their mean, so that little cancels: it is in the
// middle of their order, so sums of whole rewards are exact.
type moments struct{ sum, squares float64 }

func (m moments) with(r float64) moments { return moments{m.sum + r, m.squares + float64(r*r)} }

func (m moments) plus(o moments) moments { return moments{m.sum + o.sum, m.squares + o.squares} }

// spread returns k times the population variance of k rewards.
func (m moments) spread(k int) float64 { return m.squares - float64(m.sum*m.sum)/float64(k) }

// mostVaried returns how many of the k rewards of the largest variance are the largest of x.order; the others are the
// smallest.
func (x *selection) mostVaried(k int, reward func(i int) float32) (largest int) {
	n := len(x.order)
	less := float64(reward(x.order[n/2]))
	at := func(place int) float64 { return float64(reward(x.order[place])) - less }
	x.lowest = append(x.lowest[:0], moments{})
	top := moments{}
	for i := range k {
		x.lowest = append(x.lowest, x.lowest[i].with(at(n-1-i)))
		top = top.with(at(i))
	}
	largest, most := k, top.spread(k)
	top = moments{}
	for i := range k {
		if v := top.plus(x.lowest[k-i]).spread(k); v > most*(1+1e-9) { // more than rounding
			largest, most = i, v
		}
		top = top.with(at(i))
	}
	return largest
}

// advantagesOfChosen computes into a.values the advantages of a group's chosen rollouts among one another, 0 for the
// others, and returns the moments of the chosen rewards.
func (t *Table) advantagesOfChosen(a *arrivals, g rollout.Group) advantage.Moments {
	x := &a.selection
	m := advantage.MomentsOf(x.rewards)
	if t.options.Advantage.GroupRelative() {
		m = advantage.OfGroup(x.rewards, x.rewards, t.options.Advantage)
	} else {
		clear(x.rewards)
	}
	a.values = append(a.values[:0], make([]float32, len(g.Rollouts))...)
	for k, i := range x.chosen {
		a.values[i] = x.rewards[k]
	}
	return m
}
