package service

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/sealed"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// defaultGrantTime is how long a gate's grant lasts.
const defaultGrantTime = 10 * time.Minute

// maxGrants bounds the grants outstanding at once.
const maxGrants = 1 << 16

// gate tells generators how many groups they may start, so that they wait instead of generating what would be too stale
// (wire.Gate; Fu et al. 2025). With the table at version v, at most (v - v0 + MaxStaleness + 1) x RolloutsPerUpdate
// rollouts may have been started. Started is what was inserted, under a grant or not, plus what is granted and not yet
// inserted; v0 is the table's version when the first of them was started. A gate without a definition grants all that
// there is room for.
//
// A grant that is neither inserted nor abandoned in time goes back; what is inserted under it later still counts. After
// a restart no grant is outstanding: started is what was inserted. Its methods may be called concurrently.
type gate struct {
	limit *wire.Gate // nil: none
	lasts time.Duration

	mu     sync.Mutex // guards what follows
	count  gateCount
	grants map[uint64]*grant
	order  []*grant // by expiry; settled ones among them
	held   int64    // rollouts of all grants
	next   uint64

	granted, abandoned, expired uint64
}

// gateCount is what a gate must know again after a restart.
type gateCount struct {
	Begun    bool            // something was inserted or granted
	Origin   rollout.Version // v0
	Inserted int64           // rollouts, less those that rewinding undid
}

type grant struct {
	number uint64
	size   int64 // rollouts in each group
	left   int64 // rollouts
	until  time.Time
}

// newGate returns a gate with a count; first is the number of its first grant, which no other gate of the table may
// have given.
func newGate(limit *wire.Gate, count gateCount, first uint64) *gate {
	g := &gate{limit: limit, count: count, grants: make(map[uint64]*grant), next: max(first, 1),
		lasts: defaultGrantTime}
	if limit != nil && limit.GrantSeconds > 0 {
		g.lasts = time.Duration(limit.GrantSeconds * float64(time.Second))
	}
	return g
}

// Start grants up to groups of a size, with the table at version v and room for the given rollouts (math.MaxInt64:
// unbounded). The grant's number is 0 if it grants none. An error wraps rollout.ErrInvalid, or rollout.ErrFull if too
// many grants are outstanding.
func (g *gate) Start(
	now time.Time, groups, size int, v rollout.Version, room int64,
) (number uint64, granted int, err error) {
	if groups < 1 || groups > math.MaxInt32 {
		return 0, 0, fmt.Errorf("groups: %d: want 1 to %d: %w", groups, math.MaxInt32, rollout.ErrInvalid)
	}
	if size < 1 || size > math.MaxInt32 {
		return 0, 0, fmt.Errorf("group_size: %d: want the rollouts in each group, because the table's definition has "+
			"no group_size: %w", size, rollout.ErrInvalid)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	g.begin(v)
	if g.limit != nil && g.allowedAt(v) < int64(size) &&
		float64(size) > float64(g.limit.MaxStaleness+1)*g.limit.RolloutsPerUpdate {
		return 0, 0, fmt.Errorf("group_size: %d: the gate lets (max_staleness + 1) x rollouts_per_update = %v "+
			"rollouts run ahead of the trainer: want smaller groups, or a larger max_staleness: %w",
			size, float64(g.limit.MaxStaleness+1)*g.limit.RolloutsPerUpdate, rollout.ErrInvalid)
	}
	free := min(g.allowedAt(v)-g.count.Inserted-g.held, room-g.held)
	n := min(int64(groups), free/int64(size))
	if n < 1 {
		g.count.Begun = g.count.Begun && (g.count.Inserted != 0 || g.held != 0)
		return 0, 0, nil
	}
	if len(g.grants) >= maxGrants {
		return 0, 0, fmt.Errorf("%d grants are outstanding: insert under them, or abandon them: %w", len(g.grants),
			rollout.ErrFull)
	}
	if len(g.order) > 2*len(g.grants)+64 {
		g.order = slices.DeleteFunc(g.order, func(gr *grant) bool { return gr.left == 0 })
	}
	gr := &grant{number: g.next, size: int64(size), left: n * int64(size), until: now.Add(g.lasts)}
	g.next++
	g.grants[gr.number] = gr
	g.order = append(g.order, gr)
	g.held += gr.left
	g.granted += uint64(gr.left)
	return gr.number, int(n), nil
}

// begin sets v0 at the first start.
func (g *gate) begin(v rollout.Version) {
	if !g.count.Begun {
		g.count.Begun, g.count.Origin = true, v
	}
}

// allowedAt returns how many rollouts may have been started at version v.
func (g *gate) allowedAt(v rollout.Version) int64 {
	if g.limit == nil {
		return math.MaxInt64 / 4
	}
	ahead := float64(v) - float64(g.count.Origin) + float64(g.limit.MaxStaleness) + 1
	// 1e-6: a product that is whole in the definition's decimal numbers stays whole.
	return int64(math.Floor(ahead*g.limit.RolloutsPerUpdate + 1e-6))
}

// BeforeFirstUpdate returns how many rollouts may have been started, or are inserted, while the table is at the version
// of the first start: false if it no longer is at version v, or if the gate has no definition.
func (g *gate) BeforeFirstUpdate(v rollout.Version) (started int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit == nil || g.count.Begun && g.count.Origin != v {
		return 0, false
	}
	ahead := float64(g.limit.MaxStaleness) + 1
	return max(int64(math.Floor(ahead*g.limit.RolloutsPerUpdate+1e-6)), g.count.Inserted), true
}

// Insert counts rollouts inserted at version v under a grant, 0 for none.
func (g *gate) Insert(now time.Time, number uint64, rollouts int, v rollout.Version) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	g.begin(v)
	g.count.Inserted += int64(rollouts)
	if gr := g.grants[number]; gr != nil {
		g.settle(gr, int64(rollouts))
	}
}

