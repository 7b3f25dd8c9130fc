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
}

// choose sets a.selection to the rollouts of a group that enter, in their order: all, unless the options select fewer.
//
// A subset of k rewards with the largest variance has the i largest and the k - i smallest for some i (arXiv
// 2504.13818, theorem 1). The variance of each is computed anew, so a group of n costs O(n log n + k^2). Among equals
// it is the k largest, or that of the smallest i; among equal rewards the first are the largest.
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
		subset := func(largest int) []int {
			x.chosen = append(append(x.chosen[:0], x.order[:largest]...), x.order[n-k+largest:]...)
			return x.chosen
		}
		best, most := k, variance(subset(k), reward)
		for i := 0; i < k && t.options.SelectBy == SelectVariance; i++ {
			if v := variance(subset(i), reward); v > most*(1+1e-9) { // more than rounding
				best, most = i, v
			}
		}
		slices.Sort(subset(best))
	}
	for _, i := range x.chosen {
		x.rewards = append(x.rewards, g.Rollouts[i].Reward)
	}
}

// variance returns the population variance of some numbers.
func variance(places []int, number func(i int) float32) float64 {
	var mean, sum float64
	for _, i := range places {
		mean += float64(number(i)) / float64(len(places))
	}
	for _, i := range places {
		d := float64(number(i)) - mean
		sum += d * d
	}
	return sum / float64(len(places))
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
