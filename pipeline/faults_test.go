package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

var errBroken = errors.New("broken")

// faulty is every part, failing where and when told.
type faulty struct {
	pipeline.Parts
	where string
	after int
	calls int
}

func (f *faulty) fail(where string) error {
	if f.where != where {
		return nil
	}
	if f.calls++; f.calls > f.after {
		return errBroken
	}
	return nil
}

func (f *faulty) parts() pipeline.Parts {
	return pipeline.Parts{Task: f.Task, Buffer: faultyBuffer{f}, Generator: faultyGenerator{f}, Learner: faultyLearner{f}, Prompts: faultyPrompts{f}}
}

type faultyBuffer struct{ *faulty }

func (f faultyBuffer) Insert(ctx context.Context, gs ...rollout.Group) ([]rollout.ID, error) {
	if err := f.fail("insert"); err != nil {
		return nil, err
	}
	return f.Buffer.Insert(ctx, gs...)
}

func (f faultyBuffer) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	if err := f.fail("sample"); err != nil {
		return nil, err
	}
	b, err := f.Buffer.Sample(ctx, req)
	if err == nil && f.fail("short batch") != nil {
		b.Draws = b.Draws[1:]
	}
	if err == nil && f.fail("stale batch") != nil {
		b.Draws[0].Fresh = false
	}
	return b, err
}

func (f faultyBuffer) Advance(ctx context.Context, v rollout.Version) error {
	if err := f.fail("advance"); err != nil {
		return err
	}
	return f.Buffer.Advance(ctx, v)
}

func (f faultyBuffer) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	if err := f.fail("report"); err != nil {
		return err
	}
	return f.Buffer.Report(ctx, feedback...)
}

func (f faultyBuffer) Len() int { return f.Buffer.Len() }

type faultyGenerator struct{ *faulty }

func (f faultyGenerator) Start(job pipeline.Job) (pipeline.Generation, error) {
	if err := f.fail("start"); err != nil {
		return nil, err
	}
	g, err := f.Generator.Start(job)
	return faultyGeneration{g, f.faulty}, err
}

type faultyGeneration struct {
	pipeline.Generation
	f *faulty
}

func (g faultyGeneration) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	if err := g.f.fail("continue"); err != nil {
		return false, err
	}
	done, err := g.Generation.Continue(ctx, w, n)
	return done && g.f.fail("unfinished") == nil, err
}

func (g faultyGeneration) Rollouts() ([]*rollout.Rollout, error) {
	if err := g.f.fail("rollouts"); err != nil {
		return nil, err
	}
	rs, err := g.Generation.Rollouts()
	if g.f.fail("short group") != nil {
		rs = rs[1:]
	}
	return rs, err
}

// faultyPrompts chooses as if it were not there.
type faultyPrompts struct{ *faulty }

func (f faultyPrompts) Choose(job uint64, _ rollout.Version) (uint64, bool) { return job, false }

func (f faultyPrompts) Report(rollout.Version, uint64, bool, []*rollout.Rollout) error {
	return f.fail("prompt report")
}

type faultyLearner struct{ *faulty }

func (f faultyLearner) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	if err := f.fail("step"); err != nil {
		return pipeline.Measured{}, err
	}
	return f.Learner.Step(ctx, bs)
}

func (f faultyLearner) Weights() pipeline.Weights {
	w := f.Learner.Weights()
	if f.fail("weights") != nil {
		w.Version += 5
	}
	return w
}

func TestAFaultInAnyPartEndsTheRunAndSaysWhere(t *testing.T) {
	for where, says := range map[string]string{
		"insert":        "insert the group of job 3: broken",
		"prompt report": "report what came of prompt 3, of job 3: broken",
		"sample":        "sample 2 rollouts of shard 1 for update 1: broken",
		"report":        "report what update 4 measured: broken",
		"advance":       "advance the buffer to version 4: broken",
		"start":         "start job 3 on worker 0: broken",
		"continue":      "generate job 3 on worker 0: broken",
		"rollouts":      "generate job 3 on worker 0: broken",
		"step":          "take update 4: broken",
		"short batch":   "batch of shard 1 has 1 draws, want 2",
		"stale batch":   "batch of shard 1 has 0 fresh draws, want 1",
		"short group":   "generator returned 3 rollouts for a group of 4",
		"unfinished":    "rows remain unfinished",
		"weights":       "learner's weights have version 8 after update 3",
	} {
		opts := small(1)
		opts.Trainers, opts.Concurrency, opts.FreshShare = 2, 1, 0.5
		f := &faulty{Parts: parts(newNaive(2, 16, false)), where: where, after: 3}
		m, err := pipeline.New(opts, f.parts(), pipeline.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		err = m.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error is %v, want one that says %q", where, err, says)
		}
		if strings.HasSuffix(says, ": broken") && !errors.Is(err, errBroken) {
			t.Errorf("%s: error does not wrap its cause: %v", where, err)
		}
	}
}

// patient is a generator that never ends by itself, but announces that it has begun.
type patient struct {
	pipeline.Generator
	begun chan struct{} // with room for all
}

func (p patient) Start(job pipeline.Job) (pipeline.Generation, error) {
	g, err := p.Generator.Start(job)
	return patientGeneration{g, p.begun}, err
}

type patientGeneration struct {
	pipeline.Generation
	begun chan struct{}
}

func (p patientGeneration) Continue(ctx context.Context, _ pipeline.Weights, _ int) (bool, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return false, ctx.Err()
}

func TestCancellationEndsWhatRunsAndWhatWaits(t *testing.T) {
	opts := small(1)
	opts.Workers, opts.Concurrency = 5, 2
	p := parts(newNaive(1, 16, false))
	begun := make(chan struct{}, 5)
	p.Generator = patient{p.Generator, begun}
	m, err := pipeline.New(opts, p, pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-begun; <-begun; cancel() }()
	if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run ended with %v, want context.Canceled", err)
	}
	if len(begun) > 0 {
		t.Errorf("%d generations began beyond the two that may run at a time", len(begun))
	}
	if _, _, err := m.Snapshot(); !errors.Is(err, pipeline.ErrNoBoundary) {
		t.Errorf("snapshot after cancellation: %v, want ErrNoBoundary", err)
	}
}
