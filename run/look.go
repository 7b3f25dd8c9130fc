package run

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// lookRows is how many rollouts travel at once.
const lookRows = 256

// look asks a service what its table of some options holds now: everything that a table in memory tells, but for bases of priorities.
func (r Remote) look(ctx context.Context, o replay.Options) (account, []replay.Held, error) {
	conn, table, err := r.dial(ctx)
	if err != nil {
		return account{}, nil, err
	}
	defer conn.Close()
	stats, err := table.Statistics(ctx)
	if err != nil {
		return account{}, nil, err
	}
	var held []replay.Held
	err = table.Scan(ctx, lookRows, func(draws []rollout.Draw) error {
		for _, d := range draws {
			held = append(held, heldOf(d, o))
		}
		return nil
	})
	if o.Unit == replay.UnitGroup {
		ageByGroup(held)
	}
	return accountOf(stats, o), held, err
}

// heldOf is an exported rollout as a table tells of it. Groups are dealt to shards in turn.
func heldOf(d rollout.Draw, o replay.Options) replay.Held {
	own := rollout.Rollout{ // without what would keep the memory of its record batch
		PromptID: strings.Clone(d.Rollout.PromptID), Text: strings.Clone(d.Rollout.Text), Reward: d.Rollout.Reward,
	}
	return replay.Held{
		ID: d.ID, Group: d.Group, Shard: int((d.Group - 1) % uint64(o.Shards)), Rollout: &own, Age: int(d.Staleness), UnitAge: int(d.Staleness),
		Uses: int(d.Uses), Advantage: d.Advantage, Fresh: d.Fresh, Base: math.NaN(), Probability: d.Probability,
	}
}

// ageByGroup sets the age of each rollout's unit, its group, to that of the oldest in it.
func ageByGroup(held []replay.Held) {
	oldest := make(map[uint64]int)
	for _, h := range held {
		oldest[h.Group] = max(oldest[h.Group], h.Age)
	}
	for i := range held {
		held[i].UnitAge = oldest[held[i].Group]
	}
	slices.SortFunc(held, func(a, b replay.Held) int { return cmp.Or(a.Shard-b.Shard, cmp.Compare(a.ID, b.ID)) })
}
