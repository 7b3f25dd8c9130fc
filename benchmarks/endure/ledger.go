package main

import (
	"fmt"
	"sync"
)

// ledger is what the clients of one table were told. Its methods may be called concurrently.
type ledger struct {
	mu      sync.Mutex
	batches uint64   // insertions that were acknowledged
	rows    uint64   // rollouts in them
	unknown uint64   // rollouts of insertions whose answer never came
	ids     []uint64 // bit i: id i was answered
	drawn   uint64   // rollouts received
	version int32    // that was last heard of
}

// acknowledged notes the answer to an insertion; an id that was answered before is an error.
func (l *ledger) acknowledged(ids []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches++
	l.rows += uint64(len(ids))
	for _, id := range ids {
		for uint64(len(l.ids))*64 <= id {
			l.ids = append(l.ids, make([]uint64, 1+len(l.ids))...)
		}
		if l.ids[id/64]>>(id%64)&1 == 1 {
			return fmt.Errorf("id %d was given to two rollouts", id)
		}
		l.ids[id/64] |= 1 << (id % 64)
	}
	return nil
}

// lost notes rollouts of which nobody knows whether they went in.
func (l *ledger) lost(rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown += uint64(rows)
}

// received notes rollouts that came.
func (l *ledger) received(rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drawn += uint64(rows)
}

// heard notes the table's version.
func (l *ledger) heard(version int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

// last returns the version that was last heard of.
func (l *ledger) last() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version
}

// totals returns what was acknowledged, is unknown and was received, in rollouts.
func (l *ledger) totals() (batches, rows, unknown, drawn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batches, l.rows, l.unknown, l.drawn
}

// agrees returns how the number of rollouts that a table says were inserted differs from what its clients were told, nil if it does not.
func (l *ledger) agrees(inserted uint64) error {
	_, rows, unknown, _ := l.totals()
	if inserted < rows || inserted > rows+unknown {
		return fmt.Errorf("the table says that %d rollouts were inserted: want the %d acknowledged, and at most %d more whose answers were lost", inserted, rows, unknown)
	}
	return nil
}
