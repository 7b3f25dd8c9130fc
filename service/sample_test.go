package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/replay"
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
	if got.PromptID != put.PromptID || got.Text != put.Text || got.Meta["k"] != "v" || !slices.Equal(got.Tokens,
		put.Tokens) ||
		!slices.Equal(got.Logprobs, put.Logprobs) || !slices.Equal(got.Versions,
		put.Versions) || !slices.Equal(got.Turns, put.Turns) {
		t.Errorf("rollout %+v, put in %+v", got, put)
	}
}

// Several clients sample shards of their own: what each batch's weights were divided by lets them find the largest.
func TestABatchSaysWhatItsWeightsWereDividedBy(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: replay.Prioritized, PriorityBase: replay.BaseReward,
		PriorityExponent: 1, Shards: 2, ImportanceBeta: new(1.0)}})
	for _, reward := range []float32{3, 2, 1, 2} { // one shard gets 3 and 1, the other 2 and 2
		v.fill("a", one(answer(5, 0, reward)))
	}
	for shard, want := range []float64{math.Ln2, 0} { // 1/(N P) of reward 1 and of 2, N P being reward/2
		b, err := v.get(wire.SampleRequest{Table: "a", Size: 8, Shard: shard})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(b.LogWeightScale-want) > 1e-5 {
			t.Errorf("shard %d: weights are divided by exp %v, want exp %v", shard, b.LogWeightScale, want)
		}
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
	stream, err := v.client.DoGet(v.ctx,
		&flight.Ticket{Ticket: []byte(`{"table":"a","size":1,"columns":["reward","id"]}`)})
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
	v.create(wire.Table{Name: "a", Options: replay.Options{Shards: 2}})
	v.create(wire.Table{Name: "i", Options: replay.Options{PromptIndex: true}})
	v.create(wire.Table{Name: "held", Options: replay.Options{PromptIndex: true, Capacity: 64},
		Limiter: &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 8}})
	v.create(wire.Table{Name: "wide", Options: replay.Options{PromptIndex: true, Capacity: 4 << 20}})
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
		{`{"table":"a","export":true,"prompts":["p"]}`, wire.Invalid, "export"},
		{`{"table":"a","export":true,"order":"age"}`, wire.Invalid, "export"},
		{`{"table":"a","export":true,"where":"rewrd > 0"}`, wire.Invalid, "use reward"},
		{`{"table":"a","prompts":["p"],"per_prompt":1}`, wire.Invalid, "set the option prompt_index"},
		{`{"table":"i","prompts":["p"]}`, wire.Invalid, "per_prompt: 0"},
		{`{"table":"i","prompts":["p"],"per_prompt":-9000000000}`, wire.Invalid, "per_prompt: -9000000000"},
		{`{"table":"i","prompts":["p"],"per_prompt":1,"size":2}`, wire.Invalid, "size is 2"},
		{`{"table":"i","prompts":["p","p"],"per_prompt":1}`, wire.Invalid, `"p" is named twice`},
		{`{"table":"i","prompts":["p"],"per_prompt":1,"shard":2}`, wire.Invalid, "shard: 2"},
		{`{"table":"i","prompts":["p"],"per_prompt":1,"where":"rewrad>0"}`, wire.Invalid, "there is no column rewrad: " +
			"use reward"},
		{`{"table":"i","prompts":["p"],"per_prompt":1,"order":"reward>0"}`, wire.Invalid, "must be a number"},
		{`{"table":"i","prompts":["p"],"per_prompt":1,"where":"any(1..9999999, # > age)"}`, wire.Invalid, "there is no " +
			"function any"},
		{`{"table":"held","prompts":["p","q"],"per_prompt":5}`, wire.Invalid, "a batch of 10: the limiter's error_buffer " +
			"is 8"},
		{`{"table":"held","prompts":["p"],"per_prompt":5000}`, wire.Invalid, "a batch of 64"},
		{`{"table":"i","size":1,"where":"age>0"}`, wire.Invalid, "without prompts"},
		{`{"table":"wide","prompts":["p","q"],"per_prompt":1000000}`, wire.Invalid, "prompts: 2 with per_prompt 1000000: " +
			"want at most 1048576"},
	} {
		stream, err := v.client.DoGet(v.ctx, &flight.Ticket{Ticket: []byte(c.ticket)})
		if err == nil {
			_, err = flight.NewRecordReader(stream)
		}
		checkRefusal(t, wire.FromGRPC(err), c.code, c.want)
	}
}

