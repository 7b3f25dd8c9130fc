package service

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestARepeatOfABatchIDWithOtherRowsIsRefused(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.create(wire.Table{Name: "steps", Unit: "step"})
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

func TestARepeatWaitsForTheFirstNoLongerThanItMay(t *testing.T) {
	within(t, wire.Table{Name: "q", Sampler: "fifo", Capacity: 1}, func(t *testing.T, table *table) {
		table.mustInsert(t, alone(1, 0)...)
		insert := func(timeout *int64) error {
			in, err := table.newInsertion(wire.InsertRequest{BatchID: "one", TimeoutMS: timeout}, alone(1, 0), wire.Order{0})
			if err == nil {
				_, err = table.insert(t.Context(), in)
			}
			return err
		}
		first := make(chan error, 1)
		go func() { first <- insert(nil) }()
		synctest.Wait()
		for _, patience := range []int64{0, 5000} {
			began := time.Now()
			err := insert(ms(patience))
			if !errors.Is(err, rollout.ErrFull) || !strings.Contains(err.Error(), `batch_id: "one"`) || time.Since(began) != time.Duration(patience)*time.Millisecond {
				t.Errorf("with %d ms, after %v: %v", patience, time.Since(began), err)
			}
		}
		if _, err := table.draw(t.Context(), demand{Request: rollout.Request{Size: 1}, useAtDraw: true}, nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-first, insert(ms(0))); err != nil || table.store.Flow().Inserted != 2 {
			t.Errorf("%v; inserted %d, want 2", err, table.store.Flow().Inserted)
		}
	})
}

func TestABatchThatNoMessageHoldsIsNotUsedUp(t *testing.T) {
	v := serve(t, Options{MaxMessageBytes: 4096})
	v.create(wire.Table{Name: "q", Sampler: "fifo"})
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
