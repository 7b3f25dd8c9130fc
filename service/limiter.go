package service

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Limiter holds the draws per inserted rollout of a table near a ratio (wire.Limiter; Cassirer et al. 2021, SampleToInsertRatio):
// with d = inserted x ratio - drawn, insertions wait while d would exceed Max, and samples while it would fall below Min. It keeps no
// books of its own: what was inserted and drawn comes from the table each time, so that it stands where it stood after a
// restart, and draws that went back are not counted. Its methods may be called concurrently.
//
// So that both sides cannot wait for each other for ever, one insertion or one batch may move d by at most the error buffer:
// where an insertion would be held back, d is above the middle, and any such batch is let through. And insertions are let in
// whatever d is while the table would hold no more than MinSize with them, and once for each time that a sample found too few rollouts: what left the
// table unused can never be drawn.
type Limiter struct {
	ratio, buffer float64
	minSize       int

	// One insertion at a time looks at the balance and moves it, and one sample: what fails in the end holds no other back. Each
	// side may move meanwhile, which makes the other's balance no worse.
	insertions, samples sync.Mutex

	mu                sync.Mutex // guards what follows
	hungry            bool       // a sample that the limiter let through found too little, and no insertion came in since
	heldIns, heldSams uint64
}

// NewLimiter returns a limiter of a table with MinSize; the definition was checked by [CheckLimiter].
func NewLimiter(l wire.Limiter, minSize int) *Limiter {
	return &Limiter{ratio: l.SamplesPerInsert, buffer: l.ErrorBuffer, minSize: minSize}
}

// CheckLimiter returns what is wrong with a limiter of a table whose groups have a size, 0 if they differ.
func CheckLimiter(l wire.Limiter, groupSize int) (problems []error) {
	if !(l.SamplesPerInsert > 0 && l.SamplesPerInsert <= math.MaxInt32) {
		problems = append(problems, fmt.Errorf("limiter.samples_per_insert: %v: want draws per inserted rollout, above 0", l.SamplesPerInsert))
		return problems
	}
	least := max(1, l.SamplesPerInsert*float64(max(groupSize, 1)))
	if !(l.ErrorBuffer >= least && l.ErrorBuffer <= math.MaxInt64/4) {
		problems = append(problems, fmt.Errorf("limiter.error_buffer: %v: want at least %v draws, what the smallest insertion moves the balance by with samples_per_insert %v, and no less than a batch",
			l.ErrorBuffer, least, l.SamplesPerInsert))
	}
	return problems
}

// Bounds returns Min and Max.
func (l *Limiter) Bounds() (least, most float64) {
	middle := l.ratio * float64(l.minSize)
	return middle - l.buffer, middle + l.buffer
}

// balance is d.
func (l *Limiter) balance(f replay.Flow) float64 {
	return float64(f.Inserted)*l.ratio - float64(f.Drawn-f.Returned)
}

// Insert has n rollouts inserted, or returns an error that wraps rollout.ErrFull if they have to wait and rollout.ErrInvalid if they
// could wait for ever. Neither insert nor table may wait.
func (l *Limiter) Insert(n int, table func() replay.Flow, insert func() error) error {
	l.insertions.Lock()
	defer l.insertions.Unlock()
	if err := l.mayInsert(n, table()); err != nil {
		return err
	}
	if err := insert(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hungry = false
	return nil
}

func (l *Limiter) mayInsert(n int, f replay.Flow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.balance(f)
	_, most := l.Bounds()
	after := d + float64(n)*l.ratio
	few := f.Present+n <= l.minSize
	switch {
	case !few && float64(n)*l.ratio > l.buffer:
		return fmt.Errorf("inserting %d rollouts moves the limiter's balance by %v (samples_per_insert %v), more than its error_buffer of %v: insert fewer at a time, or raise error_buffer: %w",
			n, float64(n)*l.ratio, l.ratio, l.buffer, rollout.ErrInvalid)
	case !few && !l.hungry && after > most:
		l.heldIns++
		return fmt.Errorf("inserting %d rollouts brings the limiter's balance from %v to %v, above %v: samples have to catch up: %w", n, d, after, most, rollout.ErrFull)
	}
	return nil
}

// Sample has n drawn, or returns an error that wraps rollout.ErrStarved if they have to wait and rollout.ErrInvalid if they
// could wait for ever. Neither draw nor table may wait. Hungry tells that the table held too little, for which one insertion is let in.
func (l *Limiter) Sample(n int, table func() replay.Flow, draw func() error) (hungry bool, err error) {
	l.samples.Lock()
	defer l.samples.Unlock()
	if err := l.maySample(n, table()); err != nil {
		return false, err
	}
	err = draw()
	if hungry = errors.Is(err, rollout.ErrStarved); hungry {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hungry = true
	}
	return hungry, err
}

func (l *Limiter) maySample(n int, f replay.Flow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if float64(n) > l.buffer {
		return fmt.Errorf("size is %d: the limiter's error_buffer is %v draws: ask for fewer, or raise error_buffer to a batch at least: %w", n, l.buffer, rollout.ErrInvalid)
	}
	d := l.balance(f)
	least, _ := l.Bounds()
	if after := d - float64(n); after < least {
		l.heldSams++
		return fmt.Errorf("sampling %d brings the limiter's balance from %v to %v, below %v: insertions have to catch up: %w", n, d, after, least, rollout.ErrStarved)
	}
	return nil
}

// State returns where the limiter stands.
func (l *Limiter) State(f replay.Flow) LimiterState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LimiterState{SamplesPerInsert: l.ratio, Inserted: f.Inserted, Drawn: f.Drawn - f.Returned, HeldInserts: l.heldIns, HeldSamples: l.heldSams}
	s.Min, s.Max = l.Bounds()
	s.Balance = l.balance(f)
	s.InsertsHeld = s.Balance+l.ratio > s.Max && !l.hungry && f.Present >= l.minSize
	s.SamplesHeld = s.Balance-1 < s.Min
	return s
}
