package watch

import "github.com/reprise-rl/reprise/service"

// Note adds an observation to what is remembered, as Run does.
func (w *Watch) Note(o service.Observation) { w.history.note(&o) }

// Forget makes the next question reach the source.
func (w *Watch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = nil
}
