package run

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Inspection is what a run's table holds: as of the last checkpoint, or now if the table is in a service.
type Inspection struct {
	Run      string `json:"run"`
	Service  string `json:"service,omitempty"` // address of a table that is not in the run
	Task     string `json:"task"`
	Seed     uint64 `json:"seed"`
	Version  int    `json:"version"` // of the table
	Sampling string `json:"sampling"`

	Capacity int               `json:"capacity"` // rollouts
	Present  int               `json:"present"`
	Bytes    int64             `json:"bytes"` // of payload
	Inserted uint64            `json:"rollouts_inserted"`
	Evicted  map[string]uint64 `json:"evicted"` // by cause
	Used     uint64            `json:"rollouts_used"`
	OnLease  uint64            `json:"on_lease"` // draws not settled
	Ignored  uint64            `json:"updates_ignored"`

	Ages      results.Histogram `json:"ages"`      // of present rollouts, in versions
	Uses      results.Histogram `json:"uses"`      // of present rollouts
	Staleness results.Histogram `json:"staleness"` // at use
	Rewards   []RewardCount     `json:"rewards"`   // of present rollouts, ascending

	AgeDecay results.Number        `json:"age_decay"` // tau now; nothing: infinite or none
	HalfLife results.Number        `json:"half_life"`
	ByAge    []results.AgePriority `json:"by_age,omitempty"`
	ESSByAge []results.AgeESS      `json:"ess_by_age,omitempty"`

	Order  string       `json:"order"` // of the rows below: by probability or uses
	Top    []InspectRow `json:"top"`
	Bottom []InspectRow `json:"bottom"` // the lowest last
}

// RewardCount is the number of rollouts with a reward.
type RewardCount struct {
	Reward float32 `json:"reward"`
	Count  int     `json:"count"`
}

// InspectRow is one rollout of a table, with the reason for its probability.
type InspectRow struct {
	ID          uint64         `json:"id"`
	Shard       int            `json:"shard"`
	Prompt      string         `json:"prompt_id"`
	Text        string         `json:"text"`
	Reward      float32        `json:"reward"`
	Advantage   float32        `json:"advantage"`
	Age         int            `json:"age"`
	Uses        int            `json:"uses"`
	Base        results.Number `json:"base"`
	Probability results.Number `json:"probability"`
	Reason      string         `json:"reason"`
}

// Inspect reads the table in a run's last checkpoint, or asks the service that has it. It returns the given number of
// rows of the most and of the least likely draws.
func Inspect(dir string, rows int) (*Inspection, error) {
	if rows < 0 {
		return nil, fmt.Errorf("--rows: %d: want 0 or more", rows)
	}
	c, place, err := loadSingle(dir)
	if err != nil {
		return nil, err
	}
	table, err := replay.New(c.replayOptions(0))
	if err != nil {
		return nil, under("replay", err)
	}
	in := &Inspection{Run: dir, Task: c.taskName(), Seed: c.Seed, Sampling: c.Sampling()}
	var known tableSummary
	var held []replay.Held
	if place != nil {
		in.Service = place.Address
		if known, held, err = place.inspect(context.Background(), table.Options()); err != nil {
			err = fmt.Errorf("its rollouts are in table %s of a service: %w", place.Address, err)
		}
	} else {
		known, held, err = inspectCheckpoint(dir, table)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", dir, err)
	}
	in.count(table.Options(), known, held)
	in.rank(table.Options(), known.ageDecay, held, rows, c.drawsFresh())
	return in, nil
}

// LastTable restores the table in a run's last checkpoint. A run whose table is in a service has none: then it returns
// the table's address.
func LastTable(dir string) (table *replay.Table, address string, err error) {
	c, place, err := loadSingle(dir)
	switch {
	case err != nil:
		return nil, "", err
	case place != nil:
		return nil, place.Address, nil
	case !Resumable(dir):
		return nil, "", fmt.Errorf("%s holds no checkpoint, where the rollouts of its table would be: %w", dir,
			fs.ErrNotExist)
	}
	if table, err = replay.New(c.replayOptions(0)); err != nil {
		return nil, "", under("replay", err)
	}
	return table, "", restoreLast(dir, table)
}

// restoreLast restores a table from a run's last checkpoint.
func restoreLast(dir string, table *replay.Table) error {
	place, err := findCheckpoint(dir)
	if err != nil {
		return err
	}
	return embedded{table}.restore(context.Background(), place)
}

// inspectCheckpoint restores a table from a run's last checkpoint and returns what it holds.
func inspectCheckpoint(dir string, table *replay.Table) (tableSummary, []replay.Held, error) {
	if err := restoreLast(dir, table); err != nil {
		return tableSummary{}, nil, err
	}
	known, err := embedded{table}.summary(context.Background())
	return known, table.Inspect().Held(), err
}

// inspectRows is how many rollouts the service sends at a time.
const inspectRows = 256

// inspect asks a service what its table holds now: what an embedded table tells, except the bases of priorities.
func (r Remote) inspect(ctx context.Context, o replay.Options) (tableSummary, []replay.Held, error) {
	conn, table, err := r.dial(ctx)
	if err != nil {
		return tableSummary{}, nil, err
	}
	defer conn.Close()
	stats, err := table.Statistics(ctx)
	if err != nil {
		return tableSummary{}, nil, err
	}
	var held []replay.Held
	err = table.Scan(ctx, inspectRows, func(draws []rollout.Draw) error {
		for _, d := range draws {
			held = append(held, heldOf(d, o))
		}
		return nil
	})
	if o.Unit == replay.UnitGroup {
		ageByGroup(held)
	}
	return tableSummaryOf(stats, o), held, err
}

