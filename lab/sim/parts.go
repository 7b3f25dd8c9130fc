package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Scope is which parts of a table a trainer draws from.
type Scope string

// The scopes. Queues draw from all parts whatever the scope.
const (
	Own    Scope = "own"    // a batch comes from one of the trainer's own parts, which take turns
	Global Scope = "global" // every batch comes from all parts, in proportion to what they hold
)

// InParts is a table in parts, some of which are lost for a while. Its zero value is one table.
type InParts struct {
	Parts       int   `json:"parts"` // 2 to 256, or 0
	Scope       Scope `json:"scope"`
	LostEvery   int   `json:"lost_every"`   // updates from one loss to the next, of a part drawn at random
	LostUpdates int   `json:"lost_updates"` // updates for which it is lost, below LostEvery; 0: none is
	ForGood     bool  `json:"for_good"`     // it comes back empty: there was no journal
}

// Validate reports every value out of its range.
func (d InParts) Validate() error {
	if d == (InParts{}) {
		return nil
	}
	var p option.Problems
	p.Check(d.Parts >= 2 && d.Parts <= parted.MaxParts, "parts", d.Parts, "2 to %d, or 1 for one table", parted.MaxParts)
	p.Check(d.Scope == Own || d.Scope == Global, "scope", d.Scope, "%s or %s", Own, Global)
	p.Check(d.LostUpdates >= 0, "lost_updates", d.LostUpdates, "1 or more, or 0 for no loss")
	p.Check(d.LostUpdates < max(1, d.LostEvery), "lost_every", d.LostEvery, "more than lost_updates (%d): one part at a "+
		"time is lost", d.LostUpdates)
	return p.Err()
}

// Absence is what the losses of parts did.
type Absence struct {
	Losses   int    `json:"losses"`
	Rollouts uint64 `json:"rollouts"` // that parts held when they were lost
	Gone     uint64 `json:"gone"`     // of them, for good
	Rerouted uint64 `json:"rerouted"` // groups whose part was lost
}

// PartedTable is a table in parts: each is a table of one shard, and groups, draws and versions are divided among them
// as the clients of several services divide them. Losses and draws are functions of the seed.
type PartedTable struct {
	Absence Absence

	in       InParts
	options  replay.Options // of a part, but for its seed
	rule     parted.Rule
	trainers int
	tables   []*replay.Table
	lost     int // the part that is lost; -1: none
	back     rollout.Version
	version  rollout.Version
	groups   uint64 // inserted
	draws    uint64 // batches
	turns    []int  // of each trainer, batches drawn
	gone     rollout.Stats
}

// NewPartedTable returns a table in parts for a number of trainers. The options are those of a part.
func NewPartedTable(d InParts, trainers int, part replay.Options) (*PartedTable, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	p := &PartedTable{in: d, options: part, rule: part.DrawRule(), trainers: trainers, lost: -1,
		tables: make([]*replay.Table, d.Parts), turns: make([]int, trainers)}
	p.gone.Evicted = make(map[rollout.Cause]uint64)
	for i := range p.tables {
		if err := p.create(i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *PartedTable) create(part int) (err error) {
	o := p.options
	o.Seed += uint64(part)
	p.tables[part], err = replay.New(o)
	return err
}

// Insert adds a group, the only one, to the first part in its order that is there. If that is full the group goes to
// the next one with room: the pipeline inserts in order, and it would hold up all others, as it does not with services.
func (p *PartedTable) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	if len(groups) != 1 {
		return nil, fmt.Errorf("inserting %d groups: insert one at a time: %w", len(groups), rollout.ErrInvalid)
	}
	g := groups[0]
	key := parted.Key(g.Rollouts[0].PromptID, strconv.FormatUint(p.groups, 10), 0)
	order := parted.Order(key, len(p.tables))
	var full error
	for _, part := range order {
		if part == p.lost {
			continue
		}
		ids, err := p.tables[part].Insert(ctx, g)
		if errors.Is(err, rollout.ErrFull) {
			full = err
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("insert into part %d: %w", part, err)
		}
		p.groups++
		if order[0] == p.lost {
			p.Absence.Rerouted++
		}
		for i := range ids {
			ids[i] = rollout.ID(parted.Join(part, uint64(ids[i])))
		}
		return ids, nil
	}
	return nil, full
}

// Sample draws a trainer's batch. The request's shard is the trainer.
func (p *PartedTable) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	trainer := req.Shard
	req.Shard = 0
	if p.rule.Kind == parted.Queue || p.in.Scope == Global {
		return p.sampleAll(ctx, req, trainer)
	}
	own := p.own(trainer)
	var starved error
	for i := range own {
		part := own[(p.turns[trainer]+i)%len(own)]
		b, err := p.tables[part].Sample(ctx, req)
		if errors.Is(err, rollout.ErrStarved) {
			starved = err
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sample part %d: %w", part, err)
		}
		p.turns[trainer] += i + 1
		b.Shard = trainer
		parted.JoinDraws(part, b.Draws)
		return b, nil
	}
	return nil, starved
}

