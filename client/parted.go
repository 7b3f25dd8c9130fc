package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// PartedTable is a table in parts, which several services hold. Its methods are those of [Table], and ids, batch
// ids and grants name the part in their top bits ([parted.Join]). They may be called concurrently.
//
// A part whose service is down is left out: groups go to the others, batches come from the others, and feedback for its
// rollouts is dropped. Before it is used again it gets the table's version, and its definition if it came back empty.
type PartedTable struct {
	services *Services
	name     string
	wait     time.Duration // see Waiting
	atDraw   bool          // see UsingAtDraw
	*partedState
}

// partedState is what all PartedTables of a name share.
type partedState struct {
	cursors streamPool[*cursor]

	mu         sync.Mutex
	parts      []*part // nil: to be located
	clustered  bool
	options    *replay.Options             // of the parts; nil: not known yet
	version    rollout.Version             // as this program set it, or the largest that it saw
	leads      bool                        // this program sets the version
	turn       uint64                      // draws from own parts
	merged     uint64                      // batches of several parts
	leased     map[rollout.BatchID]*cursor // by Lease
	plans      remembered[*parted.Plan]    // of request ids
	homes      remembered[*part]           // of request ids
	insertions remembered[[]*pendingGroup] // of callers who chose the batch id, and of those that halted
}

// part is a part of the table: an ordinary table of one service.
type part struct {
	number int
	link   *link
	table  *Table
	downs  int       // of the link, when the part was last brought to the table's version
	asked  time.Time // when the cluster was last asked where it is
}

func newPartedState() *partedState {
	return &partedState{leased: make(map[rollout.BatchID]*cursor)}
}

// remembered keeps the latest values under ids that callers choose.
type remembered[V any] struct {
	byID  map[string]V
	order []string
}

const maxRemembered = 1024

func (r *remembered[V]) put(id string, v V) {
	if r.byID == nil {
		r.byID = make(map[string]V)
	}
	if _, known := r.byID[id]; !known {
		if r.order = append(r.order, id); len(r.order) > maxRemembered {
			delete(r.byID, r.order[0])
			r.order = slices.Delete(r.order, 0, 1)
		}
	}
	r.byID[id] = v
}

// Waiting is [Table.Waiting].
func (w *PartedTable) Waiting(d time.Duration) *PartedTable {
	waiting := *w
	waiting.wait = max(d, 0)
	return &waiting
}

// UsingAtDraw is [Table.UsingAtDraw]. A batch of which a part fails leaves the draws of the others used.
func (w *PartedTable) UsingAtDraw() *PartedTable {
	using := *w
	using.atDraw = true
	return &using
}

// Name returns the table's name.
func (w *PartedTable) Name() string { return w.name }

func (w *PartedTable) failed(verb string, err error) error {
	return fmt.Errorf("table %s in parts: %s: %w", w.name, verb, err)
}

// resolve returns the parts, after finding them.
func (w *PartedTable) resolve(ctx context.Context) ([]*part, error) {
	w.mu.Lock()
	known := w.parts
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	places, clustered, err := w.services.locate(ctx, w.name)
	if err != nil {
		return nil, err
	}
	if clustered && len(places) == 0 {
		return nil, w.failed("locate", wire.Errorf(wire.NotFound, "the cluster has no such table"))
	}
	var parts []*part
	for i, l := range w.services.links {
		if !clustered {
			parts = append(parts, &part{number: i, link: l, table: l.client.Table(w.name), downs: -1})
		}
	}
	for _, at := range places {
		l := w.services.links[at.Part%len(w.services.links)] // which knows the owner, if anybody does
		if at.Address != "" {
			if l, err = w.services.link(at.Address); err != nil {
				return nil, w.failed("locate", err)
			}
		}
		parts = append(parts, &part{number: at.Part, link: l, table: l.client.Table(at.Table), downs: -1})
	}
	for _, p := range parts {
		if now, downs := p.link.up(); now {
			p.downs = downs // as it is: a table that it does not have is not made
		}
	}
	w.setParts(parts, clustered)
	return parts, nil
}

func (w *PartedTable) setParts(parts []*part, clustered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parts, w.clustered, w.options = parts, clustered, nil
}

