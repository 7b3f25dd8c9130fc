package service

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestAnInsertionIsAnsweredWithTheIdsOfItsRows(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	first, err := v.insert("a", wire.InsertRequest{BatchID: "one"}, alone(3, 0)...)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(first.IDs,
		[]uint64{1, 2, 3}) || first.BatchID != "one" || first.Present != 3 || first.Version != 0 {
		t.Errorf("the first three rollouts are answered with %+v", first)
	}
	if ids := v.fill("a", group(2, 0), group(2, 0)); !slices.Equal(ids, []uint64{4, 5, 6, 7}) {
		t.Errorf("the next four rollouts get ids %v", ids)
	}
}

// A record batch in whose rows two groups alternate: ids are given group by group, and answered row by row.
func TestIdsComeInTheOrderOfRowsWhenGroupsAreMixed(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	rec := mixed(t)
	defer rec.Release()
	p := v.putter(v.client, "a", rec.Schema())
	got, err := p.put(rec, wire.InsertRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.IDs, []uint64{1, 3, 2, 4}) {
		t.Errorf("ids %v, want 1 3 2 4: rows of groups 7 8 7 8", got.IDs)
	}
}

// mixed is four rows of groups 7, 8, 7, 8.
func mixed(t testing.TB) arrow.RecordBatch {
	return jsonRows(t, `[
		{"group": 7, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, -1], "version": 0, "reward": 0},
		{"group": 8, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, -1], "version": 0, "reward": 1},
		{"group": 7, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, -1], "version": 0, "reward": 2},
		{"group": 8, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, -1], "version": 0, "reward": 3}]`)
}

// jsonRows is a record batch with the types that programs give their columns by default.
func jsonRows(t testing.TB, text string) arrow.RecordBatch {
	t.Helper()
	wide := arrow.PrimitiveTypes.Int64
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "group", Type: wide}, {Name: "tokens", Type: arrow.ListOf(wide)}, {Name: "mask",
			Type: arrow.ListOf(wide)},
		{Name: "logprobs", Type: arrow.ListOf(arrow.PrimitiveTypes.Float64)}, {Name: "version", Type: wide},
		{Name: "reward", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestARepeatedBatchIDAddsNothing(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "fifo", Capacity: 4}})
	for range 3 { // the repeats find the queue full, and are answered all the same
		got, err := v.insert("a", wire.InsertRequest{BatchID: "one"}, alone(4, 0)...)
		if err != nil || !slices.Equal(got.IDs, []uint64{1, 2, 3, 4}) {
			t.Fatalf("answered %+v, %v", got, err)
		}
	}
	if s := v.stats("a"); s.Inserted != 4 {
		t.Errorf("%d rollouts were inserted", s.Inserted)
	}
	if c := v.service.Observe().Tables[0].Counters; c.RepeatedInserts != 2 || c.InsertedRows != 4 {
		t.Errorf("counted %+v", c)
	}
}

func TestManyInsertionsOnOneStreamAreAnsweredInOrder(t *testing.T) {
	for _, data := range []string{"", t.TempDir()} {
		v := serve(t, Options{Data: data})
		v.create(wire.Table{Name: "a"})
		rec := rows(t, alone(2, 0)...)
		defer rec.Release()
		p := v.putter(v.client, "a", rec.Schema())
		for range 100 {
			p.send(rec, wire.InsertRequest{})
		}
		for i := range 100 {
			got, err := p.answer()
			if err != nil || !slices.Equal(got.IDs, []uint64{uint64(2*i + 1), uint64(2*i + 2)}) {
				t.Fatalf("answer %d: %+v, %v", i, got, err)
			}
		}
	}
}

