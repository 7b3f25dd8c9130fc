package pipeline_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// calls notes what is asked of the parts, in order.
type calls struct {
	*naive
	log []string
}

func (c *calls) note(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) }

// Choose has job n ask prompt 100+n, the odd ones replayed.
func (c *calls) Choose(job uint64, v rollout.Version) (uint64, bool) {
	c.note("choose %d at %d", job, v)
	return 100 + job, job%2 == 1
}

func (c *calls) Insert(ctx context.Context, gs ...rollout.Group) ([]rollout.ID, error) {
	ids, err := c.naive.Insert(ctx, gs...)
	if err == nil {
		c.note("insert")
	}
	return ids, err
}

func (c *calls) Advance(ctx context.Context, v rollout.Version) error {
	c.note("advance to %d", v)
	return c.naive.Advance(ctx, v)
}

// asBuffer and asPrompts tell the two Reports apart.
type (
	asBuffer  struct{ *calls }
	asPrompts struct{ *calls }
)

func (c asBuffer) Report(_ context.Context, feedback ...rollout.Feedback) error {
	c.note("report %d draws at %d", len(feedback), c.Version)
	return nil
}

func (c asPrompts) Report(v rollout.Version, prompt uint64, replayed bool, rs []*rollout.Rollout) error {
	c.note("report prompt %d, replayed %t, at %d: %s x %d", prompt, replayed, v, rs[0].PromptID, len(rs))
	return nil
}

// measuring is a learner that gives feedback.
type measuring struct{ sim.Learner }

func (l *measuring) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	m, err := l.Learner.Step(ctx, bs)
	for _, b := range bs {
		for _, d := range b.Draws {
			m.Feedback = append(m.Feedback, rollout.Feedback{ID: d.ID})
		}
	}
	return m, err
}

func TestPartsAreCalledInTheDocumentedOrder(t *testing.T) {
	// mu = 1, weights take 5: groups and updates take 4. Group 0 enters at 4, update 1 takes from 4 to 8, when group 1
	// enters. Version 1 reaches the worker at 13; the prompts are chosen and reported at the trainers' all the same.
	opts := small(1)
	opts.Updates, opts.WeightTransfer = 2, 5
	c := &calls{naive: newNaive(1, 16, true)}
	p := parts(asBuffer{c})
	p.Prompts, p.Learner = asPrompts{c}, &measuring{}
	hooks := pipeline.Hooks{
		OnInsert: func(in pipeline.Insertion) { c.note("see prompt %d, replayed %t", in.PromptNumber, in.Replayed) },
		OnUpdate: func(_ *pipeline.Machine, u pipeline.Update) error {
			c.note("see update %d: %d new groups, %d replayed", u.Version, u.NewGroups, u.ReplayedPrompts)
			return nil
		},
	}
	m, err := pipeline.New(opts, p, hooks)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"choose 0 at 0",
		"insert", "report prompt 100, replayed false, at 0: sim-100 x 4", "see prompt 100, replayed false",
		"choose 1 at 0",
		"report 4 draws at 0", "advance to 1", "see update 1: 1 new groups, 0 replayed",
		"insert", "report prompt 101, replayed true, at 1: sim-101 x 4", "see prompt 101, replayed true",
		"choose 2 at 1",
		"report 4 draws at 1", "advance to 2", "see update 2: 1 new groups, 1 replayed",
	}
	if !slices.Equal(c.log, want) {
		t.Errorf("calls are\n%s\nwant\n%s", strings.Join(c.log, "\n"), strings.Join(want, "\n"))
	}
}

