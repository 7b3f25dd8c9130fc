package rollout

import (
	"fmt"
	"math"
	"strconv"
)

// Limits are the bounds that a table sets to what enters it. Zero: not bounded.
type Limits struct {
	Vocab     int   // tokens are < Vocab
	MaxTokens int   // of one rollout, prompt included
	MaxBytes  int64 // of one rollout's payload
}

// Validate returns a *[FieldError] for the first thing found that no learner could use (invariant 9),
// nil if there is none. Its cost is one pass over the tokens, without allocation for a good rollout.
func (r *Rollout) Validate(l Limits) error {
	if err := r.check(l); err != nil {
		return err
	}
	return nil
}

// check is Validate with its concrete type, so that a group can add the row.
func (r *Rollout) check(l Limits) *FieldError {
	if r == nil {
		return wrong("rollout", "nil", "give a rollout")
	}
	if err := r.checkShape(l); err != nil {
		return err
	}
	if !r.tokensGood(l.Vocab) {
		return r.findBadToken(l.Vocab)
	}
	if err := r.checkScalars(); err != nil {
		return err
	}
	if len(r.Turns) > 0 {
		if err := r.checkTurns(); err != nil {
			return err
		}
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
	}
	if l.MaxBytes > 0 {
		if b := r.Bytes(); b > l.MaxBytes {
			return wrong("rollout", fmt.Sprintf("%d bytes", b), fmt.Sprintf("give at most %d bytes or raise the limit", l.MaxBytes))
		}
	}
	return nil
}

// tokensGood tells whether every entry is acceptable; findBadToken says which is not. They are two
// so that the common answer costs no bookkeeping.
func (r *Rollout) tokensGood(vocab int) bool {
	n := len(r.Tokens)
	mask, logprobs, versions := r.Mask[:n], r.Logprobs[:n], r.Versions[:n]
	limit := int64(math.MaxInt32) + 1
	if vocab > 0 {
		limit = int64(vocab)
	}
	policy := 0
	for i, t := range r.Tokens {
		if t < 0 || int64(t) >= limit {
			return false
		}
		p, v := logprobs[i], versions[i]
		switch mask[i] {
		case 1:
			// False also for NaN; a log-prob of -Inf could not have been sampled.
			if !(p <= 0 && p >= -math.MaxFloat32) || v < 0 {
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

func (r *Rollout) findBadToken(vocab int) *FieldError {
	for i, t := range r.Tokens {
		m, p, v := r.Mask[i], r.Logprobs[i], r.Versions[i]
		switch {
		case t < 0:
			return wrong(at("tokens", i), count(int(t)), "token ids are not negative")
		case vocab > 0 && int64(t) >= int64(vocab):
			return wrong(at("tokens", i), count(int(t)), fmt.Sprintf("token ids are less than the vocabulary's size %d", vocab))
		case m > 1:
			return wrong(at("mask", i), count(int(m)), "give 1 where the policy produced the token, else 0")
		case m == 1 && !(finite(p) && p <= 0):
			return wrong(at("logprobs", i), real32(p), "give the natural log of the token's probability, finite and at most 0")
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

func (r *Rollout) checkScalars() *FieldError {
	switch {
	case !finite(r.Temperature) || r.Temperature <= 0:
		return wrong("temperature", real32(r.Temperature), "give the sampling temperature, finite and greater than 0 (greedy decoding has no behaviour distribution)")
	case !(r.TopP > 0 && r.TopP <= 1):
		return wrong("top_p", real32(r.TopP), "give a value in (0, 1], 1 for none")
	case !finite(r.Reward):
		return wrong("reward", real32(r.Reward), "give a finite reward")
	case r.Advantage != nil && !finite(*r.Advantage):
		return wrong("advantage", real32(*r.Advantage), "give a finite advantage, or none to have it computed")
	}
	return nil
}

// checkTurns wants turns in order, not empty and apart, within the tokens.
func (r *Rollout) checkTurns() *FieldError {
	var end int32
	for i, t := range r.Turns {
		switch {
		case t.Start < end || t.End <= t.Start || int(t.End) > len(r.Tokens):
			return wrong(at("turns", i), fmt.Sprintf("[%d, %d)", t.Start, t.End),
				fmt.Sprintf("give a range of at least one token within [%d, %d), turns in order", end, len(r.Tokens)))
		case !finite(t.Reward):
			return wrong(at("turns", i)+".reward", real32(t.Reward), "give a finite reward")
		}
		end = t.End
	}
	return nil
}

func (r *Rollout) checkOptional() *FieldError {
	for i, a := range r.Advantages {
		if !finite(a) {
			return wrong(at("advantages", i), real32(a), "give a finite advantage")
		}
	}
	for i, v := range r.Values {
		if !finite(v) {
			return wrong(at("values", i), real32(v), "give a finite value")
		}
	}
	for i, p := range r.RefLogprobs {
		if !finite(p) || p > 0 {
			return wrong(at("ref_logprobs", i), real32(p), "give the natural log of a probability, finite and at most 0")
		}
	}
	return nil
}

// Validate returns a *[FieldError] for the first thing wrong with the group or a rollout of it, its
// Row counted within the group: no rollouts, another number of them than declared (invariant 8),
// different prompts, or what [Rollout.Validate] refuses.
func (g Group) Validate(l Limits) error {
	switch {
	case len(g.Rollouts) == 0:
		return wrong("group", "empty", "give at least one rollout")
	case g.Size < 0:
		return wrong("group_size", count(g.Size), "give the number of rollouts in the group, or 0 to leave it undeclared")
	case g.Size > 0 && g.Size != len(g.Rollouts):
		return wrong("group_size", count(g.Size), fmt.Sprintf("declare the %d rollouts given, or insert the whole group at once", len(g.Rollouts)))
	}
	for i, r := range g.Rollouts {
		err := r.check(l)
		if err == nil && r.PromptID != g.Rollouts[0].PromptID {
			err = wrong("prompt_id", strconv.Quote(r.PromptID), fmt.Sprintf("the group's first rollout answers %q; one group is of one prompt", g.Rollouts[0].PromptID))
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
