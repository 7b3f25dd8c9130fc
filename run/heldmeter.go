package run

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/results"
)

// mostDraws is the largest micro-batch (METHODS section 6: b = 1 to 16).
const mostDraws = 16

// leastOfBin is how many rollouts stand behind each staleness that is told, where there are as many.
const leastOfBin = 256

// heldMeter is sums over held rollouts, which come in random order. Deviations are from the centre.
type heldMeter struct {
	centre  centre
	n       int
	sum     []float64        // of deviations
	squares float64          // of their norms
	ages    map[int]clusters // squared norms of deviations, by group
	deals   []deal

	deviation, last []float64 // of this rollout and of the one before
	pairs           int       // of neighbours, disjoint
	products        float64   // sum over pairs of <deviation, last>^2, whose mean is tr(Sigma^2)
}

// deal is disjoint micro-batches of some draws, of which the last is under way.
type deal struct {
	draws   int
	sum     []float64
	in      int // draws of the last
	batches int
	squares float64 // sum over micro-batches of ||mean||^2
}

func (m *heldMeter) begin(size int) {
	m.sum, m.deviation, m.last = make([]float64, size), make([]float64, size), make([]float64, size)
	m.ages = make(map[int]clusters)
	for b := 1; b <= mostDraws; b *= 2 {
		m.deals = append(m.deals, deal{draws: b, sum: make([]float64, size)})
	}
}

func (m *heldMeter) add(age int, group uint64, g []float32) {
	if m.n == 0 {
		m.begin(len(g))
	}
	var square, product float64
	for i, x := range g {
		v := float64(x) - m.centre.mean[i]
		m.deviation[i] = v
		m.sum[i] += v
		square += v * v
		product += v * m.last[i]
	}
	if m.n++; m.n%2 == 0 {
		m.pairs++
		m.products += product * product
	}
	m.squares += square
	if m.ages[age] == nil {
		m.ages[age] = make(clusters)
	}
	m.ages[age].add(group, square)
	for i := range m.deals {
		m.deals[i].add(m.deviation)
	}
	m.deviation, m.last = m.last, m.deviation
}

func (d *deal) add(deviation []float64) {
	for i, v := range deviation {
		d.sum[i] += v
	}
	if d.in++; d.in < d.draws {
		return
	}
	var square float64
	for i, v := range d.sum {
		square += v * v
		d.sum[i] = 0
	}
	d.squares += square / float64(d.draws*d.draws)
	d.batches++
	d.in = 0
}

// byStaleness returns the noise of each staleness, neighbours together until enough rollouts stand behind it. Fresh rollouts are of
// staleness 0.
func (m *heldMeter) byStaleness(fresh results.StaleNoise) []results.StaleNoise {
	list := []results.StaleNoise{fresh}
	of := make(clusters)
	n, ages, first, rest := 0.0, 0.0, -1, float64(m.n)
	for _, age := range slices.Sorted(maps.Keys(m.ages)) {
		s := m.ages[age]
		if first < 0 {
			first = age
		}
		count, _ := s.total()
		of.join(s)
		n += count
		ages += count * float64(age)
		if rest -= count; rest > 0 && (n < leastOfBin || rest < leastOfBin) {
			continue
		}
		mean, standardError := of.mean()
		list = append(list, results.StaleNoise{
			First: first, Last: age, Age: ages / n, Rollouts: int(n), Variance: mean - m.centre.variance, Error: results.Num(standardError),
		})
		of = make(clusters)
		n, ages, first = 0, 0, -1
	}
	return list
}

// common writes what the mean of many draws keeps of the noise; nothing of fewer rollouts than the largest micro-batch.
func (m *heldMeter) common(out *results.Noise) {
	if m.n < mostDraws {
		return
	}
	n, v := float64(m.n), m.centre.variance
	var square float64
	for _, x := range m.sum {
		square += x * x
	}
	one := m.squares/n - v
	u := (square-m.squares)/(n*(n-1)) - v
	if one-u <= 1e-9*m.squares/n {
		out.Warnings = append(out.Warnings, fmt.Sprintf("The gradients of all %d rollouts of the table are alike: nothing can be told of a correlation.", m.n))
		return
	}
	out.Mean, out.Common = results.Num(one-u), results.Num(u/(one-u))
	out.CommonError = results.Num(math.Sqrt(2*m.products/float64(m.pairs)) * (1/n + v/one) / (one - u))
	var residual float64
	for _, d := range m.deals {
		b := float64(d.draws)
		of := results.BatchNoise{Draws: d.draws, Batches: d.batches, Variance: one/b + (1-1/b)*u, Dealt: d.squares/float64(d.batches) - v}
		if of.Variance <= 0 {
			out.MicroBatches = nil
			out.Warnings = append(out.Warnings, fmt.Sprintf("The mean of %d draws has no measurable noise: %d rollouts of the table and %d fresh ones are too few to tell a correlation.", d.draws, out.Held, out.Fresh))
			return
		}
		out.MicroBatches = append(out.MicroBatches, of)
		off := of.Dealt/of.Variance - 1
		residual += off * off
	}
	out.Residual = results.Num(math.Sqrt(residual / float64(len(m.deals))))
}
