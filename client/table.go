package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Table is a table of a service. Its methods may be called concurrently; errors name the table and the service.
type Table struct {
	client *Client
	name   string
	wait   time.Duration // see Waiting
	atDraw bool          // see UsingAtDraw
	*shared
}

// shared is what all Tables of a name share.
type shared struct {
	inserts streamPool[*insertStream]
	samples streamPool[*sampleStream]
	packer  wire.Gatherer

	mu      sync.Mutex
	version rollout.Version             // of the table, as the last action answered
	leased  map[rollout.BatchID]*Stream // by Lease
	schema  *arrow.Schema               // of insertions; nil before the first
}

// Forever is a wait that only the context ends.
const Forever = time.Duration(math.MaxInt64)

// Waiting returns the table with calls that wait: Insert for room in a queue and for the service's limiter, Sample and
// Lease for rollouts, Start for the gate. After d they return rollout.ErrFull or rollout.ErrStarved, or start nothing;
// with [Forever] they wait as long as their context allows.
func (t *Table) Waiting(d time.Duration) *Table {
	waiting := *t
	waiting.wait = max(d, 0)
	return &waiting
}

// UsingAtDraw returns the table with a Sample that counts draws as used at once. When the connection breaks the service
// sends the same batch again, and draws nothing else: so a run that alone works on a table gives the same batches
// whatever breaks. But what this program had drawn when it ends is consumed.
func (t *Table) UsingAtDraw() *Table {
	using := *t
	using.atDraw = true
	return &using
}

// maxWait bounds one wait of the service, so that a lost connection is found in between.
const maxWait = 30 * time.Second

// left returns how long a call that began then may still wait.
func (t *Table) left(ctx context.Context, began time.Time) time.Duration {
	left := t.wait
	if t.wait != Forever {
		left -= time.Since(began)
	}
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return left
}

// waitOut calls, with how long the service is to wait, until it answers something else than the error or the table's
// wait is over.
func (t *Table) waitOut(ctx context.Context, whileErr error, call func(wait time.Duration) error) error {
	began := time.Now()
	for {
		err := call(min(max(t.left(ctx, began), 0), maxWait))
		if !errors.Is(err, whileErr) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if t.left(ctx, began) <= 0 {
			return err
		}
	}
}

// failed names the table in an error.
func (t *Table) failed(verb string, err error) error {
	return fmt.Errorf("table %s of %s: %s: %w", t.name, t.client.address, verb, err)
}

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

func (t *Table) descriptor() *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{t.name}}
}

// act carries out an action that answers with the table's state.
func (t *Table) act(ctx context.Context, kind string, body any) (wire.TableInfo, error) {
	var info wire.TableInfo
	err := t.client.act(ctx, t.name, kind, body, &info, 0)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.version = rollout.Version(info.Version)
	}
	return info, err
}

// lastVersion returns the table's version as this program knows it.
func (t *Table) lastVersion() rollout.Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// Info returns the table's definition with defaults filled in, its version and its size.
func (t *Table) Info(ctx context.Context) (wire.TableInfo, error) {
	return t.act(ctx, wire.Info, wire.TableRequest{Table: t.name})
}

// Len returns the number of rollouts in the table. Insertions and acknowledgements that are not committed yet, and that a
// crash may undo, count as carried out.
func (t *Table) Len(ctx context.Context) (int, error) {
	info, err := t.Info(ctx)
	return info.Present, err
}

// Stats returns what the table has counted.
func (t *Table) Stats(ctx context.Context) (rollout.Stats, error) {
	s, err := t.Statistics(ctx)
	if err != nil {
		return rollout.Stats{}, err
	}
	return s.Stats(), nil
}

// Statistics returns what the table has counted with the state of its limiter, gate, prompts and journal.
func (t *Table) Statistics(ctx context.Context) (*wire.TableStatistics, error) {
	s := new(wire.TableStatistics)
	if err := t.client.act(ctx, t.name, wire.Statistics, wire.TableRequest{Table: t.name}, s, 0); err != nil {
		return nil, err
	}
	return s, nil
}

// Rollouts returns a page of the rollouts that a query finds, at most [replay.MostFound].
func (t *Table) Rollouts(ctx context.Context, q replay.Query) (browse.Page, error) {
	var page browse.Page
	err := t.client.act(ctx, t.name, wire.Rollouts, wire.RolloutsRequest{Table: t.name, Query: q}, &page, 0)
	return page, err
}

