package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// ListFlights lists the tables that the caller may read.
func (s *Service) ListFlights(_ *flight.Criteria, stream flight.FlightService_ListFlightsServer) (err error) {
	ctx := stream.Context()
	c := s.begin(ctx, "ListFlights")
	defer c.end(&err)
	for _, t := range s.list() {
		if s.authorize(ctx, t.Name, toRead) != nil {
			continue
		}
		info, err := t.flight()
		if err != nil {
			return err
		}
		if err := stream.Send(info); err != nil {
			return err
		}
	}
	return nil
}

// GetFlightInfo describes a table: the schema of its samples, how many rollouts and bytes it holds, its definition as
// JSON (app_metadata), and a ticket that exports it.
func (s *Service) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (info *flight.FlightInfo, err error) {
	c := s.begin(ctx, "GetFlightInfo")
	defer c.end(&err)
	t, err := s.descriptorTable(ctx, d)
	if err != nil {
		return nil, err
	}
	return t.flight()
}

// GetSchema returns the schema of a table's samples.
func (s *Service) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (schema *flight.SchemaResult, err error) {
	c := s.begin(ctx, "GetSchema")
	defer c.end(&err)
	t, err := s.descriptorTable(ctx, d)
	if err != nil {
		return nil, err
	}
	return &flight.SchemaResult{Schema: flight.SerializeSchema(t.schema, memory.DefaultAllocator)}, nil
}

// descriptorTable returns the table that a descriptor names.
func (s *Service) descriptorTable(ctx context.Context, d *flight.FlightDescriptor) (*table, error) {
	name, err := pathTable(d)
	if err != nil {
		return nil, err
	}
	return s.allowed(ctx, name, toRead)
}

func (t *table) flight() (*flight.FlightInfo, error) {
	ticket, err := encodeJSON(wire.SampleRequest{Table: t.Name, Export: true})
	if err != nil {
		return nil, err
	}
	definition, err := json.Marshal(t.Table)
	if err != nil {
		return nil, err
	}
	f := t.rollouts.ServiceView().Flow()
	return &flight.FlightInfo{
		Schema:           flight.SerializeSchema(t.schema, memory.DefaultAllocator),
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{t.Name}},
		Endpoint:         []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: ticket}}}, // no location: here
		TotalRecords:     int64(f.Present),
		TotalBytes:       f.Bytes,
		AppMetadata:      definition,
	}, nil
}

const (
	defaultExportRows = 256 // in a record batch of an export, unless the request gives a size
	exportTurn        = 64  // rollouts that an export looks at under one lock
)

// export sends all rollouts of the table, or those that meet req.Where, in order of ids, except those that leave it
// before their turn: it keeps none in memory that it does not send at the moment. It draws nothing: probability is that
// of the next draw (NaN where the sampler knows none), weight is 1, and group_mean and group_std are those of the
// insertion.
func (t *table) export(req *wire.SampleRequest, to *sender) error {
	rows := cmp.Or(req.Size, defaultExportRows)
	switch {
	case rows < 0 || rows > maxBatchRows:
		return wire.Errorf(wire.Invalid, "size: %d: want rows to a record batch, 1 to %d, or 0 for %d", rows,
			maxBatchRows, defaultExportRows)
	case req.Fresh != 0 || req.Shard != 0 || req.RequestID != "" || req.UseAtDraw || len(req.Prompts) > 0 ||
		req.Order != "":
		return wire.Errorf(wire.Invalid, "ticket: fresh, shard, request_id, use_at_draw, prompts, order: want none of "+
			"them with export, which draws nothing")
	}
	version := t.version()
	places, err := t.exported(to.ctx, req.Where)
	if err != nil {
		return err
	}
	listed := int64(len(places)) * int64(unsafe.Sizeof(replay.Place{}))
	if err := t.service.tableMemory.grow(listed); err != nil {
		return fmt.Errorf("listing %d rollouts: %w", len(places), err)
	}
	defer t.service.tableMemory.add(-listed)
	if err := to.writer.Begin(); err != nil {
		return err
	}
	for len(places) > 0 {
		var draws []rollout.Draw
		for bytes := int64(0); len(places) > 0 && len(draws) < rows && bytes <= t.service.options.MaxMessageBytes/2; {
			n := min(exportTurn, rows-len(draws), len(places))
			more := t.drawsAt(places[:n])
			bytes += estimateBytes(more)
			draws, places = append(draws, more...), places[n:]
		}
		for len(draws) > 0 {
			n := t.fitting(draws)
			if err := t.exportRows(draws[:n], version, to); err != nil {
				return err
			}
			draws = draws[n:]
		}
	}
	return nil
}

// exported returns the places of the rollouts to export. A search takes its turn among those for pages.
func (t *table) exported(ctx context.Context, where string) ([]replay.Place, error) {
	if where == "" {
		return t.rollouts.Inspect().Places(), nil
	}
	if err := t.searching.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer t.searching.Release(1)
	return t.rollouts.Inspect().Where(ctx, where)
}

// drawsAt returns the rollouts at some places of the table, in order of ids.
func (t *table) drawsAt(places []replay.Place) []rollout.Draw {
	held := t.rollouts.Inspect().At(places)
	draws := make([]rollout.Draw, len(held))
	for i := range held {
		draws[i] = held[i].Draw()
	}
	return draws
}

// fitting returns how many of the first draws go into one record batch: all, or fewer if they are large.
func (t *table) fitting(draws []rollout.Draw) int {
	n, bytes := 0, int64(0)
	for n < len(draws) {
		bytes += estimateBytes(draws[n : n+1])
		if n > 0 && bytes > t.service.options.MaxMessageBytes/2 {
			break
		}
		n++
	}
	return n
}

func (t *table) exportRows(draws []rollout.Draw, version rollout.Version, to *sender) error {
	if err := t.commitSaved(to.ctx, newestOf(draws)); err != nil {
		return err
	}
	p, err := t.pack(to.ctx, &rollout.Batch{Version: version, Draws: draws}, to.schema)
	if err != nil {
		return err
	}
	metadata, err := encodeJSON(wire.BatchInfo{Version: int32(version), Rows: len(draws), Present: t.present()})
	if err != nil {
		p.discard()
		return err
	}
	return to.send(p.record, metadata, p.free)
}
