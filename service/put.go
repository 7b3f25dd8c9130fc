package service

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// DoPut inserts: each record batch is one insertion, answered in order once the journal's promise holds. The first one that is refused ends the stream.
func (s *Service) DoPut(stream flight.FlightService_DoPutServer) (err error) {
	c := s.begin(stream.Context(), "DoPut")
	defer c.end(&err)
	reader := flightdata.NewReader(stream, flightdata.Options{MaxBytes: s.options.MaxMessageBytes, Allocator: s.pool})
	name, err := target(reader)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if name == "" {
		return wire.Errorf(wire.Invalid, "descriptor: none: want a path of one name, the table's")
	}
	t, err := s.allowed(stream.Context(), name, true)
	if err != nil {
		return err
	}
	c.about(name)
	a := &answers{t, stream}
	if t.journal == nil {
		return t.putAll(stream.Context(), reader, a.send)
	}
	return a.putAhead(reader)
}

// target returns the table that a stream's descriptor names, "" if it has none.
func target(reader *flightdata.Reader) (string, error) {
	if err := reader.Peek(); err != nil {
		return "", err
	}
	return pathOf(reader.Descriptor())
}

func pathOf(d *flight.FlightDescriptor) (string, error) {
	switch {
	case d == nil || len(d.GetPath()) == 0 && len(d.GetCmd()) == 0:
		return "", nil
	case d.GetType() != flight.DescriptorPATH || len(d.GetPath()) != 1:
		return "", wire.Errorf(wire.Invalid, "descriptor: path %q, command of %d bytes: want a path of one name, the table's", d.GetPath(), len(d.GetCmd()))
	}
	return d.GetPath()[0], nil
}

// putAll inserts what a stream brings until it ends, and passes the answers on, with which the work of each is ended.
func (t *table) putAll(ctx context.Context, reader *flightdata.Reader, pass func(pendingAnswer) error) error {
	for {
		frame, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		began := time.Now()
		if err := t.service.work.begin(); err != nil {
			release(frame)
			return err
		}
		answer, err := t.put(ctx, frame)
		if err != nil {
			t.service.work.end()
			return err
		}
		if err := pass(pendingAnswer{answer, began}); err != nil {
			return err
		}
	}
}

func release(frame flightdata.Frame) {
	if frame.Batch != nil {
		frame.Batch.Release()
	}
}

// put inserts one record batch.
func (t *table) put(ctx context.Context, frame flightdata.Frame) (*wire.InsertAnswer, error) {
	defer release(frame)
	if err := t.service.authorize(ctx, t.Name, true); err != nil { // the token may have been taken back since
		return nil, err
	}
	var req wire.InsertRequest
	if err := readJSON("app_metadata", frame.Metadata, &req); err != nil {
		return nil, err
	}
	if frame.Batch == nil {
		return nil, wire.Errorf(wire.Invalid, "app_metadata came without a record batch: send it with one")
	}
	bytes := sizeOf(frame.Batch)
	t.meter.received.Add(uint64(bytes))
	give, err := t.admit(ctx, bytes)
	if err != nil {
		return nil, err
	}
	defer give()
	ids, err := t.putGroups(ctx, req, frame)
	if err != nil {
		t.refused(err, int(frame.Batch.NumRows()))
		return nil, err
	}
	return &wire.InsertAnswer{BatchID: req.BatchID, IDs: ids, Version: int32(t.version()), Present: t.store.Len()}, nil
}

// sizeOf returns how many bytes the buffers of a record batch have.
func sizeOf(rec arrow.RecordBatch) (bytes int64) {
	for _, c := range rec.Columns() {
		bytes += sizeOfData(c.Data())
	}
	return bytes
}

func sizeOfData(d arrow.ArrayData) (bytes int64) {
	for _, b := range d.Buffers() {
		if b != nil {
			bytes += int64(b.Len())
		}
	}
	for _, child := range d.Children() {
		bytes += sizeOfData(child)
	}
	return bytes
}

// admit waits until the bytes of an insertion may be in memory: at most half of all for one table, so that those who wait for it
// do not keep the others out.
func (t *table) admit(ctx context.Context, bytes int64) (give func(), err error) {
	mine, err := t.incoming.take(ctx, bytes)
	if err != nil {
		return nil, err
	}
	all, err := t.service.incoming.take(ctx, bytes)
	if err != nil {
		t.incoming.give(mine)
		return nil, err
	}
	return func() {
		t.service.incoming.give(all)
		t.incoming.give(mine)
	}, nil
}

func (t *table) putGroups(ctx context.Context, req wire.InsertRequest, frame flightdata.Frame) ([]uint64, error) {
	groups, order, err := wire.Groups(frame.Batch, t.fields)
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return []uint64{}, nil
	}
	in, err := t.newInsertion(req, groups, order)
	if err != nil {
		return nil, err
	}
	return t.insert(ctx, in)
}

func (t *table) refused(err error, rows int) {
	switch {
	case errors.Is(err, rollout.ErrFull):
		t.meter.full.Add(1)
	case wire.CodeOf(err) == wire.Invalid:
		t.meter.refused.Add(1)
		t.meter.refusedRows.Add(uint64(rows))
	}
}

// answersAhead is how many insertions of a stream may wait for the journal at once.
const answersAhead = 64

// answers sends the answers of a stream in order.
type answers struct {
	t      *table
	stream flight.FlightService_DoPutServer
}

type pendingAnswer struct {
	answer *wire.InsertAnswer
	began  time.Time
}

// putAhead inserts in a goroutine of its own, while answers wait until the journal's promise holds for them: many at once. If it
// does not, the stream ends, whatever its caller does.
func (a *answers) putAhead(reader *flightdata.Reader) error {
	ctx := a.stream.Context() // over once this returns
	queue, ended := make(chan pendingAnswer, answersAhead), make(chan error, 1)
	go func() {
		defer close(queue)
		ended <- a.t.putAll(ctx, reader, func(p pendingAnswer) error {
			select {
			case queue <- p:
				return nil
			case <-ctx.Done():
				a.t.service.work.end()
				return ctx.Err()
			}
		})
	}()
	for first := range queue {
		if err := a.promise(append([]pendingAnswer{first}, waiting(queue)...)); err != nil {
			go func() { // until the goroutine above has noticed
				for range queue {
					a.t.service.work.end()
				}
			}()
			return err
		}
	}
	return <-ended
}

// waiting takes what is in a queue now.
func waiting(queue <-chan pendingAnswer) (list []pendingAnswer) {
	for {
		select {
		case p, ok := <-queue:
			if !ok {
				return list
			}
			list = append(list, p)
		default:
			return list
		}
	}
}

// promise sends answers once what they say is safe.
func (a *answers) promise(list []pendingAnswer) error {
	err := a.t.promised(a.stream.Context())
	for _, p := range list {
		if err != nil {
			a.t.service.work.end()
			continue
		}
		err = a.send(p)
	}
	return err
}

// send sends an answer, with which its work ends.
func (a *answers) send(p pendingAnswer) error {
	defer a.t.service.work.end()
	text, err := writeJSON(p.answer)
	if err != nil {
		return err
	}
	if err := a.stream.Send(&flight.PutResult{AppMetadata: text}); err != nil {
		return err
	}
	a.t.meter.insertTimes.add(time.Since(p.began))
	return nil
}
