package run

import (
	"reflect"
	"sync"

	"github.com/reprise-rl/reprise/task"
)

// made keeps the task that was made last, for all copies of a configuration: tasks read files and index them, and a command
// asks for its task a dozen times. It is safe for concurrent use; nil keeps nothing.
type made struct {
	mu   sync.Mutex
	from any // what the task was made from, see Config.newTask
	seed uint64
	task task.Task // nil: none yet
}

// taskFrom returns the task of settings, which nobody changes afterwards, and of a seed. It has it made unless it is the last
// one. An error is not kept.
func (m *made) taskFrom(settings any, seed uint64, fresh func(seed uint64) (task.Task, error)) (task.Task, error) {
	if m == nil {
		return fresh(seed)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.task != nil && m.seed == seed && reflect.DeepEqual(m.from, settings) {
		return m.task, nil
	}
	t, err := fresh(seed)
	if err == nil {
		m.from, m.seed, m.task = settings, seed, t
	}
	return t, err
}
