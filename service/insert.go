package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// DoPut inserts. Each record batch of the stream is one insertion: memory is reserved for it, it is decoded and
// validated, inserted as soon as the table has room and the limiter allows, committed to the journal and acknowledged,
// in order. The first refusal ends the stream.
func (s *Service) DoPut(stream flight.FlightService_DoPutServer) (err error) {
	ctx := stream.Context()
	c := s.begin(ctx, "DoPut")
	defer c.end(&err)
	var t *table // known once the first message named it, and before Next calls Reserve
	reader := flightdata.NewReader(stream, flightdata.Options{
		MaxBytes: s.options.MaxMessageBytes, MaxMetadata: maxStreamRequestBytes, Allocator: s.pool,
		Reserve: func(bytes, rows int64) (func(), error) { return t.reserveMemory(ctx, bytes, rows) },
		Keep:    func(bytes int64, _ bool) (func(), error) { return s.chargeCall(ctx, bytes) },
	})
	name, err := descriptorTable(reader)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if name == "" {
		return wire.Errorf(wire.Invalid, "descriptor: none: want a path of one name, the table's")
	}
	if t, err = s.allowed(ctx, name, toWrite); err != nil {
		return err
	}
	c.uses(name)
	p := &putStream{t, ctx, reader, stream, s.newSender(stream, nil)}
	if t.journal == nil {
		return p.insertAll(p.acknowledge)
	}
	return p.insertWhileCommitting()
}

// descriptorTable returns the table that a stream's descriptor names, "" if it has no descriptor.
func descriptorTable(reader *flightdata.Reader) (string, error) {
	if err := reader.Peek(); err != nil {
		return "", err
	}
	return pathTable(reader.Descriptor())
}

func pathTable(d *flight.FlightDescriptor) (string, error) {
	switch {
	case d == nil || len(d.GetPath()) == 0 && len(d.GetCmd()) == 0:
		return "", nil
	case d.GetType() != flight.DescriptorPATH || len(d.GetPath()) != 1:
		return "", wire.Errorf(wire.Invalid, "descriptor: path %q, command of %d bytes: want a path of one name, the "+
			"table's", d.GetPath(), len(d.GetCmd()))
	}
	return d.GetPath()[0], nil
}

// putStream is one DoPut stream.
type putStream struct {
	table  *table
	ctx    context.Context
	reader *flightdata.Reader
	stream flight.FlightService_DoPutServer
	to     *sender
}

// inserted is the answer to one record batch before it is acknowledged.
type inserted struct {
	answer *wire.InsertAnswer
	began  time.Time
	end    func() // ends its request, and gives the memory reserved for it back
}

// insertAll inserts every record batch of the stream and forwards the answers. Its receiver calls end.
// insertAll alone reads, and closes the reader: it may run on after DoPut has returned.
func (p *putStream) insertAll(forward func(inserted) error) error {
	defer p.reader.Close()
	for {
		frame, err := p.reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		began := time.Now()
		if err := p.table.service.requests.begin(); err != nil {
			frame.Release()
			return err
		}
		end := func() {
			frame.Release()
			p.table.service.requests.end()
		}
		var answer *wire.InsertAnswer
		err = p.table.service.recovered("DoPut", func() (err error) {
			answer, err = p.table.insertFrame(p.ctx, &frame)
			return err
		})
		if err != nil {
			end()
			return err
		}
		if err := forward(inserted{answer, began, end}); err != nil {
			return err
		}
	}
}

// maxUncommitted is how many insertions of one stream may wait for the journal.
const maxUncommitted = 64

