package pipeline

// Turn is where synchronous mode stands. It is the workers' turn while Groups or Open is above 0, the
// trainers' while Updates is; when all are 0, weights are on their way to the workers.
// Asynchronous mode leaves it alone.
type Turn struct {
	Groups  int // still to be started
	Open    int // started and not in the buffer
	Updates int // still to be taken
}

func (t *Turn) started() {
	if t.Groups > 0 {
		t.Groups--
		t.Open++
	}
}

// inserted counts a group that entered the buffer and reports whether it was the turn's last.
func (t *Turn) inserted(updates int) bool {
	t.Open--
	if t.Groups+t.Open > 0 {
		return false
	}
	t.Updates = updates
	return true
}

// startRollouts begins the workers' turn.
func (m *Machine) startRollouts() {
	m.turn.Groups = m.opts.SyncRollouts / m.opts.Group
	for i := range min(len(m.workers), m.turn.Groups) {
		m.schedule(Event{Time: m.now, Kind: WorkerStart, Worker: i})
	}
}

// nextTurn decides after an update whose turn it is. The workers' begins when the last weights have
// reached them.
func (m *Machine) nextTurn() {
	if m.opts.Mode == Sync {
		m.turn.Updates--
		if m.turn.Updates == 0 {
			if len(m.weights.coming) == 0 {
				m.startRollouts()
			}
			return
		}
	}
	m.requestDraw()
}
