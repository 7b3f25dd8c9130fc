package service

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestASampleGivesBackWhatWasInserted(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	put := answer(5, 0, 0.25)
	put.PromptID, put.Text, put.Meta = "prompt 7", "héllo", map[string]string{"k": "v"}
	put.Turns = []rollout.Turn{{Start: 2, End: 7, Reward: 0.25, Done: true}}
	ids := v.fill("a", one(put))
	b, err := v.get(wire.SampleRequest{Table: "a", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if b.Rows != 1 || b.Present != 1 || b.Version != 0 || b.Batch == 0 {
		t.Errorf("batch %+v", b.BatchInfo)
	}
	d := b.draws[0]
	if uint64(d.ID) != ids[0] || d.Probability != 1 || d.Weight != 1 || d.Uses != 0 || d.GroupMean != 0.25 {
		t.Errorf("draw %+v", d)
	}
	got := d.Rollout
	if got.PromptID != put.PromptID || got.Text != put.Text || got.Meta["k"] != "v" || !slices.Equal(got.Tokens, put.Tokens) ||
		!slices.Equal(got.Logprobs, put.Logprobs) || !slices.Equal(got.Versions, put.Versions) || !slices.Equal(got.Turns, put.Turns) {
		t.Errorf("rollout %+v, put in %+v", got, put)
	}
}

func TestAFinishedGetCountsItsDrawsAsUsed(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	if _, err := v.get(wire.SampleRequest{Table: "a", Size: 4}); err != nil {
		t.Fatal(err)
	}
	if s := v.stats("a"); s.Drawn != 4 || s.Acknowledged != 4 || s.OnLease != 0 {
		t.Errorf("drawn %d, acknowledged %d, on lease %d", s.Drawn, s.Acknowledged, s.OnLease)
	}
	if _, err := v.get(wire.SampleRequest{Table: "a", Size: 4, UseAtDraw: true, RequestID: "r"}); err != nil {
		t.Fatal(err)
	}
	first, err := v.get(wire.SampleRequest{Table: "a", Size: 4, UseAtDraw: true, RequestID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if s := v.stats("a"); s.Acknowledged != 8 || len(first.draws) != 4 {
		t.Errorf("a repeated request was counted: %d acknowledged", s.Acknowledged)
	}
}

func TestAGetAsksForColumnsByName(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(1, 0)...)
	stream, err := v.client.DoGet(v.ctx, &flight.Ticket{Ticket: []byte(`{"table":"a","size":1,"columns":["reward","id"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var names []string
	for _, f := range r.Schema().Fields() {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"reward", "id"}) {
		t.Errorf("columns %v", names)
	}
}

func TestASampleIsRefusedWithTheReason(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Shards: 2})
	for _, c := range []struct {
		ticket string
		code   wire.Code
		want   string
	}{
		{`{"table":"a","size":0}`, wire.Invalid, "size: 0"},
		{`{"table":"a","size":2000000}`, wire.Invalid, "size: 2000000"},
		{`{"table":"a","size":1,"fresh":2}`, wire.Invalid, "fresh: 2"},
		{`{"table":"a","size":1,"shard":2,"timeout_ms":5}`, wire.Invalid, "shard: 2"},
		{`{"table":"a","size":1,"timeout_ms":-5}`, wire.Invalid, "timeout_ms: -5"},
		{`{"table":"a","size":1,"prefetch":1}`, wire.Invalid, "prefetch"},
		{`{"table":"a","size":1,"columns":["nothing"]}`, wire.Invalid, "nothing"},
		{`{"table":"a","size":1,"sise":1}`, wire.Invalid, "sise"},
		{`{"table":"b","size":1}`, wire.NotFound, `"b"`},
		{`{"size":1}`, wire.Invalid, "table: empty"},
		{`{"table":"a","size":1,"timeout_ms":0}`, wire.Starved, "shard 0"},
		{`{"table":"a","size":1,"timeout_ms":20}`, wire.Starved, "shard 0"},
		{`{"table":"a","size":-1,"export":true}`, wire.Invalid, "size: -1"},
		{`{"table":"a","export":true,"fresh":1}`, wire.Invalid, "export"},
	} {
		stream, err := v.client.DoGet(v.ctx, &flight.Ticket{Ticket: []byte(c.ticket)})
		if err == nil {
			_, err = flight.NewRecordReader(stream)
		}
		checkRefusal(t, wire.FromGRPC(err), c.code, c.want)
	}
}

func TestAnExportHoldsTheWholeTableInOrderOfIds(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Shards: 2, Sampler: "prioritized"})
	v.fill("a", alone(25, 0)...)
	b, err := v.get(wire.SampleRequest{Table: "a", Export: true, Size: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.draws) != 25 || b.Rows != 5 {
		t.Fatalf("%d rows, the last %d in one record batch", len(b.draws), b.Rows)
	}
	sum := 0.0
	for i, d := range b.draws {
		if d.ID != rollout.ID(i+1) || d.Rollout.Reward != float32(i) || !d.Fresh {
			t.Fatalf("row %d is %+v", i, d)
		}
		sum += d.Probability
	}
	if math.Abs(sum-2) > 1e-9 { // 1 of each shard
		t.Errorf("probabilities add up to %v", sum)
	}
	if s := v.stats("a"); s.Drawn != 0 {
		t.Errorf("an export drew %d", s.Drawn)
	}
	v.create(wire.Table{Name: "empty"})
	if b, err := v.get(wire.SampleRequest{Table: "empty", Export: true}); err != nil || len(b.draws) != 0 {
		t.Errorf("of an empty table: %d rows, %v", len(b.draws), err)
	}
}

func TestABatchAboveTheMessageLimitGoesBack(t *testing.T) {
	v := serve(t, Options{MaxMessageBytes: 64 << 10, MaxInFlightBytes: 1 << 20})
	v.create(wire.Table{Name: "a"})
	for range 4 {
		v.fill("a", one(answer(2000, 0, 0)))
	}
	_, err := v.get(wire.SampleRequest{Table: "a", Size: 4})
	checkRefusal(t, err, wire.TooLarge, "max_message_bytes 65536", "fewer")
	if s := v.stats("a"); s.OnLease != 0 || s.Returned != 4 {
		t.Errorf("on lease %d, returned %d", s.OnLease, s.Returned)
	}
	if b, err := v.get(wire.SampleRequest{Table: "a", Size: 1}); err != nil || len(b.draws) != 1 {
		t.Errorf("a smaller batch: %v", err)
	}
}

func TestFlightsAreListedWithSchemaAndSize(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "b"})
	v.create(wire.Table{Name: "a", Columns: []wire.Column{{Name: "x_note", Type: "utf8"}}})
	v.fill("b", alone(3, 0)...)
	stream, err := v.client.ListFlights(v.ctx, &flight.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for {
		info, err := stream.Recv()
		if err != nil {
			break
		}
		names = append(names, info.FlightDescriptor.Path[0])
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("listed %v", names)
	}
	info, err := v.client.GetFlightInfo(v.ctx, path("b"))
	if err != nil || info.TotalRecords != 3 || info.TotalBytes <= 0 {
		t.Fatalf("info %v, %v", info, err)
	}
	got, err := v.client.DoGet(v.ctx, info.Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	r, err := flight.NewRecordReader(got)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	rows := 0
	for r.Next() {
		rows += int(r.RecordBatch().NumRows())
	}
	if rows != 3 {
		t.Errorf("the ticket of its info brings %d rows", rows)
	}
	result, err := v.client.GetSchema(v.ctx, path("a"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := flight.DeserializeSchema(result.Schema, nil)
	if err != nil || len(schema.FieldIndices("x_note")) != 1 || len(schema.FieldIndices("probability")) != 1 {
		t.Errorf("schema %v, %v", schema, err)
	}
	_, err = v.client.GetFlightInfo(v.ctx, path("c"))
	if status.Code(err) != codes.NotFound || !errors.Is(wire.FromGRPC(err), wire.ErrNotFound) {
		t.Errorf("of an unknown table: %v", err)
	}
}