func TestBadInputIsRefusedByNameAndNothingOfItIsKept(t *testing.T) {
	nan := answer(2, 0, 0)
	nan.Logprobs[3] = float32(math.NaN())
	short := answer(2, 0, 0)
	short.Mask = short.Mask[:2]
	positive := answer(2, 0, 0)
	positive.Logprobs[2] = 0.25
	far := answer(2, 0, 0)
	far.Tokens[1] = 5000
	silent := answer(2, 0, 0)
	clear(silent.Mask)
	clear(silent.Logprobs)
	for i := range silent.Versions {
		silent.Versions[i] = rollout.NoVersion
	}
	for _, c := range []struct {
		name string
		req  wire.InsertRequest
		bad  rollout.Group
		code wire.Code
		want []string
	}{
		{"NaN", wire.InsertRequest{}, one(nan), wire.Invalid, []string{"row 1", "logprobs[3]", "NaN"}},
		{"lengths that differ", wire.InsertRequest{}, one(short), wire.Invalid, []string{"row 1", "mask", "2"}},
		{"a log-prob above 0", wire.InsertRequest{}, one(positive), wire.Invalid,
			[]string{"row 1", "logprobs[2]", "0.25"}},
		{"a token out of range", wire.InsertRequest{}, one(far), wire.Invalid,
			[]string{"row 1", "tokens[1]", "5000", "1000"}},
		{"no token of the policy", wire.InsertRequest{}, one(silent), wire.Invalid, []string{"row 1", "mask", "all 0"}},
		{"too many tokens", wire.InsertRequest{}, one(answer(30, 0, 0)), wire.Invalid,
			[]string{"row 1", "tokens is 32", "max_tokens"}},
		{"ahead of the table", wire.InsertRequest{}, one(answer(2, 9, 0)), wire.Ahead, []string{"version 9"}},
		{"a partial group", wire.InsertRequest{GroupSize: 1}, group(2, 0), wire.Invalid,
			[]string{"row 1", "group_size is 1"}},
		{"a negative group size", wire.InsertRequest{GroupSize: -1}, group(1, 0), wire.Invalid,
			[]string{"group_size: -1"}},
		{"a negative timeout", wire.InsertRequest{TimeoutMS: ms(-1)}, group(1, 0), wire.Invalid,
			[]string{"timeout_ms: -1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := serve(t, Options{})
			v.create(wire.Table{Name: "a", Options: replay.Options{Vocab: 1000, MaxTokens: 16}})
			good := alone(1, 0)[0]
			rec, err := wire.Rows([]rollout.Group{good, c.bad}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer rec.Release()
			p := v.putter(v.client, "a", rec.Schema())
			_, err = p.put(rec, c.req)
			checkRefusal(t, err, c.code, c.want...)
			if s := v.stats("a"); s.Inserted != 0 || s.Present != 0 {
				t.Errorf("of a refused request %d rollouts were kept", s.Inserted)
			}
		})
	}
}

func one(r *rollout.Rollout) rollout.Group { return rollout.Group{Rollouts: []*rollout.Rollout{r}} }

func checkRefusal(t *testing.T, err error, code wire.Code, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was accepted")
	}
	if got := wire.CodeOf(err); got != code {
		t.Errorf("code %q of %v, want %q", got, err, code)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestAnErrorNamesTheRowOfTheRecordBatchNotItsPlaceInTheGroups(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	// In order of groups the bad row, 2, is the second.
	rec := jsonRows(t, `[
		{"group": 7, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, -1], "version": 0, "reward": 0},
		{"group": 8, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, -1], "version": 0, "reward": 1},
		{"group": 7, "tokens": [1, 2], "mask": [0, 1], "logprobs": [0, 1], "version": 0, "reward": 2}]`)
	defer rec.Release()
	_, err := v.putter(v.client, "a", rec.Schema()).put(rec, wire.InsertRequest{})
	checkRefusal(t, err, wire.Invalid, "row 2", "logprobs[1]")
}

func TestAStreamIsRefusedBeforeItInserts(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	rec := rows(t, alone(1, 0)...)
	defer rec.Release()
	for _, c := range []struct {
		name       string
		descriptor *flight.FlightDescriptor
		metadata   string
		code       wire.Code
		want       string
	}{
		{"unknown table", path("b"), "", wire.NotFound, `"b"`},
		{"no table", nil, "", wire.Invalid, "descriptor"},
		{"two names", path("a", "b"), "", wire.Invalid, "descriptor"},
		{"a command", &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte("a")}, "", wire.Invalid,
			"descriptor"},
		{"an unknown field", path("a"), `{"batch": "x"}`, wire.Invalid, "batch: unknown key"},
		{"no JSON", path("a"), `{"batch_id"`, wire.Invalid, "batch_id, group_size"},
		{"another type", path("a"), `{"group_size": "4"}`, wire.Invalid, "group_size"},
		{"two values", path("a"), `{} {}`, wire.Invalid, "one object"},
		{"a list", path("a"), `[1]`, wire.Invalid, "an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(v.ctx)
			defer cancel()
			stream, err := v.client.DoPut(ctx)
			if err != nil {
				t.Fatal(err)
			}
			w := flight.NewRecordWriter(stream, ipc.WithSchema(rec.Schema()))
			w.SetFlightDescriptor(c.descriptor)
			_ = w.WriteWithAppMetadata(rec, []byte(c.metadata)) // the stream's end says why
			_, err = stream.Recv()
			checkRefusal(t, wire.FromGRPC(err), c.code, c.want)
		})
	}
	if s := v.stats("a"); s.Inserted != 0 {
		t.Errorf("%d rollouts were kept", s.Inserted)
	}
}

