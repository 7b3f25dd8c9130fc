package rollout

import (
	"fmt"
	"math"
	"strconv"
)

// Limits are a table's bounds on what enters it. Zero means no bound.
type Limits struct {
	Vocab     int   // tokens are < Vocab
	MaxTokens int   // of one rollout, prompt included
	MaxBytes  int64 // of one rollout's payload

	UnknownLogprobs bool // log-probs may be NaN, see [Rollout]
	PendingRewards  bool // rewards may be NaN, see [Rollout]
}

// MaxReward bounds the magnitude of rewards, advantages and values: what is computed of them, such as the sum of the
// squares of a batch's advantages, then stays finite in float32.
const MaxReward = 1e9

// FieldError says which field of a rollout or a group is wrong and how to fix it. It wraps [ErrInvalid].
type FieldError struct {
	Row    int    // within the insertion, from 0; within the group if the group was validated alone
	Field  string // as on the wire, with the entry: logprobs[17]
	Value  string // as found
	Remedy string
}

// Error reads: row 3: logprobs[17] is 0.25: …
func (e *FieldError) Error() string {
	return fmt.Sprintf("row %d: %s is %s: %s", e.Row, e.Field, e.Value, e.Remedy)
}

// Unwrap makes every FieldError an ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Validate returns a *[FieldError] for the first field that no learner could use (invariant 9), nil if all are good. It
// makes one pass over the tokens and allocates nothing for a good rollout.
func (r *Rollout) Validate(l Limits) error {
	if err := r.check(l); err != nil {
		return err
	}
	return nil
}

// check is Validate with a concrete error type, so that a group can fill in the row.
func (r *Rollout) check(l Limits) *FieldError {
	if r == nil {
		return wrong("rollout", "nil", "give a rollout")
	}
	if err := r.checkShape(l); err != nil {
		return err
	}
	if !r.tokensGood(l) {
		return r.findBadToken(l)
	}
	if err := r.checkScalars(l); err != nil {
		return err
	}
	if len(r.Turns) > 0 {
		if err := r.checkTurns(); err != nil {
			return err
		}
	}
	if err := r.checkSamplingMask(l.Vocab); err != nil {
		return err
	}
	return r.checkOptional()
}

func (r *Rollout) checkShape(l Limits) *FieldError {
	n := len(r.Tokens)
	switch {
	case n == 0:
		return wrong("tokens", "empty", "give the prompt's and the completion's token ids")
	case n > math.MaxInt32:
		return wrong("tokens", count(n), "give at most 2147483647 tokens")
	case l.MaxTokens > 0 && n > l.MaxTokens:
		return wrong("tokens", count(n), fmt.Sprintf("give at most %d tokens, or raise max_tokens", l.MaxTokens))
	case len(r.Mask) != n:
		return r.wrongLength("mask", len(r.Mask))
	case len(r.Logprobs) != n:
		return r.wrongLength("logprobs", len(r.Logprobs))
	case len(r.Versions) != n:
		return r.wrongLength("versions", len(r.Versions))
	case len(r.Advantages) != 0 && len(r.Advantages) != n:
		return r.wrongLength("advantages", len(r.Advantages))
	case len(r.Values) != 0 && len(r.Values) != n:
		return r.wrongLength("values", len(r.Values))
	case len(r.RefLogprobs) != 0 && len(r.RefLogprobs) != n:
		return r.wrongLength("ref_logprobs", len(r.RefLogprobs))
	case len(r.SamplingMask.Ends)+len(r.SamplingMask.IDs) != 0 && r.SamplingMask.Len() != n:
		return r.wrongLength("sampling_mask", r.SamplingMask.Len())
	case len(r.RoutedExperts)%n != 0:
		return wrong("length of routed_experts", count(len(r.RoutedExperts)),
			fmt.Sprintf("give the same number of experts for each of the %d tokens", n))
	}
	if l.MaxBytes > 0 {
		if b := r.Bytes(); b > l.MaxBytes {
			return wrong("rollout", fmt.Sprintf("%d bytes", b),
				fmt.Sprintf("give at most %d bytes or raise the limit", l.MaxBytes))
		}
	}
	return nil
}

