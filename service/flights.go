package service

import (
	"context"
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/wire"
)

// ListFlights lists the tables that the caller may read.
func (s *Service) ListFlights(_ *flight.Criteria, stream flight.FlightService_ListFlightsServer) (err error) {
	ctx := stream.Context()
	c := s.begin(ctx, "ListFlights")
	defer c.end(&err)
	for _, t := range s.list() {
		if s.authorize(ctx, t.Name, false) != nil {
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

// GetFlightInfo describes a table: the schema of sampling, how many rollouts and bytes it holds, its definition as JSON
// (app_metadata), and a ticket that exports it.
func (s *Service) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (info *flight.FlightInfo, err error) {
	c := s.begin(ctx, "GetFlightInfo")
	defer c.end(&err)
	t, err := s.described(ctx, d)
	if err != nil {
		return nil, err
	}
	return t.flight()
}

// GetSchema returns the schema of sampling.
func (s *Service) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (schema *flight.SchemaResult, err error) {
	c := s.begin(ctx, "GetSchema")
	defer c.end(&err)
	t, err := s.described(ctx, d)
	if err != nil {
		return nil, err
	}
	return &flight.SchemaResult{Schema: flight.SerializeSchema(t.schema, memory.DefaultAllocator)}, nil
}

// described returns the table that a descriptor names.
func (s *Service) described(ctx context.Context, d *flight.FlightDescriptor) (*table, error) {
	name, err := pathOf(d)
	if err != nil {
		return nil, err
	}
	return s.allowed(ctx, name, false)
}

func (t *table) flight() (*flight.FlightInfo, error) {
	ticket, err := writeJSON(wire.SampleRequest{Table: t.Name, Export: true})
	if err != nil {
		return nil, err
	}
	definition, err := json.Marshal(t.Table)
	if err != nil {
		return nil, err
	}
	f := t.store.Flow()
	return &flight.FlightInfo{
		Schema:           flight.SerializeSchema(t.schema, memory.DefaultAllocator),
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{t.Name}},
		Endpoint:         []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: ticket}}}, // no location: here
		TotalRecords:     int64(f.Present),
		TotalBytes:       f.Bytes,
		AppMetadata:      definition,
	}, nil
}
