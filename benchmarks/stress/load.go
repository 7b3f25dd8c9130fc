package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// serverWait is how long producers and trainers let the service wait before they ask again.
const serverWait = 2 * time.Second

// batchSize is the size of every batch, a multiple of groupSize.
const batchSize = 32

// soakTables are the tables that producers and trainers work on: a queue, a table with bounds on uses and staleness, a
// prioritized one whose limiter paces both sides, and one of groups with a gate, prompts and a column of the user's
// own.
func soakTables() []wire.Table {
	beta := 0.4
	return []wire.Table{
		{Name: "queue", Options: replay.Options{Capacity: 2048, Sampler: replay.FIFO, GroupSize: groupSize,
			Vocab: vocab, LeaseSeconds: 5}},
		{Name: "uniform", Options: replay.Options{
			Capacity: 4096, Sampler: replay.Uniform, MaxUses: 6, MaxStaleness: 12, GroupSize: groupSize, Vocab: vocab,
			LeaseSeconds: 5,
		}},
		{
			Name: "limited", Limiter: &wire.Limiter{SamplesPerInsert: 2, ErrorBuffer: 512},
			Options: replay.Options{
				Capacity: 4096, Sampler: replay.Prioritized, MinSize: 64, GroupSize: groupSize, Vocab: vocab,
				LeaseSeconds: 5,
				PriorityBase: "advantage", PriorityExponent: 0.6, AgeDecay: 8, ImportanceBeta: &beta,
			},
		},
		{
			Name: "gated", Gate: &wire.Gate{RolloutsPerUpdate: 48, MaxStaleness: 4, GrantSeconds: 5},
			Options: replay.Options{Capacity: 4096, Unit: replay.UnitGroup, GroupSize: groupSize, MaxStaleness: 8,
				Vocab: vocab, LeaseSeconds: 5},
			Prompts: &prompts.Options{Fraction: 0.5, Band: 0.4, Cooldown: 2,
				MaxReuse: 4}, Columns: []wire.Column{{Name: "x_note", Type: "utf8"}},
		},
	}
}

// load is what producers and trainers share.
type load struct {
	address  string // of the proxy
	seed     uint64
	pace     time.Duration // longest pause between two calls of one client
	longest  int           // tokens of a rollout
	verdict  *Verdict
	inserts  latency
	samples  latency
	sessions counter
	expected counter // errors that clients must expect, by code
}

// loadTable is a table under load, and what its clients were answered.
type loadTable struct {
	wire.Table
	answers
	load *load
}

// errAgain ends a session. The next begins with a new connection.
var errAgain = errors.New("session is over")

// run works in sessions, each with its own connection, until the context ends.
func (l *load) run(ctx context.Context, who string, work func(context.Context, *client.Client) error) {
	for ctx.Err() == nil {
		err := l.session(ctx, work)
		l.sessions.add(who)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errAgain) {
			l.classify(who, err)
		}
	}
}