// Rollout returns all that is known of a rollout. Its error wraps wire.ErrNotFound if the table does not hold it.
func (t *Table) Rollout(ctx context.Context, id rollout.ID) (browse.Rollout, error) {
	var shown browse.Rollout
	err := t.client.act(ctx, t.name, wire.ShowRollout, wire.RolloutRequest{Table: t.name, ID: uint64(id)}, &shown, 0)
	return shown, err
}

// Advance sets the table's version to v, before the weights of that version are published. It is absolute: repeated and
// late calls change nothing, and neither does a new run's on a table that has gone further, which [Table.Rewind] sets
// back.
func (t *Table) Advance(ctx context.Context, v rollout.Version) error {
	_, err := t.act(ctx, wire.Advance, wire.VersionRequest{Table: t.name, Version: int32(v)})
	return err
}

// Rewind sets the table's version back to v, for a trainer restored from a checkpoint of its own: rollouts newer than v
// leave.
func (t *Table) Rewind(ctx context.Context, v rollout.Version) error {
	_, err := t.act(ctx, wire.Rewind, wire.VersionRequest{Table: t.name, Version: int32(v)})
	return err
}

// Update gives rollouts new priorities, all or none: as many as ids, finite and at least 0.
func (t *Table) Update(ctx context.Context, ids []rollout.ID, priorities []float64) error {
	update := wire.PriorityUpdate{Table: t.name, IDs: make([]uint64, len(ids)), Priorities: priorities}
	for i, id := range ids {
		update.IDs[i] = uint64(id)
	}
	_, err := t.act(ctx, wire.UpdatePriorities, update)
	return err
}

// Report tells the table what a trainer measured of its draws. Retried over a broken connection, it counts once.
func (t *Table) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	if len(feedback) == 0 {
		return nil
	}
	report := wire.DrawReport{Table: t.name, RequestID: t.client.nextID(), Draws: make([]wire.DrawFacts, len(feedback))}
	for i, f := range feedback {
		report.Draws[i] = wire.DrawFacts{
			ID: uint64(f.ID), Staleness: f.Staleness, Advantage: measured(f.Advantage), TDError: measured(f.TDError),
			GradNorm: measured(f.GradNorm),
			Tokens:   f.Tokens, RatioSum: f.RatioSum, RatioSquares: f.RatioSquares,
		}
	}
	_, err := t.act(ctx, wire.ReportDraws, report)
	return err
}

// Reward gives rollouts their rewards, or others than they have: see [replay.Table.Reward]. Without a request id it
// gets one, so that retried over a broken connection it happens once.
func (t *Table) Reward(ctx context.Context, r rollout.Rewards) (rollout.Rewarded, error) {
	if r.RequestID == "" {
		r.RequestID = t.client.nextID()
	}
	var answer wire.RewardAnswer
	err := t.client.act(ctx, t.name, wire.Reward, wire.RewardRequest{Table: t.name, Rewards: r}, &answer, 0)
	return answer.Rewarded, err
}

func measured(m rollout.Measurement) *float64 {
	if !m.Known {
		return nil
	}
	return &m.Value
}

// checkpointTime is how long saving or restoring a large table may take beyond other calls.
const checkpointTime = 10 * time.Minute

// Checkpoint has the service save the whole table under a name; it replaces an earlier checkpoint of that name.
func (t *Table) Checkpoint(ctx context.Context, name string) (wire.CheckpointAnswer, error) {
	var answer wire.CheckpointAnswer
	err := t.client.act(ctx, t.name, wire.Checkpoint, wire.CheckpointRequest{Table: t.name, Name: name}, &answer,
		checkpointTime)
	return answer, err
}

// Restore replaces the whole table by what was saved under a name.
func (t *Table) Restore(ctx context.Context, name string) (wire.TableInfo, error) {
	var info wire.TableInfo
	err := t.client.act(ctx, t.name, wire.Restore, wire.CheckpointRequest{Table: t.name, Name: name}, &info,
		checkpointTime)
	return info, err
}