// insertWhileCommitting inserts in a goroutine of its own while the journal commits earlier insertions, many at once:
// a client may send batches without waiting for answers, and a sync that each of them waited for would be one a batch.
// If the journal fails, the stream ends.
func (p *putStream) insertWhileCommitting() error {
	queue, ended := make(chan inserted, maxUncommitted), make(chan error, 1)
	go func() {
		defer close(queue)
		ended <- p.table.service.recovered("DoPut", func() error { // reading can panic too
			return p.insertAll(func(in inserted) error {
				select {
				case queue <- in:
					return nil
				case <-p.ctx.Done(): // at the latest when DoPut returns
					in.end()
					return p.ctx.Err()
				}
			})
		})
	}()
	for first := range queue {
		if err := p.commitAndAcknowledge(append([]inserted{first}, queued(queue)...)); err != nil {
			// The goroutine above inserts until it notices that the call has ended. What it put into the queue since has
			// memory reserved, which only ending it gives back.
			go func() {
				for in := range queue {
					in.end()
				}
			}()
			return err
		}
	}
	return <-ended
}

// queued takes everything that is in the queue now.
func queued(queue <-chan inserted) (list []inserted) {
	for {
		select {
		case in, ok := <-queue:
			if !ok {
				return list
			}
			list = append(list, in)
		default:
			return list
		}
	}
}

// commitAndAcknowledge acknowledges insertions once the journal has committed them.
func (p *putStream) commitAndAcknowledge(list []inserted) error {
	err := p.table.commit(p.ctx)
	for _, in := range list {
		if err != nil {
			in.end()
			continue
		}
		err = p.acknowledge(in)
	}
	return err
}

// acknowledge sends an answer, and ends its insertion once it is written out.
func (p *putStream) acknowledge(in inserted) error {
	defer in.end()
	text, err := encodeJSON(in.answer)
	if err != nil {
		return err
	}
	err = p.to.writeOut(func(done func()) error { return flightdata.SendPutResult(p.stream, text, done) })
	if err != nil {
		return err
	}
	p.table.meter.insertTimes.add(time.Since(in.began))
	return nil
}

// insertFrame inserts one record batch, which it releases: it decodes, validates and inserts. The reader has reserved
// its memory, that of the answer included.
func (t *table) insertFrame(ctx context.Context, frame *flightdata.Frame) (*wire.InsertAnswer, error) {
	defer frame.ReleaseBatch()
	if err := t.allowedStill(ctx, toWrite); err != nil {
		return nil, err
	}
	var req wire.InsertRequest
	if err := decodeJSON("app_metadata", frame.Metadata, &req); err != nil {
		return nil, err
	}
	if frame.Batch == nil {
		return nil, wire.Errorf(wire.Invalid, "app_metadata came without a record batch: send both in one message")
	}
	t.meter.receivedBytes.Add(uint64(recordBytes(frame.Batch)))
	answer, err := t.insertRecord(ctx, req, frame.Batch)
	if err != nil {
		t.countRefusal(err, int(frame.Batch.NumRows()))
		return nil, err
	}
	return answer, nil
}

// recordBytes returns the size of a record batch's buffers.
func recordBytes(rec arrow.RecordBatch) (bytes int64) {
	for _, c := range rec.Columns() {
		bytes += columnBytes(c.Data())
	}
	return bytes
}

func columnBytes(d arrow.ArrayData) (bytes int64) {
	for _, b := range d.Buffers() {
		if b != nil {
			bytes += int64(b.Len())
		}
	}
	for _, child := range d.Children() {
		bytes += columnBytes(child)
	}
	return bytes
}

// reserveMemory waits until an insertion may be in memory: its body, decompressed, and its rows as rollouts. It is
// asked before anything is decompressed or decoded.
func (t *table) reserveMemory(ctx context.Context, bytes, rows int64) (release func(), err error) {
	s := t.service
	most := 2 * s.options.MaxMessageBytes
	if bytes > most || rows > (most-bytes)/replay.RolloutOverhead { // no product: a header may claim any number of rows
		return nil, wire.Errorf(wire.TooLarge, "a record batch of %d rows and %d bytes takes more than %d bytes "+
			"decoded, twice max_message_bytes: send fewer rows at a time", rows, bytes, most)
	}
	return s.admit(ctx, t.Name, bytes, bytes+rows*replay.RolloutOverhead)
}

func (t *table) countRefusal(err error, rows int) {
	switch {
	case errors.Is(err, rollout.ErrFull):
		t.meter.full.Add(1)
	case wire.CodeOf(err) == wire.Invalid:
		t.meter.refused.Add(1)
		t.meter.refusedRows.Add(uint64(rows))
	}
}

