package policy

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// sampler draws tokens from logits on the host, where each row has its own random stream and top-p is exact.
type sampler struct {
	temperature float64 // 0: greedy
	topP        float64
	suppressed  []int32 // tokens that are not drawn, whatever their probability
	prob        []float64
	order       []int32
}

func newSampler(vocab int, s Sampling) *sampler {
	return &sampler{temperature: s.Temperature, topP: cmp.Or(s.TopP, 1), prob: make([]float64, vocab),
		order: make([]int32, vocab)}
}

// draw returns a token and its log-softmax(logits/temperature). With top-p the softmax is over the nucleus, whose ids
// it returns in ascending order, valid until the next draw. Without, or greedy, it is over the whole vocabulary, which
// includes suppressed tokens.
func (s *sampler) draw(logits []float32, rng *rand.Rand) (token int32, logprob float32, nucleus []int32, err error) {
	best, err := s.argmax(logits)
	if err != nil {
		return 0, 0, nil, err
	}
	scale := cmp.Or(s.temperature, 1)
	var sum float64
	for i, l := range logits {
		s.prob[i] = 0
		if s.allowed(i) {
			s.prob[i] = math.Exp(float64(l-logits[best]) / scale)
			sum += s.prob[i]
		}
	}
	score := func(at int) float64 { return float64(logits[at]-logits[best]) / scale }
	at := best
	if s.temperature > 0 {
		order, mass := s.kept(sum)
		at = invertCumulative(s.prob, order, rng.Float64()*mass)
		if s.topP < 1 {
			nucleus, sum = order, mass
			slices.Sort(nucleus)
		}
	}
	logSum := math.Log(sum)
	if nucleus == nil {
		for _, t := range s.suppressed { // exp of its score may overflow a float64
			logSum = logAddExp(logSum, score(int(t)))
		}
	}
	return int32(at), float32(max(min(score(at)-logSum, 0), -math.MaxFloat32)), nucleus, nil
}

// argmax returns the first of the allowed tokens with the largest logit.
func (s *sampler) argmax(logits []float32) (int, error) {
	const diverged = "the weights have diverged; lower learner.learning_rate or clip the gradient"
	best := -1
	for i, l := range logits {
		if math.IsNaN(float64(l)) || math.IsInf(float64(l), 1) {
			return 0, fmt.Errorf("logit %d is %v: %s", i, l, diverged)
		}
		if (best < 0 || l > logits[best]) && s.allowed(i) {
			best = i
		}
	}
	if best < 0 || math.IsInf(float64(logits[best]), -1) {
		return 0, fmt.Errorf("the logits of all tokens that may be drawn are -Inf: %s", diverged)
	}
	return best, nil
}

// allowed reports whether a token may be drawn.
func (s *sampler) allowed(token int) bool {
	return len(s.suppressed) == 0 || !slices.Contains(s.suppressed, int32(token))
}

// logAddExp returns log(exp(a) + exp(b)) of a finite a and any b.
func logAddExp(a, b float64) float64 { return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b))) }

// kept returns the nucleus, the likeliest first, or with top-p 1 the vocabulary, and the sum of its probabilities. prob
// has unnormalised probabilities of the given sum.
func (s *sampler) kept(sum float64) (order []int32, mass float64) {
	for i := range s.order {
		s.order[i] = int32(i)
	}
	if s.topP >= 1 {
		return s.order, sum
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		if c := cmp.Compare(s.prob[b], s.prob[a]); c != 0 {
			return c
		}
		return int(a - b)
	})
	n := 0
	for n < len(s.order) && mass < s.topP*sum {
		mass += s.prob[s.order[n]]
		n++
	}
	return s.order[:n], mass
}

// invertCumulative returns the token at which the cumulative probability, in the given order, passes the target. If
// rounding leaves the target beyond the end, it is the last token of positive probability.
func invertCumulative(prob []float64, order []int32, target float64) int {
	last := int32(0)
	for _, at := range order {
		if prob[at] == 0 {
			continue
		}
		last = at
		if target -= prob[at]; target < 0 {
			break
		}
	}
	return int(last)
}