func TestADrawByPromptGetsWhatThereIsAtOnce(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{PromptIndex: true, MinSize: 64}})
	for _, prompt := range []string{"one", "two", "one"} {
		g := group(3, 0)
		for i, r := range g.Rollouts {
			r.PromptID, r.Reward = prompt, float32(i)
		}
		v.fill("a", g)
	}
	b, err := v.get(wire.SampleRequest{Table: "a", Prompts: []string{"two", "nobody's", "one"}, PerPrompt: 3,
		Where: "reward > 0", Order: "reward"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []rollout.ID
	for _, d := range b.draws {
		ids = append(ids, d.ID)
	}
	if !slices.Equal(ids, []rollout.ID{6, 5, 9, 3, 8}) || !slices.Equal(b.PromptCounts, []int{2, 0, 3}) {
		t.Errorf("got %v, by prompt %v", ids, b.PromptCounts)
	}
	// An empty batch is a batch: it travels, and is settled.
	x := v.exchanger(v.client, "a")
	none := v.mustSample(x, wire.SampleRequest{Prompts: []string{"nobody's"}, PerPrompt: 2})
	if none.Batch == 0 || none.Rows != 0 || !slices.Equal(none.PromptCounts, []int{0}) {
		t.Errorf("of a prompt of nobody: %+v", none.BatchInfo)
	}
	// A stream's next request settles the batch before, though it has no size.
	v.mustSample(x, wire.SampleRequest{Prompts: []string{"two"}, PerPrompt: 2})
	v.mustSample(x, wire.SampleRequest{Prompts: []string{"one"}, PerPrompt: 2, Acknowledge: []uint64{}})
	v.awaitCounts("a", 9, 5, 0)
}

func TestAnExportHoldsTheWholeTableInOrderOfIds(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Shards: 2, Sampler: "prioritized"}})
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
	b, err = v.get(wire.SampleRequest{Table: "a", Export: true, Where: "reward > 20 && uses == 0"})
	if err != nil || len(b.draws) != 4 || b.draws[0].ID != 22 || b.draws[3].ID != 25 {
		t.Errorf("where reward > 20: %d rows, %v", len(b.draws), err)
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

func (v *served) mustSample(x *exchanger, req wire.SampleRequest) batch {
	v.t.Helper()
	b, err := x.sample(req)
	if err != nil {
		v.t.Fatal(err)
	}
	if len(b.draws) != req.Size && len(req.Prompts) == 0 {
		v.t.Fatalf("asked for %d, got %d", req.Size, len(b.draws))
	}
	return b
}

func (v *served) awaitCounts(table string, drawn, acknowledged, returned uint64) {
	v.t.Helper()
	v.await("the counts are as expected", func(o TableView) bool {
		return o.Stats.Drawn == drawn && o.Stats.Acknowledged == acknowledged && o.Stats.Returned == returned
	})
}

// A DoGet is acknowledged once it is written out, whether or not its reader has read it; a lease is the reader's.
func TestAReaderThatDiesLosesWhatDoGetSentAndNoLease(t *testing.T) {
	v := serve(t, Options{Tables: []wire.Table{queueOf(16)}})
	v.fill("q", alone(6, 0)...)
	ticket, err := json.Marshal(wire.SampleRequest{Table: "q", Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, die := context.WithCancel(v.ctx)
	reader := v.dial()
	if _, err := reader.DoGet(ctx, &flight.Ticket{Ticket: ticket}); err != nil { // and reads nothing of it
		t.Fatal(err)
	}
	v.awaitCounts("q", 2, 2, 0)
	die()
	x := v.exchanger(v.dial(), "q")
	v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	v.awaitCounts("q", 4, 2, 0)
	x.cancel()
	v.awaitCounts("q", 4, 2, 2)
	b, err := v.get(wire.SampleRequest{Table: "q", Size: 4})
	if err != nil || len(b.draws) != 4 {
		t.Errorf("the other four of six: %v", err)
	}
}

func TestTheNextRequestAcknowledgesTheBatchBefore(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	x := v.exchanger(v.client, "a")
	v.mustSample(x, wire.SampleRequest{Size: 4, Prefetch: count(0)})
	if s := v.stats("a"); s.Acknowledged != 0 || s.OnLease != 4 {
		t.Errorf("before the next request: acknowledged %d, on lease %d", s.Acknowledged, s.OnLease)
	}
	v.mustSample(x, wire.SampleRequest{Size: 4, Prefetch: count(0)})
	if s := v.stats("a"); s.Acknowledged != 4 || s.OnLease != 4 {
		t.Errorf("after it: acknowledged %d, on lease %d", s.Acknowledged, s.OnLease)
	}
	x.cancel()
	v.awaitCounts("a", 8, 4, 4)
}

func TestRequestsSettleTheBatchesThatTheyName(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}})
	v.fill("q", alone(9, 0)...)
	x := v.exchanger(v.client, "q")
	none := []uint64{}
	ask := func(acknowledge, release []uint64) batch {
		return v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0), Acknowledge: acknowledge,
			Release: release})
	}
	// An empty list is left out of JSON by wire.SampleRequest, as absent lists are: name the first batch explicitly.
	first := v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	second := ask(none, []uint64{first.Batch}) // the first goes back, and comes again
	if second.draws[0].ID != first.draws[0].ID {
		t.Errorf("after a release the queue gave %d, want %d again", second.draws[0].ID, first.draws[0].ID)
	}
	third := ask([]uint64{second.Batch}, nil)
	if third.draws[0].ID != 3 {
		t.Errorf("after an acknowledgement the queue gave %d, want 3", third.draws[0].ID)
	}
	_, err := x.sample(wire.SampleRequest{Size: 2, Acknowledge: []uint64{second.Batch, third.Batch}})
	if !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("acknowledging twice: %v", err)
	}
	if s := v.stats("q"); s.Acknowledged != 2 || s.OnLease != 2 {
		t.Errorf("a list with a settled batch: acknowledged %d, on lease %d; want all or none", s.Acknowledged,
			s.OnLease)
	}
	_, err = x.sample(wire.SampleRequest{Acknowledge: []uint64{third.Batch}, Release: []uint64{second.Batch}})
	if s := v.stats("q"); !errors.Is(err, rollout.ErrNoLease) || s.Acknowledged != 2 || s.OnLease != 2 {
		t.Errorf("two lists, one with a settled batch: %v; acknowledged %d, on lease %d; want all or none", err,
			s.Acknowledged, s.OnLease)
	}
	if _, err := x.sample(wire.SampleRequest{Acknowledge: []uint64{third.Batch}}); err != nil {
		t.Errorf("settling without asking for more: %v", err)
	}
	v.awaitCounts("q", 6, 4, 2)
}

