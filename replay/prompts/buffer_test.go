package prompts_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// open is a buffer that hands out everything it holds, as often as it is asked, at once.
func open() prompts.Options {
	return prompts.Options{Fraction: 1, Band: 0.5, Cooldown: 0, MaxReuse: 1000}
}

func result(id string, correct, total int) prompts.Result {
	return prompts.Result{Prompt: prompts.Prompt{ID: id}, Correct: correct, Total: total}
}

// again is the result of a prompt that was handed out.
func again(id string, correct, total int) prompts.Result {
	r := result(id, correct, total)
	r.Replayed = true
	return r
}

func report(t testing.TB, b *prompts.Buffer, now rollout.Version, results ...prompts.Result) {
	t.Helper()
	if err := b.Report(now, results...); err != nil {
		t.Fatal(err)
	}
}

// names joins the names of prompts.
func names(ps []prompts.Prompt) string {
	var ids []string
	for _, p := range ps {
		ids = append(ids, p.ID)
	}
	return strings.Join(ids, " ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestAPassRateOnTheEdgeOfTheBandIsWithin(t *testing.T) {
	for _, c := range []struct {
		band           float64
		correct, total int
		held           bool
	}{
		{0.3, 1, 5, true}, {0.3, 4, 5, true}, {0.3, 2, 10, true}, {0.3, 8, 10, true}, {0.3, 3, 15, true},
		{0.3, 199_999_999, 1_000_000_000, false}, {0.3, 200_000_000, 1_000_000_000, true},
		{0.3, 800_000_001, 1_000_000_000, false},
		{0.3, 3, 16, false}, {0.3, 13, 16, false}, {0.3, 4, 16, true},
		{0.4, 1, 10, true}, {0.4, 9, 10, true}, {0.1, 3, 5, true}, {0.1, 2, 5, true}, {0.2, 7, 10, true},
		{0.2, 3, 10, true},
		{0.05, 9, 20, true}, {0.45, 1, 20, true}, {0.35, 3, 20, true}, {0.35, 17, 20, true}, {0.15, 13, 20, true},
		{0, 8, 16, true}, {0, 7, 16, false},
		{0.5, 1, math.MaxInt32, true}, {0.5, 0, 16, false}, {0.5, 16, 16, false}, {0.5, 1, 1, false},
	} {
		b := mustNew(t, prompts.Options{Fraction: 1, Band: c.band, MaxReuse: 1})
		report(t, b, 0, result("p", c.correct, c.total))
		if held := b.Stats().Held == 1; held != c.held {
			t.Errorf("%d of %d with band %g: held is %t", c.correct, c.total, c.band, held)
		}
	}
}

func TestTheShareOfABatchIsThatOfTheDecimalNumbers(t *testing.T) {
	for f := range 101 {
		for _, batch := range []int{-1, 0, 1, 7, 32, 100} {
			o := open()
			o.Fraction = float64(f) / 100
			b := mustNew(t, o)
			var held []prompts.Result
			for i := range max(batch, 0) {
				held = append(held, result(fmt.Sprint(i), 1, 2))
			}
			report(t, b, 0, held...)
			if got, want := len(b.Next(0, batch)), f*max(batch, 0)/100; got != want {
				t.Errorf("%d of a batch of %d may come from the buffer at f = 0.%02d, want %d", got, batch, f, want)
			}
		}
	}
}

func TestTheNearestToOneHalfComeFirstAndTheOldestEstimateAtTies(t *testing.T) {
	b := mustNew(t, open())
	report(t, b, 3, result("late", 8, 16), result("far", 15, 16))
	report(t, b, 1, result("early", 1, 2), result("above", 10, 16), result("below", 6, 16))
	report(t, b, 2, result("between", 3, 6))
	expect(t, "order", names(b.Next(3, 9)), "early between late above below far")
	report(t, b, 4, again("early", 1, 2)) // its estimate is the newest now
	expect(t, "order after a new estimate", names(b.Next(4, 9)), "between late early above below far")
	expect(t, "the best two", names(b.Next(5, 2)), "between late")
}

func TestAPromptRestsFromItsUse(t *testing.T) {
	o := open()
	o.Cooldown = 5
	b := mustNew(t, o)
	report(t, b, 10, result("p", 1, 2)) // fresh: in the batch of version 10
	expect(t, "at 14", names(b.Next(14, 1)), "")
	expect(t, "at 15", names(b.Next(15, 1)), "p")
	expect(t, "twice at 15", names(b.Next(15, 1)), "")
	report(t, b, 18, again("p", 1, 2)) // the results of its use at 15
	expect(t, "at 19", names(b.Next(19, 1)), "")
	expect(t, "at 20", names(b.Next(20, 1)), "p")
	report(t, b, 21, again("p", 1, 2))
	report(t, b, 22, result("p", 1, 2)) // it came up among the fresh ones too
	expect(t, "at 26", names(b.Next(26, 1)), "")
	expect(t, "at 27", names(b.Next(27, 1)), "p")
	expect(t, "at 32, its results being awaited", names(b.Next(32, 1)), "p")
}

func TestAPromptInFlightAsAReplayedAndAsAFreshOneRestsFromTheLaterUse(t *testing.T) {
	o := open()
	o.Cooldown = 5
	for name, results := range map[string][]prompts.Result{ // reported at 16 and at 19
		"fresh first":    {result("p", 1, 2), again("p", 1, 2)},
		"replayed first": {again("p", 1, 2), result("p", 1, 2)},
	} {
		b := mustNew(t, o)
		report(t, b, 10, result("p", 1, 2))
		expect(t, name+", at 15", names(b.Next(15, 1)), "p")
		used := rollout.Version(15)
		for i, at := range []rollout.Version{16, 19} {
			report(t, b, at, results[i])
			if !results[i].Replayed {
				used = at
			}
		}
		b = restored(t, b)
		expect(t, name+", before it has rested", names(b.Next(used+4, 1)), "")
		expect(t, name+", then", names(b.Next(used+5, 1)), "p")
	}
}

func TestAReplayedPromptThatWasNeverHandedOutCountsAsFresh(t *testing.T) {
	o := open()
	o.Cooldown = 5
	b := mustNew(t, o)
	report(t, b, 10, again("p", 1, 2))
	expect(t, "at 14", names(b.Next(14, 1)), "")
	report(t, b, 14, again("p", 1, 2))
	expect(t, "at 18", names(b.Next(18, 1)), "")
	expect(t, "at 19", names(b.Next(19, 1)), "p")
}

func TestReuseCountsSurviveRemoval(t *testing.T) {
	o := open()
	o.MaxReuse = 2
	b := mustNew(t, o)
	report(t, b, 0, result("p", 1, 2))
	expect(t, "first", names(b.Next(0, 1)), "p")
	report(t, b, 1, again("p", 2, 2)) // leaves
	expect(t, "gone", names(b.Next(1, 1)), "")
	b = restored(t, b)
	report(t, b, 2, result("p", 1, 2)) // is back
	expect(t, "second", names(b.Next(2, 1)), "p")
	report(t, b, 3, again("p", 1, 2))
	expect(t, "third", names(b.Next(3, 1)), "")
	if s := b.Stats(); s.Held != 1 || s.Spent != 1 || s.Eligible != 0 {
		t.Errorf("statistics are %s", text(s))
	}
}

func TestPromptsThatWereNeverReplayedAreForgottenWhenTheyLeave(t *testing.T) {
	b := mustNew(t, open())
	empty := len(snapshotOf(t, b))
	for i := range 1000 {
		id := fmt.Sprint(i)
		report(t, b, 0, result(id, 1, 2), result(id, 2, 2))
	}
	if s := b.Stats(); s.Held != 0 || s.Reuses.Count() != 0 || s.Reported != 2000 || s.ZeroVariance != 1000 {
		t.Errorf("statistics are %s", text(s))
	}
	if n := len(snapshotOf(t, b)); n > empty+20 { // counters
		t.Errorf("the snapshot has grown from %d to %d bytes", empty, n)
	}
}

func TestTheLatestReferenceIsHandedOut(t *testing.T) {
	b := mustNew(t, open())
	p := func(ref uint64) prompts.Result {
		return prompts.Result{Prompt: prompts.Prompt{ID: "p", Ref: ref}, Correct: 1, Total: 2}
	}
	report(t, b, 0, p(7))
	report(t, b, 1, p(1007))
	if got := b.Next(1, 1); len(got) != 1 || got[0].Ref != 1007 {
		t.Errorf("handed out %+v", got)
	}
}

func TestATrainerThatGoesBackWaitsForTheCooldownOnly(t *testing.T) {
	o := open()
	o.Cooldown = 5
	b := mustNew(t, o)
	report(t, b, 0, result("old", 1, 2))
	report(t, b, 90, result("p", 1, 2))
	expect(t, "at 100", names(b.Next(100, 9)), "old p")
	report(t, b, 100, again("old", 1, 2), again("p", 1, 2))
	expect(t, "back at 50", names(b.Next(50, 9)), "")
	expect(t, "at 54", names(b.Next(54, 9)), "")
	expect(t, "at 55", names(b.Next(55, 9)), "old p")
}

func TestWhatIsNoResultIsRefusedAndNothingIsTaken(t *testing.T) {
	b := mustNew(t, open())
	err := b.Report(-1, result("good", 1, 2), result("", 1, 2), result("none", 0, 0), result("more", 3, 2),
		result("less", -1, 2), result("many", 1, math.MaxInt32+1))
	for _, part := range []string{
		"version is -1", "row 1: id is empty", "row 2: total is 0", "row 3: correct is 3", "row 4: correct is -1",
		"row 5: total is 2147483648",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing from %v", part, err)
		}
	}
	if !errors.Is(err, rollout.ErrInvalid) || strings.Contains(err.Error(), "row 0") {
		t.Errorf("error is %v", err)
	}
	if s := b.Stats(); s.Reported != 0 || s.Held != 0 {
		t.Errorf("statistics are %s", text(s))
	}
}

