package journal

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is what a journal has counted since it was opened.
type Stats struct {
	Path      string
	Sync      Sync
	Commits   uint64 // transactions
	Rollouts  uint64 // written
	Removals  uint64 // written
	Uses      uint64 // written: uses, priorities and marks of rollouts that were in the file
	Bytes     uint64 // of records written
	FileBytes int64  // of the file
	FreeBytes int64  // of them, that will be used again
	Pending   int    // calls of Commit and Flush that wait
	Writes    []Latency
	WriteTime time.Duration // sum over all transactions
	LastWrite time.Time     // end of the last transaction; zero before
	Err       error         // that ended its work
}

// Latency counts transactions by how long they took, syncs included.
type Latency struct {
	UpTo  time.Duration // 0: any longer
	Count uint64        // of those above the entry before
}

// Latencies double from 128 us to 8.4 s.
const (
	leastLatency = 128 * time.Microsecond
	latencies    = 18 // the last is any longer
)

// counters is what Stats is made of.
type counters struct {
	waiting atomic.Int64

	mu    sync.Mutex
	stats Stats
	count [latencies]uint64
}

// wrote counts one transaction.
func (c *counters) wrote(batches []*batch, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &c.stats
	st.Commits++
	for _, b := range batches {
		st.Rollouts += uint64(len(b.rollouts) + len(b.anew))
		st.Removals += uint64(len(b.removed))
		st.Uses += uint64(len(b.uses))
		st.Bytes += uint64(b.bytes)
	}
	st.WriteTime += took
	st.LastWrite = time.Now()
	i := 0
	for limit := leastLatency; took > limit && i < latencies-1; limit *= 2 {
		i++
	}
	c.count[i]++
}

// Stats returns what the journal has counted.
func (j *Journal) Stats() Stats {
	st := j.counters.snapshot()
	st.Path, st.Sync, st.Err = j.options.Path, j.options.Sync, j.Err()
	j.file.RLock()
	defer j.file.RUnlock()
	if j.store != nil {
		st.FileBytes, st.FreeBytes = j.store.size()
	}
	return st
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Pending = int(c.waiting.Load())
	limit := leastLatency
	for i, n := range c.count {
		if i == latencies-1 {
			limit = 0
		}
		st.Writes = append(st.Writes, Latency{limit, n})
		limit *= 2
	}
	return st
}

// size returns the bytes of the file, 0 if it is gone, and those of them that are free: pages that were freed, and
// the end that the file was grown by in advance.
func (s *store) size() (file, free int64) {
	if info, err := os.Stat(s.path); err == nil {
		file = info.Size()
	}
	stats := s.db.Stats() // which takes no lock that a panic may have left, and reads nothing of the map
	return file, max(file-s.used.Load(), 0) + int64(stats.FreePageN+stats.PendingPageN)*s.pageSize
}