func TestAStreamSettlesNoBatchOfAnother(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	x, y := v.exchanger(v.client, "a"), v.exchanger(v.client, "a")
	b := v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	if _, err := y.sample(wire.SampleRequest{Size: 2, Acknowledge: []uint64{b.Batch}}); !errors.Is(err,
		rollout.ErrNoLease) {
		t.Errorf("another stream's batch: %v", err)
	}
	do[wire.TableInfo](v, wire.Acknowledge, wire.SettleRequest{Table: "a",
		Batches: []uint64{b.Batch}}) // but an action may
	if s := v.stats("a"); s.Acknowledged != 2 {
		t.Errorf("acknowledged %d", s.Acknowledged)
	}
}

func TestADisconnectGivesBackWhatWasNotAcknowledged(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}})
	v.fill("q", alone(8, 0)...)
	x := v.exchanger(v.client, "q")
	b := v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(2)})
	v.awaitCounts("q", 6, 0, 0) // two more were drawn ahead
	x.cancel()
	v.awaitCounts("q", 6, 0, 6)
	again, err := v.get(wire.SampleRequest{Table: "q", Size: 2})
	if err != nil || again.draws[0].ID != b.draws[0].ID {
		t.Errorf("the queue gives %v again, %v", again.draws, err)
	}
}

func TestTheEndOfAStreamGivesBackToo(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	x := v.exchanger(v.client, "a")
	v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	if err := x.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	v.awaitCounts("a", 2, 0, 2)
}

func TestPrefetchedBatchesOlderThanTheTableAreDrawnAgain(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	x := v.exchanger(v.client, "a")
	v.mustSample(x, wire.SampleRequest{Size: 2})
	v.awaitCounts("a", 4, 0, 0) // one is drawn ahead
	do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 1})
	b := v.mustSample(x, wire.SampleRequest{Size: 2})
	if b.Version != 1 || b.draws[0].Staleness != 1 {
		t.Errorf("handed over at version %d with staleness %d", b.Version, b.draws[0].Staleness)
	}
	if c := v.service.Observe().Tables[0].Counters; c.Redrawn != 1 {
		t.Errorf("%d were drawn again", c.Redrawn)
	}
}