// Checkpoints returns the table's checkpoints, in order of names. They outlive the table.
func (t *Table) Checkpoints(ctx context.Context) ([]wire.SavedCheckpoint, error) {
	var list wire.CheckpointList
	err := t.client.act(ctx, t.name, wire.ListCheckpoints, wire.TableRequest{Table: t.name}, &list, 0)
	return list.Checkpoints, err
}

// DeleteCheckpoint deletes a checkpoint.
func (t *Table) DeleteCheckpoint(ctx context.Context, name string) error {
	return t.client.act(ctx, t.name, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: t.name, Name: name}, nil, 0)
}

// Scrub has the service read all of the table's journal and check it, in a cluster every node's copy, and returns what
// it found: the context bounds how long.
func (t *Table) Scrub(ctx context.Context) (wire.ScrubAnswer, error) {
	var answer wire.ScrubAnswer
	err := t.client.act(ctx, t.name, wire.Scrub, wire.TableRequest{Table: t.name}, &answer, checkpointTime)
	return answer, err
}

// Start asks how many groups, at most as many as given, may be started now without becoming too stale; it waits for the
// first as [Table.Waiting] says. The caller inserts them under the grant ([Insertion]) or abandons them. A groupSize of
// 0 is the table's.
func (t *Table) Start(ctx context.Context, groups, groupSize int) (wire.StartAnswer, error) {
	var answer wire.StartAnswer
	began := time.Now()
	for {
		wait := min(max(t.left(ctx, began), 0), maxWait)
		req := wire.StartRequest{Table: t.name, Groups: groups, GroupSize: groupSize, TimeoutMS: wait.Milliseconds()}
		err := t.client.act(ctx, t.name, wire.Start, req, &answer, wait)
		if err != nil || answer.Groups > 0 || t.left(ctx, began) <= 0 {
			return answer, err
		}
	}
}

// Abandon gives back granted groups that will not be inserted.
func (t *Table) Abandon(ctx context.Context, grant uint64, groups int) error {
	_, err := t.act(ctx, wire.Abandon, wire.AbandonRequest{Table: t.name, Grant: grant, Groups: groups})
	return err
}

// PromptsNext returns prompts worth asking again, for a batch of the given number.
func (t *Table) PromptsNext(ctx context.Context, batch int) (wire.PromptsAnswer, error) {
	var answer wire.PromptsAnswer
	err := t.client.act(ctx, t.name, wire.PromptsNext, wire.PromptsRequest{Table: t.name, Batch: batch}, &answer, 0)
	return answer, err
}

// PromptsReport reports the results of prompts.
func (t *Table) PromptsReport(ctx context.Context, results ...wire.PromptResult) error {
	_, err := t.act(ctx, wire.PromptsReport, wire.PromptResults{Table: t.name, Results: results})
	return err
}

// maxPooled is how many unused streams of a kind a table keeps; each costs the service a goroutine.
const maxPooled = 16

// streamPool keeps streams that no call uses at the moment, the one used last on top.
type streamPool[S interface{ end() }] struct {
	mu      sync.Mutex
	streams []S
}

func (p *streamPool[S]) get() (s S, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.streams)
	if n == 0 {
		return s, false
	}
	s = p.streams[n-1]
	p.streams = p.streams[:n-1]
	return s, true
}

func (p *streamPool[S]) put(s S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.streams) >= maxPooled {
		s.end()
		return
	}
	p.streams = append(p.streams, s)
}

// endAll ends all streams: when one broke, the others have broken too, or will.
func (p *streamPool[S]) endAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		s.end()
	}
	p.streams = nil
}

// lifetime is how long a stream lasts: until it is ended, whatever the contexts of the calls that use it.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newLifetime() lifetime {
	ctx, cancel := context.WithCancel(context.Background())
	return lifetime{ctx, cancel}
}

func (l lifetime) end() { l.cancel() }

// during runs one exchange on the stream, which the end of ctx breaks off. It reports whether the stream can be used
// again, and ends it after an error.
func (l lifetime) during(ctx context.Context, exchange func() error) (usable bool, err error) {
	unhook := context.AfterFunc(ctx, l.end)
	err = exchange()
	interrupted := !unhook()
	if err != nil {
		l.end()
		if interrupted {
			err = context.Cause(ctx)
		}
	}
	return err == nil && !interrupted, err
}
