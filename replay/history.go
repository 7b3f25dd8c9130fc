package replay

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// Life is what happened to a rollout, of the latest rollouts of a table with Options.History. It outlives the rollout.
type Life struct {
	ID        rollout.ID      `json:"id"`
	Group     uint64          `json:"group"`
	Made      rollout.Version `json:"made"`      // version of its oldest token
	Reward    Number          `json:"reward"`    // the latest
	Advantage Number          `json:"advantage"` // the same
	Forgotten int             `json:"forgotten"` // events between the first and the second
	Events    []Event         `json:"events"`    // in order
}

// Event is one event of a life.
type Event struct {
	Kind    EventKind       `json:"event"`
	Time    time.Time       `json:"time"`
	Version rollout.Version `json:"version"`          // of the table
	Caller  string          `json:"caller,omitempty"` // who inserted, drew or reported, by [WithCaller]; "": not known

	Priority *float64       `json:"priority,omitempty"` // base after an insertion or a report, with sampler prioritized
	Draw     *EventDraw     `json:"draw,omitempty"`
	Measured *EventMeasured `json:"measured,omitempty"` // by a report with measurements
	Cause    rollout.Cause  `json:"cause,omitempty"`    // of an eviction
	Reward   *float64       `json:"reward,omitempty"`   // given
}

// EventDraw is what a draw was like.
type EventDraw struct {
	Batch       rollout.BatchID `json:"batch"`
	Times       int             `json:"times"` // that the batch has the rollout
	Probability float64         `json:"probability"`
	Weight      float64         `json:"weight"` // importance weight
	Staleness   int             `json:"staleness"`
	Fresh       bool            `json:"fresh"`
	Outcome     Outcome         `json:"outcome"`
}

// EventMeasured is what a trainer measured, nil where it did not.
type EventMeasured struct {
	Advantage *float64 `json:"advantage,omitempty"`
	TDError   *float64 `json:"td_error,omitempty"`
	GradNorm  *float64 `json:"grad_norm,omitempty"`
	MeanRatio *float64 `json:"mean_ratio,omitempty"` // of importance, over the policy's tokens in the loss
}

// EventKind is what happened.
type EventKind string

// The events. A report also reaches a rollout that has left, and changes nothing then.
const (
	WasInserted EventKind = "inserted"
	WasDrawn    EventKind = "drawn"
	WasReported EventKind = "reported"
	WasEvicted  EventKind = "evicted"
	WasRewarded EventKind = "rewarded" // by a late reward; the caller is who gave it
)

// Outcome is what became of a draw.
type Outcome string

// The outcomes.
const (
	OnLease  Outcome = "on lease"
	Used     Outcome = "used"     // acknowledged
	Returned Outcome = "returned" // released, or its lease ended
)

// Bounds of a history. LifeBytes is the most that a life takes, with its share of the index: measured, and rounded up.
const (
	LifeBytes = 1536
	// MostEvents is how many events a life has: the first if that is the insertion, and the latest.
	MostEvents  = 16
	maxCallers  = 1024 // whose names a shard remembers; of later ones it records none
	callerBytes = 64   // of a name
)

// HistoryBytes is the most that Options.History makes a table hold.
func (o Options) HistoryBytes() int64 {
	if o.History == 0 {
		return 0
	}
	return int64(max(o.Shards, 1)) * (int64(o.livesOfShard())*LifeBytes + maxCallers*4*callerBytes)
}

// livesOfShard is how many lives a shard remembers.
func (o *Options) livesOfShard() int {
	shards := max(o.Shards, 1)
	return (o.History + shards - 1) / shards
}

type callerKey struct{}

// WithCaller names, for the history of a table, who inserts, draws or reports in a context.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Life returns what happened to a rollout, false if the table does not remember it. It is not in snapshots and
// journals: a restored table remembers what happens from then on.
func (v Inspection) Life(id rollout.ID) (l Life, ok bool) {
	for _, s := range v.table.shards {
		s.do(func(s *shard) {
			s.expire()
			if s.history != nil && !ok {
				l, ok = s.history.read(id)
			}
		})
	}
	return l, ok
}

// history remembers the lives of the rollouts of a shard to which something happened last. It is nil where the option
// is not given, which costs each operation a comparison.
type history struct {
	shard *shard
	most  int
	at    map[rollout.ID]int32 // places in lives
	lives []life
	// the ends of the list by last event, none where it is empty
	newest, oldest int32

	callers []string // by number; the first is nobody's
	numbers map[string]uint16
	caller  uint16 // of the operation under way
}

