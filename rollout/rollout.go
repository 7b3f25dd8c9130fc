// Package rollout is the vocabulary that every part of Reprise shares.
//
// A [Rollout] is one sampled trajectory, made by [New]; a [Group] is the rollouts of one prompt. Tables hand out a
// [Batch] of [Draw]s and take [Feedback] about them. [Stats] and [Histogram] are what a table counts. [Stream] gives
// random streams. Bad input is refused with a [FieldError] that names the field, the row and the value (invariant 9 of
// the design).
//
// A rollout is immutable once it has entered a table: tables, batches and snapshots share it by reference. The types of
// this package do not lock. The package depends on nothing but the standard library.
package rollout

import (
	"fmt"
	"math"
	"slices"
)

// ID names a rollout within its table. IDs are given at insertion, start at 1 and are never reused.
type ID uint64

// Version is the number of optimizer updates applied to the weights; 0 is the initial policy ([ER] §2).
type Version int32

// NoVersion marks the tokens that no policy produced: prompt, tool and environment tokens.
const NoVersion Version = -1

// Rollout is one sampled trajectory with everything needed to learn from it again.
//
// The per-token slices have the same length L, the number of tokens including the prompt; entry i is about token i. A
// rollout is immutable once it has been inserted into a table.
//
// Logprobs are ln softmax(logits/temperature), with the softmax taken over the token's list in SamplingMask where there
// is one, else over the whole vocabulary, before top-p. NaN says that nobody knows a token's log-prob, as of an
// expert's or a chat log's; only tables with the option unknown_logprobs take it. A Reward of NaN comes later: only
// tables with the option pending_rewards take it, and they draw no such rollout.
type Rollout struct {
	PromptID    string    // stable across runs
	Tokens      []int32   // [L] prompt and completion(s)
	Mask        []uint8   // [L] 1 where the policy produced the token
	Logprobs    []float32 // [L] behaviour log-probs or NaN, as said above; 0 where Mask is 0
	Versions    []Version // [L] version that produced the token; NoVersion where Mask is 0
	Temperature float32   // of the sampling, > 0
	TopP        float32   // of the sampling, in (0, 1]
	Reward      float32
	Truncated   bool   // stopped by length, not by the policy
	Turns       []Turn // multi-turn rollouts; empty for a single turn

	Advantage   *float32  // set by the producer; nil: computed from the group at insertion
	Advantages  []float32 // [L] per token, optional
	Values      []float32 // [L] of a critic, optional
	RefLogprobs []float32 // [L] of a reference policy, optional
	Images      [][]byte
	Text        string // the completion as text, optional
	Meta        map[string]string

	// SamplingMask has the ids that the sampler could have drawn for each token of the policy, the nucleus of top-p or
	// top-k for example; optional. An empty list is the whole vocabulary. Lists are empty where Mask is 0.
	SamplingMask IDLists
	// RoutedExperts has the experts that the engine's router chose for each token, optional: [L, E] by rows, with
	// E = layers x experts per token.
	RoutedExperts []uint16

	// Extra holds the values of user-defined columns, encoded by package wire and opaque to everyone else.
	Extra []byte
}

// Pending reports whether nobody knows the rollout's reward yet.
func (r *Rollout) Pending() bool { return r.Reward != r.Reward }

// Turn is tokens [Start, End) of a multi-turn rollout: what the policy said, and the environment's reward for it.
type Turn struct {
	Start, End int32
	Reward     float32
	Done       bool
}

// IDLists is a list of token ids for each token of a rollout. The zero value has no lists. The list of token i is
// IDs[Ends[i-1]:Ends[i]], from 0 for the first; its ids ascend strictly.
type IDLists struct {
	Ends []int32 // [L] ascending, the last is len(IDs); nil: not given
	IDs  []int32
}

// Len returns the number of lists, 0 if they are not given.
func (l IDLists) Len() int { return len(l.Ends) }

// At returns the list of token i, 0 <= i < Len. It shares memory with l.
func (l IDLists) At(i int) []int32 {
	start := int32(0)
	if i > 0 {
		start = l.Ends[i-1]
	}
	return l.IDs[start:l.Ends[i]:l.Ends[i]]
}

// Append adds the list of the next token. Without ids it is empty.
func (l *IDLists) Append(ids ...int32) {
	l.IDs = append(l.IDs, ids...)
	l.Ends = append(l.Ends, int32(len(l.IDs)))
}

// Extend adds more, the lists of n tokens, after those of the before tokens so far. Tokens without a list get an empty
// one, unless neither l nor more has any.
func (l *IDLists) Extend(before int, more IDLists, n int) {
	if l.Len() == 0 && more.Len() == 0 {
		return
	}
	for l.Len() < before {
		l.Append()
	}
	for i := range n {
		if i < more.Len() {
			l.Append(more.At(i)...)
		} else {
			l.Append()
		}
	}
}

// between returns the first end lists. Those before start become empty.
func (l IDLists) between(start, end int) IDLists {
	if len(l.Ends) == 0 {
		return IDLists{}
	}
	cut, first := IDLists{Ends: make([]int32, end)}, int32(0)
	if start > 0 {
		first = l.Ends[start-1]
	}
	for i := start; i < end; i++ {
		cut.Ends[i] = l.Ends[i] - first
	}
	if last := l.Ends[end-1]; first < last {
		cut.IDs = l.IDs[first:last:last]
	}
	return cut
}

// Group is the rollouts of one prompt, which enter a table together. Group-relative advantages are taken over them.
type Group struct {
	Rollouts []*Rollout
	Size     int // declared number of rollouts; any other number is refused (invariant 8); 0: not declared
}