// heldOf converts an exported rollout. Groups go to shards in turn.
func heldOf(d rollout.Draw, o replay.Options) replay.Held {
	own := rollout.Rollout{ // copies, so as not to keep the record batch in memory
		PromptID: strings.Clone(d.Rollout.PromptID), Text: strings.Clone(d.Rollout.Text), Reward: d.Rollout.Reward,
	}
	return replay.Held{
		ID: d.ID, Group: d.Group, Shard: int((d.Group - 1) % uint64(o.Shards)), Rollout: &own,
		Age: int(d.Staleness), UnitAge: int(d.Staleness), Uses: int(d.Uses),
		Advantage: d.Advantage, Fresh: d.Fresh, Base: math.NaN(), Probability: d.Probability,
	}
}

// ageByGroup sets the unit age of each rollout to that of the oldest in its group.
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

// count fills in the counts and histograms.
func (in *Inspection) count(o replay.Options, known tableSummary, held []replay.Held) {
	stats := known.stats
	in.Version, in.Capacity, in.Present, in.Bytes = int(stats.Version), o.Capacity, stats.Present, stats.PresentBytes
	in.Inserted, in.Used, in.Ignored = stats.Inserted, stats.Acknowledged, stats.UpdatesIgnored
	in.OnLease = stats.Drawn - stats.Acknowledged - stats.Returned
	in.Evicted = make(map[string]uint64)
	for cause, n := range stats.Evicted {
		in.Evicted[string(cause)] = n
	}
	in.Uses, in.Staleness = histogram(&stats.UsesPresent), histogram(&stats.Staleness)
	var ages rollout.Histogram
	rewards := make(map[float32]int)
	for _, h := range held {
		ages.Add(int64(h.Age))
		rewards[h.Rollout.Reward]++
	}
	in.Ages = histogram(&ages)
	for reward, n := range rewards {
		in.Rewards = append(in.Rewards, RewardCount{reward, n})
	}
	slices.SortFunc(in.Rewards, func(a, b RewardCount) int { return cmp.Compare(a.Reward, b.Reward) })
	in.ByAge, in.ESSByAge = known.ages, known.ess
	if o.Sampler == replay.Prioritized {
		in.AgeDecay, in.HalfLife = results.Num(known.ageDecay), results.Num(o.HalfLife(known.ageDecay))
	}
}

// rank fills in the rows at both ends of the order.
func (in *Inspection) rank(o replay.Options, tau float64, held []replay.Held, rows int, countsFresh bool) {
	in.Order = "uses"
	order := func(a, b replay.Held) int { return cmp.Or(b.Uses-a.Uses, cmp.Compare(a.ID, b.ID)) }
	if o.Sampler == replay.Prioritized {
		in.Order = "probability"
		order = func(a, b replay.Held) int {
			return cmp.Or(cmp.Compare(b.Probability, a.Probability), cmp.Compare(a.ID, b.ID))
		}
	}
	slices.SortFunc(held, order)
	perShard := make(map[int]float64)
	for _, h := range held {
		perShard[h.Shard]++
	}
	row := func(h replay.Held) InspectRow {
		return InspectRow{
			ID: uint64(h.ID), Shard: h.Shard, Prompt: h.Rollout.PromptID, Text: h.Rollout.Text,
			Reward: h.Rollout.Reward, Advantage: h.Advantage, Age: h.Age, Uses: h.Uses, Base: results.Num(h.Base),
			Probability: results.Num(h.Probability),
			Reason:      reason(h, o, tau, perShard[h.Shard], countsFresh),
		}
	}
	rows = min(rows, len(held))
	for _, h := range held[:rows] {
		in.Top = append(in.Top, row(h))
	}
	for _, h := range held[max(len(held)-rows, rows):] {
		in.Bottom = append(in.Bottom, row(h))
	}
}

// reason explains a rollout's probability in words.
func reason(h replay.Held, o replay.Options, tau, held float64, countsFresh bool) string {
	var parts []string
	if o.Sampler == replay.Prioritized {
		units := held
		if o.Unit == replay.UnitGroup {
			units /= float64(o.GroupSize)
		}
		parts = append(parts, fmt.Sprintf("%.3gx the mean", h.Probability*units))
		switch {
		case math.IsNaN(h.Base): // unknown for a table in a service
		case h.AtMax:
			parts = append(parts, fmt.Sprintf("entered at the maximum %.4g, and has it still", h.Base))
		default:
			parts = append(parts, fmt.Sprintf("%s %.4g", strings.ReplaceAll(string(o.PriorityBase), "_", " "), h.Base))
		}
		age := fmt.Sprintf("age %d", h.UnitAge)
		if half := o.HalfLife(tau); !math.IsInf(half, 1) {
			age += fmt.Sprintf(" (x%.3g by decay)", math.Exp2(-float64(h.UnitAge)/half))
		}
		parts = append(parts, age)
		if h.Probability == 0 {
			parts[0] = "cannot be drawn: on lease up to max_uses, or below the smallest number"
		}
	} else {
		parts = append(parts, fmt.Sprintf("age %d", h.Age))
	}
	switch h.Uses {
	case 0:
		parts = append(parts, "never used")
	case 1:
		parts = append(parts, "used once")
	default:
		parts = append(parts, fmt.Sprintf("used %d times", h.Uses))
	}
	if h.Fresh && countsFresh {
		parts = append(parts, "not handed out as fresh")
	}
	return strings.Join(parts, ", ")
}
