package design

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestFigure1OfTheSource(t *testing.T) {
	weight := func(p float64) float64 { return NormalisedRewardWeight(BernoulliDeviation(p, 0.01)) }
	near(t, "the weight of a prompt that is never solved", weight(0), 9, 1e-12)
	near(t, "of one that always is", weight(1), 9, 1e-12)
	near(t, "at 1/2", weight(0.5), 1/math.Sqrt(0.26)-1, 1e-12)
	if !math.IsInf(NormalisedRewardWeight(BernoulliDeviation(1, 0)), 1) {
		t.Error("without epsilon the weight does not explode")
	}
}

// randomPolicy returns probabilities of n responses.
func randomPolicy(rng *rand.Rand, n int) []float64 {
	p, sum := make([]float64, n), 0.0
	for i := range p {
		p[i] = math.Exp(3 * rng.NormFloat64())
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// towards returns a policy some share of the way from one to another.
func towards(from, to []float64, share float64) []float64 {
	p := make([]float64, len(from))
	for i := range p {
		p[i] = from[i] + share*(to[i]-from[i])
	}
	return p
}

func expected(p, values []float64) (sum float64) {
	for i := range p {
		sum += p[i] * values[i]
	}
	return sum
}

func variation(p, q []float64) (sum float64) {
	for i := range p {
		sum += math.Abs(p[i]-q[i]) / 2
	}
	return sum
}

func TestTheBoundTakesOffTheStepAndTheLag(t *testing.T) {
	near(t, "the bound", BoundGRPO(0.3, 0.25, 0.1, 0.05), 0.3-2*3*0.1-2*0.05, 1e-15)
}

func TestTheBoundOfTheSourceIsBelowTheTrueImprovement(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 8))
	tight := 0
	for range 20_000 {
		n := 2 + rng.IntN(6)
		rewards := make([]float64, n)
		for i := range rewards {
			rewards[i] = rng.Float64()
			if rng.IntN(2) == 0 {
				rewards[i] = float64(rng.IntN(2))
			}
		}
		behaviour := randomPolicy(rng, n)
		before := towards(behaviour, randomPolicy(rng, n), rng.Float64()*float64(rng.IntN(2)))
		after := towards(before, randomPolicy(rng, n), rng.Float64())
		mean, squares := expected(behaviour, rewards), 0.0
		for i, r := range rewards {
			squares += behaviour[i] * square(r-mean)
		}
		sigma := math.Sqrt(squares + 1e-8)
		surrogate := (expected(after, rewards) - mean) / sigma
		bound := BoundGRPO(surrogate, sigma, variation(after, behaviour), variation(before, behaviour))
		truth := expected(after, rewards) - expected(before, rewards)
		if bound > truth+1e-9 {
			t.Fatalf("the bound is %v, the improvement %v: rewards %v, policies %v, %v, %v", bound, truth, rewards, behaviour, before, after)
		}
		if most := variation(after, behaviour) * (2*sigma - 1) / sigma; bound > most+1e-9 {
			t.Fatalf("the bound is %v, more than %v, which it cannot be", bound, most)
		}
		if truth-bound < 0.1 {
			tight++
		}
	}
	if tight < 100 {
		t.Errorf("the bound is near the truth in %d cases only", tight)
	}
}