func newHistory(s *shard) *history {
	if s.options.History == 0 {
		return nil
	}
	return &history{shard: s, most: s.options.livesOfShard(), at: make(map[rollout.ID]int32), newest: none, oldest: none,
		callers: []string{""}, numbers: map[string]uint16{"": 0}}
}

// life is a Life as it is kept.
type life struct {
	id                rollout.ID
	group             uint64
	made              rollout.Version
	reward, advantage float32
	forgotten         uint32
	newer, older      int32 // places of its neighbours by last event
	events            []event
}

// event is an Event as it is kept. What its numbers are depends on the kind.
type event struct {
	time    int64 // nanoseconds since 1970
	batch   rollout.BatchID
	numbers [5]float64 // NaN: not known
	version rollout.Version
	times   uint32
	caller  uint16
	kind    eventKind
	detail  uint8 // of a draw its outcome, of an eviction its cause
}

type eventKind uint8

const (
	insertEvent eventKind = iota
	drawEvent
	reportEvent
	evictEvent
	rewardEvent
)

// What a draw's detail is.
const (
	drawLeased uint8 = iota
	drawUsed
	drawReturned
)

// begin says in whose name the next events are.
func (h *history) begin(ctx context.Context) {
	if h == nil {
		return
	}
	name, _ := ctx.Value(callerKey{}).(string)
	name = name[:min(len(name), callerBytes)]
	number, known := h.numbers[name]
	if !known && len(h.callers) < maxCallers {
		number, name = uint16(len(h.callers)), strings.Clone(name)
		h.callers = append(h.callers, name)
		h.numbers[name] = number
	}
	h.caller = number
}

// now returns an event of this moment without numbers.
func (h *history) now(kind eventKind) event {
	e := event{time: h.shard.options.Clock().UnixNano(), version: h.shard.version, kind: kind, caller: h.caller}
	for i := range e.numbers {
		e.numbers[i] = math.NaN()
	}
	return e
}

// of returns the life of a rollout as the newest, a new one if need be. It is valid until the next call.
func (h *history) of(it *item, r *rollout.Rollout) *life {
	at, ok := h.at[it.ID]
	switch {
	case ok:
		h.unlink(at)
	case len(h.lives) < h.most:
		at = int32(len(h.lives))
		h.lives = append(h.lives, life{})
	default:
		at = h.oldest
		h.unlink(at)
		delete(h.at, h.lives[at].id)
	}
	l := &h.lives[at]
	if !ok {
		*l = life{id: it.ID, group: it.Group, made: it.Version, reward: r.Reward, advantage: it.Advantage,
			events: l.events[:0]}
		h.at[it.ID] = at
	}
	l.newer, l.older = none, h.newest
	if h.newest != none {
		h.lives[h.newest].newer = at
	} else {
		h.oldest = at
	}
	h.newest = at
	return l
}

func (h *history) unlink(at int32) {
	l := &h.lives[at]
	if l.newer != none {
		h.lives[l.newer].older = l.older
	} else {
		h.newest = l.older
	}
	if l.older != none {
		h.lives[l.older].newer = l.newer
	} else {
		h.oldest = l.newer
	}
}

// add appends an event. The oldest but the insertion makes room.
func (l *life) add(e event) {
	if n := len(l.events); n == MostEvents {
		first := 0
		if l.events[0].kind == insertEvent {
			first = 1
		}
		copy(l.events[first:], l.events[first+1:])
		l.events = l.events[:n-1]
		l.forgotten++
	}
	l.events = append(l.events, e)
}

// insert notes an insertion, once the rollout has its base.
func (h *history) insert(it *item, r *rollout.Rollout, base float64) {
	e := h.now(insertEvent)
	e.numbers[0] = base
	h.of(it, r).add(e)
}

// refuse notes what does not stay: a rollout that is too old already, or not selected.
func (h *history) refuse(it *item, r *rollout.Rollout, why cause) {
	h.insert(it, r, math.NaN())
	h.leave(it, r, why)
}

// draw notes the draws of a batch from slots.
func (h *history) draw(b *rollout.Batch, slots []int32) {
	e := h.now(drawEvent)
	e.batch, e.times = b.ID, 1
	for i, slot := range slots {
		l, d := h.of(&h.shard.items[slot], h.shard.rollouts[slot]), &b.Draws[i]
		if n := len(l.events); n > 0 && l.events[n-1].kind == drawEvent && l.events[n-1].batch == b.ID {
			l.events[n-1].times++
			continue
		}
		e.numbers[0], e.numbers[1], e.numbers[2] = d.Probability, float64(d.Weight), 0
		if d.Fresh {
			e.numbers[2] = 1
		}
		l.add(e)
	}
}

