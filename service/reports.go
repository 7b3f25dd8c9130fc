package service

import "sync"

// rememberedReports is how many request ids of reports a table remembers.
const rememberedReports = 1000

// reports remembers the request ids of a table's reports, so that one whose answer got lost can be repeated without being counted
// twice. The zero value is ready.
type reports struct {
	mu    sync.Mutex
	known map[string]bool
	order []string // of the known, a ring once it is full
	next  int      // in order, the oldest of a full ring
}

// forget forgets all of them: the table is what it was before they came.
func (r *reports) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.order, r.next = nil, nil, 0
}

// once carries out a report unless one of that id was carried out before; "" is no id.
func (r *reports) once(id string, report func() error) error {
	if id == "" {
		return report()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[id] {
		return nil
	}
	if err := report(); err != nil {
		return err
	}
	if r.known == nil {
		r.known = make(map[string]bool)
	}
	r.known[id] = true
	if len(r.order) < rememberedReports {
		r.order = append(r.order, id)
		return nil
	}
	delete(r.known, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % rememberedReports
	return nil
}
