package rollout

import (
	"fmt"
	"slices"
)

// Steps splits a multi-turn rollout into one rollout per turn, for tables that store steps: its tokens up to the turn's end, of
// which the policy produced the turn's, and the turn's reward. Advantage, group and everything else are the whole
// rollout's; Text, which speaks of the whole, is dropped. A rollout without turns is one step. The error names a token that
// the policy produced outside all turns, or a turn without any, as field turns.
func (r *Rollout) Steps() ([]*Rollout, *FieldError) {
	if len(r.Turns) == 0 {
		return []*Rollout{r}, nil
	}
	steps := make([]*Rollout, len(r.Turns))
	covered := int32(0)
	for i, t := range r.Turns {
		if at := slices.Index(r.Mask[covered:t.Start], 1); at >= 0 {
			return nil, outsideTurns(int(covered) + at)
		}
		if !slices.Contains(r.Mask[t.Start:t.End], 1) {
			return nil, &FieldError{Field: "turns", Value: fmt.Sprintf("turn %d without a token of the policy", i), Remedy: "leave it out, as unit step learns from each turn by itself"}
		}
		steps[i] = r.step(t)
		covered = t.End
	}
	if at := slices.Index(r.Mask[covered:], 1); at >= 0 {
		return nil, outsideTurns(int(covered) + at)
	}
	return steps, nil
}

func outsideTurns(token int) *FieldError {
	return &FieldError{Field: "turns", Value: fmt.Sprintf("none around token %d of the policy", token), Remedy: "put every token of the policy into a turn, as unit step learns from turns alone"}
}

// Returns gives the n-step return of each turn, the sum over k < n of discount^k times the reward of the k-th turn from it, as
// far as there are turns; with n below 0 it runs to the end of the episode. A rollout without turns is one step, whose
// return is its reward. Sums are taken in float64, from the last turn to the first.
func (r *Rollout) Returns(n int, discount float64) []float32 {
	if len(r.Turns) == 0 {
		return []float32{r.Reward}
	}
	if n < 0 {
		n = len(r.Turns)
	}
	returns := make([]float32, len(r.Turns))
	for t := range returns {
		sum := 0.0
		for k := min(t+n, len(r.Turns)) - 1; k >= t; k-- {
			sum = float64(discount*sum) + float64(r.Turns[k].Reward)
		}
		returns[t] = float32(sum)
	}
	return returns
}

// step is the rollout of one turn. What the policy did not produce in it is masked out.
func (r *Rollout) step(t Turn) *Rollout {
	s := *r
	start, end := int(t.Start), int(t.End)
	s.Tokens = r.Tokens[:end:end]
	s.Mask = make([]uint8, end)
	s.Logprobs = make([]float32, end)
	s.Versions = make([]Version, end)
	for i := range start {
		s.Versions[i] = NoVersion
	}
	copy(s.Mask[start:], r.Mask[start:end])
	copy(s.Logprobs[start:], r.Logprobs[start:end])
	copy(s.Versions[start:], r.Versions[start:end])
	s.Reward, s.Turns, s.Text = t.Reward, []Turn{t}, ""
	s.Truncated = r.Truncated && end == len(r.Tokens)
	for _, of := range []*[]float32{&s.Advantages, &s.Values, &s.RefLogprobs} {
		if len(*of) > 0 {
			*of = (*of)[:end:end]
		}
	}
	return &s
}
