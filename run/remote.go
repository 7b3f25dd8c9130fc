package run

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// remote is a table of a service that belongs to one run. It notices when somebody else changes it: then the run
// would go on with other rollouts than it knows of.
type remote struct {
	place   Remote
	client  *client.Client
	table   *client.Table
	options replay.Options
	dir     string // of the run, for what errors advise

	version rollout.Version // that the table must have
	last    uint64          // rollout id given last; ids go up by one
	slot    int             // of the last checkpoint, 0 or 1
}

// openRemote connects to a service and makes the table of a run there, or finds it: a run that begins wants it empty.
func openRemote(ctx context.Context, place Remote, o replay.Options, dir string, begins bool) (*remote, error) {
	local, err := replay.New(o)
	if err != nil {
		return nil, under("replay", err)
	}
	c, t, err := place.dial(ctx)
	if err != nil {
		return nil, err
	}
	r := &remote{place: place, client: c, table: t, options: local.Options(), dir: dir}
	if err := r.prepare(ctx, begins); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return r, nil
}

// prepare makes the table and, for a run that begins, sees to it that it is as new.
func (r *remote) prepare(ctx context.Context, begins bool) error {
	if begins && r.place.Replace {
		if err := r.client.Drop(ctx, r.table.Name()); err != nil && !errors.Is(err, wire.ErrNotFound) {
			return err
		}
	}
	if _, err := r.client.Create(ctx, wire.Table{Name: r.table.Name(), Options: r.options}); err != nil {
		if errors.Is(err, wire.ErrExists) {
			return fmt.Errorf("%w: name another table in --buffer, or replace it by --force", err)
		}
		return err
	}
	if !begins {
		return nil
	}
	stats, err := r.table.Statistics(ctx)
	if err != nil {
		return err
	}
	return errors.Join(r.place.unused(stats), r.place.kept(stats))
}

// Insert, Sample, Report, Advance and Len are the pipeline's.

// Insert adds whole groups, once, and makes sure that nobody else has.
func (r *remote) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	answer, err := r.table.InsertGroups(ctx, client.Insertion{}, groups...)
	if err != nil {
		return nil, r.advise(err)
	}
	ids := make([]rollout.ID, len(answer.IDs))
	for i, id := range answer.IDs {
		if r.last++; id != r.last {
			return nil, r.changed("gave a rollout the id %d where %d was due", id, r.last)
		}
		ids[i] = rollout.ID(id)
	}
	return ids, r.at(rollout.Version(answer.Version))
}

// Sample draws a batch whose draws count as used.
func (r *remote) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	b, err := r.table.Sample(ctx, req)
	if err != nil {
		return nil, r.advise(err)
	}
	return b, r.at(b.Version)
}

// Report passes on what the learner measured.
func (r *remote) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	return r.advise(r.table.Report(ctx, feedback...))
}

// Advance sets the table's version.
func (r *remote) Advance(ctx context.Context, v rollout.Version) error {
	if err := r.table.Advance(ctx, v); err != nil {
		return r.advise(err)
	}
	r.version = v
	return nil
}

// Len returns how many rollouts the table holds.
func (r *remote) Len(ctx context.Context) (int, error) {
	n, err := r.table.Len(ctx)
	return n, r.advise(err)
}

// Options returns the options that the table was made with.
func (r *remote) Options() replay.Options { return r.options }

func (r *remote) glance(ctx context.Context) (glance, error) {
	stats, err := r.stats(ctx)
	if err != nil {
		return glance{}, err
	}
	return glance{stats.Present, stats.NeverUsedShare, ageDecay(stats, r.options)}, nil
}

func (r *remote) account(ctx context.Context) (account, error) {
	stats, err := r.stats(ctx)
	if err != nil {
		return account{}, err
	}
	return accountOf(stats, r.options), nil
}

// accountOf writes a service's statistics as those of an embedded table.
func accountOf(stats *wire.TableStatistics, o replay.Options) account {
	a := account{stats: stats.Stats(), ageDecay: ageDecay(stats, o)}
	for _, s := range stats.Ages {
		a.ages = append(a.ages, results.AgePriority{Age: s.Age, Count: s.Units, Base: s.Base, Probability: s.Probability})
	}
	for _, e := range stats.ESSByAge {
		a.ess = append(a.ess, results.AgeESS{Age: e.First, Last: e.Last, ESS: e.ESS, Tokens: e.Tokens})
	}
	return a
}

// ageDecay returns tau, +Inf where nothing decays.
func ageDecay(stats *wire.TableStatistics, o replay.Options) float64 {
	if o.Sampler != replay.Prioritized {
		return math.Inf(1)
	}
	return float64(stats.AgeDecay)
}

// stats asks for the table's statistics and holds them to what the run did.
func (r *remote) stats(ctx context.Context) (*wire.TableStatistics, error) {
	stats, err := r.table.Statistics(ctx)
	if err != nil {
		return nil, r.advise(err)
	}
	if stats.Inserted != r.last {
		return nil, r.changed("has had %d rollouts inserted where the run inserted %d", stats.Inserted, r.last)
	}
	return stats, r.at(rollout.Version(stats.Version))
}

// at holds the version that the service told to the run's.
func (r *remote) at(v rollout.Version) error {
	if v != r.version {
		return r.changed("is at version %d where the run is at %d", v, r.version)
	}
	return nil
}

// changed says that the table is not as the run left it.
func (r *remote) changed(format string, args ...any) error {
	return fmt.Errorf("table %s %s: another program uses it too, or the service lost what it held; %s", r.place.Address, fmt.Sprintf(format, args...), r.remedy())
}

// advise adds to an error that ends a run how to go on with it.
func (r *remote) advise(err error) error {
	switch {
	case err == nil, errors.Is(err, rollout.ErrFull), errors.Is(err, rollout.ErrStarved):
		return err
	case errors.Is(err, client.ErrUnreachable):
		return fmt.Errorf("%w; once it is back, %s", err, r.remedy())
	default:
		return fmt.Errorf("%w; %s", err, r.remedy())
	}
}

// remedy says how to go on from the last checkpoint.
func (r *remote) remedy() string {
	return "go on from the last checkpoint by: reprise train --resume --out " + r.dir
}

func (r *remote) close() error { return r.client.Close() }
