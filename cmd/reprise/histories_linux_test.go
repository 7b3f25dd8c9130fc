package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Histories of clients of a queue in a cluster are linearizable whatever its nodes suffer: there is an order of the
// calls, each at one moment between its beginning and its end, in which one queue gives the same answers. A call that
// ends without an answer may take effect at any later time, or never. A new owner of the queue takes back what was on
// lease. A checkpoint is restored as it was saved, but only by the node that saved it: others do not find it. What is
// restored shows before it is in the log, and a new owner may undo it until a change that came after is answered. Counts
// may also show what insertions and acknowledgements have done that are not in the log yet.
//
// So are those of clients of a table with priorities, except that a new owner may undo the latest updates of priorities,
// back to the last insertion that was answered.

// asked is a call.
type asked struct {
	kind  callKind
	tag   string // insertion: the prompt of its rollouts; saving, restoring: the checkpoint
	size  int    // insertion, lease
	batch rollout.BatchID
	id    rollout.ID // update, priority
	value int        // update: the priority; advance: the version
	slow  bool       // it took long enough to have been sent more than once

	underWay []asked // count: insertions and acknowledgements that are in memory, perhaps, and may not be carried out
}

type callKind string

const (
	insertion   callKind = "insertion"
	leasing     callKind = "lease"
	acknowledge callKind = "acknowledgement"
	release     callKind = "release"
	count       callKind = "count"
	saving      callKind = "checkpoint"
	restoring   callKind = "restoration"
	dropping    callKind = "drop"
	creation    callKind = "creation"
	update      callKind = "update"
	priorityOf  callKind = "priority"
	advance     callKind = "advance"
	versionOf   callKind = "version"
)

// reads reports whether calls of this kind change nothing.
func (k callKind) reads() bool { return k == count || k == priorityOf || k == versionOf }

// replaces reports whether calls of this kind may undo what calls before have done.
func (k callKind) replaces() bool {
	return k == restoring || k == dropping || k == creation || k == update || k == advance
}

// answered is its answer.
type answered struct {
	unclear error // the call may have been carried out, or not
	refused error // ErrStarved, ErrNoLease, ErrNotFound
	ids     []rollout.ID
	tags    []string
	batch   rollout.BatchID
	value   int           // count, priority (0: that at which it entered), version
	at      time.Duration // when the client had the answer, or gave up
}

// state is what a table of the model may hold. No step changes one in place.
type state interface {
	step(asked, answered) []state // after a call; none if the table cannot answer so
	equal(state) bool
	parts([]porcupine.Operation) [][]porcupine.Operation // calls that can be checked apart
}

// item is a rollout of the model.
type item struct {
	id    rollout.ID // 0: nobody was told
	tag   string
	batch rollout.BatchID // that it is on lease with; 0: none; nobody: one that no client knows
}

const nobody = math.MaxUint64

// content is what the queue of the model holds: its rollouts in order, the largest id that anybody was told, and its
// checkpoints, which outlive it.
type content struct {
	dropped bool
	items   []item
	last    rollout.ID
	saved   []checkpoint
	undoes  bool // a new owner may undo the latest restoration, which leaves before
	before  []item
}

// checkpoint is what was saved under a name, off lease.
type checkpoint struct {
	name  string
	items []item
}

func (c content) equal(other state) bool {
	d := other.(content)
	return c.dropped == d.dropped && c.undoes == d.undoes && c.last == d.last && slices.Equal(c.items, d.items) &&
		slices.Equal(c.before, d.before) &&
		slices.EqualFunc(c.saved, d.saved, func(a, b checkpoint) bool {
			return a.name == b.name && slices.Equal(a.items, b.items)
		})
}

func (content) parts(all []porcupine.Operation) [][]porcupine.Operation {
	return [][]porcupine.Operation{all}
}

// offLease returns rollouts with none on lease.
func offLease(items []item) []item {
	items = slices.Clone(items)
	for i := range items {
		items[i].batch = 0
	}
	return items
}

// restored returns the content after a checkpoint was restored, and whether there is one of that name.
func (c content) restored(name string, undoes bool) (content, bool) {
	i := slices.IndexFunc(c.saved, func(s checkpoint) bool { return s.name == name })
	if i < 0 || c.dropped {
		return c, false
	}
	if undoes && !c.undoes {
		c.before = offLease(c.items)
	}
	if c.undoes = undoes; !undoes {
		c.before = nil
	}
	c.items = c.saved[i].items
	for _, each := range c.items {
		c.last = max(c.last, each.id)
	}
	return c, true
}

