package run

import (
	"maps"
	"math"
	"slices"
)

// clusters is values that come in groups whose members resemble one another, by group: rollouts that answer one prompt have no gradient
// at all where their rewards are all alike.
type clusters map[uint64]cluster

// cluster is the values of a group.
type cluster struct{ n, sum float64 }

func (c clusters) add(group uint64, value float64) {
	c[group] = cluster{c[group].n + 1, c[group].sum + value}
}

// join takes in the values of others.
func (c clusters) join(others clusters) {
	for group, o := range others {
		c[group] = cluster{c[group].n + o.n, c[group].sum + o.sum}
	}
}

// total returns how many values there are, and their sum. It is the same each time, as groups are added in order.
func (c clusters) total() (n, sum float64) {
	for _, group := range slices.Sorted(maps.Keys(c)) {
		n += c[group].n
		sum += c[group].sum
	}
	return n, sum
}

// mean returns the mean of all values and its standard error, NaN of a single group. The error is that of a ratio, of the groups' sums
// over their sizes: it supposes that groups, not their members, are independent of one another.
func (c clusters) mean() (mean, standardError float64) {
	n, sum := c.total()
	mean = sum / n
	squares := 0.0
	for _, group := range slices.Sorted(maps.Keys(c)) {
		off := c[group].sum - c[group].n*mean
		squares += float64(off * off)
	}
	k := float64(len(c))
	return mean, math.Sqrt(k/(k-1)*squares) / n
}
