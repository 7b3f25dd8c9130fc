package service

import "sync"

// signal wakes all who wait for something to change. The zero signal is ready. A waiter takes [signal.watch] before it looks,
// so that no change between the look and the wait is lost.
type signal struct {
	mu      sync.Mutex
	changed chan struct{} // nil: nobody watches
}

// watch returns what is closed at the next change.
func (s *signal) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// wake tells all who watch.
func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
