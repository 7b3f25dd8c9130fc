package service

import (
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// limiter holds a table's draws per inserted rollout near a ratio (wire.Limiter; Cassirer et al. 2021,
// SampleToInsertRatio). With the balance d = inserted x ratio - drawn, insertions wait while d would exceed the upper
// bound, and samples while it would fall below the lower one. It counts nothing itself: the table says each time what
// was inserted and drawn, so the limiter stands where it stood after a restart, and draws that went back do not count.
// Its methods may be called concurrently.
//
// One insertion or batch may move d by at most the error buffer, so that both sides never wait for each other: where an
// insertion waits, d is above the middle, and any such batch passes. Insertions pass whatever d is while the table
// would hold no more than MinSize with them, and once after each sample that found too few rollouts, because rollouts
// that were evicted undrawn raise d for good.
type limiter struct {
	ratio, buffer float64
	minSize       int

	// Insertions check and move the balance one at a time, and so do samples: a call that fails never makes another
	// wait. The other side may move d meanwhile, but only away from this side's bound.
	insertions, samples sync.Mutex

	mu                       sync.Mutex // guards what follows
	starved                  bool       // a sample that passed found too few rollouts, and nothing was inserted since
	heldInserts, heldSamples uint64
}

// newLimiter returns a limiter for a table with a MinSize; [checkLimiter] has checked its definition.
func newLimiter(l wire.Limiter, minSize int) *limiter {
	return &limiter{ratio: l.SamplesPerInsert, buffer: l.ErrorBuffer, minSize: minSize}
}

// checkLimiter adds the problems of a limiter for a table whose groups have a size, 0 if they differ.
func checkLimiter(p *option.Problems, l wire.Limiter, groupSize int) {
	p.In("limiter", func(p *option.Problems) { p.CheckFields(l, nil) })
	least := max(1, l.SamplesPerInsert*float64(max(groupSize, 1)))
	p.CheckWith("limiter.samples_per_insert", l.ErrorBuffer >= least, "limiter.error_buffer", l.ErrorBuffer,
		"at least %v draws, by which the smallest insertion moves the balance with samples_per_insert %v, and at "+
			"least a batch", least, l.SamplesPerInsert)
}

// bounds returns the lower and the upper bound of the balance.
func (l *limiter) bounds() (lower, upper float64) {
	middle := l.ratio * float64(l.minSize)
	return middle - l.buffer, middle + l.buffer
}

func (l *limiter) balance(f replay.Flow) float64 {
	return float64(f.Inserted)*l.ratio - float64(f.Drawn-f.Returned)
}

// Insert runs an insertion of n rollouts, or returns an error that wraps rollout.ErrFull if it has to wait and
// rollout.ErrInvalid if it could wait for ever. Neither flow nor insert may wait.
func (l *limiter) Insert(n int, flow func() replay.Flow, insert func() error) error {
	l.insertions.Lock()
	defer l.insertions.Unlock()
	if err := l.mayInsert(n, flow()); err != nil {
		return err
	}
	if err := insert(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starved = false
	return nil
}

func (l *limiter) mayInsert(n int, f replay.Flow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.balance(f)
	_, upper := l.bounds()
	after := d + float64(n)*l.ratio
	few := f.Present+n <= l.minSize
	switch {
	case !few && float64(n)*l.ratio > l.buffer:
		return fmt.Errorf("inserting %d rollouts moves the limiter's balance by %v (samples_per_insert %v), more "+
			"than its error_buffer of %v: insert fewer at a time, or raise error_buffer: %w",
			n, float64(n)*l.ratio, l.ratio, l.buffer, rollout.ErrInvalid)
	case !few && !l.starved && after > upper:
		l.heldInserts++
		return fmt.Errorf("inserting %d rollouts moves the limiter's balance from %v to %v, above %v: samples have "+
			"to catch up: %w", n, d, after, upper, rollout.ErrFull)
	}
	return nil
}

// Sample runs a draw of n, or returns an error that wraps rollout.ErrStarved if it has to wait and rollout.ErrInvalid
// if it could wait for ever. Neither flow nor draw may wait. Starved reports that the table held too little; one
// insertion may pass then.
func (l *limiter) Sample(n int, flow func() replay.Flow, draw func() error) (starved bool, err error) {
	l.samples.Lock()
	defer l.samples.Unlock()
	if err := l.maySample(n, flow()); err != nil {
		return false, err
	}
	err = draw()
	if starved = errors.Is(err, rollout.ErrStarved); starved {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.starved = true
	}
	return starved, err
}

func (l *limiter) maySample(n int, f replay.Flow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if float64(n) > l.buffer {
		return fmt.Errorf("a batch of %d: the limiter's error_buffer is %v draws: ask for fewer, or raise error_buffer "+
			"to at least a batch: %w", n, l.buffer, rollout.ErrInvalid)
	}
	d := l.balance(f)
	lower, _ := l.bounds()
	if after := d - float64(n); after < lower {
		l.heldSamples++
		return fmt.Errorf("sampling %d moves the limiter's balance from %v to %v, below %v: insertions have to catch "+
			"up: %w", n, d, after, lower, rollout.ErrStarved)
	}
	return nil
}

// State returns where the limiter stands.
func (l *limiter) State(f replay.Flow) wire.LimiterState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := wire.LimiterState{SamplesPerInsert: l.ratio, Inserted: f.Inserted, Drawn: f.Drawn - f.Returned,
		HeldInserts: l.heldInserts, HeldSamples: l.heldSamples}
	s.Min, s.Max = l.bounds()
	s.Balance = l.balance(f)
	s.InsertsHeld = s.Balance+l.ratio > s.Max && !l.starved && f.Present >= l.minSize
	s.SamplesHeld = s.Balance-1 < s.Min
	return s
}
