package run

import (
	"context"
	"errors"
	"math"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// schedule decides when a session takes updates: a pipeline.Machine with workers of its own on a virtual clock, or
// a pipeline.Live.
type schedule interface {
	Options() pipeline.Options
	Run(ctx context.Context) error
	Stop()
	Finished() bool
	Wall() pipeline.Wall
}

// live reports whether the rollouts of a run come from elsewhere, on the real clock.
func (c Config) live() bool { return c.remote != nil && c.remote.Publish != "" }

func (l Live) validate() error {
	var p option.Problems
	p.Check(l.Engines >= 0 && l.Engines <= 1024, "engines", l.Engines, "0 (the default) to 1024")
	for _, a := range l.Addresses {
		o, err := engine.Parse(a)
		p.Check(err == nil && (o.Dialect == engine.VLLM || o.Dialect == engine.SGLang), "addresses", a,
			"vllm+http://HOST:PORT or sglang+http://HOST:PORT: others cannot take weights")
	}
	p.Check(l.Rows >= 1 && l.Rows <= 4096, "rows", l.Rows, "1 to 4096")
	p.Check(l.InFlight >= 0, "in_flight", l.InFlight, "0 (rows x engines) or more")
	p.Check(l.MaxStaleness == nil || *l.MaxStaleness >= 0, "max_staleness", l.MaxStaleness, "0 or more versions")
	p.Check(l.Keep >= 2, "keep", l.Keep, "2 or more: engines may be reading the version before the newest")
	return p.Err()
}

// validateLive checks what a run on the real clock cannot do.
func (c Config) validateLive() error {
	if !c.live() {
		return nil
	}
	var p option.Problems
	p.Add(under("pipeline", c.pipelineOptions().ValidateLive()))
	p.Check(c.Replay.Unit != replay.UnitStep, "replay.unit", c.Replay.Unit, "rollout or group on the real clock")
	const workersChoose = "on the real clock, where workers choose the prompts"
	p.Check(c.Prompts.Fraction == 0, "prompts.fraction", c.Prompts.Fraction, "0 "+workersChoose)
	p.Check(c.Generate.Experts == 0, "generate.experts", c.Generate.Experts, "0 on the real clock, where workers generate")
	p.Check(c.Generate.Prefix.Share == 0, "generate.prefix.share", c.Generate.Prefix.Share, "0 on the real clock, where "+
		"workers generate")
	p.Check(c.Prompts.Skip == "", "prompts.skip", c.Prompts.Skip, "none "+workersChoose)
	o := c.pipelineOptions().WithDefaults()
	if ahead := c.Live.MaxStaleness; ahead != nil && (!c.Replays() || c.drawsFresh()) {
		p.Check(o.FreshAt == nil, "live.max_staleness", *ahead, "none where the share of fresh sources follows the version: "+
			"the gate lets as much start for each update")
		each, batch, spare := c.Replay.PerGroup(max(o.Group, 1)), max(o.Batch, 1), 0
		if !c.Replays() && batch%each != 0 {
			spare = each - 1 // at most, of the last group that may start
		}
		least := (o.BatchUpdates*(1+o.Mix)*(batch+spare)+batch-1)/batch - 1
		p.Check(*ahead >= least, "live.max_staleness", *ahead, "%d or more with pipeline.batch_updates %d and replay.mix "+
			"%d, and %d rollouts of each group in batches of %d, or none: the first batch takes more than may start for "+
			"one update", least, o.BatchUpdates, o.Mix, each, batch)
	}
	return p.Err()
}

// liveTable is a table of a service that workers fill.
type liveTable struct {
	serviceTable
	client  connection
	options replay.Options
	leased  []rollout.BatchID // sampled since Settle
}

// openLive connects to the table, and makes it if it is not there.
func openLive(ctx context.Context, c Config, vocab int, begins bool) (*liveTable, error) {
	place := *c.remote
	place.Options.RetryFor = -1 // the service may restart
	conn, table, err := place.dial(ctx)
	if err != nil {
		return nil, err
	}
	local, err := replay.New(c.replayOptions(vocab))
	if err != nil {
		return nil, errors.Join(under("replay", err), conn.Close())
	}
	t := &liveTable{table, conn, local.Options(), nil}
	definition := wire.Table{Options: t.options, Gate: c.gate()}
	definition.GroupSize, definition.LeaseSeconds = c.Pipeline.Group, maxUpdate
	if begins && place.Replace {
		err = engine.RemovePublished(place.Publish, rollout.NoVersion)
	}
	if err == nil {
		err = place.create(ctx, conn, table, definition, begins)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

// maxUpdate is for how many seconds the trainer may hold a batch. A trainer that dies gives it back at once.
const maxUpdate = 24 * 3600

// gate returns how far workers may run ahead of the trainer, nil if nothing bounds that but the table's room.
func (c Config) gate() *wire.Gate {
	if c.Live.MaxStaleness == nil {
		return nil
	}
	o := c.pipelineOptions().WithDefaults()
	group, each := float64(o.Group), float64(c.Replay.PerGroup(o.Group)) // started, and kept of them
	perUpdate := float64(c.Pipeline.Batch) / float64(max(1, c.Pipeline.BatchUpdates)) / each * group
	if c.Replays() { // and trainers wait for whole groups of fresh rollouts
		perUpdate = max(o.NewPerUpdate(), math.Ceil(o.FreshPerUpdate()/each-1e-9)*group)
	}
	return &wire.Gate{RolloutsPerUpdate: perUpdate, MaxStaleness: *c.Live.MaxStaleness, GrantSeconds: maxGroup}
}

// maxGroup is for how many seconds the gate counts a group as under way that never comes, as when its worker was
// killed. A group that takes longer counts when it is inserted.
const maxGroup = 120

// Sample leases a batch, and waits for it. Insert, Report, Advance and Len are the client's.
func (t *liveTable) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	b, err := t.Lease(ctx, req)
	if err == nil {
		t.leased = append(t.leased, b.ID)
	}
	return b, err
}

// Settle counts what was sampled as used. What a restart of the service has returned meanwhile is not, and may come
// again.
func (t *liveTable) Settle(ctx context.Context) error {
	leased := t.leased
	t.leased = nil
	for _, id := range leased {
		err := t.Acknowledge(ctx, id)
		if err != nil && !errors.Is(err, rollout.ErrNoLease) && !errors.Is(err, client.ErrUnreachable) {
			return err
		}
	}
	return nil
}

func (t *liveTable) Inserted(ctx context.Context) (rollouts, groups uint64, err error) {
	s, err := t.Statistics(ctx)
	if err != nil {
		return 0, 0, err
	}
	return s.Inserted, s.InsertedGroups, nil
}

// Options returns the options that the table was made with.
func (t *liveTable) Options() replay.Options { return t.options }

func (t *liveTable) state(ctx context.Context) (tableState, error) {
	s, err := t.summary(ctx)
	return s.tableState, err
}

func (t *liveTable) summary(ctx context.Context) (tableSummary, error) {
	s, err := t.Statistics(ctx)
	if err != nil {
		return tableSummary{}, err
	}
	return tableSummaryOf(s, t.options), nil
}

// The table is the service's, which keeps it: a checkpoint of the run holds nothing of it.
func (t *liveTable) save(context.Context, string) error    { return nil }
func (t *liveTable) restore(context.Context, string) error { return nil }

func (t *liveTable) close() error { return t.client.Close() }

// startLive makes the schedule of a run on the real clock. A run that was killed goes on at the version after the
// table's, with the weights and the optimizer of its checkpoint.
func (s *session) startLive(ctx context.Context, state pipeline.LiveState, begins bool) (*pipeline.Live, error) {
	table := s.table.(*liveTable)
	info, err := table.Info(ctx)
	if err != nil {
		return nil, err
	}
	there := rollout.Version(info.Version)
	if !begins { // what was published and the table never heard of is void
		if err := engine.RemovePublished(s.config.remote.Publish, there); err != nil {
			return nil, err
		}
	}
	if there > s.learner.Weights().Version {
		s.learner.SetVersion(there + 1)
	}
	publish := func(_ context.Context, w pipeline.Weights) error {
		rounded, err := workersCopy(w)
		if err != nil {
			return err
		}
		_, err = engine.Publish(s.config.remote.Publish, w.Version, s.config.Live.Keep, func(folder string) error {
			return s.start.model.Save(folder, rounded, s.start.tokenizer)
		})
		return err
	}
	return pipeline.NewLive(s.config.pipelineOptions(), pipeline.LiveParts{
		Feed: table, Learner: s.publisher(), Publish: publish,
		OnUpdate: func(u pipeline.Update) error { return s.onUpdate(u) },
	}, state)
}
