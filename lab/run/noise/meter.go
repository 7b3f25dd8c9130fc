package noise

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout"
)

// Meter measures how gradients scatter about the true one. It is given gradients one by one, first those of fresh
// rollouts, group by group, then those of held rollouts in random order. It keeps about a dozen vectors of a gradient's
// length, whatever the number of rollouts.
//
// Let mu be the true gradient and f the mean of the fresh ones, with E f = mu and E ||f - mu||^2 = V. Fresh rollouts of
// a group share a prompt and their advantages, so V is estimated from whole groups. A held gradient h is independent of
// f, therefore
//
//	E ||h - f||^2         = E ||h - mu||^2 + V
//	E <h - f, h' - f>     = E <h - mu, h' - mu> + V
//
// and both are estimated without bias by subtracting V. The second, over all pairs of held rollouts, is U: what remains
// in the mean of any number of draws. Over all ways to split the rollouts into micro-batches of b, the mean of ||m -
// mu||^2 is
//
//	v(b) = S/b + (1 - 1/b) U = (S - U)(1/b + c)   with S the mean of ||h - mu||^2 and c = U/(S - U)
//
// which is the form in METHODS. About the mean of the held rollouts themselves c would always be -1/n.
type Meter struct {
	fresh freshMeter
	left  int // fresh gradients to come
	held  heldMeter
}

// NewMeter returns a meter that expects the given number of fresh gradients before those of held rollouts.
func NewMeter(fresh int) *Meter { return &Meter{left: fresh} }

// Add adds the gradient of a draw.
func (m *Meter) Add(d rollout.Draw, g []float32) error {
	if m.left > 0 {
		m.left--
		m.fresh.add(d.Group, g)
		if m.left > 0 {
			return nil
		}
		c, err := m.fresh.centre()
		m.held.centre = c
		return err
	}
	m.held.add(int(d.Staleness), d.Group, g)
	return nil
}

// Fill fills in the measurement.
func (m *Meter) Fill(n *results.Noise) error {
	if m.left > 0 {
		return errors.New("gradients of fresh rollouts are missing")
	}
	fresh := m.fresh.noise(m.held.centre)
	if signal := m.held.centre.square() - m.held.centre.variance; signal > 0 {
		n.Scale = results.Num(float64(fresh.Rollouts) * m.held.centre.variance / signal)
	}
	if fresh.Variance == 0 {
		return fmt.Errorf("the gradients of all %d fresh rollouts are 0, because the rewards of each group are all "+
			"alike: measure a run whose policy is sometimes right and sometimes wrong", fresh.Rollouts)
	}
	n.ByStaleness = slices.DeleteFunc(m.held.byStaleness(fresh), func(s results.StaleNoise) bool {
		if s.Variance <= 0 {
			n.Warnings = append(n.Warnings,
				fmt.Sprintf("The rollouts of staleness %d to %d have almost no gradient and are left out.", s.First,
					s.Last))
		}
		return s.Variance <= 0
	})
	m.held.common(n)
	return nil
}

// centre is an estimate of the true gradient.
type centre struct {
	mean     []float64
	variance float64 // V, of the estimate
}

// square is the squared norm of the estimate.
func (c centre) square() (sum float64) {
	for _, v := range c.mean {
		sum += v * v
	}
	return sum
}

// freshMeter keeps sums over fresh rollouts.
type freshMeter struct {
	rollouts, groups int
	sum              []float64     // of gradients
	norms            groupedValues // squared norms of gradients, by group

	number       uint64    // of the present group
	size         float64   // of the present group
	group        []float64 // sum of the present group's gradients
	sizes        float64   // sum of the squares of groups' sizes
	groupSquares float64   // sum of ||group||^2
	weighted     []float64 // sum of groups times their sizes
}

func (m *freshMeter) add(group uint64, g []float32) {
	if m.sum == nil {
		m.sum, m.group, m.weighted, m.norms = make([]float64, len(g)), make([]float64, len(g)), make([]float64,
			len(g)), make(groupedValues)
	}
	if m.size > 0 && group != m.number {
		m.endGroup()
	}
	m.number = group
	m.size++
	m.rollouts++
	square := 0.0
	for i, x := range g {
		v := float64(x)
		m.sum[i] += v
		m.group[i] += v
		square += v * v
	}
	m.norms.add(group, square)
}

func (m *freshMeter) endGroup() {
	m.groups++
	m.sizes += m.size * m.size
	for i, v := range m.group {
		m.groupSquares += v * v
		m.weighted[i] += v * m.size
		m.group[i] = 0
	}
	m.size = 0
}

// centre ends the last group and returns the estimate. Groups of steps may differ in size.
func (m *freshMeter) centre() (centre, error) {
	m.endGroup()
	if m.groups < 2 {
		return centre{}, errors.New("there is one group of fresh rollouts: want two or more")
	}
	n, k := float64(m.rollouts), float64(m.groups)
	c := centre{mean: slices.Clone(m.sum)}
	var cross, square float64
	for i := range c.mean {
		c.mean[i] /= n
		cross += c.mean[i] * m.weighted[i]
		square += c.mean[i] * c.mean[i]
	}
	c.variance = max(k/(k-1)*(m.groupSquares-2*cross+m.sizes*square)/(n*n), 0)
	return c, nil
}