func TestValidateReportsEveryProblemWithKeyValueAndRange(t *testing.T) {
	for _, o := range []prompts.Options{prompts.Defaults(), {MaxReuse: 1}, {Fraction: 1, Band: 0.5, MaxReuse: 1}} {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
	_, err := prompts.New(prompts.Options{Fraction: 1.5, Band: math.NaN(), Cooldown: -1, MaxReuse: 0})
	for _, part := range []string{
		"fraction: 1.5: want 0 to 1", "band: NaN: want 0", "cooldown: -1: want 0 to",
		"max_reuse: 0: want 1 to",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing from %v", part, err)
		}
	}
	var one *option.Error
	if !errors.As(err, &one) || one.Key != "fraction" {
		t.Errorf("no option.Error in %v", err)
	}
	for _, o := range []prompts.Options{{Fraction: math.NaN()}, {Fraction: -0.1}, {Band: 0.51}, {Band: -1}} {
		o.MaxReuse = 1
		if o.Validate() == nil {
			t.Errorf("%+v passes", o)
		}
	}
}

func TestManyGoroutinesMayShareABuffer(t *testing.T) {
	o := open()
	o.Cooldown = 1
	b := mustNew(t, o)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for v := range rollout.Version(100) {
				for _, p := range b.Next(v, 8) {
					if err := b.Report(v, prompts.Result{Prompt: p, Correct: 1 + int(v)%3, Total: 4,
						Replayed: true}); err != nil {
						t.Error(err)
					}
				}
				if err := b.Report(v, result(fmt.Sprint(g, v), 1, 2)); err != nil {
					t.Error(err)
				}
				b.Stats()
				if err := b.Snapshot(io.Discard); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if s := b.Stats(); s.Held != 400 || s.Reported != 400+s.Replayed {
		t.Errorf("statistics are %s", text(s))
	}
}

// What a generator registers before anything was asked comes by its difficulty; what is asked is scored anew.
func TestPromptsAreScheduledByAnExpression(t *testing.T) {
	o := prompts.Defaults()
	o.Fraction, o.Keep = 1, "pass_rate < 1 || tries == 0"
	o.Score, o.Interval = "tries == 0 ? 1 - abs(difficulty - 0.5) : pass_rate * (1 - pass_rate)", "tries"
	b := mustNew(t, o)
	introduce := func(id string, difficulty float64) prompts.Result {
		return prompts.Result{Prompt: prompts.Prompt{ID: id}, Difficulty: &difficulty}
	}
	report(t, b, 0, introduce("easy", 0.1), introduce("medium", 0.5), introduce("hard", 0.8))
	expect(t, "never asked, nearest to 0.5 first", names(b.Next(0, 2)), "medium hard")
	report(t, b, 1, again("medium", 8, 8), again("hard", 2, 8))
	expect(t, "the rest, as medium is mastered", names(b.Next(1, 8)), "easy hard")
	report(t, b, 1, again("easy", 7, 8), again("hard", 4, 8))
	expect(t, "easy after one version, hard after two", names(b.Next(2, 8)), "easy")
	expect(t, "hard", names(b.Next(3, 8)), "hard easy")
	s := b.Stats()
	if s.Held != 2 || s.Reported != 4 || s.ZeroVariance != 1 {
		t.Errorf("statistics are %s", text(s))
	}
}

func TestWrongExpressionsAndDifficultiesAreNamed(t *testing.T) {
	o := prompts.Defaults()
	o.Keep, o.Score, o.Interval, o.Skip = "pass_rate", "reward", "5 +", "meta.x"
	_, err := prompts.New(o)
	for _, want := range []string{
		`keep: pass_rate: want an expression over a prompt: "pass_rate": pass_rate is a number, and the expression must be true`,
		`score: reward: want an expression over a prompt: "reward": there is no column reward: use pass_rate, mean_pass_rate`,
		`interval: 5 +: want`, `write an expression such as pass_rate * (1 - pass_rate)`,
		`skip: meta.x: want an expression over a prompt: "meta.x": there is no column meta`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	one := 1.0
	for name, c := range map[string]struct {
		score string
		r     prompts.Result
		want  string
	}{
		"no expressions": {"", prompts.Result{Prompt: prompts.Prompt{ID: "a"}, Total: 2, Difficulty: &one},
			"difficulty: 1: give a number, to a buffer with keep, score, interval or skip, which may read it"},
		"not a number": {"tries", prompts.Result{Prompt: prompts.Prompt{ID: "a"}, Total: 2, Difficulty: new(math.NaN())},
			"difficulty: NaN: give a number"},
		"nothing": {"tries", prompts.Result{Prompt: prompts.Prompt{ID: "a"}}, "total: 0: give the number of responses"},
	} {
		o := prompts.Defaults()
		o.Score = c.score
		b := mustNew(t, o)
		err := b.Report(0, c.r)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), " is ", ": "), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if s := b.Stats(); s.Reported != 0 {
			t.Errorf("%s: it was taken", name)
		}
	}
}