// tokensGood reports whether all per-token entries are acceptable. findBadToken then finds the bad one: splitting the
// two keeps the common path fast.
func (r *Rollout) tokensGood(l Limits) bool {
	n := len(r.Tokens)
	mask, logprobs, versions := r.Mask[:n], r.Logprobs[:n], r.Versions[:n]
	limit := int64(math.MaxInt32) + 1
	if l.Vocab > 0 {
		limit = int64(l.Vocab)
	}
	policy := 0
	for i, t := range r.Tokens {
		if t < 0 || int64(t) >= limit {
			return false
		}
		p, v := logprobs[i], versions[i]
		switch mask[i] {
		case 1:
			// The comparison is false for NaN. A token of log-prob -Inf could not have been sampled.
			if !(p <= 0 && p >= -math.MaxFloat32) && !(l.UnknownLogprobs && p != p) || v < 0 {
				return false
			}
			policy++
		case 0:
			if p != 0 || v != NoVersion {
				return false
			}
		default:
			return false
		}
	}
	return policy > 0
}

func (r *Rollout) findBadToken(l Limits) *FieldError {
	for i, t := range r.Tokens {
		m, p, v := r.Mask[i], r.Logprobs[i], r.Versions[i]
		switch {
		case t < 0:
			return wrong(at("tokens", i), count(int(t)), "give token ids of at least 0")
		case l.Vocab > 0 && int64(t) >= int64(l.Vocab):
			return wrong(at("tokens", i), count(int(t)),
				fmt.Sprintf("give token ids less than the vocabulary's size %d", l.Vocab))
		case m > 1:
			return wrong(at("mask", i), count(int(m)), "give 1 where the policy produced the token, else 0")
		case m == 1 && p != p && !l.UnknownLogprobs:
			return wrong(at("logprobs", i), real32(p), "give the natural log of the token's probability, or set the "+
				"table's unknown_logprobs, so that it takes rollouts whose log-probs nobody knows")
		case m == 1 && p == p && !(finite(p) && p <= 0):
			return wrong(at("logprobs", i), real32(p),
				"give the natural log of the token's probability, finite and at most 0")
		case m == 1 && v < 0:
			return wrong(at("versions", i), count(int(v)), "give the version, at least 0, that produced the token")
		case m == 0 && p != 0:
			return wrong(at("logprobs", i), real32(p), "give 0 where mask is 0")
		case m == 0 && v != NoVersion:
			return wrong(at("versions", i), count(int(v)), "give -1 where mask is 0")
		}
	}
	return wrong("mask", "all 0", "give at least one token that the policy produced")
}

func (r *Rollout) checkScalars(l Limits) *FieldError {
	switch {
	case !finite(r.Temperature) || r.Temperature <= 0:
		return wrong("temperature", real32(r.Temperature),
			"give the sampling temperature, finite and above 0 (greedy decoding has no behaviour distribution)")
	case !(r.TopP > 0 && r.TopP <= 1):
		return wrong("top_p", real32(r.TopP), "give a value in (0, 1], 1 for none")
	case r.Pending() && !l.PendingRewards:
		return wrong("reward", "NaN", "give a reward"+within+", or set the table's pending_rewards, so that it takes "+
			"rollouts whose reward comes later")
	case !r.Pending() && !bounded(r.Reward):
		return wrong("reward", real32(r.Reward), "give a reward"+within)
	case r.Advantage != nil && !bounded(*r.Advantage):
		return wrong("advantage", real32(*r.Advantage), "give an advantage"+within+", or none to have it computed")
	}
	return nil
}

// checkTurns requires turns to be non-empty, in order, disjoint and within the tokens.
func (r *Rollout) checkTurns() *FieldError {
	var end int32
	for i, t := range r.Turns {
		switch {
		case t.Start < end || t.End <= t.Start || int(t.End) > len(r.Tokens):
			return wrong(at("turns", i), fmt.Sprintf("[%d, %d)", t.Start, t.End),
				fmt.Sprintf("give a range of at least one token within [%d, %d), turns in order", end, len(r.Tokens)))
		case !bounded(t.Reward):
			return wrong(at("turns", i)+".reward", real32(t.Reward), "give a reward"+within)
		}
		end = t.End
	}
	return nil
}

