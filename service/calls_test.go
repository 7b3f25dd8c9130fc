package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// large fills a table with rollouts whose batch no window of a connection holds.
func (v *served) large(table string) {
	v.t.Helper()
	for range 8 {
		v.fill(table, one(answer(100_000, 0, 0)))
	}
}

func TestAReaderThatTakesNothingIsDisconnectedAndItsBatchGoesBack(t *testing.T) {
	t.Parallel()
	v := serve(t, Options{SendTimeout: time.Second})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}})
	v.large("q")
	idle := v.dial()
	text, err := json.Marshal(wire.SampleRequest{Table: "q", Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = idle.DoGet(v.ctx, &flight.Ticket{Ticket: text}); err != nil { // and reads nothing
		t.Fatal(err)
	}
	v.awaitCounts("q", 8, 0, 8)
	v.memoryIsFree()
	if o := v.service.Observe(); o.SlowReaders != 1 {
		t.Errorf("%d slow readers", o.SlowReaders)
	}
	b, err := v.get(wire.SampleRequest{Table: "q", Size: 8}) // another connection is served
	if err != nil {
		t.Fatal(err)
	}
	if b.draws[0].ID != 1 {
		t.Errorf("after it the queue gives %d", b.draws[0].ID)
	}
}

func TestAStreamWhoseReaderTakesNothingIsDisconnectedAndFreed(t *testing.T) {
	t.Parallel()
	v := serve(t, Options{SendTimeout: time.Second})
	v.create(wire.Table{Name: "a"})
	v.large("a")
	x := v.exchanger(v.dial(), "a")
	for range 4 {
		x.send(wire.SampleRequest{Size: 2, Prefetch: count(2)})
	}
	v.await("it was disconnected", func(o TableView) bool { return v.service.Observe().SlowReaders == 1 })
	v.await("nothing is on lease", func(o TableView) bool { return o.OnLease == 0 })
	v.memoryIsFree()
}

func (v *served) memoryIsFree() {
	v.t.Helper()
	v.await("no memory is held", func(TableView) bool {
		return v.service.outgoing.all.used.Load()+v.service.incoming.all.used.Load() == 0
	})
}

func TestASlowReaderThatTakesSomethingIsServed(t *testing.T) {
	t.Parallel()
	v := serve(t, Options{SendTimeout: 2 * time.Second})
	v.create(wire.Table{Name: "a"})
	v.large("a")
	stream, err := v.dial().DoGet(v.ctx, &flight.Ticket{Ticket: []byte(`{"table":"a","export":true,"size":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		_, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		select { // slower than the service, faster than it waits
		case <-time.After(100 * time.Millisecond):
		case <-v.ctx.Done():
		}
	}
	if n != 9 {
		t.Errorf("%d messages, want a schema and 8 batches", n)
	}
}

func TestObserveListsConnectionsWithCallersAndTables(t *testing.T) {
	v := serve(t, Options{Caller: func(context.Context) string { return "alice" }})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(4, 0)...)
	x := v.exchanger(v.dial(), "a")
	v.mustSample(x, wire.SampleRequest{Size: 2})
	list := v.service.Observe().Connections
	if len(list) != 2 {
		t.Fatalf("%d connections", len(list))
	}
	i := slices.IndexFunc(list, func(c Connection) bool { return c.Streams == 1 })
	if i < 0 || list[i].Caller != "alice" || !slices.Equal(list[i].Tables,
		[]string{"a"}) || list[i].SentBytes == 0 || list[i].ReceivedBytes == 0 ||
		list[i].Peer == list[1-i].Peer || list[i].Since.IsZero() {
		t.Errorf("connections %+v", list)
	}
	x.cancel()
	v.await("the stream ended", func(TableView) bool {
		return !slices.ContainsFunc(v.service.Observe().Connections,
			func(c Connection) bool { return c.Streams != 0 || len(c.Tables) != 0 })
	})
}

func TestObserveCountsRequests(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "prioritized"}})
	with := answer(4, 0, 0.5)
	with.Text = string(make([]byte, 1999)) + "é and more"
	v.fill("a", one(with), one(answer(6, 0, 1)))
	if _, err := v.get(wire.SampleRequest{Table: "a", Size: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.get(wire.SampleRequest{Table: "a"}); err == nil {
		t.Fatal("a sample of nothing was served")
	}
	v.await("the latency is counted, after the answer", func(w TableView) bool { return w.InsertLatency.Count == 1 })
	o := v.service.Observe()
	if o.Calls["DoPut"] != 1 || o.Calls["DoGet"] != 2 || o.Calls["DoAction"] != 1 || len(o.Errors) != 1 ||
		o.Errors[0] != (ErrorCount{wire.Invalid, 1}) {
		t.Errorf("calls %v, errors %v", o.Calls, o.Errors)
	}
	w := o.Tables[0]
	if w.Name != "a" || w.Definition.Sampler != "prioritized" || w.AgeDecay != 500 || len(w.ByAge) != 1 ||
		w.Stats.Present != 2 {
		t.Errorf("table %+v", w)
	}
	c := w.Counters
	if c.InsertRequests != 1 || c.InsertedRows != 2 || c.InsertedTokens != 14 || c.Samples != 1 || c.SampledRows != 2 ||
		c.SampledBytes == 0 || c.ReceivedBytes == 0 {
		t.Errorf("counters %+v", c)
	}
	if l := w.SampleLatency; l.Count != 1 || len(l.Counts) != len(l.Bounds)+1 || l.Seconds <= 0 {
		t.Errorf("latency %+v", l)
	}
	if len(w.Recent) != 1 || !w.Recent[0].Cut || len(w.Recent[0].Text) != 1999 || w.Recent[0].ID != 1 ||
		w.Recent[0].Reward != 0.5 {
		t.Errorf("recent %d: cut %v, %d bytes", len(w.Recent), w.Recent[0].Cut, len(w.Recent[0].Text))
	}
}

func TestCallersThatLeftAreNotCountedAsErrors(t *testing.T) {
	var counts callCounts
	for _, left := range []error{
		context.Canceled, fmt.Errorf("sending: %w", context.DeadlineExceeded), status.Error(codes.Unavailable,
			"transport is closing"),
		status.Error(codes.Canceled, "context canceled"),
	} {
		counts.failed(left)
	}
	if _, errors := counts.view(); len(errors) > 0 {
		t.Errorf("callers that left count as %v", errors)
	}
	for _, err := range []error{fmt.Errorf("sampling: %w", rollout.ErrStarved), wire.Errorf(wire.Closing, "stopping"),
		fmt.Errorf("the disk")} {
		counts.failed(err)
	}
	if _, errors := counts.view(); fmt.Sprint(errors) != "[{closing 1} {failed 1} {starved 1}]" {
		t.Errorf("errors count as %v", errors)
	}
}
