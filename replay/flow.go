package replay

// Flow is what went into a table and out of it, and what is there: the part of rollout.Stats that costs next to nothing.
type Flow struct {
	Inserted                      uint64 // rollouts; with unit step, steps
	Drawn, Acknowledged, Returned uint64
	Rewound                       uint64 // evicted by [Table.Rewind]
	Present                       int
	Bytes                         int64
}

// Flow returns the present counts, at the cost of a look at each shard.
func (t *Table) Flow() Flow {
	var f Flow
	for _, s := range t.shards {
		s.mu.Lock()
		s.expire()
		f.Inserted += s.counts.Inserted
		f.Drawn += s.counts.Drawn
		f.Acknowledged += s.counts.Acknowledged
		f.Returned += s.counts.Returned
		f.Rewound += s.counts.Evicted[byRewind]
		f.Present += s.present
		f.Bytes += s.bytes
		s.mu.Unlock()
	}
	return f
}
