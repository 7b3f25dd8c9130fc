package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// sampler draws tokens from logits on the host, where each row has its own random stream and top-p is exact.
type sampler struct {
	temperature float64 // 0: greedy
	topP        float64
	never       []int32 // tokens that are not drawn, whatever their probability
	prob        []float64
	order       []int32
}

func newSampler(vocab int, s Sampling) *sampler {
	topP := s.TopP
	if topP == 0 {
		topP = 1
	}
	return &sampler{temperature: s.Temperature, topP: topP, prob: make([]float64, vocab), order: make([]int32, vocab)}
}

// diverged says what logits that are no numbers come of.
const diverged = "the weights have diverged; lower learner.learning_rate or clip the gradient"

// draw returns a token and its log-softmax(logits/temperature), taken over the whole vocabulary: as with top-p, what is never
// drawn counts in it.
func (s *sampler) draw(logits []float32, rng *rand.Rand) (token int32, logprob float32, err error) {
	best, err := s.likeliest(logits)
	if err != nil {
		return 0, 0, err
	}
	scale := s.temperature
	if scale == 0 {
		scale = 1
	}
	var sum float64
	for i, l := range logits {
		s.prob[i] = 0
		if len(s.never) == 0 || s.drawable(i) {
			s.prob[i] = math.Exp(float64(l-logits[best]) / scale)
			sum += s.prob[i]
		}
	}
	score := func(at int) float64 { return float64(logits[at]-logits[best]) / scale }
	at := best
	if s.temperature > 0 {
		at = s.pick(sum, rng.Float64())
	}
	all := math.Log(sum) // of the sum over the vocabulary: what is never drawn may be beyond any float64 itself
	for _, t := range s.never {
		all = logAddExp(all, score(int(t)))
	}
	return int32(at), float32(max(min(score(at)-all, 0), -math.MaxFloat32)), nil
}

// likeliest returns the first of the tokens that may be drawn whose logit is the greatest.
func (s *sampler) likeliest(logits []float32) (int, error) {
	best := -1
	for i, l := range logits {
		if math.IsNaN(float64(l)) || math.IsInf(float64(l), 1) {
			return 0, fmt.Errorf("logit %d is %v: %s", i, l, diverged)
		}
		if (best < 0 || l > logits[best]) && s.drawable(i) {
			best = i
		}
	}
	if best < 0 || math.IsInf(float64(logits[best]), -1) {
		return 0, fmt.Errorf("every logit of a token that may be drawn is -Inf: %s", diverged)
	}
	return best, nil
}

// drawable tells whether a token may be drawn.
func (s *sampler) drawable(token int) bool { return !slices.Contains(s.never, int32(token)) }

// logAddExp returns log(exp(a) + exp(b)) of a finite a and any b.
func logAddExp(a, b float64) float64 { return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b))) }

// pick returns the token at u in [0, 1) of the nucleus's cumulative probability; prob holds unnormalised
// probabilities of the given sum.
func (s *sampler) pick(sum, u float64) int {
	if s.topP >= 1 {
		return cumulative(s.prob, nil, u*sum)
	}
	for i := range s.order {
		s.order[i] = int32(i)
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		switch {
		case s.prob[a] > s.prob[b]:
			return -1
		case s.prob[a] < s.prob[b]:
			return 1
		}
		return int(a - b)
	})
	var kept float64
	n := 0
	for n < len(s.order) && kept < s.topP*sum {
		kept += s.prob[s.order[n]]
		n++
	}
	return cumulative(s.prob, s.order[:n], u*kept)
}

// cumulative walks the probabilities, in the given order if there is one, until their sum passes the target. A
// target that rounding leaves beyond the end falls on the last token of positive probability.
func cumulative(prob []float64, order []int32, target float64) int {
	n := len(prob)
	if order != nil {
		n = len(order)
	}
	last := 0
	for i := range n {
		at := i
		if order != nil {
			at = int(order[i])
		}
		if prob[at] == 0 {
			continue
		}
		last = at
		if target -= prob[at]; target < 0 {
			break
		}
	}
	return last
}
