package replay

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// drawnSteps returns what a table of steps, a queue, gives of a group of threeTurns (rewards 1, 2, 3, in all 9) and a
// rollout without turns of reward 5.
func drawnSteps(t *testing.T, o Options) []rollout.Draw {
	t.Helper()
	o.Capacity, o.Unit, o.Sampler = 8, UnitStep, FIFO
	table := mustNew(t, o)
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0), group(0, 5).Rollouts[0]}})
	return mustSample(t, table, rollout.Request{Size: 4}).Draws
}

func TestTheRewardOfAStepIsItsReturn(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		rewards []float32
		mean    float64
		std     float64
	}{
		// Without step returns the moments are of the whole rollouts, 9 and 5.
		"own":                       {Options{}, []float32{1, 2, 3, 5}, 7, 2},
		"own, compared as steps":    {Options{StepReturns: 1}, []float32{1, 2, 3, 5}, 2.75, math.Sqrt(2.1875)},
		"two turns":                 {Options{StepReturns: 2}, []float32{3, 5, 3, 5}, 4, 1},
		"two turns, discounted":     {Options{StepReturns: 2, StepDiscount: 0.5}, []float32{2, 3.5, 3, 5}, 3.375, math.Sqrt(1.171875)},
		"to the end":                {Options{StepReturns: ToTheEnd}, []float32{6, 5, 3, 5}, 4.75, math.Sqrt(1.1875)},
		"to the end, discounted":    {Options{StepReturns: ToTheEnd, StepDiscount: 0.5}, []float32{2.75, 3.5, 3, 5}, 3.5625, math.Sqrt(0.76171875)},
		"more turns than there are": {Options{StepReturns: 9}, []float32{6, 5, 3, 5}, 4.75, math.Sqrt(1.1875)},
	} {
		c.options.Advantage = advantage.NoStd
		for i, d := range drawnSteps(t, c.options) {
			r := d.Rollout
			if r.Reward != c.rewards[i] || i < 3 && r.Turns[0].Reward != c.rewards[i] {
				t.Errorf("%s: step %d has reward %v and turns %v, want %v", name, i, r.Reward, r.Turns, c.rewards[i])
			}
			if !near(float64(d.GroupMean), float64(float32(c.mean))) || !near(float64(d.GroupStd), float64(float32(c.std))) {
				t.Errorf("%s: step %d is of a group of mean %v and std %v, want %v and %v", name, i, d.GroupMean, d.GroupStd, c.mean, c.std)
			}
			want := c.rewards[i] - float32(c.mean)
			if c.options.StepReturns == 0 {
				want = []float32{2, 2, 2, -2}[i]
			}
			if math.Abs(float64(d.Advantage-want)) > 1e-6 {
				t.Errorf("%s: step %d has advantage %v, want %v", name, i, d.Advantage, want)
			}
		}
	}
}

func TestARolloutKeepsItsRewardsWhenItsStepsGetReturns(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, StepReturns: ToTheEnd})
	whole := threeTurns(0, 0, 0)
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{whole}})
	if whole.Reward != 9 || whole.Turns[0].Reward != 1 || whole.Turns[1].Reward != 2 {
		t.Errorf("the rollout became %+v", whole)
	}
}

func TestAnAdvantageThatIsGivenIsThatOfEveryStep(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, StepReturns: 2, Sampler: FIFO})
	r, given := threeTurns(0, 0, 0), float32(0.25)
	r.Advantage = &given
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{r, threeTurns(0, 0, 0)}})
	for i, d := range mustSample(t, table, rollout.Request{Size: 6}).Draws {
		if (d.Advantage == given) != (i < 3) {
			t.Errorf("step %d has advantage %v", i, d.Advantage)
		}
	}
}

// What is correct is the rollout's affair: the return of a step may be below the threshold, or above it.
func TestRetentionKeepsTheStepsOfCorrectRollouts(t *testing.T) {
	table := mustNew(t, Options{Capacity: 6, Unit: UnitStep, StepReturns: 1, Retention: KeepPositive, PositiveFraction: 0.5, PositiveThreshold: new(float32(8))})
	wrong := threeTurns(0, 0, 0)
	wrong.Reward, wrong.Turns[2].Reward = 1, 50
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0)}})
	for range 3 {
		mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{wrong}})
	}
	ids := ""
	for _, h := range table.Inspect().Held() {
		ids += string('0' + rune(h.ID))
	}
	if want := "123:;<"; ids != want { // the first three, and 10 to 12
		t.Errorf("held are %q, want %q", ids, want)
	}
}

func TestReturnsThatOverflowAreRefused(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, StepReturns: 2})
	r := threeTurns(0, 0, 0)
	r.Turns[1].Reward, r.Turns[2].Reward = 3e38, 3e38
	_, err := table.Insert(ctx, group(0, 1), rollout.Group{Rollouts: []*rollout.Rollout{r}})
	if !errors.Is(err, rollout.ErrInvalid) || !strings.HasPrefix(err.Error(), "row 1: turns is rewards whose return from turn 1 on is +Inf") || table.present() != 0 {
		t.Errorf("got %v", err)
	}
}

func TestStepReturnsAreOfSteps(t *testing.T) {
	for want, o := range map[string]Options{
		"step_returns: 2: want 0 with unit rollout":                                                  {StepReturns: 2},
		"step_returns: -2: want turns, 0 for the turn's own reward, or -1 to the end of the episode": {StepReturns: -2, Unit: UnitStep},
		"step_discount: 1.5: want above 0, at most 1":                                                {StepReturns: 1, StepDiscount: 1.5, Unit: UnitStep},
		"step_discount: NaN: want above 0, at most 1":                                                {StepReturns: 1, StepDiscount: math.NaN(), Unit: UnitStep},
		"step_discount: 0.5: want 1 with step_returns 0":                                             {StepDiscount: 0.5, Unit: UnitStep},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestASnapshotOfOtherReturnsIsRefused(t *testing.T) {
	o := Options{Capacity: 8, Unit: UnitStep, StepReturns: 2, StepDiscount: 0.5}
	table := mustNew(t, o)
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0), threeTurns(0, 0, 0)}})
	whole := snapshotOf(t, table)
	again := mustNew(t, o)
	if err := again.Restore(bytes.NewReader(whole)); err != nil || !bytes.Equal(snapshotOf(t, again), whole) {
		t.Errorf("restored with %v, and the snapshot may differ", err)
	}
	for _, other := range []Options{{StepReturns: 3, StepDiscount: 0.5}, {StepReturns: 2}, {}} {
		other.Capacity, other.Unit = 8, UnitStep
		if err := mustNew(t, other).Restore(bytes.NewReader(whole)); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("with returns over %d turns discounted by %v: got %v", other.StepReturns, other.StepDiscount, err)
		}
	}
}