// insertRecord reads the groups of a record batch and inserts them. It answers with the ids in order of rows.
func (t *table) insertRecord(
	ctx context.Context, req wire.InsertRequest, rec arrow.RecordBatch,
) (*wire.InsertAnswer, error) {
	groups, order, err := wire.Groups(rec, t.fields)
	if err != nil {
		return nil, err
	}
	if size := cmp.Or(req.GroupSize, t.GroupSize); size > 1 && !rec.Schema().HasField("group") {
		if groups, err = consecutive(groups, size); err != nil {
			return nil, err
		}
	}
	answer := &wire.InsertAnswer{BatchID: req.BatchID, IDs: []uint64{}}
	if len(groups) > 0 {
		in, err := t.newInsertion(req, groups, order)
		if err != nil {
			return nil, err
		}
		if answer.IDs, err = t.insert(ctx, in); err != nil {
			return nil, err
		}
	}
	answer.Version, answer.Present = int32(t.version()), t.present()
	if answer.TooOld = t.tooOld(groups, answer.Version); answer.TooOld > 0 {
		answer.Note = fmt.Sprintf("%d of %d rollouts are older than max_staleness %d allows at the table's version %d "+
			"and left at once: a run that begins anew or resumes a checkpoint first rewinds the table to its version "+
			"(rewind), or takes another table; otherwise insert under the version of the weights that generated them, "+
			"or raise max_staleness",
			answer.TooOld, len(order), t.MaxStaleness, answer.Version)
	}
	return answer, nil
}

// consecutive joins groups of one rollout each to groups of size rollouts, in order.
func consecutive(alone []rollout.Group, size int) ([]rollout.Group, error) {
	if len(alone)%size != 0 {
		return nil, wire.Errorf(wire.Invalid, "group_size: %d: %d rollouts came without a column group: want whole "+
			"groups of consecutive rows, or the column", size, len(alone))
	}
	groups := make([]rollout.Group, 0, len(alone)/size)
	for part := range slices.Chunk(alone, size) {
		joined := rollout.Group{}
		for _, g := range part {
			joined.Rollouts = append(joined.Rollouts, g.Rollouts...)
		}
		groups = append(groups, joined)
	}
	return groups, nil
}

// tooOld returns how many rollouts of groups max_staleness keeps out at a version.
func (t *table) tooOld(groups []rollout.Group, version int32) (count int) {
	if t.MaxStaleness == 0 {
		return 0
	}
	oldest := int64(version) - int64(t.MaxStaleness)
	for _, g := range groups {
		n := 0
		for _, r := range g.Rollouts {
			if int64(r.Span().Least) < oldest {
				n++
			}
		}
		if n > 0 && t.Unit == replay.UnitGroup {
			n = len(g.Rollouts)
		}
		count += n
	}
	return count
}

// insertion is the groups of one record batch.
type insertion struct {
	wire.InsertRequest
	groups  []rollout.Group
	order   wire.Order
	timeout time.Duration

	rows  int
	items int // rows, or their steps with unit step
	bytes int64
}

// newInsertion validates a request against the table's definition (invariants 8 and 9); the table validates the
// rollouts.
func (t *table) newInsertion(req wire.InsertRequest, groups []rollout.Group, order wire.Order) (*insertion, error) {
	in := &insertion{InsertRequest: req, groups: groups, order: order}
	err := checkID("batch_id", req.BatchID)
	if err != nil {
		return nil, err
	}
	if in.timeout, err = timeoutOf(req.TimeoutMS); err != nil {
		return nil, err
	}
	size := t.GroupSize
	switch {
	case req.GroupSize < 0:
		return nil, wire.Errorf(wire.Invalid,
			"group_size: %d: want the rollouts in every group, or none where groups differ", req.GroupSize)
	case req.GroupSize > 0 && size > 0 && req.GroupSize != size:
		return nil, wire.Errorf(wire.Invalid, "group_size: %d: want %d, the table's group_size", req.GroupSize, size)
	case req.GroupSize > 0:
		size = req.GroupSize
	}
	for i := range groups {
		groups[i].Size = size
		for _, r := range groups[i].Rollouts {
			in.rows++
			in.bytes += r.Bytes() + replay.RolloutOverhead
			in.items += t.itemsOf(r)
		}
	}
	return in, nil
}

