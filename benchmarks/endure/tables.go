package main

import (
	"context"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/wire"
)

// wreckName is the table that those who send nonsense aim at: what is in it is nobody's loss.
const wreckName = "wreck"

// soakTables are the tables that producers and trainers work on: a queue, one with bounds on uses and staleness, a prioritized one whose
// limiter paces both sides, and one of groups behind a gate with prompts and a column of the user's own.
func soakTables() []wire.Table {
	return []wire.Table{
		{Name: "queue", Options: replay.Options{Capacity: 2048, Sampler: "fifo", GroupSize: groupSize, Vocab: vocab, LeaseSeconds: 5}},
		{Name: "uniform", Options: replay.Options{Capacity: 4096, Sampler: "uniform", MaxUses: 6, MaxStaleness: 12, GroupSize: groupSize, Vocab: vocab, LeaseSeconds: 5}},
		{Name: "limited", Options: replay.Options{Capacity: 4096, Sampler: "prioritized", MinSize: 64, GroupSize: groupSize, Vocab: vocab, LeaseSeconds: 5, PriorityBase: "advantage", PriorityExponent: 0.6, AgeDecay: 8, ImportanceBeta: new(float64(0.4))}, Limiter: &wire.Limiter{SamplesPerInsert: 2, ErrorBuffer: 512}},
		{Name: "gated", Options: replay.Options{Capacity: 4096, Unit: "group", GroupSize: groupSize, MaxStaleness: 8, Vocab: vocab, LeaseSeconds: 5}, Gate: &wire.Gate{RolloutsPerUpdate: 48, MaxStaleness: 4, GrantSeconds: 5}, Prompts: &prompts.Options{Fraction: 0.5, Band: 0.4, Cooldown: 2, MaxReuse: 4}, Columns: []wire.Column{{Name: "x_note", Type: "utf8"}}},
	}
}

func wreckTable() wire.Table {
	return wire.Table{Name: wreckName, Options: replay.Options{Capacity: 512, MaxUses: 64, Vocab: vocab, MaxTokens: 1 << 16, LeaseSeconds: 1}}
}

// create makes tables.
func create(ctx context.Context, c *client.Client, tables ...wire.Table) error {
	for _, t := range tables {
		if _, err := c.Create(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
