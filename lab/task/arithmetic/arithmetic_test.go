package arithmetic

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	_ task.Task         = (*Task)(nil)
	_ task.Demonstrator = (*Task)(nil)
	_ task.Alphabet     = (*Task)(nil)
	_ task.Chancy       = (*Task)(nil)
)

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

// settings that between them reach every operation, sign and size of range.
func variety() []Settings {
	return []Settings{
		{},
		{Operations: []string{Subtract}, Max: 30},
		{Operations: []string{Multiply, Add}, Max: 20, HeldOut: 100},
		{Operations: []string{Add, Subtract, Multiply}, Min: -15, Max: 15},
		{Operations: []string{Multiply}, Min: 999_000, Max: 1_000_000, HeldOut: 5},
		{Operations: []string{Add}, Min: 3, Max: 5, HeldOut: 2}, // half of 4 problems
	}
}

func TestHeldOutProblemsAreDistinctAndNeverTrained(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		tasktest.HeldOut(t, made, s.HeldOut, 5000, func(p task.Prompt) string { return p.Text })
		tasktest.Characters(t, made, 500)
	}
}

func TestAnswersAreCorrect(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 1)
		prompts := made.HeldOut()
		for i := range uint64(500) {
			prompts = append(prompts, made.Train(i))
		}
		for _, p := range prompts {
			var a, b, want int64
			var op rune
			if _, err := fmt.Sscanf(p.Text, "%d%c%d=", &a, &op, &b); err != nil {
				t.Fatalf("%q: %v", p.Text, err)
			}
			switch op {
			case '+':
				want = a + b
			case '-':
				want = a - b
			case '*':
				want = a * b
			}
			if p.Answer != fmt.Sprint(want) {
				t.Errorf("%q answered %q, want %d", p.Text, p.Answer, want)
			}
			if v := made.Verify(p, made.Demonstrate(p)); !v.Correct || v.Reward != 1 || v.Extracted != p.Answer {
				t.Errorf("demonstration of %q: %+v", p.Text, v)
			}
		}
	}
}

func TestCharactersNameEachOnce(t *testing.T) {
	for want, s := range map[string]Settings{
		"0123456789+=":   {},
		"0123456789-=":   {Operations: []string{Subtract}},
		"0123456789+-=":  {Min: -5},
		"0123456789+-*=": {Operations: []string{Multiply, Subtract, Add}, Min: -100},
	} {
		if got := newTask(t, s, 0).Characters(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s, turned := Settings{Operations: []string{Add, Multiply}}, Settings{Operations: []string{Multiply, Add}}
	tasktest.SeedOrdersTraining(t, newTask(t, s, 1), newTask(t, turned, 1), newTask(t, s, 2), 1000, 10)
}

// Chi-square over the 100 - 20 remaining problems, 16,000 draws: 79 degrees of freedom, the 99.9%
// quantile is 122.
func TestTrainingProblemsAreEquallyLikely(t *testing.T) {
	made := newTask(t, Settings{Max: 10, HeldOut: 20}, 5)
	counts := map[string]float64{}
	const draws = 16000
	for i := range uint64(draws) {
		counts[made.Train(i).Text]++
	}
	if len(counts) != 80 {
		t.Fatalf("%d problems occur, want 80", len(counts))
	}
	chi, expected := 0.0, float64(draws)/80
	for _, c := range counts {
		chi += math.Pow(c-expected, 2) / expected
	}
	if chi > 122 {
		t.Errorf("chi-square %.1f over 122", chi)
	}
}

func TestOnlyTheExactAnswerIsCorrect(t *testing.T) {
	for _, c := range []struct {
		response, answer string
		correct          bool
		extracted        string
	}{
		{"19", "19", true, "19"},
		{"-3", "-3", true, "-3"},
		{"20", "19", false, "20"},
		{"019", "19", false, "019"},
		{"+19", "19", false, ""},
		{" 19", "19", false, ""},
		{"19\n", "19", false, ""},
		{"19.0", "19", false, ""},
		{"-", "-", false, ""},
		{"", "19", false, ""},
		{"", "", false, ""},
		{"１９", "19", false, ""},
	} {
		v := Verifier{}.Verify(task.Prompt{Answer: c.answer}, c.response)
		if v.Correct != c.correct || (v.Reward == 1) != c.correct || v.Extracted != c.extracted {
			t.Errorf("%q against %q: %+v", c.response, c.answer, v)
		}
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{Operations: []string{"divide", Add, Add}}, "operations operations"},
		{Settings{Min: 100}, "max"},
		{Settings{Min: -2_000_000, Max: 2_000_000, HeldOut: -1}, "min max held_out"},
		{Settings{Max: 10}, "held_out"}, // 400 of 100
		{Settings{Max: 10, HeldOut: 51}, "held_out"},
		{Settings{Max: 10, HeldOut: 50}, ""},
		{Settings{RandomRewards: 1}, ""},
		{Settings{RandomRewards: -0.1, HeldOut: -1}, "held_out random_rewards"},
		{Settings{RandomRewards: 1.1}, "random_rewards"},
		{Settings{RandomRewards: math.NaN()}, "random_rewards"},
	})
}