func TestAResumedRunChoosesForNoJobTwice(t *testing.T) {
	opts := small(0.5)
	opts.Workers, opts.Updates = 3, 6
	c := &calls{naive: newNaive(1, 8, true)}
	p := parts(asBuffer{c})
	p.Prompts = asPrompts{c}
	m, err := pipeline.New(opts, p, pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	state, weights, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Groups) == 0 {
		t.Fatal("no group waits: the test shows little")
	}
	opts.Updates = 12
	p.Learner = &sim.Learner{Version: state.Version}
	var r record
	if m, err = pipeline.Resume(opts, p, r.hooks(), state, weights); err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	next := 0
	for _, call := range c.log {
		if strings.HasPrefix(call, "choose") {
			if !strings.HasPrefix(call, fmt.Sprintf("choose %d at", next)) {
				t.Fatalf("%s: want job %d", call, next)
			}
			next++
		}
	}
	for _, in := range r.inserts {
		if in.PromptNumber != 100+in.Job || in.Replayed != (in.Job%2 == 1) ||
			in.Rollouts[0].PromptID != fmt.Sprint("sim-", 100+in.Job) {
			t.Errorf("job %d is about prompt %d (%s), replayed %t", in.Job, in.PromptNumber,
				in.Rollouts[0].PromptID, in.Replayed)
		}
	}
}

func TestAStateWithChosenPromptsIsNotResumedWithoutAChooser(t *testing.T) {
	opts := small(1)
	opts.Updates = 0
	state := pipeline.State{
		Workers: []pipeline.WorkerState{{Busy: true, Job: 77, Prompt: 5, Versions: []rollout.Version{0}}},
		Groups:  []pipeline.GroupState{{Job: 76, Prompt: 4}, {Job: 75, Prompt: 75}},
	}
	weights := map[rollout.Version]pipeline.Weights{0: {}}
	p := parts(newNaive(1, 16, false))
	_, err := pipeline.Resume(opts, p, pipeline.Hooks{}, state, weights)
	want := "state has job 77 for prompt 5: without Prompts it would be for prompt 77\n" +
		"state has job 76 for prompt 4: without Prompts it would be for prompt 76"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	p.Prompts = asPrompts{}
	if _, err := pipeline.Resume(opts, p, pipeline.Hooks{}, state, weights); err != nil {
		t.Errorf("with a chooser: %v", err)
	}
}

func TestReplayedPromptsHaveFewerGroupsWithoutVariance(t *testing.T) {
	tests.Long(t)
	// Pass rates are uniform in [0, 1], groups of 8: a fresh group is without variance with probability
	// E[p^8 + (1-p)^8] = 2/9. A replayed one had 2 to 6 of 8 correct the time before, k with probability 1/9
	// each, and p is distributed as Beta(k+1, 9-k): the mean over k of (B(k+9, 9-k) + B(k+1, 17-k)) / B(k+1, 9-k) is
	// 0.08219. Each is replayed once, and the buffer is always emptied: the tries are independent.
	opts := pipeline.Options{Workers: 4, Trainers: 1, Batch: 64, Group: 8, RolloutCost: 2, Updates: 1500}
	p := parts(newTable(t, replay.Options{Capacity: 128}))
	p.Task = sim.Task{Seed: 3, Accept: 0.5, Spread: 0.5}
	b, err := prompts.New(prompts.Options{Fraction: 0.5, Band: 0.3, Cooldown: 2, MaxReuse: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.Prompts, err = prompts.NewChooser(b, prompts.ChooserOptions{
		Groups: 8, Ident: func(n uint64) string { return p.Task.Train(n).ID }, Threshold: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var groups, flat [2]float64 // fresh, replayed
	for _, in := range run(t, opts, p).inserts {
		of, sum := 0, float32(0)
		if in.Replayed {
			of = 1
		}
		for _, x := range in.Rollouts {
			sum += x.Reward
		}
		groups[of]++
		if sum == 0 || sum == 8 {
			flat[of]++
		}
	}
	for i, want := range []float64{2.0 / 9, 0.08219} {
		share, sd := flat[i]/groups[i], math.Sqrt(want*(1-want)/groups[i])
		t.Logf("%.4f of %g groups are without variance, want %.4f +- %.4f", share, groups[i], want, sd)
		if groups[i] < 5000 || math.Abs(share-want) > 4*sd {
			t.Errorf("%.4f of %g groups are without variance, want %.4f +- %.4f", share, groups[i], want, 4*sd)
		}
	}
}