// settled returns the content without the rollouts of a batch, or, if they are kept, with them off lease. It reports
// whether there are any.
func (c content) settled(batch rollout.BatchID, keep bool) (content, bool) {
	of := func(i item) bool { return i.batch == batch }
	if !slices.ContainsFunc(c.items, of) {
		return c, false
	}
	c.items = slices.Clone(c.items)
	if !keep {
		c.items = slices.DeleteFunc(c.items, of)
	}
	for i := range c.items {
		if of(c.items[i]) {
			c.items[i].batch = 0
		}
	}
	return c, true
}

// leased returns the content with the first rollouts off lease on lease, and those. It reports whether there are
// enough.
func (c content) leased(size int, batch rollout.BatchID) (d content, taken []item, ok bool) {
	d = c
	d.items = slices.Clone(c.items)
	for i := range d.items {
		if d.items[i].batch == 0 && len(taken) < size {
			d.items[i].batch = batch
			taken = append(taken, d.items[i])
		}
	}
	return d, taken, len(taken) == size
}

// step does a call, before which a new owner may have taken over.
func (c content) step(in asked, out answered) (after []state) {
	fresh := c
	fresh.items = offLease(c.items)
	after = c.do(in, out)
	if !fresh.equal(c) {
		after = append(after, fresh.do(in, out)...)
	}
	if c.undoes {
		c.items, c.undoes, c.before = c.before, false, nil
		after = append(after, c.do(in, out)...)
	}
	return after
}

func (c content) do(in asked, out answered) (after []state) {
	if out.unclear != nil {
		after = append(after, c) // it was not carried out
	}
	if in.kind == creation {
		if c.dropped {
			c = content{saved: c.saved}
		}
		return append(after, c)
	}
	if errors.Is(out.refused, wire.ErrNotFound) {
		if c.dropped || in.kind == restoring {
			after = append(after, c)
		}
		return after
	}
	if c.dropped {
		return after
	}
	if out.unclear == nil && out.refused == nil && in.kind != count && in.kind != restoring {
		c.undoes, c.before = false, nil
	}
	switch in.kind {
	case insertion:
		after = append(after, c.insert(in, out)...)
	case leasing:
		d, taken, enough := c.leased(in.size, max(out.batch, 1))
		switch {
		case out.unclear != nil:
			if d, _, ok := c.leased(in.size, nobody); ok {
				after = append(after, d)
			}
		case errors.Is(out.refused, rollout.ErrStarved):
			if !enough {
				after = append(after, c)
			}
		case enough:
			if d, ok := d.identify(taken, out); ok {
				after = append(after, d)
			}
		}
	case acknowledge, release:
		d, held := c.settled(in.batch, in.kind == release)
		switch {
		case errors.Is(out.refused, rollout.ErrNoLease):
			if !held {
				after = append(after, c)
			} else if in.slow {
				after = append(after, d) // by an attempt whose answer was lost
			}
		case held:
			after = append(after, d)
		}
	case count:
		if least, most := c.counts(in.underWay); out.unclear == nil && least <= out.value && out.value <= most {
			after = append(after, c)
		}
	case saving:
		c.saved = append(slices.Clone(c.saved), checkpoint{in.tag, offLease(c.items)})
		after = append(after, c)
	case restoring:
		if d, ok := c.restored(in.tag, out.unclear != nil); ok {
			after = append(after, d)
		}
	case dropping:
		after = append(after, content{dropped: true, saved: c.saved})
	}
	return after
}

// counts returns the least and the most rollouts that may be counted beside calls under way.
func (c content) counts(underWay []asked) (least, most int) {
	least, most = len(c.items), len(c.items)
	for _, i := range c.items {
		if slices.ContainsFunc(underWay, func(in asked) bool { return in.kind == acknowledge && in.batch == i.batch }) {
			least--
		}
	}
	for _, in := range underWay {
		if in.kind == insertion && !slices.ContainsFunc(c.items, func(i item) bool { return i.tag == in.tag }) {
			most += in.size
		}
	}
	return least, most
}

func (c content) insert(in asked, out answered) []state {
	d := c
	d.items = slices.Clone(c.items)
	for i := range in.size {
		next := item{tag: in.tag}
		if out.unclear == nil {
			if next.id = out.ids[i]; next.id <= d.last {
				return nil // given before
			}
			d.last = next.id
		}
		d.items = append(d.items, next)
	}
	return []state{d}
}

