package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/replay/split"
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

// pendingGroup is a group of an insertion.
type pendingGroup struct {
	order     []int // parts, the one it prefers first
	next      int   // in order, where it goes
	ids       []uint64
	uncertain bool // sent to order[next], which has not answered: it goes nowhere else
	err       error
}

// Insert adds whole groups and returns the ids of their rollouts in order. Each group enters whole, and once; with
// several groups an [InsertError] says which have entered.
func (w *PartitionedTable) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	return w.InsertOnce(ctx, "", groups...)
}

// InsertOnce is [PartitionedTable.Insert] under an id of the caller's choice. Repeated by this program, it enters once
// whatever happened meanwhile, while it is among the last 1,024; repeated by another, it does where the same parts are
// up.
func (w *PartitionedTable) InsertOnce(
	ctx context.Context, batchID string, groups ...rollout.Group,
) ([]rollout.ID, error) {
	answer, err := w.InsertGroups(ctx, Insertion{BatchID: batchID}, groups...)
	return idsOf(answer), err
}

// InsertGroups is [PartitionedTable.Insert] with all options and the whole answer. Groups under a grant go to the part
// that granted them, while it is up.
func (w *PartitionedTable) InsertGroups(
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
	chosen := o.BatchID != ""
	o.BatchID = cmp.Or(o.BatchID, parts[0].table.client.nextID())
	pending := w.pendingOf(o, len(parts), groups)
	answer := wire.InsertAnswer{BatchID: o.BatchID}
	for began := time.Now(); ; {
		sent := w.send(ctx, o, parts, pending, groups, &answer)
		var first error
		unreached, waits, over := false, !sent, false
		for i := range groups {
			if g := pending[i]; g.ids == nil {
				first = cmp.Or(first, g.err)
				unreached = true
				waits = waits || g.uncertain || errors.Is(g.err, wire.ErrElsewhere) // which nobody owns now
				over = over || !errors.Is(g.err, ErrUnreachable)
			}
		}
		switch {
		case !unreached:
			for i := range groups {
				answer.IDs = append(answer.IDs, pending[i].ids...)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if chosen {
				w.insertions.put(o.BatchID, pending)
			}
			answer.Version = max(answer.Version, int32(w.version)) // without an answer of today, if it is a repeat
			return answer, nil
		case over, waits && !w.services.rest(ctx, began):
			return answer, w.failed("insert", w.partial(o.BatchID, chosen, pending, len(groups), first))
		}
	}
}

// pendingOf returns the groups of an insertion: new ones, or as an earlier insertion under that id has left them.
func (w *PartitionedTable) pendingOf(o Insertion, parts int, groups []rollout.Group) map[int]*pendingGroup {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gone := w.insertions.byID[o.BatchID]; len(gone) == len(groups) && len(gone[0].order) == parts {
		return gone
	}
	pending := make(map[int]*pendingGroup, len(groups))
	for i, g := range groups {
		order := split.Order(split.Key(g.Rollouts[0].PromptID, o.BatchID, i), parts)
		if granter, _ := split.Cut(o.Grant); o.Grant != 0 && granter < parts {
			for at, k := range order {
				if k == granter {
					copy(order[1:at+1], order[:at])
					order[0] = granter
				}
			}
		}
		pending[i] = &pendingGroup{order: order}
	}
	return pending
}

// partial returns the error of groups that did not all enter, and remembers what did.
func (w *PartitionedTable) partial(
	batchID string, chosen bool, pending map[int]*pendingGroup, n int, cause error,
) error {
	e := &InsertError{BatchID: batchID, Err: cause, chosen: chosen, Entered: make([][]rollout.ID, n)}
	entered := false
	for i := range n {
		for _, id := range pending[i].ids {
			e.Entered[i] = append(e.Entered[i], rollout.ID(id))
			entered = true
		}
		if pending[i].uncertain {
			e.Uncertain = append(e.Uncertain, i)
		}
	}
	if !entered && len(e.Uncertain) == 0 {
		return cause
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.insertions.put(batchID, pending)
	return e
}

// send sends each group that has not entered to the first part of its order that is up, one insertion to a part. It
// reports whether there was anywhere to send to.
func (w *PartitionedTable) send(
	ctx context.Context, o Insertion, parts []*part, pending map[int]*pendingGroup, groups []rollout.Group,
	answer *wire.InsertAnswer,
) bool {
	type insertion struct {
		id      string
		to      *part
		members []int
	}
	var list []*insertion
	byID := make(map[string]*insertion)
	ready := make(map[int]bool) // of parts, each asked once, so that groups of one preference stay together
	isReady := func(k int) bool {
		if _, asked := ready[k]; !asked {
			ready[k] = w.ready(ctx, parts[k]) == nil
		}
		return ready[k]
	}
	for i := range groups {
		g := pending[i]
		if g.ids != nil {
			continue
		}
		if !g.uncertain {
			g.next = 0
			for g.next < len(parts) && !isReady(g.order[g.next]) {
				g.next++
			}
			if g.next == len(parts) {
				g.err = fmt.Errorf("%w: all %d parts are down", ErrUnreachable, len(parts))
				continue
			}
		}
		// Groups that a part gets in another's place have an id of their own there: the part may know the plain one.
		var id strings.Builder
		id.WriteString(o.BatchID)
		for _, k := range g.order[:g.next+1] {
			id.WriteString("/" + strconv.Itoa(k))
		}
		at := byID[id.String()]
		if at == nil {
			at = &insertion{id: id.String(), to: parts[g.order[g.next]]}
			list, byID[at.id] = append(list, at), at
		}
		at.members = append(at.members, i)
	}
	answers := make([]wire.InsertAnswer, len(list))
	together(len(list), func(n int) {
		in := list[n]
		part := Insertion{BatchID: in.id, GroupSize: o.GroupSize}
		if granter, grant := split.Cut(o.Grant); granter == in.to.number {
			part.Grant = grant
		}
		members := make([]rollout.Group, len(in.members))
		for j, i := range in.members {
			members[j] = groups[i]
		}
		uncertain := pending[in.members[0]].uncertain // as all of them are
		err := w.on(ctx, in.to, func(t *Table) (err error) {
			var lost bool
			if answers[n], lost, err = t.Waiting(w.wait).insertGroups(ctx, part, members); err != nil {
				uncertain = lost || uncertain && !isRefusal(err)
				return err
			}
			return share(answers[n].IDs, in.to.number, members, func(j int, ids []uint64) { pending[in.members[j]].ids = ids })
		})
		for _, i := range in.members {
			pending[i].err, pending[i].uncertain = err, err != nil && uncertain
		}
	})
	for _, a := range answers {
		answer.Version = max(answer.Version, a.Version)
		answer.Present, answer.TooOld = answer.Present+a.Present, answer.TooOld+a.TooOld
		answer.Note = cmp.Or(answer.Note, a.Note)
	}
	w.saw(rollout.Version(answer.Version))
	return len(list) > 0
}

// share gives each group its ids of an answer, as ids of the whole. With unit step a rollout has one for each turn.
func share(ids []uint64, part int, groups []rollout.Group, take func(i int, ids []uint64)) error {
	rows, steps := 0, 0
	for _, g := range groups {
		for _, r := range g.Rollouts {
			rows, steps = rows+1, steps+max(1, len(r.Turns))
		}
	}
	if len(ids) != rows && len(ids) != steps {
		return fmt.Errorf("part %d answered with %d ids for %d rollouts: is its service another version?", part,
			len(ids), rows)
	}
	next := 0
	for i, g := range groups {
		from := next
		for _, r := range g.Rollouts {
			n := 1
			if len(ids) == steps {
				n = max(1, len(r.Turns))
			}
			next += n
		}
		whole := make([]uint64, next-from)
		for j, id := range ids[from:next] {
			whole[j] = split.Join(part, id)
		}
		take(i, whole)
	}
	return nil
}