// own returns a trainer's own parts that are there, or all others if none is.
func (p *PartedTable) own(trainer int) []int {
	var own, others []int
	for part := range p.tables {
		mine := part == trainer%len(p.tables)
		if p.trainers <= len(p.tables) {
			mine = part%p.trainers == trainer
		}
		switch {
		case part == p.lost:
		case mine:
			own = append(own, part)
		default:
			others = append(others, part)
		}
	}
	if own == nil {
		return others
	}
	return own
}

// sampleAll divides a batch over all parts that are there.
func (p *PartedTable) sampleAll(ctx context.Context, req rollout.Request, trainer int) (*rollout.Batch, error) {
	totals := make([]parted.Totals, len(p.tables))
	for i, t := range p.tables {
		if i != p.lost {
			totals[i] = t.ServiceView().Totals(0)
		}
	}
	random := rollout.Stream(p.options.Seed, "sim/parts/draw", p.draws)
	plan, err := parted.Divide(random, p.rule, totals, req.Size, req.Fresh)
	if err != nil {
		return nil, err
	}
	p.draws++
	batches := make([]*rollout.Batch, len(p.tables))
	for i, r := range plan.Requests() {
		if r.Size == 0 {
			continue
		}
		if batches[i], err = p.tables[i].Sample(ctx, r); err != nil {
			return nil, fmt.Errorf("sample %d of part %d: %w", r.Size, i, err)
		}
	}
	b, err := plan.Merge(batches)
	if err == nil {
		b.Shard = trainer
	}
	return b, err
}

// Report ignores measurements: a learner without a model makes none.
func (p *PartedTable) Report(ctx context.Context, _ ...rollout.Feedback) error { return ctx.Err() }

// Advance sets the version of every part that is there. Parts are lost and come back with it.
func (p *PartedTable) Advance(ctx context.Context, v rollout.Version) error {
	p.version = v
	if p.lost >= 0 && v >= p.back {
		p.lost = -1
	}
	for i, t := range p.tables {
		if i == p.lost {
			continue
		}
		if err := t.Advance(ctx, v); err != nil {
			return fmt.Errorf("advance part %d: %w", i, err)
		}
	}
	if d := p.in; d.LostUpdates > 0 && int(v)%d.LostEvery == 0 {
		return p.lose(ctx, rollout.Stream(p.options.Seed, "sim/parts/lost", uint64(v)).IntN(len(p.tables)))
	}
	return nil
}

// lose takes a part away until it comes back as it was, or empty.
func (p *PartedTable) lose(ctx context.Context, part int) error {
	p.lost, p.back = part, p.version+rollout.Version(p.in.LostUpdates)
	s, err := p.tables[part].Stats(ctx)
	if err != nil {
		return err
	}
	present := uint64(s.Present)
	p.Absence.Losses++
	p.Absence.Rollouts += present
	if !p.in.ForGood {
		return nil
	}
	p.Absence.Gone += present
	s.Evicted[rollout.EvictedByDamage] += present
	s.NeverUsed += s.UsesPresent.Of(0)
	s.UsesAtEviction.Merge(&s.UsesPresent)
	s.Present, s.PresentBytes, s.UsesPresent = 0, 0, rollout.Histogram{}
	addStats(&p.gone, s)
	return p.create(part)
}

// Len returns how many rollouts can be drawn.
func (p *PartedTable) Len(ctx context.Context) (int, error) {
	n := 0
	for i, t := range p.tables {
		if i != p.lost {
			held, err := t.Len(ctx)
			if err != nil {
				return 0, err
			}
			n += held
		}
	}
	return n, nil
}

// Stats returns the sums over all parts, a lost one's as of its loss. Rollouts that are gone for good are evicted by
// damage.
func (p *PartedTable) Stats(ctx context.Context) (rollout.Stats, error) {
	sum := rollout.Stats{Version: p.version, Evicted: make(map[rollout.Cause]uint64)}
	addStats(&sum, p.gone)
	for _, t := range p.tables {
		s, err := t.Stats(ctx)
		if err != nil {
			return sum, err
		}
		addStats(&sum, s)
	}
	return sum, nil
}

// addStats adds what another table has counted.
func addStats(sum *rollout.Stats, s rollout.Stats) {
	sum.Present += s.Present
	sum.PresentBytes += s.PresentBytes
	sum.Inserted += s.Inserted
	sum.InsertedGroups += s.InsertedGroups
	for cause, n := range s.Evicted {
		sum.Evicted[cause] += n
	}
	sum.Refused += s.Refused
	sum.Drawn += s.Drawn
	sum.Acknowledged += s.Acknowledged
	sum.Returned += s.Returned
	sum.UpdatesIgnored += s.UpdatesIgnored
	sum.NeverUsed += s.NeverUsed
	sum.Staleness.Merge(&s.Staleness)
	sum.MeanStaleness.Merge(&s.MeanStaleness)
	sum.UsesAtEviction.Merge(&s.UsesAtEviction)
	sum.UsesPresent.Merge(&s.UsesPresent)
	sum.SinceLastUse.Merge(&s.SinceLastUse)
}