// identify compares rollouts that were leased with what the client was given, and notes ids that nobody was told
// before.
func (c content) identify(taken []item, out answered) (content, bool) {
	if len(out.ids) != len(taken) {
		return c, false
	}
	for i, t := range taken {
		if t.tag != out.tags[i] || t.id != 0 && t.id != out.ids[i] {
			return c, false
		}
	}
	next := 0
	for i := range c.items {
		if c.items[i].batch == out.batch {
			c.items[i].id = out.ids[next]
			c.last = max(c.last, out.ids[next])
			next++
		}
	}
	return c, true
}

// A chronicle is what clients did to one table.
type chronicle struct {
	began  time.Time
	empty  state
	choose func(h *chronicle, number int, random *rand.Rand) asked // the next call of a client

	mu      sync.Mutex
	calls   []porcupine.Operation
	ids     []rollout.ID // that were given
	batches []rollout.BatchID
	saved   []string // checkpoints
	dropped bool     // as of the last answer
	next    int
	unclear int
}

// ofQueue returns a random call of a client of a queue.
func (h *chronicle) ofQueue(_ int, random *rand.Rand) asked {
	in := asked{kind: insertion, size: 1 + random.IntN(2)}
	switch k := random.IntN(80); {
	case h.dropped && k < 40:
		in.kind = creation
	case k < 30:
		h.next++
		in.tag = fmt.Sprint("p", h.next)
	case k < 48:
		in.kind = leasing
	case k < 66 && len(h.batches) > 0:
		in.kind, in.batch = acknowledge, h.batches[random.IntN(len(h.batches))]
		if k >= 63 {
			in.kind = release
		}
	case k >= 79:
		in.kind = dropping
	case k >= 75 && len(h.saved) > 0:
		in.kind, in.tag = restoring, h.saved[len(h.saved)-1] // others are often of earlier owners
	case k >= 72:
		h.next++
		in.kind, in.tag = saving, fmt.Sprint("c", h.next)
	default:
		in.kind = count
	}
	return in
}