// itemsOf returns how many ids a rollout gets.
func (t *table) itemsOf(r *rollout.Rollout) int {
	if t.Unit == replay.UnitStep {
		return max(len(r.Turns), 1)
	}
	return 1
}

// insert inserts the groups, after waiting for room and the limiter, and returns the ids in order of rows. Under a
// batch id that was inserted before it returns the ids of then.
func (t *table) insert(ctx context.Context, in *insertion) ([]uint64, error) {
	leave, err := t.awaitSameID(ctx, in)
	if err != nil {
		return nil, err
	}
	defer leave()
	// A repeat of an insertion takes no room, so it need not wait behind those that do (alone). It is looked up again
	// with each try: only there the table can neither be dropped nor get another owner before the ids are returned.
	ids, repeated, err := t.rollouts.ServiceView().Inserted(in.BatchID, in.groups...)
	if err != nil {
		return nil, in.nameRow(err)
	}
	w := wait{place: insertPlace, alone: repeated, waiting: &t.meter.insertsWaiting, timeout: in.timeout, now: t.now}
	if t.PendingRewards > 0 { // groups that wait too long leave room
		w.next = t.rollouts.ServiceView().NextDeadline
	}
	err = t.retry(ctx, w, func() error {
		return t.unlessDropped(func() (err error) {
			ids, repeated, err = t.rollouts.ServiceView().Inserted(in.BatchID, in.groups...)
			if repeated {
				return err
			}
			ids, err = t.tryInsert(ctx, in)
			return err
		})
	})
	switch {
	case err != nil:
		return nil, in.nameRow(err)
	case len(ids) != in.items:
		return nil, wire.Errorf(wire.Invalid, "batch_id: %q: it was used for an insertion of %d rollouts, this one "+
			"has %d: use a new id for each insertion", in.BatchID, len(ids), in.items)
	case repeated:
		t.meter.repeated.Add(1)
	default:
		t.countInserted(in, ids)
	}
	return t.idsByRow(in, ids), nil
}

// awaitSameID waits until no other insertion with the same batch id is in flight, at most as long as the timeout.
func (t *table) awaitSameID(ctx context.Context, in *insertion) (leave func(), err error) {
	limited := ctx
	if in.timeout != noTimeout {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, in.timeout)
		defer cancel()
	}
	leave, err = t.inserting.enter(limited, in.BatchID)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("batch_id: %q: an earlier insertion with this id is still in flight: %w", in.BatchID,
			rollout.ErrFull)
	}
	return leave, err
}

// tryInsert inserts the groups now, if the limiter allows. Its memory is charged first, by an estimate, so that of
// insertions side by side each counts; once the groups are in the table, or refused, the table's real size is charged
// in its place.
func (t *table) tryInsert(ctx context.Context, in *insertion) (ids []rollout.ID, err error) {
	if err := t.checkJournal(); err != nil {
		return nil, err
	}
	charged, err := t.chargeRoom(in)
	if err != nil {
		return nil, err
	}
	defer t.service.tableMemory.add(-charged) // recount charges what the table really took
	insert := func() (err error) {
		ids, err = t.rollouts.ServiceView().InsertOnce(t.named(ctx), in.BatchID, in.groups...)
		return err
	}
	before := t.rollouts.ServiceView().Groups() // says which shards the new groups went to
	if t.limiter != nil {
		err = t.limiter.Insert(in.items, t.rollouts.ServiceView().Flow, insert)
	} else {
		err = insert()
	}
	if err == nil {
		t.wakeSamples(before)
		t.gate.Load().Insert(t.now(), in.Grant, in.rows, t.version())
		t.recount()
	}
	return ids, err
}