func path(names ...string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: names}
}

func TestAMessageAboveTheLimitIsRefused(t *testing.T) {
	v := serve(t, Options{MaxMessageBytes: 64 << 10, MaxInFlightBytes: 1 << 20})
	v.create(wire.Table{Name: "a"})
	_, err := v.insert("a", wire.InsertRequest{}, one(answer(20_000, 0, 0)))
	checkRefusal(t, err, wire.TooLarge, "65536")
	if s := v.stats("a"); s.Inserted != 0 {
		t.Errorf("%d rollouts were kept", s.Inserted)
	}
	v.fill("a", one(answer(1000, 0, 0)))
}

func TestAFullQueueAnswersFullAfterTheTimeout(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 4}})
	v.fill("q", alone(4, 0)...)
	for _, limit := range []int64{0, 20} {
		_, err := v.insert("q", wire.InsertRequest{TimeoutMS: ms(limit)}, alone(1, 0)...)
		checkRefusal(t, err, wire.Full, "room for 0 rollouts")
		if !errors.Is(err, rollout.ErrFull) {
			t.Errorf("%v is not ErrFull", err)
		}
	}
	if c := v.service.Observe().Tables[0].Counters; c.Full != 2 {
		t.Errorf("counted %d full", c.Full)
	}
}

func TestAnInsertionWaitsForRoomInAQueue(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 4}})
	v.fill("q", alone(4, 0)...)
	rec := rows(t, alone(2, 0)...)
	defer rec.Release()
	p := v.putter(v.client, "q", rec.Schema())
	p.send(rec, wire.InsertRequest{})
	v.await("an insertion waits", func(o TableView) bool { return o.InsertsWaiting == 1 })
	if _, err := v.get(wire.SampleRequest{Table: "q", Size: 2}); err != nil {
		t.Fatal(err)
	}
	if got, err := p.answer(); err != nil || !slices.Equal(got.IDs, []uint64{5, 6}) {
		t.Errorf("answered %+v, %v", got, err)
	}
}

func TestAWaitingInsertionLeavesWhenItsCallerDoes(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 2}})
	v.fill("q", alone(2, 0)...)
	rec := rows(t, alone(2, 0)...)
	defer rec.Release()
	p := v.putter(v.client, "q", rec.Schema())
	p.send(rec, wire.InsertRequest{})
	v.await("an insertion waits", func(o TableView) bool { return o.InsertsWaiting == 1 })
	p.cancel()
	v.await("it left", func(o TableView) bool { return o.InsertsWaiting == 0 })
	if _, err := v.get(wire.SampleRequest{Table: "q", Size: 2}); err != nil {
		t.Fatal(err)
	}
	if s := v.stats("q"); s.Inserted != 2 || s.Present != 0 {
		t.Errorf("after its caller left %d were inserted", s.Inserted)
	}
}

func TestTurnsAreAnsweredWithAnIdEachWhereTheTableStoresSteps(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "s", Options: replay.Options{Unit: "step"}})
	two := answer(4, 0, 1)
	two.Turns = []rollout.Turn{{Start: 2, End: 4, Reward: 1}, {Start: 4, End: 6, Reward: 2, Done: true}}
	got, err := v.insert("s", wire.InsertRequest{}, one(two), one(answer(4, 0, 0)))
	if err != nil || !slices.Equal(got.IDs, []uint64{1, 2, 3}) {
		t.Errorf("answered %+v, %v; want three ids, two of the first row's turns", got, err)
	}
}