// on carries out a call on a part and follows it where it has moved. While the part cannot be reached the error wraps
// [ErrUnreachable].
func (w *PartedTable) on(ctx context.Context, p *part, call func(*Table) error) error {
	tries, moved := w.services.attempts(), false
	for {
		w.mu.Lock()
		l, t := p.link, p.table
		w.mu.Unlock()
		var err error
		if moved { // another node says that the part is there: what is known of the service may be old
			err = l.look(ctx)
		} else {
			err = l.ready()
		}
		if err == nil {
			err = l.during(ctx, func() error {
				if err := w.catchUp(ctx, p, l, t); err != nil {
					return err
				}
				return call(t)
			})
		}
		address := wire.AddressOf(err)
		switch {
		case !errors.Is(err, wire.ErrElsewhere):
			if errors.Is(err, ErrUnreachable) {
				w.relocate(ctx, p)
			}
			if errors.Is(err, wire.ErrNotFound) {
				w.dropped()
			}
			return err
		case address == "":
			w.relocate(ctx, p)
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if e := w.follow(p, address); e != nil {
			return e
		}
		if moved = true; !tries.again(ctx, true) {
			return err
		}
	}
}

// dropped has the parts of a cluster be found again: the table may be another by now.
func (w *PartedTable) dropped() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clustered {
		w.parts, w.options = nil, nil
	}
}

// ready returns an error while the service of a part is down, and asks the cluster where the part is now.
func (w *PartedTable) ready(ctx context.Context, p *part) error {
	w.mu.Lock()
	l := p.link
	w.mu.Unlock()
	err := l.ready()
	if err == nil {
		return nil
	}
	w.relocate(ctx, p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.link != l {
		return p.link.ready()
	}
	return err
}

// follow has a part be at another address from now on.
func (w *PartedTable) follow(p *part, address string) error {
	l, err := w.services.link(address)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clustered = true
	p.table = l.client.Table(p.table.name)
	if p.link != l {
		p.link, p.downs = l, -1
	}
	return nil
}

// relocate asks the cluster where a part is that could not be reached. The next call of it goes there.
func (w *PartedTable) relocate(ctx context.Context, p *part) {
	w.mu.Lock()
	at, name := p.link, p.table.name
	ask := w.clustered && time.Since(p.asked) > partTimeout
	if ask {
		p.asked = time.Now()
	}
	w.mu.Unlock()
	if !ask {
		return
	}
	for _, l := range w.services.links {
		if l == at || l.ready() != nil {
			continue
		}
		answer, err := l.locate(ctx, name)
		if err == nil && len(answer.Parts) == 1 && answer.Parts[0].Address != "" {
			_ = w.follow(p, answer.Parts[0].Address) // an address that cannot be parsed is no better than none
			return
		}
	}
}

// catchUp brings a part that was down to the table's version, and makes it anew if its service lost it.
func (w *PartedTable) catchUp(ctx context.Context, p *part, l *link, t *Table) error {
	_, downs := l.up()
	w.mu.Lock()
	current, version, leads, clustered := p.downs == downs, w.version, w.leads, w.clustered
	others := make([]part, len(w.parts))
	for i, other := range w.parts {
		others[i] = *other
	}
	w.mu.Unlock()
	if current {
		return nil
	}
	info, err := t.Info(ctx)
	missing := errors.Is(err, wire.ErrNotFound)
	if err != nil && !missing {
		return err
	}
	for _, other := range others {
		if now, _ := other.link.up(); other.number == p.number || !now {
			continue
		}
		there, err := other.table.Info(ctx)
		if err != nil {
			continue
		}
		version = max(version, rollout.Version(there.Version))
		if missing && !clustered && there.Definition != nil { // nodes lose no table: it was dropped
			d := *there.Definition
			d.Name, d.Seed = t.name, d.Seed-uint64(other.number)+uint64(p.number)
			if info, err = t.client.Create(ctx, d); err != nil {
				return err
			}
			missing = false
		}
	}
	switch there := rollout.Version(info.Version); {
	case missing:
		return err
	case there < version:
		err = t.Advance(ctx, version)
	case there > version && leads:
		err = t.Rewind(ctx, version)
	default:
		err = nil
	}
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.downs = downs
	}
	return err
}

// saw notes a version that the table has had.
func (w *PartedTable) saw(v rollout.Version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.leads {
		w.version = max(w.version, v)
	}
}