// settle notes what became of a batch, before its slots are free again.
func (h *history) settle(b *rollout.Batch, slots []int32, outcome uint8) {
	if h == nil {
		return
	}
	for _, slot := range slots {
		at, ok := h.at[h.shard.items[slot].ID]
		if !ok {
			continue
		}
		events := h.lives[at].events
		for i := len(events) - 1; i >= 0; i-- {
			if e := &events[i]; e.kind == drawEvent && e.batch == b.ID {
				e.detail = outcome
				break
			}
		}
	}
}

// report notes a report of a rollout that the shard holds, after it took effect, with what was measured.
func (h *history) report(slot int32, f rollout.Feedback) {
	e := h.measured(f)
	e.numbers[0] = h.shard.baseOf(slot)
	h.of(&h.shard.items[slot], h.shard.rollouts[slot]).add(e)
}

// reportLeft notes a report of a rollout that has left, if the history has it.
func (h *history) reportLeft(f rollout.Feedback) {
	if at, ok := h.at[f.ID]; ok {
		l := &h.lives[at]
		known := item{ID: l.id}
		h.of(&known, nil).add(h.measured(f))
	}
}

func (h *history) measured(f rollout.Feedback) event {
	e := h.now(reportEvent)
	for i, m := range []rollout.Measurement{f.Advantage, f.TDError, f.GradNorm, {Value: f.RatioSum / f.Tokens,
		Known: f.Tokens > 0}} {
		if m.Known {
			e.numbers[1+i] = m.Value
		}
	}
	return e
}

// reward notes a reward that a rollout got late, after it took effect.
func (h *history) reward(slot int32) {
	it, r := &h.shard.items[slot], h.shard.rollouts[slot]
	e := h.now(rewardEvent)
	e.numbers[0], e.numbers[1] = h.shard.baseOf(slot), float64(r.Reward)
	h.of(it, r).add(e)
}

// follow takes over the reward and the advantage of a rollout whose group has others.
func (h *history) follow(slot int32) {
	it := &h.shard.items[slot]
	if at, ok := h.at[it.ID]; ok {
		h.lives[at].reward, h.lives[at].advantage = h.shard.rollouts[slot].Reward, it.Advantage
	}
}

// leave notes an eviction.
func (h *history) leave(it *item, r *rollout.Rollout, why cause) {
	e := h.now(evictEvent)
	e.detail, e.caller = uint8(why), 0
	h.of(it, r).add(e)
}

// baseOf returns the base of a rollout's priority, NaN unless the sampler is prioritized and can draw it.
func (s *shard) baseOf(slot int32) float64 {
	if s.prioritized == nil || s.items[slot].is(waits) {
		return math.NaN()
	}
	return s.prioritized.baseOf(slot)
}

// read returns a copy of a life.
func (h *history) read(id rollout.ID) (Life, bool) {
	at, ok := h.at[id]
	if !ok {
		return Life{}, false
	}
	l := &h.lives[at]
	out := Life{ID: l.id, Group: l.group, Made: l.made, Reward: Number(l.reward), Advantage: Number(l.advantage),
		Forgotten: int(l.forgotten)}
	for i := range l.events {
		e := &l.events[i]
		shown := Event{Kind: e.kind.name(), Time: time.Unix(0, e.time).UTC(), Version: e.version, Caller: h.callers[e.caller]}
		switch e.kind {
		case insertEvent:
			shown.Priority = known(e.numbers[0])
		case drawEvent:
			shown.Draw = &EventDraw{Batch: e.batch, Times: int(e.times), Probability: e.numbers[0], Weight: e.numbers[1],
				Staleness: int(e.version - l.made), Fresh: e.numbers[2] > 0,
				Outcome: [...]Outcome{OnLease, Used, Returned}[e.detail]}
		case reportEvent:
			shown.Priority = known(e.numbers[0])
			m := EventMeasured{known(e.numbers[1]), known(e.numbers[2]), known(e.numbers[3]), known(e.numbers[4])}
			if m != (EventMeasured{}) {
				shown.Measured = &m
			}
		case evictEvent:
			shown.Cause = cause(e.detail).name()
		case rewardEvent:
			shown.Priority, shown.Reward = known(e.numbers[0]), known(e.numbers[1])
		}
		out.Events = append(out.Events, shown)
	}
	return out, true
}

func (k eventKind) name() EventKind {
	return [...]EventKind{WasInserted, WasDrawn, WasReported, WasEvicted, WasRewarded}[k]
}

// known returns a number, nil for NaN.
func known(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return new(x)
}

// Number is a number as JSON: null for NaN and what is infinite.
type Number float32

// MarshalJSON writes the shortest decimal that reads back as the same number, or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 32), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	v, err := strconv.ParseFloat(string(text), 32)
	*n = Number(v)
	return err
}
