package service

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/wire"
)

func TestIDsThatWouldFillTheMemoryAreRefused(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Prompts: &wire.Prompts{}})
	longest, long := strings.Repeat("x", maxID), strings.Repeat("x", maxID+1)
	if _, err := v.insert("a", wire.InsertRequest{BatchID: longest}, alone(2, 0)...); err != nil {
		t.Errorf("a batch id of %d bytes: %v", maxID, err)
	}
	_, err := v.insert("a", wire.InsertRequest{BatchID: long}, alone(2, 0)...)
	checkRefusal(t, err, wire.Invalid, "batch_id: ", "1025 bytes", "at most 1024")
	_, err = v.get(wire.SampleRequest{Table: "a", Size: 1, RequestID: long})
	checkRefusal(t, err, wire.Invalid, "request_id: ", "1025 bytes", "at most 1024")
	_, err = try[any](v, wire.ReportDraws, wire.DrawReport{Table: "a", RequestID: long})
	checkRefusal(t, err, wire.Invalid, "request_id: ", "1025 bytes", "at most 1024")
	half := wire.PromptResult{Prompt: wire.Prompt{ID: "half"}, Correct: 2, Total: 4}
	named := half
	named.ID = long
	_, err = try[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{half, named}})
	checkRefusal(t, err, wire.Invalid, "results[1].id: ", "1025 bytes", "at most 1024")
	if s := v.stats("a"); s.Present != 2 || s.Prompts.Held != 0 {
		t.Errorf("%d rollouts, %d prompts: nothing of a refused request is kept", s.Present, s.Prompts.Held)
	}
}

// A status travels in a header; many clients take 8 KB of headers in all.
func TestWhatWasGivenIsNotSentBackWhole(t *testing.T) {
	v := serve(t, Options{})
	long := strings.Repeat("é", 1<<20)
	_, err := try[any](v, long, wire.TableRequest{})
	checkRefusal(t, err, wire.NotFound, "action", "stats")
	if n := len(err.Error()); n > 3000 {
		t.Errorf("the error has %d bytes", n)
	}
	_, err = v.get(wire.SampleRequest{Table: long, Size: 1})
	checkRefusal(t, err, wire.NotFound, "there is none of that name", "list_flights")
	_, err = v.client.GetFlightInfo(v.ctx, path(long, "b"))
	checkRefusal(t, wire.FromGRPC(err), wire.Invalid, "descriptor", "want a path of one name")
}

func TestClientsMakeNoMoreTablesThanAllowed(t *testing.T) {
	v := serve(t, Options{MaxTables: 2, Tables: []wire.Table{{Name: "a"}}})
	v.create(wire.Table{Name: "b"})
	_, err := try[any](v, wire.CreateTable, wire.Table{Name: "c"})
	checkRefusal(t, err, wire.Invalid, `"c"`, "2 tables", "max_tables")
	v.create(wire.Table{Name: "b"}) // is there already
	do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
	v.create(wire.Table{Name: "c"})
}

func TestListsOfMillionsAreRefusedBeforeTheyAreRead(t *testing.T) {
	var r wire.DrawReport
	text := []byte(`{"table":"a","draws":[` + strings.Repeat("{},", maxValues) + `{}]}`)
	err := readJSON("body", text, &r)
	checkRefusal(t, err, wire.TooLarge, "values", "several requests")
	if r.Draws != nil {
		t.Errorf("%d were read", len(r.Draws))
	}
}

func TestLargeActionsWaitForMemory(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	all, err := v.service.incoming.take(v.ctx, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, pad int) error {
		stream, err := v.client.DoAction(ctx, &flight.Action{Type: wire.Info, Body: []byte(`{"table":"a"}` + strings.Repeat(" ", pad))})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	if err := call(v.ctx, 0); err != nil {
		t.Errorf("a small one: %v", err)
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx, large) }()
	for v.service.incoming.waiting() == 0 {
		select {
		case err := <-ended:
			t.Fatalf("a large one did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	v.service.incoming.give(all)
	if err := <-ended; err != nil {
		t.Errorf("a large one, with memory: %v", err)
	}
	if n := v.service.incoming.inUse(); n != 0 {
		t.Errorf("%d bytes are in use afterwards", n)
	}
	if err := call(ctx, maxJSON); wire.CodeOf(wire.FromGRPC(err)) != wire.TooLarge || errors.Is(err, context.Canceled) {
		t.Errorf("one that is too large: %v", err)
	}
}

// waiting returns how many claims wait.
func (b *budget) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

func TestAbandoningMoreThanWasGrantedFreesWhatWasGranted(t *testing.T) {
	g := NewGate(nil, GateBooks{}, 1)
	grant, n := mustStart(t, g, at(0), math.MaxInt32, math.MaxInt32, 0, noBound)
	g.Abandon(at(0), grant, math.MaxInt)
	if s := g.State(at(0), 0); s.Outstanding != 0 || s.Grants != 0 || s.Abandoned == 0 {
		t.Errorf("of %d groups abandoned: %+v", n, s)
	}
}