// each carries out a call on parts at once. Parts that cannot be reached are left out, unless all of them are or the
// call must reach every one: then those of a cluster, which move to other nodes, are tried again.
func (w *PartedTable) each(ctx context.Context, parts []*part, all bool, call func(i int, t *Table) error) error {
	errs := make([]error, len(parts))
	left := make([]int, len(parts)) // to be called
	for i := range left {
		left[i] = i
	}
	for tries := w.services.attempts(); ; {
		together(len(left), func(k int) {
			i := left[k]
			errs[i] = w.on(ctx, parts[i], func(t *Table) error { return call(i, t) })
		})
		var lost error
		left = slices.DeleteFunc(left, func(i int) bool { return errs[i] == nil })
		for _, i := range left {
			if lost = errs[i]; !errors.Is(lost, ErrUnreachable) {
				return lost
			}
		}
		reached := len(left) < len(parts)
		if lost == nil || reached && !all {
			return nil
		}
		w.mu.Lock()
		waits := !reached || w.clustered
		w.mu.Unlock()
		if !tries.again(ctx, waits) {
			return lost
		}
	}
}

// ofAll carries out an action on every part that is up.
func (w *PartedTable) ofAll(ctx context.Context, all bool, call func(i int, t *Table) error) (n int, err error) {
	parts, err := w.resolve(ctx)
	if err == nil {
		err = w.each(ctx, parts, all, call)
	}
	return len(parts), err
}

// Info returns the table's definition, the largest version and the size of the parts that are up.
func (w *PartedTable) Info(ctx context.Context) (wire.TableInfo, error) {
	var infos [parted.MaxParts]wire.TableInfo
	n, err := w.ofAll(ctx, false, func(i int, t *Table) (err error) {
		infos[i], err = t.Info(ctx)
		return err
	})
	if err != nil {
		return wire.TableInfo{}, err
	}
	info := joinInfo(w.name, infos[:n])
	w.saw(rollout.Version(info.Version))
	return info, nil
}

// joinInfo sums infos; those of parts that are down are empty.
func joinInfo(name string, infos []wire.TableInfo) wire.TableInfo {
	sum := wire.TableInfo{Table: name}
	var definitions []*wire.Table
	for _, i := range infos {
		sum.Version = max(sum.Version, i.Version)
		sum.Present, sum.Bytes = sum.Present+i.Present, sum.Bytes+i.Bytes
		sum.Note = cmp.Or(i.Note, sum.Note)
		if i.Definition != nil {
			definitions = append(definitions, i.Definition)
		}
	}
	if len(definitions) > 0 {
		sum.Definition = joinDefinitions(name, definitions)
	}
	return sum
}

