package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// batchSize is that of every batch, a multiple of groupSize.
const batchSize = 32

// trainer samples from one table and sets its version.
type trainer struct {
	*place
	random  *rand.Rand
	batches int
}

func newTrainer(p *place, number int) *trainer {
	return &trainer{place: p, random: rollout.Stream(p.load.seed, "trainer", uint64(number))}
}

func (t *trainer) run(ctx context.Context) {
	t.load.run(ctx, fmt.Sprintf("trainer of %s", t.Name), t.session)
}

// session takes batches in one way over one connection.
func (t *trainer) session(ctx context.Context, c *client.Client) error {
	table := c.Table(t.Name).Waiting(patience)
	if t.random.IntN(4) == 0 {
		if err := t.look(ctx, c, table); err != nil {
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

// look asks for what people ask for, and saves a checkpoint.
func (t *trainer) look(ctx context.Context, c *client.Client, table *client.Table) error {
	if _, err := c.List(ctx); err != nil {
		return err
	}
	if _, err := table.Checkpoint(ctx, "soak"); err != nil {
		return err
	}
	info, err := table.Info(ctx)
	if err == nil {
		t.heard(info.Version)
	}
	return err
}

// stream takes batches on lease, one after the other; the last is sometimes left unacknowledged.
func (t *trainer) stream(ctx context.Context, table *client.Table, batches int) error {
	prefetch := t.random.IntN(4)
	stream, err := table.Stream(ctx, wire.SampleRequest{Size: batchSize, Prefetch: &prefetch, PrefetchSlack: t.random.IntN(3)})
	if err != nil {
		return err
	}
	defer stream.Close()
	for range batches {
		next := stream.Next
		if t.random.IntN(16) == 0 {
			next = stream.Exchange
		}
		if err := t.batch(ctx, table, next); err != nil {
			return err
		}
	}
	if t.random.IntN(2) == 0 {
		return t.settled(stream.Acknowledge(ctx))
	}
	return nil
}

// settled is what a settlement came to: a lost connection takes the lease along, whether it was settled before or not.
func (t *trainer) settled(err error) error {
	if errors.Is(err, rollout.ErrNoLease) || status.Code(err) == codes.Unavailable {
		t.load.answers.add("lease lost")
		return nil
	}
	return err
}

// useAtDraw takes batches as an embedded table gives them.
func (t *trainer) useAtDraw(ctx context.Context, table *client.Table, batches int) error {
	for range batches {
		err := t.batch(ctx, table, func(ctx context.Context) (*rollout.Batch, error) {
			return table.Sample(ctx, rollout.Request{Size: batchSize})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lease settles batches by actions, or leaves them to expire.
func (t *trainer) lease(ctx context.Context, table *client.Table, batches int) error {
	for range batches {
		var id rollout.BatchID
		err := t.batch(ctx, table, func(ctx context.Context) (*rollout.Batch, error) {
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
		if err := t.settled(err); err != nil {
			return err
		}
	}
	return nil
}

// batch takes one batch, checks it and learns from it.
func (t *trainer) batch(ctx context.Context, table *client.Table, take func(context.Context) (*rollout.Batch, error)) error {
	t.load.pause(ctx, t.random)
	began := time.Now()
	b, err := take(ctx)
	if errors.Is(err, rollout.ErrStarved) {
		t.load.answers.add("starved")
		return t.step(ctx, table, nil) // a higher version opens the gate
	}
	if err != nil {
		return err
	}
	t.load.samples.add(time.Since(began))
	if len(b.Draws) != batchSize {
		t.load.verdict.violate("table %s: a batch of %d has %d draws", t.Name, batchSize, len(b.Draws))
	}
	t.inspect(b)
	return t.step(ctx, table, b)
}

// step is what a trainer does after a batch: it reports, sets priorities and goes on to another version, sometimes an older one.
func (t *trainer) step(ctx context.Context, table *client.Table, b *rollout.Batch) error {
	t.batches++
	if b != nil && t.batches%3 == 0 {
		if err := t.measure(ctx, table, b); err != nil {
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
		t.heard(version)
	}
	return err
}

// measure reports what a step would have found, or sets priorities.
func (t *trainer) measure(ctx context.Context, table *client.Table, b *rollout.Batch) error {
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