// 4,000 answers at 0.3: the standard deviation of their number is 29, and 3.3 of it are exceeded once in a thousand
// times.
func TestRandomRewardsDependOnNothingButTheRollout(t *testing.T) {
	const share, rollouts = 0.3, 4000
	made := newTask(t, Settings{RandomRewards: share}, 1)
	p := made.Train(0)
	rewarded, again := map[string]float64{}, 0.0
	for number := range uint64(rollouts) {
		var rewards []float32
		for _, response := range []string{p.Answer, "-1", "no number"} {
			v := made.VerifyRollout(p, response, number)
			if v.Correct != (response == p.Answer) || v.Reward != 0 && v.Reward != 1 {
				t.Fatalf("%q answered %q: %+v", p.Text, response, v)
			}
			if v != made.VerifyRollout(p, response, number) {
				t.Fatalf("rollout %d has two verdicts", number)
			}
			rewards = append(rewards, v.Reward)
		}
		if rewards[0] != rewards[1] || rewards[0] != rewards[2] {
			t.Fatalf("rollout %d: the reward %v follows from the response", number, rewards)
		}
		rewarded[p.Answer] += float64(rewards[0]) // one answer, many rollouts
		again += float64(rewards[0] * made.VerifyRollout(p, p.Answer, number+rollouts).Reward)
	}
	if n := rewarded[p.Answer]; math.Abs(n-share*rollouts) > 3.3*math.Sqrt(rollouts*share*(1-share)) {
		t.Errorf("%g of %d rewarded, want about %g", n, rollouts, share*rollouts)
	}
	if want := share * share * rollouts; math.Abs(again-want) > 3.3*math.Sqrt(want*(1-share*share)) {
		t.Errorf("%g pairs rewarded, of independent rollouts about %g", again, want)
	}
}

func TestAGroupOfOneResponseHasRandomRewardsOfItsOwn(t *testing.T) {
	made := newTask(t, Settings{RandomRewards: 0.5}, 1)
	p := made.Train(0)
	rewards := func(seed uint64) (list []float32) {
		for group := range uint64(20) {
			g := make([]*rollout.Rollout, 8)
			for i := range g {
				g[i] = &rollout.Rollout{Text: p.Answer}
			}
			if err := task.Reward(newTask(t, Settings{RandomRewards: 0.5}, seed), p, group, g); err != nil {
				t.Fatal(err)
			}
			for i, r := range g {
				if want := made.VerifyRollout(p, p.Answer, 8*group+uint64(i)).Reward; seed == 1 && r.Reward != want {
					t.Errorf("rollout %d of group %d has reward %g, want %g", i, group, r.Reward, want)
				}
				list = append(list, r.Reward)
			}
		}
		return list
	}
	one, other := rewards(1), rewards(2)
	equal := 0
	for i := range one {
		if one[i] == other[i] {
			equal++
		}
	}
	if n := len(one); equal < n/4 || equal > 3*n/4 || !slices.Contains(one[:8], 0) || !slices.Contains(one[:8], 1) {
		t.Errorf("rewards %v; of %d, %d are equal with another seed", one[:8], n, equal)
	}
}

func TestWithoutARolloutTheRandomRewardIsTheExpectedOne(t *testing.T) {
	for _, share := range []float64{0.25, 1} {
		made := newTask(t, Settings{RandomRewards: share}, 1)
		if v := made.Verify(made.Train(0), "nothing"); v.Reward != float32(share) || v.Correct {
			t.Errorf("%+v", v)
		}
	}
}

func FuzzVerifyAcceptsOnlyTheAnswer(f *testing.F) {
	f.Add("19", "19")
	f.Add("-0", "0")
	f.Fuzz(func(t *testing.T, response, answer string) {
		v := Verifier{}.Verify(task.Prompt{Answer: answer}, response)
		if v.Correct && (response != answer || response == "") {
			t.Errorf("%q is right for %q", response, answer)
		}
	})
}

func BenchmarkTrain(b *testing.B) {
	made, err := New(Settings{}, 1)
	if err != nil {
		b.Fatal(err)
	}
	var i uint64
	for b.Loop() {
		made.Train(i)
		i++
	}
}