func TestPrefetchSlackLetsOlderBatchesThroughButNotWhatBecameTooStale(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{MaxStaleness: 2}})
	v.fill("a", alone(8, 0)...)
	x := v.exchanger(v.client, "a")
	v.mustSample(x, wire.SampleRequest{Size: 2, PrefetchSlack: 5})
	for version := int32(1); version <= 2; version++ { // prefetched at 0, the next at 1
		v.await("one is drawn ahead", func(o TableView) bool { return o.OnLease == 4 })
		do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: version})
		if b := v.mustSample(x, wire.SampleRequest{Size: 2, PrefetchSlack: 5}); b.Version != version-1 {
			t.Errorf("at version %d a batch of version %d came", version, b.Version)
		}
	}
	v.await("one is drawn ahead", func(o TableView) bool { return o.OnLease == 4 })
	do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 3}) // all of version 0 leave
	v.fill("a", alone(4, 3)...)
	b := v.mustSample(x, wire.SampleRequest{Size: 2, PrefetchSlack: 5})
	for _, d := range b.draws {
		if d.Rollout.Version() != 3 {
			t.Errorf("a rollout of version %d came at version 3 with max_staleness 2", d.Rollout.Version())
		}
	}
}

func TestAStarvedRequestIsToldAndTheStreamGoesOn(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	for _, prefetch := range []int{0, 1, 3} {
		x := v.exchanger(v.client, "a")
		for _, limit := range []int64{0, 10} {
			_, err := x.sample(wire.SampleRequest{Size: 2, TimeoutMS: ms(limit), Prefetch: count(prefetch)})
			if !errors.Is(err, rollout.ErrStarved) {
				t.Fatalf("prefetch %d, timeout %d: %v", prefetch, limit, err)
			}
		}
		v.fill("a", alone(2, 0)...)
		// Inserted and answered: a request that does not wait finds it.
		v.mustSample(x, wire.SampleRequest{Size: 2, TimeoutMS: ms(0), Prefetch: count(prefetch)})
		x.cancel()
		v.await("it went back", func(o TableView) bool { return o.OnLease == 0 && o.SamplesWaiting == 0 })
		do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
		v.create(wire.Table{Name: "a"})
	}
}

func TestARequestWaitsOnAStreamUntilRolloutsCome(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{MinSize: 3}})
	for _, prefetch := range []int{0, 2} {
		x := v.exchanger(v.client, "a")
		x.send(wire.SampleRequest{Size: 2, Prefetch: count(prefetch)})
		v.await("a sample waits", func(o TableView) bool { return o.SamplesWaiting == 1 })
		v.fill("a", alone(3, 0)...)
		if b, err := x.recv(); err != nil || len(b.draws) != 2 {
			t.Errorf("prefetch %d: %v", prefetch, err)
		}
		x.cancel()
		v.await("it went back", func(o TableView) bool { return o.OnLease == 0 })
		do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
		v.create(wire.Table{Name: "a", Options: replay.Options{MinSize: 3}})
	}
}

func TestRequestsWithAnIdGetTheSameBatchOnANewStream(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "uniform"}})
	v.fill("a", alone(64, 0)...)
	req := wire.SampleRequest{Size: 8, RequestID: "r1", UseAtDraw: true}
	x := v.exchanger(v.client, "a")
	first := v.mustSample(x, req)
	x.cancel()
	again := v.mustSample(v.exchanger(v.dial(), "a"), req)
	if again.Batch != first.Batch || again.draws[0].ID != first.draws[0].ID {
		t.Errorf("batch %d, then %d", first.Batch, again.Batch)
	}
	v.awaitCounts("a", 8, 8, 0)
}

// The client's second stream comes before the server has noticed the end of the first, whose end must not take the
// batch back.
func TestALeasedBatchPassesToTheStreamThatAskedForItLast(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	req := wire.SampleRequest{Size: 4, RequestID: "r1"}
	x, y := v.exchanger(v.client, "a"), v.exchanger(v.client, "a")
	first := v.mustSample(x, req)
	if again := v.mustSample(y, req); again.Batch != first.Batch {
		t.Fatalf("batch %d, then %d", first.Batch, again.Batch)
	}
	if err := x.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := y.sample(wire.SampleRequest{Acknowledge: []uint64{first.Batch}}); err != nil {
		t.Errorf("the later stream lost its batch: %v", err)
	}
	v.awaitCounts("a", 4, 4, 0)
}

