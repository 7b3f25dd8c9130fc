package run

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
)

// noiseMeter measures how gradients scatter about the true one. It is given gradients one by one, those of fresh rollouts first, group
// by group, and keeps sums alone: a dozen vectors as long as a gradient, whatever the number of rollouts.
//
// Let mu be the true gradient and f the mean of the fresh ones, of which E f = mu and E ||f - mu||^2 = V. Fresh rollouts of a group share
// a prompt and their advantages, so V is taken from the scatter of whole groups. A held gradient h does not know f, therefore
//
//	E ||h - f||^2         = E ||h - mu||^2 + V
//	E <h - f, h' - f>     = E <h - mu, h' - mu> + V
//
// and both are measured without bias by taking V off. The second, over all pairs of held rollouts, is U: what the mean of any number
// of draws keeps. Over all ways to deal the rollouts into disjoint micro-batches of b, the mean of ||m - mu||^2 is
//
//	v(b) = S/b + (1 - 1/b) U = (S - U)(1/b + c)   with S the mean of ||h - mu||^2 and c = U/(S - U)
//
// which is METHODS' form. About the mean of the held rollouts themselves c would be -1/n, whatever they have in common.
type noiseMeter struct {
	fresh freshMeter
	left  int // fresh gradients to come
	held  heldMeter
}

// newNoiseMeter returns a meter that is given so many fresh gradients before those of held rollouts.
func newNoiseMeter(fresh int) *noiseMeter { return &noiseMeter{left: fresh} }

// add takes in the gradient of a draw.
func (m *noiseMeter) add(d rollout.Draw, g []float32) error {
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

// fill writes what was measured.
func (m *noiseMeter) fill(n *results.Noise) error {
	if m.left > 0 {
		return errors.New("the gradients of fresh rollouts are incomplete")
	}
	fresh := m.fresh.noise(m.held.centre)
	if fresh.Variance == 0 {
		return fmt.Errorf("the gradients of all %d fresh rollouts are 0, as where the rewards of a group are all alike: measure a run whose policy is right at times and at times wrong", fresh.Rollouts)
	}
	n.ByStaleness = slices.DeleteFunc(m.held.byStaleness(fresh), func(s results.StaleNoise) bool {
		if s.Variance <= 0 {
			n.Warnings = append(n.Warnings, fmt.Sprintf("The rollouts of staleness %d to %d have no gradient to speak of: they are left out.", s.First, s.Last))
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

// freshMeter is sums over fresh rollouts.
type freshMeter struct {
	rollouts, groups int
	sum              []float64 // of gradients
	norms            clusters  // squared norms of gradients, by group

	number       uint64    // of the present group
	size         float64   // of the present group
	group        []float64 // sum of its gradients
	sizes        float64   // sum of the squares of groups' sizes
	groupSquares float64   // sum of ||group||^2
	weighted     []float64 // sum of groups times their sizes
}

func (m *freshMeter) add(group uint64, g []float32) {
	if m.sum == nil {
		m.sum, m.group, m.weighted, m.norms = make([]float64, len(g)), make([]float64, len(g)), make([]float64, len(g)), make(clusters)
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

// centre ends the last group and returns the estimate. Groups differ in size where they are of steps.
func (m *freshMeter) centre() (centre, error) {
	m.endGroup()
	if m.groups < 2 {
		return centre{}, errors.New("fresh rollouts are of one group: want two or more")
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

// noise is that of the fresh rollouts, about the true gradient: E ||f||^2 = ||mu||^2 + V.
func (m *freshMeter) noise(c centre) results.StaleNoise {
	mean := 0.0
	for _, v := range c.mean {
		mean += v * v
	}
	norm, standardError := m.norms.mean()
	return results.StaleNoise{
		Rollouts: m.rollouts, Variance: max(norm-mean+c.variance, 0), Error: results.Num(standardError),
	}
}
