package watch

import (
	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/service"
)

// commitLatency is how long a journal's transactions took.
func commitLatency(s *journal.Stats) service.Latency {
	l := service.Latency{Seconds: s.WriteTime.Seconds()}
	for _, w := range s.Writes {
		l.Count += w.Count
		l.Counts = append(l.Counts, w.Count)
		if w.UpTo > 0 {
			l.Bounds = append(l.Bounds, w.UpTo.Seconds())
		}
	}
	if len(l.Counts) == len(l.Bounds) {
		l.Counts = append(l.Counts, 0)
	}
	return l
}

// journalCard is what is on disk.
func journalCard(v *service.TableView) card {
	c := card{Title: "Journal", Empty: "In memory only: a restart loses the table. A data folder would keep it."}
	if v.Journal == nil {
		return c
	}
	j := &v.Journal.Stats
	took := commitLatency(j)
	c.Note = "sync " + string(v.Journal.Sync)
	state := row{Name: "state", Value: "works", Class: "good"}
	if v.Journal.Err != nil {
		state = row{Name: "state", Value: "failed", Class: "bad"}
	}
	c.Rows = []row{
		state,
		{Name: "in use", Value: bytes(float64(j.FileBytes-j.FreeBytes)) + " of " + bytes(float64(j.FileBytes))},
		{Name: "transactions", Value: count(j.Commits)},
		{Name: "p50 · p99", Value: within(&took)},
		{Name: "rollouts written", Value: count(j.Rollouts)},
		{Name: "bytes written", Value: bytes(float64(j.Bytes))},
		{Name: "callers waiting", Value: count(j.Pending)},
	}
	return c
}