func (l *load) session(ctx context.Context, work func(context.Context, *client.Client) error) error {
	c, err := client.Dial(ctx, l.address, client.Options{RetryFor: -1, CallTimeout: 20 * time.Second})
	if errors.Is(err, client.ErrUnreachable) {
		l.expected.add("unreachable")
		return errAgain
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return work(ctx, c)
}

// classify counts errors that clients must expect. Others are violations.
func (l *load) classify(who string, err error) {
	for code, is := range map[string]error{
		"full": rollout.ErrFull, "starved": rollout.ErrStarved, "ahead": rollout.ErrAhead,
		"no lease": rollout.ErrNoLease,
	} {
		if errors.Is(err, is) {
			l.expected.add(code)
			return
		}
	}
	l.expected.add("unexpected")
	l.verdict.violation("%s got an unexpected error: %v", who, err)
}

// pause waits for a random part of the pace.
func (l *load) pause(ctx context.Context, random *rand.Rand) {
	if l.pace > 0 {
		wait(ctx, time.Duration(random.Int64N(int64(l.pace))))
	}
}

// wait waits for a time, or until the context ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// checkBatch checks the contents of a batch.
func (t *loadTable) checkBatch(b *rollout.Batch) {
	t.receive(len(b.Draws), int32(b.Version))
	for _, d := range b.Draws {
		if _, err := checkRollout(d.Rollout, t.load.longest); err != nil {
			t.load.verdict.violation("table %s: %v", t.Name, err)
		}
		if err := t.checkDraw(d, b.Version); err != nil {
			t.load.verdict.violation("table %s: draw of %d: %v", t.Name, d.ID, err)
		}
	}
}

// checkDraw checks that a draw keeps the table's bounds (invariants 1, 3 and 4).
func (t *loadTable) checkDraw(d rollout.Draw, v rollout.Version) error {
	switch {
	case d.Staleness < 0 || t.MaxStaleness > 0 && int(d.Staleness) > t.MaxStaleness:
		return fmt.Errorf("staleness is %d of at most %d", d.Staleness, t.MaxStaleness)
	case d.Rollout.Version() > v:
		return fmt.Errorf("version %d is ahead of the table's %d", d.Rollout.Version(), v)
	case d.Uses < 0 || t.MaxUses > 0 && int(d.Uses) >= t.MaxUses:
		return fmt.Errorf("it had %d uses of at most %d", d.Uses, t.MaxUses)
	case !(d.Probability > 0 && d.Probability <= 1) || !(d.Weight >= 0):
		return fmt.Errorf("probability is %v, weight %v", d.Probability, d.Weight)
	}
	return nil
}

// extra is the table's own columns.
func (t *loadTable) extra() []arrow.Field {
	fields, err := wire.ExtraFields(t.Columns)
	if err != nil {
		panic(err) // the table was created with them
	}
	return fields
}

// producer inserts into one table.
type producer struct {
	*loadTable
	number  int
	random  *rand.Rand
	batch   int               // number of the next
	pending *pendingInsertion // nil: none
}

// pendingInsertion is repeated until it is answered, over many sessions if need be.
type pendingInsertion struct {
	client.Insertion
	groups int
}

func newProducer(t *loadTable, number int) *producer {
	return &producer{loadTable: t, number: number, random: rollout.Stream(t.load.seed, "producer", uint64(number))}
}

// run inserts until the context ends. The last insertion may stay without an answer.
func (p *producer) run(ctx context.Context) {
	p.load.run(ctx, "producer of "+p.Name, p.session)
	if p.pending != nil {
		p.lose(p.pending.groups * groupSize)
	}
}

// session inserts some batches over one connection.
func (p *producer) session(ctx context.Context, c *client.Client) error {
	table := c.Table(p.Name).Waiting(serverWait)
	for range 1 + p.random.IntN(60) {
		p.load.pause(ctx, p.random)
		if p.pending == nil {
			if err := p.prepare(ctx, table); err != nil || p.pending == nil {
				return err
			}
		}
		if err := p.insert(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// prepare chooses the next insertion, and asks the gate where there is one.
func (p *producer) prepare(ctx context.Context, table *client.Table) error {
	next := &pendingInsertion{groups: 1 + p.random.IntN(4)}
	if p.Gate != nil {
		if err := p.replayPrompts(ctx, table); err != nil {
			return err
		}
		answer, err := table.Start(ctx, next.groups, groupSize)
		if err != nil || answer.Groups == 0 {
			return err
		}
		next.Grant, next.groups = answer.Grant, answer.Groups
		switch p.random.IntN(20) {
		case 0:
			return table.Abandon(ctx, answer.Grant, answer.Groups)
		case 1:
			return nil // let it expire
		}
	}
	next.BatchID = fmt.Sprintf("producer-%d-%d", p.number, p.batch)
	p.batch++
	p.pending = next
	return nil
}

// replayPrompts asks which prompts to repeat, and reports results of some.
func (p *producer) replayPrompts(ctx context.Context, table *client.Table) error {
	if p.Prompts == nil || p.random.IntN(4) > 0 {
		return nil
	}
	answer, err := table.PromptsNext(ctx, 8)
	if err != nil {
		return err
	}
	results := []wire.PromptResult{{Prompt: wire.Prompt{ID: fmt.Sprintf("fresh-%d-%d", p.number, p.batch%200)},
		Correct: p.random.IntN(5), Total: groupSize}}
	for _, old := range answer.Prompts {
		results = append(results, wire.PromptResult{Prompt: old, Correct: p.random.IntN(5), Total: groupSize,
			Replayed: true})
	}
	return table.PromptsReport(ctx, results...)
}

// insert makes the pending insertion. It sends the same batch id until an answer comes.
func (p *producer) insert(ctx context.Context, table *client.Table) error {
	version := rollout.Version(max(p.latest()-int32(p.random.IntN(2)), 0))
	made := makeGroups(p.number, p.batch-1, p.pending.groups, p.load.longest, version)
	began := time.Now()
	answer, err := table.InsertGroups(ctx, p.pending.Insertion, made...)
	if errors.Is(err, rollout.ErrAhead) {
		info, err := table.Info(ctx)
		if err == nil {
			p.receive(0, info.Version)
		}
		return err
	}
	if err != nil {
		return err
	}
	p.load.inserts.add(time.Since(began))
	if want := p.pending.groups * groupSize; len(answer.IDs) != want {
		p.load.verdict.violation("table %s: %d ids were answered for %d rollouts", p.Name, len(answer.IDs), want)
	}
	if err := p.acknowledge(answer.IDs); err != nil {
		p.load.verdict.violation("table %s: %v", p.Name, err)
	}
	p.pending = nil
	return nil
}

// trainer samples from one table and sets its version.
type trainer struct {
	*loadTable
	random  *rand.Rand
	batches int
}

func newTrainer(t *loadTable, number int) *trainer {
	return &trainer{loadTable: t, random: rollout.Stream(t.load.seed, "trainer", uint64(number))}
}

func (t *trainer) run(ctx context.Context) { t.load.run(ctx, "trainer of "+t.Name, t.session) }

// session takes batches in one way over one connection.
func (t *trainer) session(ctx context.Context, c *client.Client) error {
	table := c.Table(t.Name).Waiting(serverWait)
	if t.random.IntN(4) == 0 {
		if err := t.administer(ctx, c, table); err != nil {
			return err
		}
	}
	batches := 1 + t.random.IntN(80)
	switch t.random.IntN(4) {
	case 0:
		return t.stream(ctx, table, batches)
	case 1:
		return t.useAtDraw(ctx, table, batches)
	case 2:
		return t.lease(ctx, table, batches)
	default:
		return t.get(ctx, batches)
	}
}

// administer lists the tables and saves a checkpoint.
func (t *trainer) administer(ctx context.Context, c *client.Client, table *client.Table) error {
	if _, err := c.List(ctx); err != nil {
		return err
	}
	if _, err := table.Checkpoint(ctx, "soak"); err != nil {
		return err
	}
	info, err := table.Info(ctx)
	if err == nil {
		t.receive(0, info.Version)
	}
	return err
}

// stream takes leased batches from a stream. It sometimes leaves the last without an acknowledgement.
func (t *trainer) stream(ctx context.Context, table *client.Table, batches int) error {
	prefetch := t.random.IntN(4)
	stream, err := table.Stream(ctx, wire.SampleRequest{Size: batchSize, Prefetch: &prefetch,
		PrefetchSlack: t.random.IntN(3)})
	if err != nil {
		return err
	}
	defer stream.Close()
	for range batches {
		next := stream.Next
		if t.random.IntN(16) == 0 {
			next = stream.Exchange
		}
		if err := t.takeBatch(ctx, table, next); err != nil {
			return err
		}
	}
	if t.random.IntN(2) == 0 {
		return t.allowLostLease(stream.Acknowledge(ctx))
	}
	return nil
}

// allowLostLease returns the error of an acknowledgement or release. A lost connection takes the lease with it.
func (t *trainer) allowLostLease(err error) error {
	if errors.Is(err, rollout.ErrNoLease) || status.Code(err) == codes.Unavailable {
		t.load.expected.add("lease lost")
		return nil
	}
	return err
}

// useAtDraw takes batches that count as used at once, as an embedded table gives them.
func (t *trainer) useAtDraw(ctx context.Context, table *client.Table, batches int) error {
	for range batches {
		err := t.takeBatch(ctx, table, func(ctx context.Context) (*rollout.Batch, error) {
			return table.Sample(ctx, rollout.Request{Size: batchSize})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lease takes leased batches, and acknowledges or releases them by actions, or lets them expire.
func (t *trainer) lease(ctx context.Context, table *client.Table, batches int) error {
	for range batches {
		var id rollout.BatchID
		err := t.takeBatch(ctx, table, func(ctx context.Context) (*rollout.Batch, error) {
			b, err := table.Lease(ctx, rollout.Request{Size: batchSize})
			if err == nil {
				id = b.ID
			}
			return b, err
		})
		if err != nil {
			return err
		}
		switch t.random.IntN(20) {
		case 0:
			continue
		case 1, 2:
			err = table.Release(ctx, id)
		default:
			err = table.Acknowledge(ctx, id)
		}
		if err := t.allowLostLease(err); err != nil {
			return err
		}
	}
	return nil
}

// takeBatch takes one batch, checks it and does what a trainer does after it.
func (t *trainer) takeBatch(ctx context.Context, table *client.Table,
	take func(context.Context) (*rollout.Batch, error)) error {
	t.load.pause(ctx, t.random)
	began := time.Now()
	b, err := take(ctx)
	if errors.Is(err, rollout.ErrStarved) {
		t.load.expected.add("starved")
		return t.step(ctx, table, nil) // a higher version opens the gate
	}
	if err != nil {
		return err
	}
	t.load.samples.add(time.Since(began))
	if len(b.Draws) != batchSize {
		t.load.verdict.violation("table %s: a batch of %d has %d draws", t.Name, batchSize, len(b.Draws))
	}
	t.checkBatch(b)
	return t.step(ctx, table, b)
}

// step reports the batch and sets the version, sometimes to an older one.
func (t *trainer) step(ctx context.Context, table *client.Table, b *rollout.Batch) error {
	t.batches++
	if b != nil && t.batches%3 == 0 {
		if err := t.report(ctx, table, b); err != nil {
			return err
		}
	}
	if t.batches%4 > 0 {
		return nil
	}
	info, err := table.Info(ctx)
	if err != nil {
		return err
	}
	version := info.Version
	if t.random.IntN(200) == 0 && version > 2 {
		version -= 1 + t.random.Int32N(2)
		err = table.Rewind(ctx, rollout.Version(version))
	} else {
		version++
		err = table.Advance(ctx, rollout.Version(version))
	}
	if err == nil {
		t.receive(0, version)
	}
	return err
}

// report reports what a training step measures, or sets priorities.
func (t *trainer) report(ctx context.Context, table *client.Table, b *rollout.Batch) error {
	if t.Sampler == "prioritized" && t.random.IntN(2) == 0 {
		ids, values := make([]rollout.ID, len(b.Draws)), make([]float64, len(b.Draws))
		for i, d := range b.Draws {
			ids[i], values[i] = d.ID, t.random.ExpFloat64()
		}
		return table.Update(ctx, ids, values)
	}
	var feedback []rollout.Feedback
	for _, d := range b.Draws {
		n := float64(len(d.Rollout.Tokens))
		feedback = append(feedback, rollout.Feedback{
			ID: d.ID, Staleness: d.Staleness, Advantage: rollout.Measured(math.Abs(float64(d.Advantage))),
			TDError: rollout.Measured(t.random.ExpFloat64()), GradNorm: rollout.Measured(t.random.ExpFloat64()),
			Tokens: n, RatioSum: n, RatioSquares: n * 1.1,
		})
	}
	return table.Report(ctx, feedback...)
}

// get takes batches by DoGet with a stock client, which knows neither retries nor leases.
func (t *trainer) get(ctx context.Context, batches int) error {
	c, err := stockClient(t.load.address[len("grpc://"):])
	if err != nil {
		return err
	}
	defer c.Close()
	for range batches {
		t.load.pause(ctx, t.random)
		began := time.Now()
		b, err := getBatch(ctx, c, t.Name, t.extra())
		if err != nil {
			return t.load.allowBroken(err)
		}
		t.load.samples.add(time.Since(began))
		t.checkBatch(b)
	}
	return nil
}

// stockClient is a Flight client that has no code of ours.
func stockClient(address string) (flight.Client, error) {
	return flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
}

// allowBroken returns the error of a client without retries. Broken connections are expected.
func (l *load) allowBroken(err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		l.expected.add("stock " + code.String())
		return errAgain
	}
	if ours := wire.FromGRPC(err); errors.Is(ours, rollout.ErrStarved) {
		return ours
	}
	return err
}

// getBatch takes one batch by DoGet.
func getBatch(ctx context.Context, c flight.Client, table string, extra []arrow.Field) (*rollout.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ms := serverWait.Milliseconds()
	ticket, err := json.Marshal(wire.SampleRequest{Table: table, Size: batchSize, TimeoutMS: &ms})
	if err != nil {
		return nil, err
	}
	stream, err := c.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		return nil, err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	var b rollout.Batch
	for reader.Next() {
		draws, err := wire.Draws(reader.RecordBatch(), extra)
		if err != nil {
			return nil, err
		}
		for i := range draws { // they refer to memory that the reader reuses
			draws[i].Rollout = cloneRollout(draws[i].Rollout)
		}
		b.Draws = append(b.Draws, draws...)
		var info wire.BatchInfo
		if err := json.Unmarshal(reader.LatestAppMetadata(), &info); err != nil {
			return nil, fmt.Errorf("app_metadata %.100q: %w", reader.LatestAppMetadata(), err)
		}
		b.ID, b.Version = rollout.BatchID(info.Batch), rollout.Version(info.Version)
	}
	return &b, reader.Err()
}
