package pipeline

import (
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// published is the weights outside the learner.
type published struct {
	newest Weights   // the newest that workers may take up
	coming []Weights // on their way to the workers, oldest first
}

// publish sends the learner's weights to the workers, if their version is one that they get.
func (m *Machine) publish() error {
	if m.version%rollout.Version(m.opts.PublishEvery) != 0 {
		return nil
	}
	w := m.parts.Learner.Weights()
	if w.Version != m.version {
		return fmt.Errorf("learner's weights have version %d after update %d", w.Version, m.version)
	}
	m.weights.coming = append(m.weights.coming, w)
	m.schedule(Event{Time: m.now + m.opts.WeightTransfer, Kind: WeightsArrive, Number: uint64(w.Version)})
	return nil
}

// arrive lets the workers take up the oldest weights that are on their way.
func (m *Machine) arrive() {
	w := &m.weights
	heldBack := m.holdsBack()
	w.newest = w.coming[0]
	w.coming = slices.Delete(w.coming, 0, 1)
	m.trainer.hunger.until = 0 // what they make of it may be what is missing
	if m.opts.Mode == Sync && m.turn == (Turn{}) && len(w.coming) == 0 {
		m.startRollouts()
	} else if heldBack && (m.opts.Mode == Async || m.turn.Updates > 0) {
		m.requestDraw()
	}
}

// holdsBack reports whether an update that began now would be one more in flight than may be.
func (m *Machine) holdsBack() bool {
	return m.opts.UpdatesInFlight > 0 && len(m.weights.coming) >= m.opts.UpdatesInFlight
}
