package prompts

import "github.com/reprise-rl/reprise/rollout"

// Stats is what a [Buffer] holds and has counted since it was made.
type Stats struct {
	Held     int // prompts whose latest pass rate is within the band
	Eligible int // of them, those that a Next at the version of the latest one would still hand out
	Spent    int // of them, those replayed max_reuse times already

	Reported     uint64 // results
	ZeroVariance uint64 // of them, those with all responses correct or none: there is nothing to learn from them
	Replayed     uint64 // prompts handed out, repeats counted

	Reuses    rollout.Histogram // prompts that are held or were replayed, by how often they were replayed
	PassRates rollout.Histogram // held prompts by pass rate, in hundredths, rounded down
}

// Stats returns the present statistics. They are kept up as the buffer changes: no prompt is looked at.
func (b *Buffer) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.counts
	s := Stats{
		Held: int(c.PassRates.Count()), Eligible: b.ready.Len(),
		Reported: c.Reported, ZeroVariance: c.ZeroVariance, Replayed: c.Replayed,
	}
	s.Spent = s.Held - b.ready.Len() - b.cooling.Len()
	s.Reuses.Merge(&c.Reuses)
	s.PassRates.Merge(&c.PassRates)
	return s
}

// counts is what Stats reports beside the queues.
type counts struct {
	Reported, ZeroVariance, Replayed uint64
	Reuses, PassRates                rollout.Histogram
}

func (c *counts) report(r Result) {
	c.Reported++
	if r.Correct == 0 || r.Correct == r.Total {
		c.ZeroVariance++
	}
}

// replay counts an entry's next reuse.
func (c *counts) replay(e *entry) {
	c.Replayed++
	c.Reuses.Move(int64(e.reuses), int64(e.reuses)+1)
}

// know counts an entry, forget takes that back.
func (c *counts) know(e *entry) {
	c.Reuses.Add(int64(e.reuses))
	if e.estimate.Total > 0 {
		c.PassRates.Add(e.estimate.percent())
	}
}

func (c *counts) forget(e *entry) {
	c.Reuses.Remove(int64(e.reuses))
	if e.estimate.Total > 0 {
		c.PassRates.Remove(e.estimate.percent())
	}
}
