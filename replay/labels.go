package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/rollout"
)

// Label is a reward that somebody gave a rollout late.
type Label struct {
	ID     rollout.ID `json:"id"`
	Reward float32    `json:"reward"`
	Before Number     `json:"before"`         // NaN: nobody had given one, or the rollout had left
	Left   bool       `json:"left,omitempty"` // the rollout had left
}

// Labelling is a call of [Table.Reward], as the table remembers it.
type Labelling struct {
	Number  uint64           `json:"number"` // of the call, from 1
	Request string           `json:"request,omitempty"`
	By      string           `json:"by,omitempty"`
	Time    time.Time        `json:"time"`
	Version rollout.Version  `json:"version"` // of the table
	Labels  []Label          `json:"labels"`
	Answer  rollout.Rewarded `json:"answer"`
}

// A table remembers its latest labels, at most this many and always those of the latest call. A label takes 160 bytes
// at most and a call 1 KB, with what a journal holds of them: measured, and rounded up.
const (
	rememberedLabels = 16_384
	labelBytes       = 160
	labellingBytes   = 1 << 10
)

// RewardBytes is the most that a table comes to hold by the next call with n rewards.
func RewardBytes(n int) int64 { return labellingBytes + labelBytes*int64(n) }

// Reward gives rollouts their rewards, or others than they have; a rollout may have been inserted without one where the
// table has pending_rewards. All of it happens or nothing does. The advantages of a rollout's group are taken anew,
// among those of its rollouts that the table still holds, and what follows from rewards and advantages follows:
// priorities, weights and orders of expressions, pins, and what is correct. An advantage that a rollout came with
// stays. Batches that were drawn keep what they had. A group that waits can be drawn once all of its rewards are known.
//
// The table remembers the last 16,384 rewards, with who gave them ([Inspection.Labels]), and by their request ids: a
// repeated call changes nothing and gets the same answer. A rollout that has left is counted and remembered so. It
// costs O(1) for each rollout of a group that waits, and O(N) once for all others of a call. An error wraps
// rollout.ErrInvalid.
func (t *Table) Reward(ctx context.Context, r rollout.Rewards) (rollout.Rewarded, error) {
	if err := ctx.Err(); err != nil {
		return rollout.Rewarded{}, err
	}
	if err := CheckRewards(r); err != nil {
		return rollout.Rewarded{}, err
	}
	if t.options.Unit == UnitStep {
		return rollout.Rewarded{}, fmt.Errorf("rewarding rollouts of a table with unit step, whose steps have the "+
			"rewards of their turns: use unit rollout or group: %w", rollout.ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if done := t.labels.find(r.RequestID); done != nil {
		return done.repeated(r)
	}
	for i, id := range r.IDs {
		if err := checkID(i, id, t.lastID); err != nil {
			return rollout.Rewarded{}, err
		}
	}
	done := Labelling{Number: t.labels.given() + 1, Request: strings.Clone(r.RequestID), By: strings.Clone(r.By),
		Time: t.options.Clock().UTC(), Version: t.version, Labels: make([]Label, len(r.IDs))}
	for i, id := range r.IDs {
		done.Labels[i] = Label{ID: id, Reward: r.Values[i], Before: Number(math.NaN()), Left: true}
	}
	if r.By != "" {
		ctx = WithCaller(ctx, r.By)
	}
	for _, s := range t.shards {
		s.do(func(s *shard) {
			s.expire()
			s.history.begin(ctx)
			s.label(&done)
		})
	}
	done.Answer.Left = len(r.IDs) - done.Answer.Rewarded
	t.keepLabels(done)
	return done.Answer, nil
}

// label gives those of the rollouts that the shard holds their rewards.
func (s *shard) label(done *Labelling) {
	var slots []int32
	var rewards []float32
	for i := range done.Labels {
		l := &done.Labels[i]
		if slot := s.index.find(l.ID); slot != none {
			slots, rewards = append(slots, slot), append(rewards, l.Reward)
			l.Before, l.Left = Number(s.rollouts[slot].Reward), false
		}
	}
	if len(slots) > 0 {
		done.Answer.Rewarded += len(slots)
		done.Answer.Entered += s.reward(slots, rewards)
	}
}

// CheckRewards refuses rewards that no table takes. Its errors wrap rollout.ErrInvalid.
func CheckRewards(r rollout.Rewards) error {
	bad := func(row int, field, value, remedy string) error {
		return &rollout.FieldError{Row: row, Field: field, Value: value, Remedy: remedy}
	}
	switch n := len(r.IDs); {
	case n != len(r.Values):
		return bad(min(n, len(r.Values)), "rewards", fmt.Sprintf("%d for %d ids", len(r.Values), n), "give one for each id")
	case n == 0 || n > rollout.MostRewards:
		return bad(0, "ids", fmt.Sprintf("%d of them", n), fmt.Sprintf("give 1 to %d at once, and more in several calls",
			rollout.MostRewards))
	}
	for _, name := range [][2]string{{"by", r.By}, {"request_id", r.RequestID}} {
		if !isName(name[1]) {
			return bad(0, name[0], fmt.Sprintf("%.40q", name[1]), fmt.Sprintf("give at most %d bytes of UTF-8 without "+
				"control characters", rollout.MostRewardBytes))
		}
	}
	seen := make(map[rollout.ID]bool, len(r.IDs))
	for i, id := range r.IDs {
		if x := float64(r.Values[i]); !(math.Abs(x) <= rollout.MaxReward) {
			return bad(i, "reward", fmt.Sprint(r.Values[i]), "give a number within -1e9 to 1e9")
		}
		if seen[id] {
			return bad(i, "id", fmt.Sprint(id), "give each rollout one reward at once")
		}
		seen[id] = true
	}
	return nil
}

// isName reports whether a text may be who gave rewards, or the id of a request.
func isName(text string) bool {
	return len(text) <= rollout.MostRewardBytes && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// repeated returns the answer of a call again if the other says the same.
func (l *Labelling) repeated(r rollout.Rewards) (rollout.Rewarded, error) {
	same := l.By == r.By && len(l.Labels) == len(r.IDs)
	for i := 0; same && i < len(r.IDs); i++ {
		same = l.Labels[i].ID == r.IDs[i] && l.Labels[i].Reward == r.Values[i]
	}
	if !same {
		return rollout.Rewarded{}, fmt.Errorf("request_id: %q: it was used for %d other rewards: use a new id for each "+
			"call: %w", l.Request, len(l.Labels), rollout.ErrInvalid)
	}
	return l.Answer, nil
}

// Labels returns the calls that gave a rollout a reward late, as far as the table remembers them, the oldest first,
// each with that reward alone; of id 0, all calls whole.
func (v Inspection) Labels(id rollout.ID) (list []Labelling) {
	t := v.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, call := range t.labels.calls {
		if id == 0 {
			list = append(list, call)
			continue
		}
		if i := slices.IndexFunc(call.Labels, func(l Label) bool { return l.ID == id }); i >= 0 {
			call.Labels = call.Labels[i : i+1]
			list = append(list, call)
		}
	}
	return list
}

// labels remembers the latest calls of [Table.Reward]. The zero value is ready.
type labels struct {
	calls   []Labelling       // in order
	byID    map[string]uint64 // numbers of calls with a request id
	weight  int               // labels of all calls
	bytes   int64
	skipped uint64 // the next number is above it
}

// given is the greatest number of a call.
func (l *labels) given() uint64 {
	if n := len(l.calls); n > 0 {
		return max(l.skipped, l.calls[n-1].Number)
	}
	return l.skipped
}

// list returns the calls.
func (l *labels) list() []Labelling { return slices.Clone(l.calls) }

// find returns the call with a request id, nil if none is remembered.
func (l *labels) find(request string) *Labelling {
	number, ok := l.byID[request]
	if !ok {
		return nil
	}
	i, _ := slices.BinarySearchFunc(l.calls, number, func(c Labelling, n uint64) int { return cmp.Compare(c.Number, n) })
	return &l.calls[i]
}

// setLabels replaces the calls that are remembered.
func (t *Table) setLabels(calls []Labelling) {
	t.labels = labels{skipped: t.labels.given()}
	t.labelBytes.Store(0)
	for _, c := range calls {
		t.keepLabels(c)
	}
}

// keepLabels remembers a call, and forgets the oldest for it.
func (t *Table) keepLabels(done Labelling) {
	l := &t.labels
	l.calls = append(l.calls, done)
	l.weight += len(done.Labels)
	l.bytes += RewardBytes(len(done.Labels))
	if done.Request != "" {
		if l.byID == nil {
			l.byID = make(map[string]uint64)
		}
		l.byID[done.Request] = done.Number
	}
	if t.changes != nil {
		t.changes.labelled = append(t.changes.labelled, done)
	}
	for l.weight > rememberedLabels && len(l.calls) > 1 {
		old := l.calls[0]
		l.calls[0] = Labelling{}
		l.calls = l.calls[1:]
		l.weight -= len(old.Labels)
		l.bytes -= RewardBytes(len(old.Labels))
		if l.byID[old.Request] == old.Number {
			delete(l.byID, old.Request)
		}
		if t.changes != nil {
			t.changes.labelled = append(t.changes.labelled, Labelling{Number: old.Number})
		}
	}
	t.labelBytes.Store(l.bytes)
}
