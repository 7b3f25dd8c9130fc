package client

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Table is a table of a service. Its methods may be called concurrently; errors name the table and the service.
type Table struct {
	client *Client
	name   string
	wait   time.Duration // see Waiting
	*shared
}

// shared is what all copies of a Table share.
type shared struct {
	puts      kept[*putting]
	exchanges kept[*exchange]
	packer    wire.Gatherer

	mu      sync.Mutex
	present int                         // rollouts in the table, as last heard
	version rollout.Version             // of the table, as an action's answer last said
	leased  map[rollout.BatchID]*Stream // by Lease
	known   *columns                    // nil before the first insertion
}

func newShared() *shared { return &shared{leased: make(map[rollout.BatchID]*Stream)} }

// Forever is a wait that only the context ends.
const Forever = time.Duration(math.MaxInt64)

// Waiting returns the table with calls that wait: Insert for room in a queue and for the service's limiter, Sample and Lease
// for rollouts, Start for the gate. After d they return rollout.ErrFull or rollout.ErrStarved, or start nothing; with [Forever]
// they wait as long as their context allows.
func (t *Table) Waiting(d time.Duration) *Table {
	waiting := *t
	waiting.wait = max(d, 0)
	return &waiting
}

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

// heard notes how many rollouts the table holds.
func (t *Table) heard(present int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.present = present
}

// act carries out an action that answers with the table's state.
func (t *Table) act(ctx context.Context, kind string, body any) (wire.TableInfo, error) {
	var info wire.TableInfo
	err := t.client.act(ctx, t.name, kind, body, &info, 0)
	if err == nil {
		t.heard(info.Present)
		t.heardVersion(rollout.Version(info.Version))
	}
	return info, err
}

func (t *Table) heardVersion(v rollout.Version) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = v
}

// lastVersion returns the table's version as this program knows it.
func (t *Table) lastVersion() rollout.Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// Info returns the table's definition, defaults filled in, and what it holds.
func (t *Table) Info(ctx context.Context) (wire.TableInfo, error) {
	return t.act(ctx, wire.Info, wire.TableRequest{Table: t.name})
}

// Len returns the number of rollouts in the table. Where the service cannot be reached for as long as Options.Patience it is
// the number last heard of.
func (t *Table) Len() int {
	info, err := t.Info(context.Background())
	if err == nil {
		return info.Present
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.present
}

// Advance sets the table's version to v, before the weights of that version are published. It is absolute: repeated and late
// calls change nothing.
func (t *Table) Advance(ctx context.Context, v rollout.Version) error {
	_, err := t.act(ctx, wire.Advance, wire.VersionRequest{Table: t.name, Version: int32(v)})
	return err
}

// Rewind sets the table's version back to v, for a trainer restored from a checkpoint of its own: rollouts newer than v leave.
func (t *Table) Rewind(ctx context.Context, v rollout.Version) error {
	_, err := t.act(ctx, wire.Rewind, wire.VersionRequest{Table: t.name, Version: int32(v)})
	return err
}

// Update gives rollouts new priorities, all or none: ids and values are of one length, the values finite and at least 0.
func (t *Table) Update(ctx context.Context, ids []rollout.ID, values []float64) error {
	update := wire.PriorityUpdate{Table: t.name, IDs: make([]uint64, len(ids)), Priorities: values}
	for i, id := range ids {
		update.IDs[i] = uint64(id)
	}
	_, err := t.act(ctx, wire.UpdatePriorities, update)
	return err
}

// Report tells the table what a trainer measured of its draws. Repeated over a connection that broke it counts once.
func (t *Table) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	if len(feedback) == 0 {
		return nil
	}
	report := wire.DrawReport{Table: t.name, RequestID: t.client.nextID(), Draws: make([]wire.DrawFacts, len(feedback))}
	for i, f := range feedback {
		report.Draws[i] = wire.DrawFacts{
			ID: uint64(f.ID), Staleness: f.Staleness, Advantage: measured(f.Advantage), TDError: measured(f.TDError), GradNorm: measured(f.GradNorm),
			Tokens: f.Tokens, RatioSum: f.RatioSum, RatioSquares: f.RatioSquares,
		}
	}
	_, err := t.act(ctx, wire.ReportDraws, report)
	return err
}

func measured(m rollout.Measurement) *float64 {
	if !m.Known {
		return nil
	}
	return &m.Value
}

// Checkpoint has the service save everything of the table under a name; one of that name is replaced.
func (t *Table) Checkpoint(ctx context.Context, name string) (wire.CheckpointAnswer, error) {
	var answer wire.CheckpointAnswer
	err := t.client.act(ctx, t.name, wire.Checkpoint, wire.CheckpointRequest{Table: t.name, Name: name}, &answer, checkpointTime)
	return answer, err
}

// Restore replaces everything of the table by what was saved under a name.
func (t *Table) Restore(ctx context.Context, name string) (wire.TableInfo, error) {
	var info wire.TableInfo
	err := t.client.act(ctx, t.name, wire.Restore, wire.CheckpointRequest{Table: t.name, Name: name}, &info, checkpointTime)
	if err == nil {
		t.heard(info.Present)
	}
	return info, err
}

// checkpointTime is what saving or restoring a large table may take beyond other calls.
const checkpointTime = 10 * time.Minute

// Stats returns what the table has counted and what the service knows of it: its limiter, its gate, its journal.
func (t *Table) Stats(ctx context.Context) (*wire.TableStatistics, error) {
	stats := new(wire.TableStatistics)
	if err := t.client.act(ctx, t.name, wire.Statistics, wire.TableRequest{Table: t.name}, stats, 0); err != nil {
		return nil, err
	}
	t.heard(stats.Present)
	return stats, nil
}
