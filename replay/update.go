package replay

import (
	"context"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// Priority is the base that a trainer gives a rollout.
type Priority struct {
	ID    rollout.ID
	Value float64 // finite, >= 0; Prioritization.Epsilon is added
}

// Update gives rollouts new bases, all or none; with a sampler that does not weigh they are checked and change
// nothing. One addressed to a rollout that was evicted changes nothing either and is counted (invariant 7). An error wraps
// rollout.ErrInvalid if a value is out of range or an ID was never given.
func (t *Table) Update(ctx context.Context, priorities ...Priority) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	last := t.newestID()
	for i, p := range priorities {
		if !(p.Value >= 0 && p.Value <= math.MaxFloat64) {
			return &rollout.FieldError{Row: i, Field: "priority", Value: fmt.Sprint(p.Value), Remedy: "give a finite number, at least 0"}
		}
		if err := checkID(i, p.ID, last); err != nil {
			return err
		}
	}
	t.rebase(len(priorities), func(i int) rollout.ID { return priorities[i].ID },
		func(w *prioritized, _ int32, i int) float64 { return w.o.lifted(priorities[i].Value) })
	return nil
}

// Report tells the table what a trainer measured of its draws: the ratios, from which it learns how the effective
// sample size falls with age, and the new bases, of which a prioritized sampler takes the one it is made of; one that was not
// measured leaves the old. With bases reward, recency and function a report only ends an entry at the maximum. Reports of evicted rollouts count as in
// [Table.Update]; errors are as there.
func (t *Table) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	last := t.newestID()
	for i, f := range feedback {
		if err := checkID(i, f.ID, last); err != nil {
			return err
		}
		if err := checkFeedback(i, f); err != nil {
			return err
		}
	}
	t.mu.Lock()
	for _, f := range feedback {
		t.ratios.add(f)
	}
	t.mu.Unlock()
	t.rebase(len(feedback), func(i int) rollout.ID { return feedback[i].ID },
		func(w *prioritized, slot int32, i int) float64 {
			it := &w.store.items[slot]
			switch {
			case w.o.reports():
				if m := w.o.reported(feedback[i]); m.Known {
					return w.o.lifted(m.Value)
				}
			case it.is(atMax):
				return w.o.own(w.store.rollouts[slot], it.Advantage)
			}
			return math.NaN()
		})
	return nil
}

func (t *Table) newestID() rollout.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastID
}

func checkID(row int, id, last rollout.ID) error {
	if id == 0 || id > last {
		return &rollout.FieldError{Row: row, Field: "id", Value: fmt.Sprint(id), Remedy: fmt.Sprintf("give an id that the table gave, 1 to %d", last)}
	}
	return nil
}

// checkFeedback refuses numbers that nothing can measure.
func checkFeedback(row int, f rollout.Feedback) error {
	for _, x := range []struct {
		field string
		value float64
	}{
		{"advantage", f.Advantage.Value}, {"td_error", f.TDError.Value}, {"grad_norm", f.GradNorm.Value},
		{"tokens", f.Tokens}, {"ratio_sum", f.RatioSum}, {"ratio_squares", f.RatioSquares},
	} {
		if !(x.value >= 0 && x.value <= math.MaxFloat64) {
			return &rollout.FieldError{Row: row, Field: x.field, Value: fmt.Sprint(x.value), Remedy: "give a finite number, at least 0, or nothing where it was not measured"}
		}
	}
	if f.Staleness < 0 {
		return &rollout.FieldError{Row: row, Field: "staleness", Value: fmt.Sprint(f.Staleness), Remedy: "give the draw's, at least 0"}
	}
	return nil
}

// rebase gives n rollouts new bases, in order, where base returns one; NaN leaves the old one, and so does what a priority
// function makes infinite. It counts those that are gone.
func (t *Table) rebase(n int, id func(i int) rollout.ID, base func(w *prioritized, slot int32, i int) float64) {
	left, slots := make([]int32, n), make([]int32, n)
	for i := range left {
		left[i] = int32(i)
	}
	for _, s := range t.shards {
		s.mu.Lock()
		for k, i := range left { // all before the first change, so that their waits for memory overlap
			slots[k] = s.index.find(id(int(i)))
		}
		if s.weighing != nil {
			s.weighing.touch(slots[:len(left)])
		}
		elsewhere := left[:0]
		for k, i := range left {
			if slots[k] == none {
				elsewhere = append(elsewhere, i)
				continue
			}
			if w := s.weighing; w != nil {
				if b := base(w, slots[k], int(i)); b <= math.MaxFloat64 {
					w.report(slots[k], b)
					if s.notes != nil {
						s.notes.changed(slots[k])
					}
				}
			}
		}
		left = elsewhere
		if s.weighing != nil {
			s.weighing.reweigh()
		}
		s.mu.Unlock()
	}
	if len(left) > 0 {
		t.mu.Lock()
		t.ignored += uint64(len(left))
		t.mu.Unlock()
	}
}