// rules returns the options of the parts, which decide how draws are divided.
func (w *PartedTable) rules(ctx context.Context) (*replay.Options, error) {
	w.mu.Lock()
	known := w.options
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	info, err := w.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Definition == nil {
		return nil, w.failed("read its definition", errors.New("the services sent none: are they another version?"))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options = &info.Definition.Options
	return w.options, nil
}

// Len returns the number of rollouts in the parts that are up.
func (w *PartedTable) Len(ctx context.Context) (int, error) {
	info, err := w.Info(ctx)
	return info.Present, err
}

// Stats returns what the parts that are up have counted.
func (w *PartedTable) Stats(ctx context.Context) (rollout.Stats, error) {
	s, err := w.Statistics(ctx)
	if err != nil {
		return rollout.Stats{}, err
	}
	return s.Stats(), nil
}

// Statistics returns the sums of what the parts that are up have counted, and which are down.
func (w *PartedTable) Statistics(ctx context.Context) (*wire.TableStatistics, error) {
	var list [parted.MaxParts]*wire.TableStatistics
	n, err := w.ofAll(ctx, false, func(i int, t *Table) (err error) {
		list[i], err = t.Statistics(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return joinStatistics(w.name, list[:n]), nil
}

// Advance sets the version of every part that is up; a part that is down gets it before it is used again.
func (w *PartedTable) Advance(ctx context.Context, v rollout.Version) error {
	w.mu.Lock()
	w.version, w.leads = max(w.version, v), true
	w.mu.Unlock()
	_, err := w.ofAll(ctx, false, func(_ int, t *Table) error { return t.Advance(ctx, v) })
	return err
}

// Rewind sets the version of every part back to v, for a trainer restored from a checkpoint of its own.
func (w *PartedTable) Rewind(ctx context.Context, v rollout.Version) error {
	_, err := w.ofAll(ctx, false, func(_ int, t *Table) error { return t.Rewind(ctx, v) })
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.version, w.leads = v, true
	}
	return err
}

// byPart calls once for each part that ids name, with their indices. Parts that are down are left out, unless all must
// be reached.
func (w *PartedTable) byPart(
	ctx context.Context, all bool, n int, id func(i int) uint64, call func(t *Table, at []int) error,
) error {
	parts, err := w.resolve(ctx)
	if err != nil {
		return err
	}
	at := make([][]int, len(parts))
	for i := range n {
		k, _ := parted.Cut(id(i))
		if k >= len(parts) {
			return fmt.Errorf("id %d is of part %d: want one of the %d parts of table %s: %w", id(i), k, len(parts),
				w.name, rollout.ErrInvalid)
		}
		at[k] = append(at[k], i)
	}
	var asked []*part
	for k, list := range at {
		if len(list) > 0 {
			asked = append(asked, parts[k])
		}
	}
	err = w.each(ctx, asked, all, func(i int, t *Table) error { return call(t, at[asked[i].number]) })
	if errors.Is(err, ErrUnreachable) && !all {
		return nil
	}
	return err
}

func ofPart(id uint64) uint64 {
	_, of := parted.Cut(id)
	return of
}

// Update gives rollouts new priorities, all of a part or none.
func (w *PartedTable) Update(ctx context.Context, ids []rollout.ID, priorities []float64) error {
	if len(ids) != len(priorities) {
		return fmt.Errorf("%d priorities for %d ids: give one for each: %w", len(priorities), len(ids),
			rollout.ErrInvalid)
	}
	id := func(i int) uint64 { return uint64(ids[i]) }
	return w.byPart(ctx, false, len(ids), id, func(t *Table, at []int) error {
		of, values := make([]rollout.ID, len(at)), make([]float64, len(at))
		for i, j := range at {
			of[i], values[i] = rollout.ID(ofPart(uint64(ids[j]))), priorities[j]
		}
		return t.Update(ctx, of, values)
	})
}

// Report tells the parts what a trainer measured of its draws.
func (w *PartedTable) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	return w.byPart(ctx, false, len(feedback), func(i int) uint64 { return uint64(feedback[i].ID) },
		func(t *Table, at []int) error {
			list := make([]rollout.Feedback, len(at))
			for i, j := range at {
				list[i] = feedback[j]
				list[i].ID = rollout.ID(ofPart(uint64(feedback[j].ID)))
			}
			return t.Report(ctx, list...)
		})
}

// Reward gives rollouts their rewards, each in its part: see [Table.Reward]. If a part cannot be reached, those of
// others may have theirs: repeat the call with the same request id.
func (w *PartedTable) Reward(ctx context.Context, r rollout.Rewards) (done rollout.Rewarded, err error) {
	if err := replay.CheckRewards(r); err != nil {
		return done, err
	}
	parts, err := w.resolve(ctx)
	if err != nil {
		return done, err
	}
	r.RequestID = cmp.Or(r.RequestID, parts[0].table.client.nextID())
	var mu sync.Mutex
	err = w.byPart(ctx, true, len(r.IDs), func(i int) uint64 { return uint64(r.IDs[i]) }, func(t *Table, at []int) error {
		of := rollout.Rewards{RequestID: r.RequestID, By: r.By}
		for _, i := range at {
			of.IDs = append(of.IDs, rollout.ID(ofPart(uint64(r.IDs[i]))))
			of.Values = append(of.Values, r.Values[i])
		}
		got, err := t.Reward(ctx, of)
		mu.Lock()
		defer mu.Unlock()
		done.Rewarded += got.Rewarded
		done.Left += got.Left
		done.Entered += got.Entered
		return err
	})
	return done, err
}

// Checkpoint has every service save its part under a name. All must be up; nothing stops what comes in meanwhile.
func (w *PartedTable) Checkpoint(ctx context.Context, name string) (wire.CheckpointAnswer, error) {
	var list [parted.MaxParts]wire.CheckpointAnswer
	n, err := w.ofAll(ctx, true, func(i int, t *Table) (err error) {
		list[i], err = t.Checkpoint(ctx, name)
		return err
	})
	answer := wire.CheckpointAnswer{Name: name}
	infos := make([]wire.TableInfo, n)
	for i, a := range list[:n] {
		infos[i] = a.TableInfo
		answer.FileBytes += a.FileBytes
	}
	answer.TableInfo = joinInfo(w.name, infos)
	return answer, err
}

// Restore replaces every part by what was saved under a name. All services must be up.
func (w *PartedTable) Restore(ctx context.Context, name string) (wire.TableInfo, error) {
	var infos [parted.MaxParts]wire.TableInfo
	n, err := w.ofAll(ctx, true, func(i int, t *Table) (err error) {
		infos[i], err = t.Restore(ctx, name)
		return err
	})
	info := joinInfo(w.name, infos[:n])
	if err == nil {
		w.forget(rollout.Version(info.Version), true)
	}
	return info, err
}

// forget ends what is remembered of requests, for a table that is another now, and sets the version.
func (w *PartedTable) forget(v rollout.Version, leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version, w.leads = v, leads
	w.insertions, w.plans, w.homes = remembered[[]*pendingGroup]{}, remembered[*parted.Plan]{}, remembered[*part]{}
}

// startSlice is how long a start, or a sample of own parts, waits at one part before it asks the next.
const startSlice = 100 * time.Millisecond

// Start is [Table.Start]: the first part whose gate lets groups start grants them, and they are inserted there.
func (w *PartedTable) Start(ctx context.Context, groups, groupSize int) (answer wire.StartAnswer, err error) {
	parts, err := w.resolve(ctx)
	if err != nil {
		return answer, err
	}
	began, tries := time.Now(), w.services.attempts()
	for round := 0; ; round++ {
		first := w.nextTurn()
		var lost error
		for i := range parts {
			p := parts[(first+i)%len(parts)]
			wait := time.Duration(0)
			if round > 0 {
				wait = max(0, min(w.left(ctx, began), startSlice))
			}
			err = w.on(ctx, p, func(t *Table) (err error) {
				answer, err = t.Waiting(wait).Start(ctx, groups, groupSize)
				return err
			})
			switch {
			case errors.Is(err, ErrUnreachable):
				lost = err
			case err != nil || answer.Groups > 0:
				answer.Grant = parted.Join(p.number, answer.Grant)
				return answer, err
			default:
				lost = nil
			}
		}
		if lost == nil && w.left(ctx, began) <= 0 {
			return answer, nil
		}
		if lost != nil && !tries.again(ctx, true) {
			return answer, lost
		}
	}
}

// left is [Table.left].
func (w *PartedTable) left(ctx context.Context, began time.Time) time.Duration {
	return (&Table{wait: w.wait}).left(ctx, began)
}

func (w *PartedTable) nextTurn() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	return int(w.turn % (1 << 30))
}

// Abandon gives back granted groups that will not be inserted.
func (w *PartedTable) Abandon(ctx context.Context, grant uint64, groups int) error {
	return w.byPart(ctx, false, 1, func(int) uint64 { return grant }, func(t *Table, _ []int) error {
		return t.Abandon(ctx, ofPart(grant), groups)
	})
}

// PromptsNext returns prompts worth asking again, for a batch of the given number: each part answers for its share.
func (w *PartedTable) PromptsNext(ctx context.Context, batch int) (wire.PromptsAnswer, error) {
	parts, err := w.resolve(ctx)
	if err != nil {
		return wire.PromptsAnswer{}, err
	}
	list := make([]wire.PromptsAnswer, len(parts))
	err = w.each(ctx, parts, false, func(i int, t *Table) (err error) {
		list[i], err = t.PromptsNext(ctx, parted.Share(batch, len(parts), 1))
		return err
	})
	answer := wire.PromptsAnswer{Prompts: []wire.Prompt{}}
	for _, a := range list {
		answer.Prompts = append(answer.Prompts, a.Prompts...)
		answer.Version = max(answer.Version, a.Version)
	}
	return answer, err
}

// PromptsReport reports the results of prompts, each to the part that its id prefers.
func (w *PartedTable) PromptsReport(ctx context.Context, results ...wire.PromptResult) error {
	parts, err := w.resolve(ctx)
	if err != nil {
		return err
	}
	home := make([]uint64, len(results))
	for i, r := range results {
		home[i] = parted.Join(parted.Order([]byte(r.ID), len(parts))[0], 1)
	}
	return w.byPart(ctx, false, len(results), func(i int) uint64 { return home[i] }, func(t *Table, at []int) error {
		of := make([]wire.PromptResult, len(at))
		for i, j := range at {
			of[i] = results[j]
		}
		return t.PromptsReport(ctx, of...)
	})
}
