package capture

import "sync/atomic"

// memory counts the bytes that sessions and calls under way hold.
type memory struct {
	limit int64
	used  atomic.Int64
}

// take reports whether there is room for so many bytes, and then counts them.
func (m *memory) take(n int64) bool {
	if m.used.Add(n) > m.limit {
		m.used.Add(-n)
		return false
	}
	return true
}

// force counts bytes whether or not there is room: what comes of sessions that were accepted before.
func (m *memory) force(n int64) { m.used.Add(n) }

func (m *memory) give(n int64) { m.used.Add(-n) }
