package service

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// DefaultGrantTime is how long a grant of a gate lasts.
const DefaultGrantTime = 10 * time.Minute

// maxGrants is how many grants may be outstanding at once.
const maxGrants = 1 << 16

// Gate tells those who generate how many groups they may start, so that they wait instead of generating what would be too
// stale (wire.Gate; Fu et al. 2025): with the table at version v, at most (v - v0 + MaxStaleness + 1) x RolloutsPerUpdate rollouts
// may have been started. Started is what was inserted, under a grant or not, and what is granted and not inserted yet; v0 is
// the table's version when the first of them was. A gate without a definition grants all that there is room for.
//
// A grant that is neither inserted nor abandoned in time goes back; what is inserted under it later is counted all the same. After a
// restart no grant is outstanding: started is what was inserted. Its methods may be called concurrently.
type Gate struct {
	limit *wire.Gate // nil: none
	last  time.Duration

	mu     sync.Mutex // guards what follows
	books  GateBooks
	grants map[uint64]*grant
	order  []*grant // by expiry, the first first; settled ones among them
	held   int64    // rollouts of all grants
	next   uint64

	granted, abandoned, expired uint64
}

// GateBooks is what a gate must know again after a restart.
type GateBooks struct {
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

// NewGate returns a gate with these books; first is the number of its first grant, which no other gate of the table may have given.
func NewGate(limit *wire.Gate, books GateBooks, first uint64) *Gate {
	g := &Gate{limit: limit, books: books, grants: make(map[uint64]*grant), next: max(first, 1), last: DefaultGrantTime}
	if limit != nil && limit.GrantSeconds > 0 {
		g.last = time.Duration(limit.GrantSeconds * float64(time.Second))
	}
	return g
}

// CheckGate returns what is wrong with a gate.
func CheckGate(l wire.Gate) (problems []error) {
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			problems = append(problems, fmt.Errorf("gate.%s: %v: want %s", key, value, want))
		}
	}
	check(l.RolloutsPerUpdate > 0 && l.RolloutsPerUpdate <= math.MaxInt32, "rollouts_per_update", l.RolloutsPerUpdate, "the new rollouts that one update takes, above 0")
	check(l.MaxStaleness >= 0 && l.MaxStaleness <= math.MaxInt32, "max_staleness", l.MaxStaleness, "versions, 0 or more")
	check(l.GrantSeconds >= 0 && l.GrantSeconds <= maxSeconds, "grant_seconds", l.GrantSeconds, fmt.Sprintf("0 (%v) to %v", DefaultGrantTime.Seconds(), maxSeconds))
	return problems
}

// maxSeconds is the longest time that a definition may ask for: a year.
const maxSeconds = 366 * 24 * 3600

