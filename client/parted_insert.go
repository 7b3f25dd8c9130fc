package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// InsertError is an insertion into several parts of which some groups have entered, or may have. Repeated under its
// batch id by the same Services, it completes: no group enters twice.
type InsertError struct {
	BatchID   string
	Entered   [][]rollout.ID // by group, the ids of its rollouts; nil: it has not entered, or nobody knows
	Uncertain []int          // groups that were sent to a service which did not answer
	Err       error          // of the first group that has not entered

	chosen bool // the caller's own batch id
}

// Error says which groups entered.
func (e *InsertError) Error() string {
	var entered []string
	for i, ids := range e.Entered {
		if len(ids) > 0 {
			entered = append(entered, fmt.Sprintf("%d as rollouts %d to %d", i, ids[0], ids[len(ids)-1]))
		}
	}
	text := fmt.Sprintf("%d of %d groups have entered (%s)", len(entered), len(e.Entered), strings.Join(entered, ", "))
	if len(e.Uncertain) > 0 {
		text += fmt.Sprintf(", and groups %v perhaps", e.Uncertain)
	}
	return fmt.Sprintf("%s; repeat the insertion under the batch id %q to complete it: %s", text, e.BatchID, e.Err)
}

// Unwrap returns the cause if the caller chose the batch id. Otherwise a repeat would have another id and enter twice
// what has entered, so that errors such as rollout.ErrFull, after which programs just repeat, do not show.
func (e *InsertError) Unwrap() error {
	if e.chosen {
		return e.Err
	}
	return nil
}

// pendingGroup is where a group of an insertion goes, and what has become of it.
type pendingGroup struct {
	order     []int // parts, the one it prefers first
	next      int   // in order, where it goes
	ids       []uint64
	uncertain bool // sent to order[next], which has not answered: it goes nowhere else
	err       error
}

// Insert adds whole groups and returns the ids of their rollouts in order. Each group enters whole, and once; with
// several groups an [InsertError] says which have entered.
func (w *PartedTable) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	return w.InsertOnce(ctx, "", groups...)
}

// InsertOnce is [PartedTable.Insert] under an id of the caller's choice. Repeated by this program, it enters once
// whatever happened meanwhile, while it is among the last 1,024; repeated by another, it does where the same parts are
// up.
func (w *PartedTable) InsertOnce(
	ctx context.Context, batchID string, groups ...rollout.Group,
) ([]rollout.ID, error) {
	answer, err := w.InsertGroups(ctx, Insertion{BatchID: batchID}, groups...)
	return idsOf(answer), err
}

// InsertGroups is [PartedTable.Insert] with all options and the whole answer. Groups under a grant go to the part that
// granted them, while it is up.
func (w *PartedTable) InsertGroups(
	ctx context.Context, o Insertion, groups ...rollout.Group,
) (wire.InsertAnswer, error) {
	if len(groups) == 0 {
		return wire.InsertAnswer{}, nil
	}
	if _, err := commonSize(groups); err != nil {
		return wire.InsertAnswer{}, w.failed("insert", err)
	}
	parts, err := w.resolve(ctx)
	if err != nil {
		return wire.InsertAnswer{}, err
	}
	in := &partedInsertion{Insertion: o, table: w, parts: parts, groups: groups, chosen: o.BatchID != ""}
	in.BatchID = cmp.Or(o.BatchID, parts[0].table.client.nextID())
	in.answer.BatchID, in.pending = in.BatchID, in.recall()
	for tries := w.services.attempts(); ; {
		waits, over := !in.send(ctx), false
		left, first := 0, error(nil)
		for _, g := range in.pending {
			if g.ids == nil {
				left, first = left+1, cmp.Or(first, g.err)
				waits = waits || g.uncertain || errors.Is(g.err, wire.ErrElsewhere) // which nobody owns now
				over = over || !errors.Is(g.err, ErrUnreachable)
			}
		}
		switch {
		case left == 0:
			return in.complete(), nil
		case over, waits && !tries.again(ctx, true):
			return in.answer, w.failed("insert", in.partial(first))
		}
	}
}

// partedInsertion is an insertion whose groups go to several parts.
type partedInsertion struct {
	Insertion
	table   *PartedTable
	parts   []*part
	groups  []rollout.Group
	pending []*pendingGroup // of groups
	chosen  bool            // the batch id is the caller's own
	answer  wire.InsertAnswer
}

// recall returns the groups of the insertion: new ones, or as an earlier insertion under that id has left them.
func (in *partedInsertion) recall() []*pendingGroup {
	in.table.mu.Lock()
	defer in.table.mu.Unlock()
	if gone := in.table.insertions.byID[in.BatchID]; len(gone) == len(in.groups) && len(gone[0].order) == len(in.parts) {
		return gone
	}
	pending := make([]*pendingGroup, len(in.groups))
	for i, g := range in.groups {
		order := parted.Order(parted.Key(g.Rollouts[0].PromptID, in.BatchID, i), len(in.parts))
		granter, _ := parted.Cut(in.Grant)
		if at := slices.Index(order, granter); in.Grant != 0 && at >= 0 {
			order = slices.Insert(slices.Delete(order, at, at+1), 0, granter)
		}
		pending[i] = &pendingGroup{order: order}
	}
	return pending
}