// Completion is a policy's answer to a prompt, for [New].
type Completion struct {
	Tokens   []int32   // [C] the tokens that were sampled, the end-of-sequence token included
	Logprobs []float32 // [C] behaviour log-probs, as in [Rollout]
	Version  Version   // of the weights that sampled them
	Reward   float32
}

// New returns the rollout of one completion, sampled at temperature 1 without top-p. It copies the tokens and fills
// Mask, Logprobs and Versions in for the prompt. Set other fields afterwards: Temperature, TopP, Truncated, Text,
// Turns. If there is not one log-prob per token, [Rollout.Validate] refuses the rollout.
func New(promptID string, prompt []int32, c Completion) *Rollout {
	p, n := len(prompt), len(prompt)+len(c.Tokens)
	r := &Rollout{
		PromptID: promptID, Reward: c.Reward, Temperature: 1, TopP: 1,
		Tokens: slices.Concat(prompt, c.Tokens), Mask: make([]uint8, n),
		Logprobs: append(make([]float32, p, n), c.Logprobs...), Versions: make([]Version, n),
	}
	for i := range r.Tokens {
		if i < p {
			r.Versions[i] = NoVersion
		} else {
			r.Mask[i], r.Versions[i] = 1, c.Version
		}
	}
	return r
}

// Version returns the oldest version among the policy's tokens ([ER] §2), NoVersion if there are none.
func (r *Rollout) Version() Version { return r.Span().Least }

// LogprobsKnown reports whether the log-probs of all of the policy's tokens are known.
func (r *Rollout) LogprobsKnown() bool {
	return !slices.ContainsFunc(r.Logprobs, func(p float32) bool { return p != p })
}

// Bytes returns the size of the payload, which capacities in bytes count: the contents of every field, without headers,
// pointers or the allocator's rounding.
func (r *Rollout) Bytes() int64 {
	n := len(r.PromptID) + len(r.Text) + len(r.Extra) + len(r.Mask) + turnBytes*len(r.Turns) + scalarBytes
	n += 4 * (len(r.Tokens) + len(r.Logprobs) + len(r.Versions))
	n += 4 * (len(r.Advantages) + len(r.Values) + len(r.RefLogprobs))
	n += 4*(len(r.SamplingMask.Ends)+len(r.SamplingMask.IDs)) + 2*len(r.RoutedExperts)
	if r.Advantage != nil {
		n += 4
	}
	for _, image := range r.Images {
		n += len(image)
	}
	for k, v := range r.Meta {
		n += len(k) + len(v)
	}
	return int64(n)
}

const (
	scalarBytes = 4 + 4 + 4 + 1 // temperature, top_p, reward, truncated
	turnBytes   = 4 + 4 + 4 + 1 // start, end, reward, done
)

// Span summarises the versions of the tokens that the policy produced.
type Span struct {
	Least, Greatest Version // NoVersion if there are no such tokens
	Sum             int64   // of the versions
	Tokens          int
}

// Span returns the span of the rollout's versions.
func (r *Rollout) Span() Span {
	s := Span{Least: math.MaxInt32, Greatest: NoVersion}
	versions := r.Versions[:len(r.Mask)]
	for i, m := range r.Mask {
		if m == 1 {
			v := versions[i]
			s.Least = min(s.Least, v)
			s.Greatest = max(s.Greatest, v)
			s.Sum += int64(v)
			s.Tokens++
		}
	}
	if s.Tokens == 0 {
		s.Least = NoVersion
	}
	return s
}

// MeanCeil returns the mean version rounded up, NoVersion if there are no tokens. At table version v, v - MeanCeil is
// the mean staleness of the tokens rounded down.
func (s Span) MeanCeil() Version {
	if s.Tokens == 0 {
		return NoVersion
	}
	return Version((s.Sum + int64(s.Tokens) - 1) / int64(s.Tokens))
}

// Steps splits a multi-turn rollout into one rollout per turn, for tables that store steps. A step has the tokens up to
// the end of its turn, a mask that covers the turn only, and the turn's reward. It drops Text and shares the other
// fields. A rollout without turns is one step. A token of the policy outside all turns, or a turn without any, is an
// error.
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
			return nil, wrong("turns", fmt.Sprintf("turn %d without a token of the policy", i),
				"leave it out: unit step learns from each turn by itself")
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
	return wrong("turns", fmt.Sprintf("none around token %d of the policy", token),
		"put every token of the policy into a turn: unit step learns from turns only")
}

// Returns gives the n-step return of each turn: the sum over k < n of discount^k times the reward k turns later, up to
// the last turn. With n < 0 it runs to the end of the episode. A rollout without turns has one return, its reward.
func (r *Rollout) Returns(n int, discount float64) []float32 {
	if len(r.Turns) == 0 {
		return []float32{r.Reward}
	}
	if n < 0 {
		n = len(r.Turns)
	}
	returns := make([]float32, len(r.Turns))
	for t := range returns {
		sum := 0.0 // in float64 and from the last turn to the first, so that results are reproducible
		for k := min(t+n, len(r.Turns)) - 1; k >= t; k-- {
			sum = float64(discount*sum) + float64(r.Turns[k].Reward)
		}
		returns[t] = float32(sum)
	}
	return returns
}

// step returns the rollout of one turn. Tokens before the turn are masked out.
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
	s.SamplingMask = r.SamplingMask.between(start, end)
	if n := len(r.RoutedExperts) / len(r.Tokens) * end; n > 0 {
		s.RoutedExperts = r.RoutedExperts[:n:n]
	}
	return &s
}