// make makes a random call of a client and writes it down.
func (h *chronicle) make(ctx context.Context, number int, s *client.Services, table wire.Table, random *rand.Rand) {
	h.mu.Lock()
	in := h.choose(h, number, random)
	h.mu.Unlock()
	var out answered
	began := time.Since(h.began)
	err := in.call(ctx, s, table, &out)
	ended := time.Since(h.began)
	out.at = ended
	in.slow = ended-began > 200*time.Millisecond
	returned := ended.Nanoseconds()
	switch {
	case errors.Is(err, rollout.ErrStarved) && in.kind == leasing,
		errors.Is(err, rollout.ErrNoLease) && (in.kind == acknowledge || in.kind == release),
		errors.Is(err, rollout.ErrInvalid) && (in.kind == update || in.kind == priorityOf),
		errors.Is(err, wire.ErrNotFound) && in.kind != creation: // which may meet a drop
		out.refused = err
	case err != nil:
		out.unclear, returned = err, math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.unclear != nil {
		h.unclear++
		if in.kind.reads() {
			return
		}
	}
	switch {
	case in.kind == saving && (err != nil || in.slow): // perhaps by two nodes, of two moments
		return
	case in.kind == saving:
		h.saved = append(h.saved, in.tag)
	case in.kind == creation && err == nil:
		h.dropped = false
	case in.kind == dropping && err == nil, in.kind != restoring && out.refused != nil && errors.Is(err, wire.ErrNotFound):
		h.dropped = true
	}
	if in.kind == insertion {
		h.ids = append(h.ids, out.ids...)
	}
	if out.batch != 0 {
		h.batches = append(h.batches, out.batch)
	}
	h.calls = append(h.calls, porcupine.Operation{ClientId: number, Input: in, Output: out, Call: began.Nanoseconds(),
		Return: returned})
}

func (in asked) call(ctx context.Context, s *client.Services, w wire.Table, out *answered) (err error) {
	table := s.Table(w.Name).Waiting(0)
	switch in.kind {
	case insertion:
		g := pairOf(in.tag)
		g.Rollouts = g.Rollouts[:in.size]
		out.ids, err = table.InsertOnce(ctx, in.tag, g)
	case leasing:
		var b *rollout.Batch
		if b, err = table.Lease(ctx, rollout.Request{Size: in.size}); err == nil {
			out.batch = b.ID
			for _, d := range b.Draws {
				out.ids, out.tags = append(out.ids, d.ID), append(out.tags, d.Rollout.PromptID)
			}
		}
	case acknowledge:
		err = table.Acknowledge(ctx, in.batch)
	case release:
		err = table.Release(ctx, in.batch)
	case count:
		out.value, err = table.Len(ctx)
	case saving:
		_, err = table.Checkpoint(ctx, in.tag)
	case restoring:
		_, err = table.Restore(ctx, in.tag)
	case dropping:
		err = s.Drop(ctx, w.Name)
	case creation:
		_, err = s.CreateParts(ctx, w, 1)
	case update:
		err = table.Update(ctx, []rollout.ID{in.id}, []float64{float64(in.value)})
	case priorityOf:
		var r browse.Rollout
		if r, err = table.Rollout(ctx, in.id); err == nil && !r.AtMax {
			out.value = int(r.Base)
		}
	case advance:
		err = table.Advance(ctx, rollout.Version(in.value))
	case versionOf:
		var i wire.TableInfo
		i, err = table.Info(ctx)
		out.value = int(i.Version)
	}
	return err
}

// attempts returns the calls, and once more those of which an earlier attempt, whose answer was lost, may have been
// carried out too: of leases and of calls that replace what is there any, of insertions one that such a call has undone.
func (h *chronicle) attempts() []porcupine.Operation {
	all := slices.Clone(h.calls)
	for i, c := range h.calls {
		in := c.Input.(asked)
		if in.kind == count {
			in.underWay = h.underWay(c)
			all[i].Input = in
		}
		replaced := func(d porcupine.Operation) bool {
			return d.Input.(asked).kind.replaces() && d.Call < c.Return && c.Call < d.Return
		}
		if in.slow && (in.kind.replaces() || in.kind == leasing ||
			in.kind == insertion && slices.ContainsFunc(h.calls, replaced)) {
			c.Output = answered{unclear: wire.ErrInterrupted}
			all = append(all, c)
		}
	}
	return all
}

// underWay returns the insertions and acknowledgements beside a call that were answered late, or not, or refused because
// of a drop: what they did to memory may not have reached the log. Services end calls soon after their clients give up.
func (h *chronicle) underWay(c porcupine.Operation) (list []asked) {
	for _, d := range h.calls {
		in, out := d.Input.(asked), d.Output.(answered)
		end := out.at.Nanoseconds()
		if out.unclear != nil {
			end += (10 * time.Second).Nanoseconds()
		}
		doubtful := in.slow || out.unclear != nil || errors.Is(out.refused, wire.ErrNotFound)
		if doubtful && d.Call < c.Return && c.Call < end && (in.kind == insertion || in.kind == acknowledge) {
			list = append(list, in)
		}
	}
	return list
}

// check looks for an order of the calls.
func (h *chronicle) check() porcupine.CheckResult {
	model := porcupine.NondeterministicModel{
		Partition: h.empty.parts,
		Init:      func() []any { return []any{h.empty} },
		Step: func(before, input, output any) []any {
			var after []any
			for _, s := range before.(state).step(input.(asked), output.(answered)) {
				after = append(after, s)
			}
			return after
		},
		Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), h.attempts(), 2*time.Minute)
}

func (h *chronicle) String() string {
	var text strings.Builder
	for _, c := range h.calls {
		fmt.Fprintf(&text, "%d: %9.1f ms to %9.1f ms: %+v: %+v\n", c.ClientId, float64(c.Call)/1e6, float64(c.Return)/1e6,
			c.Input, c.Output)
	}
	return text.String()
}

// owner returns the node that answers for a table, -1 if none does.
func (c *nodes) owner(ctx context.Context, table string) int {
	for i := range c.running {
		if _, err := c.ask(ctx, i, table); err == nil {
			return i
		}
	}
	return -1
}

// Each fault falls on a new table that three clients use.
func TestHistoriesUnderFaultsAreLinearizable(t *testing.T) {
	tests.Long(t)
	if !inNamespace(t) {
		return
	}
	network := newNetwork(t, 3)
	startNodes(t, 3, network).chronicle((*faults+4)/5, faultsOf(network))
}

