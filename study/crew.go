package study

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// crew carries out the runs of a plan, some at once.
type crew struct {
	Runner
	plan   *plan
	pool   pool
	starts run.Starts

	mu      sync.Mutex
	pending []*job // not begun by this crew, in order
	ended   int
}

func newCrew(r Runner, p *plan, pool pool) *crew { return &crew{Runner: r, plan: p, pool: pool} }

// run returns when every run has ended, by this crew or another, or with the first error that is none of a run's own.
func (c *crew) run(ctx context.Context) error {
	if err := c.survey(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	for range min(c.AtOnce, len(c.pending)) {
		wait.Go(func() {
			if err := c.work(ctx); err != nil {
				cancel(err) // the others stop with a checkpoint
			}
		})
	}
	wait.Wait()
	if c.left() {
		return context.Cause(ctx)
	}
	return nil
}

// left reports whether a run has not ended.
func (c *crew) left() bool { return c.ended < len(c.plan.jobs) }

// survey finds what is left to do.
func (c *crew) survey() error {
	for _, j := range c.plan.jobs {
		state, err := c.pool.state(j.digest)
		if err != nil {
			return err
		}
		if state == finished {
			c.ended++
			continue
		}
		c.pending = append(c.pending, j)
		if err := c.starts.Expect(j.config); err != nil {
			return fmt.Errorf("%s: %w", j, err)
		}
	}
	if c.OnPlan != nil {
		c.OnPlan(len(c.plan.jobs), c.ended)
	}
	return nil
}

// work carries out one run after the other until none is left.
func (c *crew) work(ctx context.Context) error {
	for {
		j, lock, err := c.next(ctx)
		if err != nil || j == nil {
			return err
		}
		err = errors.Join(c.carry(ctx, j), c.starts.Release(j.config), lock.close())
		if err != nil {
			return err
		}
		if err := c.tell(j); err != nil {
			return err
		}
	}
}

// patience is how long a crew waits before it asks again for runs that others carry out.
const patience = 200 * time.Millisecond

// next takes the first pending run that nobody else carries out, waiting while there are others only. It returns nil when none is pending.
func (c *crew) next(ctx context.Context) (*job, *lock, error) {
	for {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		j, lock, err := c.take()
		if err != nil || j != nil {
			return j, lock, err
		}
		c.mu.Lock()
		none := len(c.pending) == 0
		c.mu.Unlock()
		if none {
			return nil, nil, nil
		}
		select {
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
}

// take returns the first pending run that is free, nil if none is.
func (c *crew) take() (*job, *lock, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, j := range c.pending {
		lock, err := c.pool.take(j.digest)
		if err != nil {
			return nil, nil, err
		}
		if lock != nil {
			c.pending = append(c.pending[:i:i], c.pending[i+1:]...)
			return j, lock, nil
		}
	}
	return nil, nil, nil
}

// carry takes a run to its end, from wherever it stands. An error of the run's own is written down and not returned.
func (c *crew) carry(ctx context.Context, j *job) error {
	state, err := c.pool.state(j.digest)
	if err != nil || state == finished { // by somebody else, meanwhile
		return err
	}
	sum, err := c.train(ctx, j, state)
	switch {
	case err == nil && sum.Ended == "budget":
		return nil
	case ctx.Err() != nil: // whatever went wrong beside that will again
		return context.Cause(ctx)
	case ownFailure(err):
		return fail(c.pool.folder(j.digest), err)
	}
	return fmt.Errorf("%s: %w", j, err)
}

// train begins a run or goes on with it.
func (c *crew) train(ctx context.Context, j *job, s state) (*results.Summary, error) {
	dir := c.pool.folder(j.digest)
	if s == stopped {
		return run.Resume(ctx, j.config, dir, c.hooks(j))
	}
	if err := os.RemoveAll(dir); err != nil { // what died before its first checkpoint
		return nil, err
	}
	var report func(int, float64)
	if c.Warmup != nil {
		report = c.Warmup(j.arm, j.seed, j.config)
	}
	start, err := c.starts.Begin(ctx, j.config, report)
	if err != nil {
		return nil, err
	}
	return run.Train(ctx, j.config, start, dir, c.hooks(j))
}

func (c *crew) hooks(j *job) run.Hooks {
	if c.Hooks == nil {
		return run.Hooks{}
	}
	return c.Hooks(j.arm, j.seed, j.config)
}

// tell says that a run has ended.
func (c *crew) tell(j *job) error {
	dir := c.pool.folder(j.digest)
	why, err := failure(dir)
	if err != nil {
		return err
	}
	sum, err := results.ReadSummary(dir)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if c.OnEnd != nil {
		c.OnEnd(Ended{Arm: j.arm, Seed: j.seed, Count: c.ended, Total: len(c.plan.jobs), Result: sum, Failed: why, Dir: dir})
	}
	return nil
}

// ownFailure reports whether an error is what came of a run, and would come of it again, rather than of the machine that it ran on:
// of a full disk, say.
func ownFailure(err error) bool {
	var failure *run.Failure
	var system syscall.Errno
	return errors.As(err, &failure) && !errors.As(err, &system)
}
