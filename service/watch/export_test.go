package watch

import "github.com/reprise-rl/reprise/service"

// Record adds an observation to the history, as Run does.
func (w *Watch) Record(o service.Observation) { w.history.record(&o) }

// Forget drops the latest observation, so that the next request makes a new one.
func (w *Watch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = nil
}
