package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// answers are what the clients of one table were answered, in numbers: rollouts of a soak are too many to remember
// each. Its methods may be called concurrently.
type answers struct {
	mu       sync.Mutex
	batches  uint64   // acknowledged insertions
	rows     uint64   // rollouts in them
	unknown  uint64   // rollouts of insertions whose answer never came
	ids      []uint64 // bit i: id i was answered
	received uint64   // rollouts drawn
	version  int32    // latest known
}

// acknowledge notes the answer to an insertion. An id that was answered before is an error.
func (a *answers) acknowledge(ids []uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.batches++
	a.rows += uint64(len(ids))
	for _, id := range ids {
		for uint64(len(a.ids))*64 <= id {
			a.ids = append(a.ids, make([]uint64, 1+len(a.ids))...)
		}
		if a.ids[id/64]>>(id%64)&1 == 1 {
			return fmt.Errorf("id %d was given to two rollouts", id)
		}
		a.ids[id/64] |= 1 << (id % 64)
	}
	return nil
}

// lose notes rollouts that may have been inserted or not.
func (a *answers) lose(rows int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown += uint64(rows)
}

// receive notes drawn rollouts and the table's version.
func (a *answers) receive(rows int, version int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.received += uint64(rows)
	a.version = version
}

// latest returns the latest known version.
func (a *answers) latest() int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// totals returns the acknowledged insertions, and the acknowledged, unknown and received rollouts.
func (a *answers) totals() (batches, rows, unknown, received uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.batches, a.rows, a.unknown, a.received
}

// checkInserted compares a table's count of inserted rollouts with the answers.
func (a *answers) checkInserted(inserted uint64) error {
	_, rows, unknown, _ := a.totals()
	if inserted < rows || inserted > rows+unknown {
		return fmt.Errorf("the table counts %d inserted rollouts: want the %d acknowledged, and at most %d more "+
			"whose answers were lost", inserted, rows, unknown)
	}
	return nil
}

// checkBalance returns how a table's counts fail to balance (invariant 11), nil if they balance.
func checkBalance(s *wire.TableStatistics) error {
	var errs []error
	evicted := uint64(0)
	for _, n := range s.Evicted {
		evicted += n
	}
	if s.Inserted != uint64(s.Present)+evicted {
		errs = append(errs, fmt.Errorf("inserted %d is not present %d + evicted %d", s.Inserted, s.Present, evicted))
	}
	if s.Drawn != s.Acknowledged+s.Returned+s.OnLease {
		errs = append(errs, fmt.Errorf("drawn %d is not acknowledged %d + returned %d + on lease %d", s.Drawn,
			s.Acknowledged, s.Returned, s.OnLease))
	}
	if uses := uint64(s.UsesPresent.Sum() + s.UsesAtEviction.Sum()); s.Acknowledged != uses {
		errs = append(errs, fmt.Errorf("acknowledged %d is not the sum of uses %d", s.Acknowledged, uses))
	}
	if n := s.UsesPresent.Count(); n != uint64(s.Present) {
		errs = append(errs, fmt.Errorf("the histogram of uses counts %d rollouts, %d are present", n, s.Present))
	}
	return errors.Join(errs...)
}

// outcome is what happened to a rollout, as far as clients know.
type outcome struct {
	id           rollout.ID // as answered or delivered; 0: neither
	acknowledged bool       // its insertion was answered
	deliveries   int        // how often a queue delivered it
	named        bool       // its batch was acknowledged and lost, and an error named it
	consumed     bool       // for certain: the batch after its own was delivered too
	present      bool       // the export at the end has it
}

// outcomes are what happened to each rollout of a table. Its methods may be called concurrently.
type outcomes struct {
	mu            sync.Mutex
	byKey         map[key]*outcome
	namedRollouts int // see name
}

// get returns a rollout's outcome. A second id means that the rollout was inserted twice. The lock is held.
func (o *outcomes) get(k key, id rollout.ID) (*outcome, error) {
	if o.byKey == nil {
		o.byKey = make(map[key]*outcome)
	}
	r := o.byKey[k]
	if r == nil {
		r = &outcome{}
		o.byKey[k] = r
	}
	if r.id != 0 && r.id != id {
		return r, fmt.Errorf("rollout %s was inserted twice, as id %d and as id %d", k, r.id, id)
	}
	r.id = id
	return r, nil
}

// acknowledge notes that an insertion was answered.
func (o *outcomes) acknowledge(k key, id rollout.ID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.get(k, id)
	r.acknowledged = true
	return err
}

// deliver notes that a queue delivered a rollout, and whether it named it as delivered before. A consumed rollout must
// not come again, and another only if it is named.
func (o *outcomes) deliver(k key, id rollout.ID, named bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.get(k, id)
	r.deliveries++
	switch {
	case err != nil:
	case r.consumed:
		err = fmt.Errorf("rollout %s was consumed and came again", k)
	case r.deliveries > 1 && !named:
		err = fmt.Errorf("rollout %s was delivered twice without being named", k)
	}
	return err
}

// name notes that an error named count rollouts, of these ids, as consumed by a batch that nobody has.
func (o *outcomes) name(count int, first, last rollout.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.byKey {
		if r.id >= first && r.id <= last {
			r.named = true
		}
	}
	o.namedRollouts += count
}

// consume notes that rollouts left a queue for good.
func (o *outcomes) consume(keys []key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range keys {
		if r := o.byKey[k]; r != nil {
			r.consumed = true
		}
	}
}

// find notes that a table holds a rollout.
func (o *outcomes) find(k key, id rollout.ID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.get(k, id)
	switch {
	case err != nil:
	case r.present:
		err = fmt.Errorf("rollout %s was returned twice", k)
	case r.consumed:
		err = fmt.Errorf("rollout %s was consumed and is still there", k)
	}
	r.present = true
	return err
}

// count counts rollouts.
func (o *outcomes) count(which func(*outcome) bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, r := range o.byKey {
		if which(r) {
			n++
		}
	}
	return n
}

// missing returns the acknowledged rollouts that are neither there nor were ever delivered, and were not named as
// consumed, and how many were.
func (o *outcomes) missing() (keys []key, named int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, r := range o.byKey {
		switch {
		case !r.acknowledged || r.present || r.deliveries > 0:
		case r.named && named < o.namedRollouts:
			named++
		default:
			keys = append(keys, k)
		}
	}
	return keys, named
}