// chargeRoom charges what an insertion will take of the tables' memory, or refuses it. It takes off what the insertion
// will evict, where that matters: about as much for each rollout as the table holds on average.
func (t *table) chargeRoom(in *insertion) (charged int64, err error) {
	m := &t.service.tableMemory
	charged = in.bytes
	if m.held.Load()+charged > m.most {
		t.recount() // leases settled since the last time have let go of what was evicted
		f := t.rollouts.ServiceView().Flow()
		evicted := max(f.Bytes+in.bytes-t.CapacityBytes, 0)
		if over := f.Present + in.rows - t.Capacity; over > 0 && f.Present > 0 {
			evicted = max(evicted, int64(over)*(f.Bytes/int64(f.Present)+replay.RolloutOverhead))
		}
		if f.Pinned > t.CapacityBytes {
			evicted = 0 // leases would hold it
		}
		charged = max(in.bytes-evicted, 0)
	}
	return charged, m.charge(charged, "inserting %d rollouts", in.rows)
}

// wakeSamples wakes the first sample of each shard that got groups since the table had the given number. A limiter may
// let those of any shard pass.
func (t *table) wakeSamples(before uint64) {
	n, came := uint64(t.Shards), t.rollouts.ServiceView().Groups()-before
	if t.limiter != nil || came >= n {
		t.lines.rolloutsChanged()
		return
	}
	shards := make([]place, came)
	for i := range shards {
		shards[i] = place((before + uint64(i)) % n)
	}
	t.lines.rolloutsChanged(shards...)
}

func (t *table) countInserted(in *insertion, ids []rollout.ID) {
	m := &t.meter
	m.inserts.Add(1)
	m.insertedRows.Add(uint64(in.rows))
	var tokens, bytes, shown, next int
	now := t.now()
	for _, g := range in.groups {
		for _, r := range g.Rollouts {
			tokens += len(r.Tokens)
			bytes += int(r.Bytes())
			if r.Text != "" && shown < recentPerInsertion {
				m.recent.add(ids[next], r, now)
				shown++
			}
			next += t.itemsOf(r)
		}
	}
	m.insertedTokens.Add(uint64(tokens))
	m.insertedBytes.Add(uint64(bytes))
}

// idsByRow brings ids from the order of the groups into that of the rows.
func (t *table) idsByRow(in *insertion, ids []rollout.ID) []uint64 {
	sorted := make([]uint64, 0, len(ids))
	if in.items == in.rows {
		sorted = sorted[:len(ids)]
		for row, at := range in.order {
			sorted[row] = uint64(ids[at])
		}
		return sorted
	}
	first := make([]int, 0, in.rows+1) // of each rollout's ids
	next := 0
	for _, g := range in.groups {
		for _, r := range g.Rollouts {
			first = append(first, next)
			next += t.itemsOf(r)
		}
	}
	first = append(first, next)
	for _, at := range in.order {
		for _, id := range ids[first[at]:first[at+1]] {
			sorted = append(sorted, uint64(id))
		}
	}
	return sorted
}

// nameRow makes an error that counts rollouts in order of groups name the row of the record batch.
func (in *insertion) nameRow(err error) error {
	var field *rollout.FieldError
	if !errors.As(err, &field) || field.Row < 0 || field.Row >= len(in.order) {
		return err
	}
	named := *field
	named.Row = in.order.Row(field.Row)
	return &named
}

// batchIDs holds the batch ids of insertions in flight: a repeat waits for the first. The zero value is ready.
type batchIDs struct {
	mu   sync.Mutex
	done map[string]chan struct{}
}

// enter waits until no other insertion with the id is in flight; leave ends this one. Insertions without an id do not
// wait.
func (b *batchIDs) enter(ctx context.Context, id string) (leave func(), err error) {
	if id == "" {
		return func() {}, nil
	}
	for {
		b.mu.Lock()
		first := b.done[id]
		if first == nil {
			done := make(chan struct{})
			if b.done == nil {
				b.done = make(map[string]chan struct{})
			}
			b.done[id] = done
			b.mu.Unlock()
			return func() { b.leave(id, done) }, nil
		}
		b.mu.Unlock()
		select {
		case <-first:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *batchIDs) leave(id string, done chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.done, id)
	close(done)
}