func TestAnExchangeIsRefusedWithTheReason(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	for _, c := range []struct {
		table string
		req   wire.SampleRequest
		code  wire.Code
		want  string
	}{
		{"b", wire.SampleRequest{Size: 1}, wire.NotFound, `"b"`},
		{"a", wire.SampleRequest{Table: "b", Size: 1}, wire.Invalid, `"b"`},
		{"a", wire.SampleRequest{}, wire.Invalid, "size: 0"},
		{"a", wire.SampleRequest{Size: 1, Prefetch: count(9)}, wire.Invalid, "prefetch: 9"},
		{"a", wire.SampleRequest{Size: 1, Prefetch: count(-1)}, wire.Invalid, "prefetch: -1"},
		{"a", wire.SampleRequest{Size: 1, PrefetchSlack: -1}, wire.Invalid, "prefetch_slack: -1"},
		{"a", wire.SampleRequest{Size: 1, Export: true}, wire.Invalid, "export"},
		{"a", wire.SampleRequest{Size: 1, Columns: []string{"no"}}, wire.Invalid, "no"},
		{"a", wire.SampleRequest{Size: 5000}, wire.Invalid, "5000"},
		{"a", wire.SampleRequest{Size: 5000, Prefetch: count(0)}, wire.Invalid, "5000"},
		{"a", wire.SampleRequest{Size: 1, Acknowledge: []uint64{1}, Release: []uint64{1}}, wire.NoLease, "batch 1"},
	} {
		x := v.exchanger(v.client, c.table)
		_, err := x.sample(c.req)
		checkRefusal(t, err, c.code, c.want)
	}
	v.await("nothing is on lease", func(o TableView) bool { return o.OnLease == 0 })
}

func TestTheTableOfAStreamMayStandInItsFirstRequest(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	x := v.exchanger(v.client, "")
	x.begun = true // no descriptor
	v.mustSample(x, wire.SampleRequest{Table: "a", Size: 2})
}

func TestAQueueIsServedInOrderThroughPrefetch(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 1000}})
	v.fill("q", alone(200, 0)...)
	x := v.exchanger(v.client, "q")
	next := rollout.ID(1)
	for range 50 {
		b := v.mustSample(x, wire.SampleRequest{Size: 4, Prefetch: count(3)})
		for _, d := range b.draws {
			if d.ID != next {
				t.Fatalf("rollout %d came, want %d", d.ID, next)
			}
			next++
		}
	}
	x.cancel()
	v.awaitCounts("q", 200, 196, 4)
}

func TestABatchThatNoMessageHoldsIsNotUsedUp(t *testing.T) {
	v := serve(t, Options{MaxMessageBytes: 4096})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}})
	for range 20 {
		v.fill("q", one(answer(20, 0, 1)))
	}
	for _, id := range []string{"", "one"} {
		_, err := v.get(wire.SampleRequest{Table: "q", Size: 20, UseAtDraw: true, RequestID: id})
		checkRefusal(t, err, wire.TooLarge, "20 rollouts", "max_message_bytes")
	}
	if s := v.stats("q"); s.Present != 20 || s.Acknowledged != 0 || s.OnLease != 0 {
		t.Errorf("%d are left, %d count, %d are on lease", s.Present, s.Acknowledged, s.OnLease)
	}
	for range 2 { // a repeat of a request gets its batch again, which counts once
		b, err := v.get(wire.SampleRequest{Table: "q", Size: 2, UseAtDraw: true, RequestID: "two"})
		if err != nil || b.draws[0].ID != 1 || b.draws[1].ID != 2 {
			t.Fatalf("the queue gives %v, %v", b.draws, err)
		}
	}
	if s := v.stats("q"); s.Present != 18 || s.Acknowledged != 2 {
		t.Errorf("%d are left, %d count", s.Present, s.Acknowledged)
	}
}

func TestAnAcknowledgedBatchIsNotAcknowledgedAgain(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(4, 0)...)
	x := v.exchanger(v.client, "a")
	for i := range 4 {
		b := v.mustSample(x, wire.SampleRequest{Size: 1, Prefetch: count(0)})
		if i%2 == 0 {
			do[any](v, wire.Acknowledge, wire.SettleRequest{Table: "a", Batches: []uint64{b.Batch}})
		}
	}
	table, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	if n := table.meter.lapsed.Load(); n != 0 {
		t.Errorf("%d acknowledgements came too late", n)
	}
}