// noise returns the noise of fresh rollouts about the true gradient, with E ||f||^2 = ||mu||^2 + V.
func (m *freshMeter) noise(c centre) results.StaleNoise {
	norm, standardError := m.norms.mean()
	return results.StaleNoise{
		Rollouts: m.rollouts, Variance: max(norm-c.square()+c.variance, 0), Error: results.Num(standardError),
	}
}

// maxMicroBatch is the largest micro-batch (METHODS section 6: b = 1 to 16).
const maxMicroBatch = 16

// minPerBin is the least number of rollouts per reported staleness, if there are as many.
const minPerBin = 256

// heldMeter keeps sums over held rollouts. Deviations are from the centre.
type heldMeter struct {
	centre       centre
	n            int
	sum          []float64             // of deviations
	squares      float64               // of their norms
	ages         map[int]groupedValues // squared norms of deviations, by group
	microBatches []microBatching

	deviation, last []float64 // of this rollout and of the one before
	pairs           int       // of neighbours, disjoint
	products        float64   // sum over pairs of <deviation, last>^2, whose mean is tr(Sigma^2)
}

// microBatching splits the rollouts into micro-batches of a size as they come.
type microBatching struct {
	draws   int
	sum     []float64
	in      int // draws of the current micro-batch
	batches int
	squares float64 // sum over micro-batches of ||mean||^2
}

func (m *heldMeter) begin(size int) {
	m.sum, m.deviation, m.last = make([]float64, size), make([]float64, size), make([]float64, size)
	m.ages = make(map[int]groupedValues)
	for b := 1; b <= maxMicroBatch; b *= 2 {
		m.microBatches = append(m.microBatches, microBatching{draws: b, sum: make([]float64, size)})
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
		m.ages[age] = make(groupedValues)
	}
	m.ages[age].add(group, square)
	for i := range m.microBatches {
		m.microBatches[i].add(m.deviation)
	}
	m.deviation, m.last = m.last, m.deviation
}

func (d *microBatching) add(deviation []float64) {
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

// byStaleness returns the noise by staleness. It pools neighbours until each has enough rollouts. Fresh rollouts have
// staleness 0.
func (m *heldMeter) byStaleness(fresh results.StaleNoise) []results.StaleNoise {
	list := []results.StaleNoise{fresh}
	of := make(groupedValues)
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
		if rest -= count; rest > 0 && (n < minPerBin || rest < minPerBin) {
			continue
		}
		mean, standardError := of.mean()
		list = append(list, results.StaleNoise{
			First: first, Last: age, Age: ages / n, Rollouts: int(n), Variance: mean - m.centre.variance,
			Error: results.Num(standardError),
		})
		of = make(groupedValues)
		n, ages, first = 0, 0, -1
	}
	return list
}

// common fills in what remains of the noise in the mean of many draws. It needs as many rollouts as the largest
// micro-batch.
func (m *heldMeter) common(out *results.Noise) {
	if m.n < maxMicroBatch {
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
		out.Warnings = append(out.Warnings,
			fmt.Sprintf("The gradients of all %d rollouts of the table are alike, so that no correlation can be "+
				"measured.", m.n))
		return
	}
	out.Mean, out.Common = results.Num(one-u), results.Num(u/(one-u))
	out.CommonError = results.Num(math.Sqrt(2*m.products/float64(m.pairs)) * (1/n + v/one) / (one - u))
	var residual float64
	for _, d := range m.microBatches {
		b := float64(d.draws)
		of := results.BatchNoise{
			Draws: d.draws, Batches: d.batches, Variance: one/b + (1-1/b)*u, Dealt: d.squares/float64(d.batches) - v,
		}
		if of.Variance <= 0 {
			out.MicroBatches = nil
			out.Warnings = append(out.Warnings, fmt.Sprintf("The mean of %d draws has no measurable noise: %d "+
				"rollouts of the table "+
				"and %d fresh ones are too few to measure a correlation.", d.draws, out.Held, out.Fresh))
			return
		}
		out.MicroBatches = append(out.MicroBatches, of)
		off := of.Dealt/of.Variance - 1
		residual += off * off
	}
	out.Residual = results.Num(math.Sqrt(residual / float64(len(m.microBatches))))
}

// groupedValues is the sums of values by group. Members of a group resemble one another: rollouts of one prompt have no
// gradient at all if their rewards are all alike.
type groupedValues map[uint64]groupSum

type groupSum struct{ n, sum float64 }

func (c groupedValues) add(group uint64, value float64) {
	c[group] = groupSum{c[group].n + 1, c[group].sum + value}
}

// join adds the values of another.
func (c groupedValues) join(others groupedValues) {
	for group, o := range others {
		c[group] = groupSum{c[group].n + o.n, c[group].sum + o.sum}
	}
}

// total returns the number of values and their sum. It adds groups in order, so that rounding is the same each time.
func (c groupedValues) total() (n, sum float64) {
	for _, group := range slices.Sorted(maps.Keys(c)) {
		n += c[group].n
		sum += c[group].sum
	}
	return n, sum
}

// mean returns the mean of all values and its standard error, NaN for a single group. The error is that of a ratio
// estimator, group sums over group sizes: groups are independent, their members are not.
func (c groupedValues) mean() (mean, standardError float64) {
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