// Start grants up to so many groups of a size, with the table at version v and room for so many rollouts (math.MaxInt64: not
// bounded). The grant is 0 if there are none. An error wraps rollout.ErrInvalid.
func (g *Gate) Start(now time.Time, groups, size int, v rollout.Version, room int64) (number uint64, granted int, err error) {
	if groups < 1 || groups > math.MaxInt32 {
		return 0, 0, fmt.Errorf("groups: %d: want 1 to %d: %w", groups, math.MaxInt32, rollout.ErrInvalid)
	}
	if size < 1 || size > math.MaxInt32 {
		return 0, 0, fmt.Errorf("group_size: %d: want the rollouts in each group, as the table's definition gives no group_size: %w", size, rollout.ErrInvalid)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	g.begin(v)
	if g.limit != nil && g.allowedAt(v) < int64(size) && float64(size) > float64(g.limit.MaxStaleness+1)*g.limit.RolloutsPerUpdate {
		return 0, 0, fmt.Errorf("group_size: %d: the gate lets (max_staleness + 1) x rollouts_per_update = %v rollouts run ahead of the trainer: want smaller groups, or a wider gate: %w",
			size, float64(g.limit.MaxStaleness+1)*g.limit.RolloutsPerUpdate, rollout.ErrInvalid)
	}
	free := min(g.allowedAt(v)-g.books.Inserted-g.held, room-g.held)
	n := min(int64(groups), free/int64(size))
	if n < 1 {
		g.books.Begun = g.books.Begun && (g.books.Inserted != 0 || g.held != 0)
		return 0, 0, nil
	}
	if len(g.grants) >= maxGrants {
		return 0, 0, fmt.Errorf("%d grants are outstanding: insert under them, or abandon them: %w", len(g.grants), rollout.ErrFull)
	}
	if len(g.order) > 2*len(g.grants)+64 {
		g.order = slices.DeleteFunc(g.order, func(gr *grant) bool { return gr.left == 0 })
	}
	gr := &grant{number: g.next, size: int64(size), left: n * int64(size), until: now.Add(g.last)}
	g.next++
	g.grants[gr.number] = gr
	g.order = append(g.order, gr)
	g.held += gr.left
	g.granted += uint64(gr.left)
	return gr.number, int(n), nil
}

// begin notes the version at which the first rollout was started.
func (g *Gate) begin(v rollout.Version) {
	if !g.books.Begun {
		g.books.Begun, g.books.Origin = true, v
	}
}

// allowedAt returns how many rollouts may have been started by version v.
func (g *Gate) allowedAt(v rollout.Version) int64 {
	if g.limit == nil {
		return math.MaxInt64 / 4
	}
	ahead := float64(v) - float64(g.books.Origin) + float64(g.limit.MaxStaleness) + 1
	// A product that is whole in the decimal numbers of the definition counts as whole.
	return int64(math.Floor(ahead*g.limit.RolloutsPerUpdate + 1e-6))
}

// Insert counts rollouts inserted at version v, under a grant or under none, 0.
func (g *Gate) Insert(now time.Time, number uint64, rollouts int, v rollout.Version) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	g.begin(v)
	g.books.Inserted += int64(rollouts)
	if gr := g.grants[number]; gr != nil {
		g.settle(gr, int64(rollouts))
	}
}

// Abandon gives groups of a grant back. One that is not outstanding any more is left alone.
func (g *Gate) Abandon(now time.Time, number uint64, groups int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if gr := g.grants[number]; gr != nil {
		g.abandoned += uint64(g.settle(gr, min(int64(groups), (gr.left+gr.size-1)/gr.size)*gr.size))
	}
}

// settle takes rollouts off a grant and returns how many it had.
func (g *Gate) settle(gr *grant, rollouts int64) int64 {
	n := min(rollouts, gr.left)
	gr.left -= n
	g.held -= n
	if gr.left == 0 {
		delete(g.grants, gr.number)
	}
	return n
}

// Rewind undoes so many versions, which took rollouts that must come again, and as many rollouts as left the table thereby.
func (g *Gate) Rewind(versions int, left uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	undone := int64(left)
	if g.limit != nil {
		undone += int64(math.Round(float64(versions) * g.limit.RolloutsPerUpdate))
	}
	g.books.Inserted -= undone
}

// expire gives back what was granted too long ago.
func (g *Gate) expire(now time.Time) {
	for len(g.order) > 0 && (g.order[0].left == 0 || !now.Before(g.order[0].until)) {
		gr := g.order[0]
		g.order = g.order[1:]
		if gr.left > 0 {
			g.expired += uint64(g.settle(gr, gr.left))
		}
	}
}

// NextExpiry returns when the next grant goes back, false if none is outstanding.
func (g *Gate) NextExpiry(now time.Time) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if len(g.order) == 0 {
		return time.Time{}, false
	}
	return g.order[0].until, true
}

// Books returns what a gate like this one begins with.
func (g *Gate) Books() GateBooks {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.books
}

// Next returns the number of the grant to come.
func (g *Gate) Next() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next
}

// State returns where the gate stands with the table at version v.
func (g *Gate) State(now time.Time, v rollout.Version) GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	s := GateState{
		Started: g.books.Inserted + g.held, Outstanding: g.held, Grants: len(g.grants),
		Granted: g.granted, Abandoned: g.abandoned, Expired: g.expired,
	}
	if g.limit == nil {
		return s
	}
	s.RolloutsPerUpdate, s.MaxStaleness = g.limit.RolloutsPerUpdate, g.limit.MaxStaleness
	if !g.books.Begun {
		s.Allowed = int64(math.Floor(float64(g.limit.MaxStaleness+1)*g.limit.RolloutsPerUpdate + 1e-6))
		return s
	}
	s.Allowed = g.allowedAt(v)
	return s
}