// await waits until the observed table meets a condition; the test's deadline bounds it.
func (v *served) await(what string, so func(TableView) bool) {
	v.t.Helper()
	for !so(v.service.Observe().Tables[0]) {
		select {
		case <-v.ctx.Done():
			text, _ := json.Marshal(v.service.Observe().Tables[0].Counters)
			v.t.Fatalf("waiting until %s: %s", what, text)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestARepeatOfABatchIDWithOtherRowsIsRefused(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.create(wire.Table{Name: "steps", Options: replay.Options{Unit: "step"}})
	for _, table := range []string{"a", "steps"} {
		if _, err := v.insert(table, wire.InsertRequest{BatchID: "one"}, alone(2, 0)...); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 3} {
			_, err := v.insert(table, wire.InsertRequest{BatchID: "one"}, alone(n, 0)...)
			checkRefusal(t, err, wire.Invalid, "batch_id", `"one"`, "2 rollouts")
		}
		if s := v.stats(table); s.Present != 2 || s.Inserted != 2 {
			t.Errorf("table %s holds %d of %d inserted, want 2", table, s.Present, s.Inserted)
		}
	}
}

func TestAttackABatchIDRepeatedWithOtherContentsIsRefusedAlsoAfterARestart(t *testing.T) {
	data := t.TempDir()
	for _, present := range []int{4, 4} { // the second time after a restart
		v := serve(t, Options{Data: data})
		v.create(wire.Table{Name: "a"})
		same := group(4, 0)
		got, err := v.insert("a", wire.InsertRequest{BatchID: "one"}, same)
		if err != nil || !slices.Equal(got.IDs, []uint64{1, 2, 3, 4}) || got.Present != present {
			t.Fatalf("answered %+v, %v", got, err)
		}
		other := group(4, 0)
		other.Rollouts[3].Reward += 0.5
		for _, groups := range [][]rollout.Group{{other}, alone(4, 0)} {
			_, err = v.insert("a", wire.InsertRequest{BatchID: "one"}, groups...)
			checkRefusal(t, err, wire.Invalid,
				`batch_id: "one": it was used for an insertion of 4 rollouts with other contents`)
		}
		v.stop()
	}
}

func TestAttackASecondRunOnAUsedTableIsToldSo(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{MaxStaleness: 8}})
	do[any](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 500})
	if i := do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 500}); i.Note != "" {
		t.Errorf("a repeated advance: %+v", i)
	}
	i := do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a"})
	if i.Version != 500 || !strings.HasPrefix(i.Note, "version: 0: the table stays at version 500") ||
		!strings.Contains(i.Note, "rewind") {
		t.Errorf("advance(0): %+v", i)
	}
	got, err := v.insert("a", wire.InsertRequest{}, append(alone(3, 0), alone(1, 492)...)...)
	if err != nil || len(got.IDs) != 4 || got.Present != 1 || got.TooOld != 3 || !strings.HasPrefix(got.Note,
		"3 of 4 rollouts are older than max_staleness 8 allows at the table's version 500 and left at once") ||
		!strings.Contains(got.Note, "rewind") {
		t.Errorf("answered %+v, %v", got, err)
	}
	do[any](v, wire.Rewind, wire.VersionRequest{Table: "a"})
	got, err = v.insert("a", wire.InsertRequest{}, alone(3, 0)...)
	if err != nil || got.Present != 3 || got.Note != "" {
		t.Errorf("after the rewind %+v, %v", got, err)
	}
}

func TestARepeatWaitsForTheFirstNoLongerThanItMay(t *testing.T) {
	inBubble(t, wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 1}},
		func(t *testing.T, table *table) {
			table.mustInsert(t, alone(1, 0)...)
			insert := func(timeout *int64) error {
				in, err := table.newInsertion(wire.InsertRequest{BatchID: "one", TimeoutMS: timeout}, alone(1, 0),
					wire.Order{0})
				if err == nil {
					_, err = table.insert(t.Context(), in)
				}
				return err
			}
			first := make(chan error, 1)
			go func() { first <- insert(nil) }()
			synctest.Wait()
			for _, wait := range []int64{0, 5000} {
				began := time.Now()
				err := insert(ms(wait))
				if !errors.Is(err, rollout.ErrFull) || !strings.Contains(err.Error(), `batch_id: "one"`) ||
					time.Since(began) != time.Duration(wait)*time.Millisecond {
					t.Errorf("with %d ms, after %v: %v", wait, time.Since(began), err)
				}
			}
			if _, err := table.draw(t.Context(), drawRequest{Request: rollout.Request{Size: 1}, timeout: noTimeout,
				useAtDraw: true}, nil); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(<-first, insert(ms(0))); err != nil || table.rollouts.ServiceView().Flow().Inserted != 2 {
				t.Errorf("%v; inserted %d, want 2", err, table.rollouts.ServiceView().Flow().Inserted)
			}
		})
}

func TestAJournalThatFailsEndsTheStreamWithTheReason(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	table, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.journal.Close(); err != nil { // as if the disk had gone: nothing can be promised any more
		t.Fatal(err)
	}
	_, err = v.insert("a", wire.InsertRequest{}, alone(1, 0)...)
	checkRefusal(t, err, wire.Failed, "journal")
}
