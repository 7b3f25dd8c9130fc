package main

import (
	"fmt"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
)

// what became of a rollout, as the clients know.
type what struct {
	id        rollout.ID // as it was answered or handed out; 0: neither
	answered  bool       // its insertion was acknowledged
	delivered int        // how often it was handed out
	consumed  bool       // for certain: the batch after the one it was in was handed out, too
	present   bool       // an export in the end held it
}

func isAcknowledged(w *what) bool { return w.answered }
func isConsumed(w *what) bool     { return w.consumed }

// fates is what became of the rollouts of a table. Its methods may be called concurrently.
type fates struct {
	mu  sync.Mutex
	all map[key]*what
}

// of returns the entry of a key; an id that is not the one it had before means that the rollout went in twice.
func (f *fates) of(k key, id rollout.ID) (*what, error) {
	if f.all == nil {
		f.all = make(map[key]*what)
	}
	w := f.all[k]
	if w == nil {
		w = &what{}
		f.all[k] = w
	}
	if w.id != 0 && w.id != id {
		return w, fmt.Errorf("rollout %s went in twice, as id %d and as id %d", k, w.id, id)
	}
	w.id = id
	return w, nil
}

// acknowledged notes that an insertion was answered.
func (f *fates) acknowledged(k key, id rollout.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := f.of(k, id)
	w.answered = true
	return err
}

// delivered notes that a queue handed a rollout out; one that was consumed must not come again.
func (f *fates) delivered(k key, id rollout.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := f.of(k, id)
	w.delivered++
	if w.consumed && err == nil {
		err = fmt.Errorf("rollout %s was consumed and came again", k)
	}
	return err
}

// consumed notes that rollouts have left a queue for good.
func (f *fates) consumed(keys []key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		if w := f.all[k]; w != nil {
			w.consumed = true
		}
	}
}

// found notes that a table holds a rollout.
func (f *fates) found(k key, id rollout.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := f.of(k, id)
	switch {
	case err != nil:
	case w.present:
		err = fmt.Errorf("rollout %s is there twice", k)
	case w.consumed:
		err = fmt.Errorf("rollout %s was consumed and is there", k)
	}
	w.present = true
	return err
}

// count counts the rollouts of which something is true.
func (f *fates) count(is func(*what) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, w := range f.all {
		if is(w) {
			n++
		}
	}
	return n
}

// missing returns the rollouts that were acknowledged and are neither there nor were ever handed out.
func (f *fates) missing() (keys []key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, w := range f.all {
		if w.answered && !w.present && w.delivered == 0 {
			keys = append(keys, k)
		}
	}
	return keys
}
