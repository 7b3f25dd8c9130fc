package replay

// memory remembers the answers to the latest requests by their id, so that a repeated request is
// answered alike. The oldest is forgotten first; O(1) each.
type memory[V any] struct {
	limit   int
	answers map[string]V
	ring    []string // ids in order of arrival from next on, wrapping
	next    int
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
	if len(m.ring) < m.limit {
		m.ring = append(m.ring, id)
	} else {
		delete(m.answers, m.ring[m.next])
		m.ring[m.next] = id
		m.next = (m.next + 1) % m.limit
	}
	m.answers[id] = v
}

// forget drops the answers that match.
func (m *memory[V]) forget(match func(V) bool) {
	kept := newMemory[V](m.limit)
	m.each(func(id string, v V) {
		if !match(v) {
			kept.put(id, v)
		}
	})
	*m = *kept
}

// each visits the answers, the oldest first.
func (m *memory[V]) each(visit func(id string, v V)) {
	for i := range m.ring {
		id := m.ring[(m.next+i)%len(m.ring)]
		visit(id, m.answers[id])
	}
}