// Abandon gives groups of a grant back, unless the grant is no longer outstanding.
func (g *gate) Abandon(now time.Time, number uint64, groups int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if gr := g.grants[number]; gr != nil {
		g.abandoned += uint64(g.settle(gr, min(int64(groups), (gr.left+gr.size-1)/gr.size)*gr.size))
	}
}

// settle takes rollouts off a grant and returns how many it took.
func (g *gate) settle(gr *grant, rollouts int64) int64 {
	n := min(rollouts, gr.left)
	gr.left -= n
	g.held -= n
	if gr.left == 0 {
		delete(g.grants, gr.number)
	}
	return n
}

// Rewind lets generators start again what rewound versions took, and the rollouts that left the table by the rewind.
func (g *gate) Rewind(versions int, left uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	undone := int64(left)
	if g.limit != nil {
		undone += int64(math.Round(float64(versions) * g.limit.RolloutsPerUpdate))
	}
	g.count.Inserted -= undone
}

// expire takes back grants that were not used in time.
func (g *gate) expire(now time.Time) {
	for len(g.order) > 0 && (g.order[0].left == 0 || !now.Before(g.order[0].until)) {
		gr := g.order[0]
		g.order = g.order[1:]
		if gr.left > 0 {
			g.expired += uint64(g.settle(gr, gr.left))
		}
	}
}

// Bytes returns what the grants take in memory.
func (g *gate) Bytes() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int64(len(g.order)) * grantOverhead
}

// NextExpiry returns when the next grant goes back, false if none is outstanding.
func (g *gate) NextExpiry(now time.Time) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if len(g.order) == 0 {
		return time.Time{}, false
	}
	return g.order[0].until, true
}

// Count returns what a gate like this one must begin with.
func (g *gate) Count() gateCount {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// Next returns the number of the next grant.
func (g *gate) Next() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next
}

// State returns where the gate stands with the table at version v.
func (g *gate) State(now time.Time, v rollout.Version) wire.GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	s := wire.GateState{
		Started: g.count.Inserted + g.held, Outstanding: g.held, Grants: len(g.grants),
		Granted: g.granted, Abandoned: g.abandoned, Expired: g.expired,
	}
	if g.limit == nil {
		return s
	}
	s.RolloutsPerUpdate, s.MaxStaleness = g.limit.RolloutsPerUpdate, g.limit.MaxStaleness
	if !g.count.Begun {
		s.Allowed = int64(math.Floor(float64(g.limit.MaxStaleness+1)*g.limit.RolloutsPerUpdate + 1e-6))
		return s
	}
	s.Allowed = g.allowedAt(v)
	return s
}

func gateFormat() sealed.Format { return sealed.Format{Magic: "reprgat", Version: 1} }

// gateSnapshot is a gate's count with the table's at that time. Insertions since then, which the journal knows up to
// the last acknowledged one, are added to it on recovery.
type gateSnapshot struct {
	Books    gateCount // the field names are those of the file
	Inserted uint64    // replay.Flow.Inserted

	// In checkpoints alone: the table's columns, as their types say what the bytes of a rollout mean. Checkpoints of
	// before have neither field.
	HasColumns bool
	Columns    []wire.Column
}

func (t *table) gateSnapshot() gateSnapshot {
	return gateSnapshot{Books: t.gate.Load().Count(), Inserted: t.rollouts.ServiceView().Flow().Inserted}
}

func (g gateSnapshot) write(w io.Writer) error { return gateFormat().Write(w, &g) }

func readGateSnapshot(r io.Reader) (g gateSnapshot, err error) {
	if err = gateFormat().Open(r, &g); err != nil {
		err = fmt.Errorf("reading the gate's count: %w", err)
	}
	return g, err
}

// countFor returns the count as of the table's present state.
func (g gateSnapshot) countFor(t *table) gateCount {
	count := g.Books
	now := t.rollouts.ServiceView().Flow().Inserted
	if now <= g.Inserted {
		return count
	}
	count.Begun = true
	// how many rollouts the steps were is unknown: the count may be late by the journal's interval
	if t.Unit != replay.UnitStep {
		count.Inserted += int64(now - g.Inserted)
	}
	return count
}
