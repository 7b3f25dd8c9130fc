package main

import (
	"errors"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestAnIDGivenTwiceIsAnError(t *testing.T) {
	var a answers
	if err := errors.Join(a.acknowledge([]uint64{1, 2, 300}), a.acknowledge([]uint64{3, 64, 65})); err != nil {
		t.Fatal(err)
	}
	if err := a.acknowledge([]uint64{4, 300}); err == nil {
		t.Error("id 300 was given twice without an error")
	}
}

func TestUnansweredInsertionsMayCountOrNot(t *testing.T) {
	var a answers
	if err := a.acknowledge([]uint64{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	a.lose(4)
	for inserted, want := range map[uint64]bool{3: false, 4: true, 8: true, 9: false} {
		if got := a.checkInserted(inserted) == nil; got != want {
			t.Errorf("inserted %d agrees: %v, want %v", inserted, got, want)
		}
	}
}

func TestOutcomesFindLostAndRepeatedRollouts(t *testing.T) {
	a, b, c := key{1, 1, 0}, key{1, 1, 1}, key{1, 2, 0}
	var o outcomes
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s passed", name)
		}
	}
	must(o.acknowledge(a, 1))
	must(o.acknowledge(b, 2))
	must(o.acknowledge(c, 3))
	if got, _ := o.missing(); len(got) != 3 {
		t.Errorf("%d are missing, want 3", len(got))
	}
	must(o.deliver(a, 1, false))
	must(o.deliver(a, 1, true)) // its batch was never acknowledged
	refuse("a rollout that comes again without a name", o.deliver(a, 1, false))
	o.consume([]key{a})
	refuse("a consumed rollout that comes again", o.deliver(a, 1, true))
	refuse("a consumed rollout that is there", o.find(a, 1))
	must(o.find(b, 2))
	refuse("a rollout that was returned twice", o.find(b, 2))
	refuse("a rollout with two ids", o.find(c, 4))
	if got := o.count(func(r *outcome) bool { return r.acknowledged }); got != 3 {
		t.Errorf("%d were acknowledged, want 3", got)
	}
}

func TestCountsThatDoNotBalanceAreFound(t *testing.T) {
	balanced := func() *wire.TableStatistics {
		s := &wire.TableStatistics{Inserted: 5, Evicted: map[rollout.Cause]uint64{rollout.EvictedByUses: 3}, Drawn: 7,
			Acknowledged: 4, Returned: 2, OnLease: 1}
		s.Present = 2
		for _, uses := range []int64{0, 1} {
			s.UsesPresent.Add(uses)
		}
		for _, uses := range []int64{1, 1, 1} {
			s.UsesAtEviction.Add(uses)
		}
		return s
	}
	if err := checkBalance(balanced()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*wire.TableStatistics){
		"inserted": func(s *wire.TableStatistics) { s.Inserted++ },
		"drawn":    func(s *wire.TableStatistics) { s.OnLease-- },
		"uses":     func(s *wire.TableStatistics) { s.Acknowledged++; s.Returned-- },
		"present":  func(s *wire.TableStatistics) { s.UsesPresent.Add(0) },
	} {
		s := balanced()
		spoil(s)
		if checkBalance(s) == nil {
			t.Errorf("%s: counts that do not balance passed", name)
		}
	}
}
