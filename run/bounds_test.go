package run

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/task"
)

// asked is a counting game that counts how often its experts are asked.
type asked struct {
	counting
	times *atomic.Int32
}

func (a asked) Reset(p task.Prompt, seed uint64) task.Episode {
	return oracle{a.counting.Reset(p, seed).(*count), a.times}
}

type oracle struct {
	*count
	times *atomic.Int32
}

func (o oracle) Advise() string {
	o.times.Add(1)
	return o.count.Advise()
}

// Experts may search long for each turn: a run that is told to stop does not wait for them to play all held-out
// problems. Resumed, it ends with their bound.
func TestInterruptionDoesNotWaitForExperts(t *testing.T) {
	rules := asked{counting{turns: 5}, new(atomic.Int32)}
	c := counts(t, rules.counting, "warmup.steps=0", "budget.updates=4", "evaluate.every=100", "evaluate.samples=0").WithTask("asked",
		func(uint64) (task.Task, error) { return rules, nil })
	dir := filepath.Join(t.TempDir(), "run")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	sum, err := Train(ctx, c, begin(t, c), dir, Hooks{OnUpdate: func(u results.Update) {
		if u.Update == 2 {
			stop()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if n := rules.times.Load(); sum.Ended != "interrupted" || sum.Expert != nil || sum.Random != nil || n > 1 {
		t.Errorf("an interrupted run has the bounds %v and %v, for which experts were asked %d times", sum.Expert, sum.Random, n)
	}
	if sum, err = Resume(context.Background(), c, dir, Hooks{}); err != nil || sum.Expert == nil || sum.Expert.Pass1 != 1 || sum.Random == nil {
		t.Errorf("the resumed run has the bound %+v, %v", sum, err)
	}
}