// remember keeps what has become of the groups, for a repeated insertion. The caller holds the table's lock.
func (in *partedInsertion) remember() { in.table.insertions.put(in.BatchID, in.pending) }

// complete returns the answer once all groups have entered.
func (in *partedInsertion) complete() wire.InsertAnswer {
	for _, g := range in.pending {
		in.answer.IDs = append(in.answer.IDs, g.ids...)
	}
	in.table.mu.Lock()
	defer in.table.mu.Unlock()
	if in.chosen {
		in.remember()
	}
	in.answer.Version = max(in.answer.Version, int32(in.table.version)) // without an answer of today, if it is a repeat
	return in.answer
}

// partial returns the error of groups that did not all enter, and remembers what did.
func (in *partedInsertion) partial(cause error) error {
	e := &InsertError{BatchID: in.BatchID, Err: cause, chosen: in.chosen, Entered: make([][]rollout.ID, len(in.pending))}
	entered := false
	for i, g := range in.pending {
		for _, id := range g.ids {
			e.Entered[i] = append(e.Entered[i], rollout.ID(id))
			entered = true
		}
		if g.uncertain {
			e.Uncertain = append(e.Uncertain, i)
		}
	}
	if !entered && len(e.Uncertain) == 0 {
		return cause
	}
	in.table.mu.Lock()
	defer in.table.mu.Unlock()
	in.remember()
	return e
}

// delivery is what one part gets: groups that went the same way.
type delivery struct {
	id      string // batch id there
	to      *part
	groups  []rollout.Group
	pending []*pendingGroup
	answer  wire.InsertAnswer
}

// send sends each group that has not entered to the first part of its order that is up. It reports whether there was
// anywhere to send to.
func (in *partedInsertion) send(ctx context.Context) bool {
	list := in.deliveries(ctx)
	together(len(list), func(i int) { in.deliver(ctx, list[i]) })
	all := &in.answer
	for _, d := range list {
		all.Version = max(all.Version, d.answer.Version)
		all.Present, all.TooOld = all.Present+d.answer.Present, all.TooOld+d.answer.TooOld
		all.Note = cmp.Or(all.Note, d.answer.Note)
	}
	in.table.saw(rollout.Version(all.Version))
	return len(list) > 0
}

// deliveries says what each part gets. Groups that a part gets in another's place have a batch id of their own there:
// the part may know the plain one.
func (in *partedInsertion) deliveries(ctx context.Context) (list []*delivery) {
	byID := make(map[string]*delivery)
	ready := make(map[int]bool) // of parts, each asked once, so that groups of one preference stay together
	isReady := func(k int) bool {
		if _, asked := ready[k]; !asked {
			ready[k] = in.table.ready(ctx, in.parts[k]) == nil
		}
		return ready[k]
	}
	for i, g := range in.pending {
		if g.ids != nil {
			continue
		}
		if !g.uncertain {
			if g.next = slices.IndexFunc(g.order, isReady); g.next < 0 {
				g.err = fmt.Errorf("%w: all %d parts are down", ErrUnreachable, len(in.parts))
				continue
			}
		}
		id := in.BatchID
		for _, k := range g.order[:g.next+1] {
			id += "/" + strconv.Itoa(k)
		}
		d := byID[id]
		if d == nil {
			d = &delivery{id: id, to: in.parts[g.order[g.next]]}
			list, byID[id] = append(list, d), d
		}
		d.groups, d.pending = append(d.groups, in.groups[i]), append(d.pending, g)
	}
	return list
}

// deliver inserts into a part, and notes what has become of the groups.
func (in *partedInsertion) deliver(ctx context.Context, d *delivery) {
	own := Insertion{BatchID: d.id, GroupSize: in.GroupSize}
	if granter, grant := parted.Cut(in.Grant); granter == d.to.number {
		own.Grant = grant
	}
	uncertain := d.pending[0].uncertain // as all of them are
	err := in.table.on(ctx, d.to, func(t *Table) (err error) {
		var lost bool
		if d.answer, lost, err = t.Waiting(in.table.wait).insertGroups(ctx, own, d.groups); err != nil {
			uncertain = lost || uncertain && !isRefusal(err)
			return err
		}
		return d.takeIDs()
	})
	for _, g := range d.pending {
		g.err, g.uncertain = err, err != nil && uncertain
	}
}

// takeIDs gives each group its ids of the answer. With unit step a rollout has one for each turn.
func (d *delivery) takeIDs() error {
	rows, steps := 0, 0
	for _, g := range d.groups {
		for _, r := range g.Rollouts {
			rows, steps = rows+1, steps+max(1, len(r.Turns))
		}
	}
	ids := d.answer.IDs
	if len(ids) != rows && len(ids) != steps {
		return fmt.Errorf("part %d answered with %d ids for %d rollouts: is its service another version?", d.to.number,
			len(ids), rows)
	}
	byStep := len(ids) == steps
	for i, g := range d.groups {
		n := len(g.Rollouts)
		if byStep {
			n = 0
			for _, r := range g.Rollouts {
				n += max(1, len(r.Turns))
			}
		}
		joined := make([]uint64, n)
		for j, id := range ids[:n] {
			joined[j] = parted.Join(d.to.number, id)
		}
		d.pending[i].ids, ids = joined, ids[n:]
	}
	return nil
}