func (r *Rollout) checkOptional() *FieldError {
	for i, a := range r.Advantages {
		if !bounded(a) {
			return wrong(at("advantages", i), real32(a), "give an advantage"+within)
		}
	}
	for i, v := range r.Values {
		if !bounded(v) {
			return wrong(at("values", i), real32(v), "give a value"+within)
		}
	}
	for i, p := range r.RefLogprobs {
		if !finite(p) || p > 0 {
			return wrong(at("ref_logprobs", i), real32(p),
				"give the natural log of a probability, finite and at most 0")
		}
	}
	return nil
}

// checkSamplingMask requires each list to be empty or to hold its token, and its ids to ascend strictly.
func (r *Rollout) checkSamplingMask(vocab int) *FieldError {
	ends, ids := r.SamplingMask.Ends, r.SamplingMask.IDs
	limit := int64(math.MaxInt32) + 1
	if vocab > 0 {
		limit = int64(vocab)
	}
	start := int32(0)
	for i, end := range ends {
		if end < start || int(end) > len(ids) || i == len(ends)-1 && int(end) != len(ids) {
			return wrong(at("ends of sampling_mask", i), count(int(end)),
				fmt.Sprintf("give ends that ascend to the number of ids, %d", len(ids)))
		}
		if start == end {
			continue
		}
		if r.Mask[i] == 0 {
			return wrong(at("sampling_mask", i), count(int(end-start))+" ids", "give an empty list where mask is 0")
		}
		last, found := int32(-1), false
		for k, id := range ids[start:end] {
			if id <= last || int64(id) >= limit {
				return wrong(at(at("sampling_mask", i), k), count(int(id)),
					fmt.Sprintf("give token ids from 0 to %d that ascend strictly", limit-1))
			}
			last, found = id, found || id == r.Tokens[i]
		}
		if !found {
			return wrong(at("sampling_mask", i), fmt.Sprintf("%d ids without token %d", end-start, r.Tokens[i]),
				"give the ids that the sampler could have drawn, the sampled token among them")
		}
		start = end
	}
	return nil
}

// Validate returns a *[FieldError], with Row counted within the group, for the first thing wrong: no rollouts, a number
// other than declared (invariant 8), different prompts, or what [Rollout.Validate] refuses.
func (g Group) Validate(l Limits) error {
	switch {
	case len(g.Rollouts) == 0:
		return wrong("group", "empty", "give at least one rollout")
	case g.Size < 0:
		return wrong("group_size", count(g.Size),
			"give the number of rollouts in the group, or 0 to leave it undeclared")
	case g.Size > 0 && g.Size != len(g.Rollouts):
		return wrong("group_size", count(g.Size),
			fmt.Sprintf("declare the %d rollouts given, or insert the whole group at once", len(g.Rollouts)))
	}
	for i, r := range g.Rollouts {
		err := r.check(l)
		if err == nil && r.PromptID != g.Rollouts[0].PromptID {
			err = wrong("prompt_id", strconv.Quote(r.PromptID),
				fmt.Sprintf("the group's first rollout answers %q; a group has one prompt", g.Rollouts[0].PromptID))
		}
		if err != nil {
			err.Row = i
			return err
		}
	}
	return nil
}

func wrong(field, value, remedy string) *FieldError {
	return &FieldError{Field: field, Value: value, Remedy: remedy}
}

func (r *Rollout) wrongLength(field string, n int) *FieldError {
	return wrong("length of "+field, count(n), fmt.Sprintf("give one entry per token, %d", len(r.Tokens)))
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func count(n int) string { return strconv.Itoa(n) }

func real32(x float32) string { return strconv.FormatFloat(float64(x), 'g', -1, 32) }

func finite(x float32) bool { return x-x == 0 }

func bounded(x float32) bool { return x >= -MaxReward && x <= MaxReward }

// within ends the remedies of what is bounded.
const within = " from -1e9 to 1e9"
