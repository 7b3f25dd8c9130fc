package replay

// memory remembers the answers to the latest requests by their id, so that a repeated request is
// answered alike. The oldest is forgotten first; O(1) each.
type memory[V any] struct {
	limit   int
	bound   bound[V]
	answers map[string]V
	ring    []answerOf[V] // in order of arrival from next on, wrapping
	next    int
	gone    int   // from next on that were forgotten for their weight
	weight  int64 // of all answers
}

// answerOf is the answer to a request. Fields are exported for encoding/gob.
type answerOf[V any] struct {
	ID     string
	Answer V
}

// bound limits what answers weigh together. The zero value is no limit.
type bound[V any] struct {
	weigh func(V) int64 // nil: nothing weighs anything
	most  int64
	least int // so many of the latest are remembered, whatever they weigh
}

func newMemory[V any](limit int) *memory[V] {
	return &memory[V]{limit: limit, answers: make(map[string]V)}
}

func (m *memory[V]) get(id string) (V, bool) {
	v, ok := m.answers[id]
	return v, ok
}

// put remembers an answer under an id that has none.
func (m *memory[V]) put(id string, v V) {
	switch {
	case len(m.ring) < m.limit:
		m.ring = append(m.ring, answerOf[V]{id, v})
	case m.gone > 0:
		m.gone--
		m.replaceOldest(id, v)
	default:
		m.drop(m.next)
		m.replaceOldest(id, v)
	}
	m.answers[id] = v
	if m.bound.weigh == nil {
		return
	}
	m.weight += m.bound.weigh(v)
	for m.weight > m.bound.most && len(m.ring)-m.gone > m.bound.least {
		m.drop((m.next + m.gone) % len(m.ring))
		m.gone++
	}
}

func (m *memory[V]) replaceOldest(id string, v V) {
	m.ring[m.next] = answerOf[V]{id, v}
	m.next = (m.next + 1) % m.limit
}

// drop forgets the answer at a place of the ring.
func (m *memory[V]) drop(at int) {
	a := &m.ring[at]
	if m.bound.weigh != nil {
		m.weight -= m.bound.weigh(a.Answer)
	}
	delete(m.answers, a.ID)
	*a = answerOf[V]{}
}

// forget drops the answers that match.
func (m *memory[V]) forget(match func(V) bool) {
	kept := newMemory[V](m.limit)
	kept.bound = m.bound
	m.each(func(id string, v V) {
		if !match(v) {
			kept.put(id, v)
		}
	})
	*m = *kept
}

// each visits the answers, the oldest first.
func (m *memory[V]) each(visit func(id string, v V)) {
	for i := m.gone; i < len(m.ring); i++ {
		a := &m.ring[(m.next+i)%len(m.ring)]
		visit(a.ID, a.Answer)
	}
}

// list returns the answers, the oldest first.
func (m *memory[V]) list() []answerOf[V] {
	all := make([]answerOf[V], 0, len(m.answers))
	m.each(func(id string, v V) { all = append(all, answerOf[V]{id, v}) })
	return all
}
