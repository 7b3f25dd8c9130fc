package service

import (
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

	mu                sync.Mutex // guards what follows
	inserting         uint64     // rollouts let in that the table may not have counted yet
	drawing           uint64     // draws let through that the table may not have counted yet
	hungry            bool       // a sample that the limiter let through found too little, and no insertion was let in since
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

// balance is d with so many rollouts and draws that the table may have counted or not.
func (l *Limiter) balance(f replay.Flow, inserting, drawing uint64) float64 {
	return float64(f.Inserted+inserting)*l.ratio - float64(f.Drawn-f.Returned+drawing)
}

// Insert lets n rollouts in, or returns an error that wraps rollout.ErrFull if they have to wait and rollout.ErrInvalid if they
// could wait for ever. What was let in is told by [Limiter.Inserted] once the table has it, or refused it.
func (l *Limiter) Insert(n int, table func() replay.Flow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := table()
	d := l.balance(f, l.inserting, 0) // the most that it can be
	_, most := l.Bounds()
	after := d + float64(n)*l.ratio
	few := f.Present+int(l.inserting)+n <= l.minSize
	switch {
	case !few && float64(n)*l.ratio > l.buffer:
		return fmt.Errorf("inserting %d rollouts moves the limiter's balance by %v (samples_per_insert %v), more than its error_buffer of %v: insert fewer at a time, or raise error_buffer: %w",
			n, float64(n)*l.ratio, l.ratio, l.buffer, rollout.ErrInvalid)
	case !few && !l.hungry && after > most:
		l.heldIns++
		return fmt.Errorf("inserting %d rollouts brings the limiter's balance from %v to %v, above %v: samples have to catch up: %w", n, d, after, most, rollout.ErrFull)
	}
	l.hungry = false
	l.inserting += uint64(n)
	return nil
}

// Inserted ends what Insert began.
func (l *Limiter) Inserted(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inserting -= uint64(n)
}

// Sample lets n draws through, or returns an error that wraps rollout.ErrStarved if they have to wait and rollout.ErrInvalid if they
// could wait for ever. What was let through is told by [Limiter.Sampled] once the table has drawn it, or has not.
func (l *Limiter) Sample(n int, table func() replay.Flow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if float64(n) > l.buffer {
		return fmt.Errorf("size is %d: the limiter's error_buffer is %v draws: ask for fewer, or raise error_buffer to a batch at least: %w", n, l.buffer, rollout.ErrInvalid)
	}
	d := l.balance(table(), 0, l.drawing) // the least that it can be
	least, _ := l.Bounds()
	if after := d - float64(n); after < least {
		l.heldSams++
		return fmt.Errorf("sampling %d brings the limiter's balance from %v to %v, below %v: insertions have to catch up: %w", n, d, after, least, rollout.ErrStarved)
	}
	l.drawing += uint64(n)
	return nil
}

// Sampled ends what Sample began; starved says that the table held too little, for which one insertion is let in.
func (l *Limiter) Sampled(n int, starved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drawing -= uint64(n)
	l.hungry = l.hungry || starved
}

// State returns where the limiter stands.
func (l *Limiter) State(f replay.Flow) LimiterState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LimiterState{SamplesPerInsert: l.ratio, Inserted: f.Inserted, Drawn: f.Drawn - f.Returned, HeldInserts: l.heldIns, HeldSamples: l.heldSams}
	s.Min, s.Max = l.Bounds()
	s.Balance = l.balance(f, 0, 0)
	s.InsertsHeld = s.Balance+l.ratio > s.Max && !l.hungry && f.Present >= l.minSize
	s.SamplesHeld = s.Balance-1 < s.Min
	return s
}