// chronicle makes faults, each on a new table that three clients use, and checks the tables' histories. Two of three
// tables are queues, the others have priorities.
func (c *nodes) chronicle(times int, kinds []fault) {
	t := c.t
	t.Helper()
	s := c.connect()
	random := rand.New(rand.NewPCG(*faultSeed, 2))
	total, unclear, undecided := 0, 0, 0
	answers := make(map[callKind]int)
	for k := range times {
		name, h := fmt.Sprintf("queue-%d", k), &chronicle{empty: content{}, choose: (*chronicle).ofQueue}
		table := wire.Table{Name: name,
			Options: replay.Options{Capacity: 1 << 16, Sampler: replay.FIFO, LeaseSeconds: 3600}}
		if k%3 == 1 {
			h = &chronicle{empty: ranked{}, choose: (*chronicle).ofRanked}
			table.Options = replay.Options{Capacity: 1 << 16, Sampler: replay.Prioritized}
		}
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, err := s.CreateParts(t.Context(), table, 1)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				c.showLogs()
				t.Fatal(err)
			}
		}
		h.began = time.Now()
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for number := range 3 {
			mine := rand.New(rand.NewPCG(*faultSeed, uint64(3+3*k+number)))
			one, err := client.DialAll(t.Context(), c.addresses, client.AllOptions{
				Options: client.Options{RetryFor: 30 * time.Second}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer func() { _ = one.Close() }()
				for ctx.Err() == nil {
					h.make(t.Context(), number, one, table, mine)
					time.Sleep(time.Duration(50+mine.IntN(250)) * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		f, i, d := kinds[random.IntN(len(kinds))], random.IntN(3), time.Duration(500+random.IntN(8000))*time.Millisecond
		if owner := c.owner(t.Context(), name); random.IntN(3) > 0 && owner >= 0 {
			i = owner
		}
		f.make(c, i, d)
		time.Sleep(2 * time.Second)
		stop()
		all.Wait()
		result := h.check()
		t.Logf("%3d: node %d %s for %v: %d calls, %d without an answer: %s", k+1, i, f.name, d, len(h.calls), h.unclear,
			result)
		total, unclear = total+len(h.calls), unclear+h.unclear
		for _, each := range h.calls {
			if out := each.Output.(answered); out.unclear == nil && out.refused == nil {
				answers[each.Input.(asked).kind]++
			}
		}
		switch result {
		case porcupine.Illegal:
			c.showLogs()
			t.Fatalf("no order of these calls explains the answers:\n%v", h)
		case porcupine.Unknown:
			undecided++
		}
		if err := s.Drop(t.Context(), name); err != nil {
			t.Logf("dropping %s: %v", name, err)
		}
	}
	if 4*undecided > times {
		t.Errorf("%d of %d histories are undecided", undecided, times)
	}
	t.Logf("%d calls, %d without an answer; %d histories undecided after two minutes; carried out: %v", total, unclear,
		undecided, answers)
}

// The checker finds what a queue must not do.
func TestDefectsAreFoundInHistories(t *testing.T) {
	insert := func(tag string, id rollout.ID) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: insertion, tag: tag, size: 1}, Output: answered{ids: []rollout.ID{id}}}
	}
	lease := func(batch rollout.BatchID, tag string, id rollout.ID) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: leasing, size: 1},
			Output: answered{batch: batch, ids: []rollout.ID{id}, tags: []string{tag}}}
	}
	settle := func(kind callKind, batch rollout.BatchID, out answered) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: kind, batch: batch}, Output: out}
	}
	starved := porcupine.Operation{Input: asked{kind: leasing, size: 1}, Output: answered{refused: rollout.ErrStarved}}
	unclear := answered{unclear: wire.ErrInterrupted}
	acknowledged := settle(acknowledge, 1, answered{})
	maybe := porcupine.Operation{Input: asked{kind: insertion, tag: "a", size: 1}, Output: unclear}
	givenUp := porcupine.Operation{Input: maybe.Input, Output: answered{unclear: wire.ErrInterrupted, at: -time.Minute}}
	save := porcupine.Operation{Input: asked{kind: saving, tag: "c"}, Output: answered{}}
	restore := porcupine.Operation{Input: asked{kind: restoring, tag: "c"}, Output: answered{}}
	maybeRestored := porcupine.Operation{Input: asked{kind: restoring, tag: "c"}, Output: unclear}
	counted := func(n int) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: count}, Output: answered{value: n}}
	}
	zero, one, two, three := counted(0), counted(1), counted(2), counted(3)
	drop := porcupine.Operation{Input: asked{kind: dropping}, Output: answered{}}
	create := porcupine.Operation{Input: asked{kind: creation}, Output: answered{}}
	none := porcupine.Operation{Input: asked{kind: leasing, size: 1}, Output: answered{refused: wire.ErrNotFound}}
	type calls = []porcupine.Operation
	for name, each := range map[string]struct {
		want  porcupine.CheckResult
		calls calls
	}{
		"in order":                {porcupine.Ok, calls{insert("a", 1), insert("b", 2), lease(1, "a", 1)}},
		"out of order":            {porcupine.Illegal, calls{insert("a", 1), insert("b", 2), lease(1, "b", 2)}},
		"lost":                    {porcupine.Illegal, calls{insert("a", 1), starved}},
		"again after a new owner": {porcupine.Ok, calls{insert("a", 1), lease(1, "a", 1), lease(2, "a", 1)}},
		"again after its end": {porcupine.Illegal,
			calls{insert("a", 1), lease(1, "a", 1), acknowledged, lease(2, "a", 1)}},
		"again after an unclear end": {porcupine.Ok,
			calls{insert("a", 1), lease(1, "a", 1), settle(acknowledge, 1, unclear), lease(2, "a", 1)}},
		"an id given again": {porcupine.Illegal, calls{insert("a", 1), insert("b", 1)}},
		"another's id":      {porcupine.Illegal, calls{insert("a", 1), lease(1, "a", 2)}},
		"not its lease": {porcupine.Illegal,
			calls{insert("a", 1), lease(1, "a", 1), settle(release, 2, answered{})}},
		"unclear, and there":           {porcupine.Ok, calls{maybe, lease(1, "a", 7)}},
		"miscounted":                   {porcupine.Illegal, calls{insert("a", 1), two}},
		"counted before it was undone": {porcupine.Ok, calls{insert("b", 1), maybe, two, one}},
		"counted before it was sent":   {porcupine.Illegal, calls{insert("b", 1), two, maybe}},
		"counted more than was sent":   {porcupine.Illegal, calls{insert("b", 1), maybe, three}},
		"not counted before its end was undone": {porcupine.Ok,
			calls{insert("a", 1), lease(1, "a", 1), settle(acknowledge, 1, unclear), zero, one}},
		"more than ended not counted": {porcupine.Illegal, calls{insert("a", 1), insert("b", 2), lease(1, "a", 1),
			settle(acknowledge, 1, unclear), settle(acknowledge, 1, unclear), zero}},
		"counted, and undone long after its client gave up": {porcupine.Illegal, calls{insert("b", 1), givenUp, two, one}},
		"restored": {porcupine.Ok,
			calls{insert("a", 1), lease(1, "a", 1), save, acknowledged, insert("b", 2), restore, lease(2, "a", 1), starved}},
		"not all restored": {porcupine.Illegal,
			calls{insert("a", 1), insert("b", 2), save, restore, lease(1, "b", 2)}},
		"left after a restoration": {porcupine.Illegal, calls{insert("a", 1), save, insert("b", 2), restore, two}},
		"an id given again after a restoration": {porcupine.Illegal,
			calls{insert("a", 1), save, insert("b", 2), restore, insert("c", 2)}},
		"a restoration undone": {porcupine.Ok,
			calls{insert("a", 1), save, insert("b", 2), maybeRestored, one, two, insert("c", 3), three}},
		"a restoration undone later": {porcupine.Illegal,
			calls{insert("a", 1), save, insert("b", 2), maybeRestored, one, insert("c", 3), two, three}},
		"dropped":               {porcupine.Ok, calls{insert("a", 1), drop, none, create, starved, insert("b", 1)}},
		"there after its drop":  {porcupine.Illegal, calls{insert("a", 1), drop, lease(1, "a", 1)}},
		"left after a creation": {porcupine.Illegal, calls{insert("a", 1), drop, create, lease(1, "a", 1)}},
		"gone without a drop":   {porcupine.Illegal, calls{insert("a", 1), none}},
		"restored into another": {porcupine.Ok, calls{insert("a", 1), save, drop, create, restore, lease(1, "a", 1)}},
	} {
		for i := range each.calls {
			each.calls[i].Call, each.calls[i].Return = int64(2*i), int64(2*i+1)
		}
		if got := (&chronicle{empty: content{}, calls: each.calls}).check(); got != each.want {
			t.Errorf("%s: %s, want %s", name, got, each.want)
		}
	}
}
