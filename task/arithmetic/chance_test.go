package arithmetic

import (
	"fmt"
	"math"
	"testing"
)

// 4,000 answers at 0.3: the standard deviation of their number is 29, and 3.3 of it are exceeded once in a thousand times.
func TestRandomRewardsAreChanceAloneAndLeaveWhatIsCorrect(t *testing.T) {
	const share, answers = 0.3, 4000
	made := newTask(t, Settings{RandomRewards: share}, 1)
	rewarded := map[bool]float64{}
	for i := range uint64(answers) {
		p := made.Train(i)
		for _, response := range []string{p.Answer, fmt.Sprint(i), "no number"} {
			v := made.Verify(p, response)
			if v.Correct != (response == p.Answer) {
				t.Fatalf("%q answered %q: correct %t", p.Text, response, v.Correct)
			}
			if v.Reward != 0 && v.Reward != 1 {
				t.Fatalf("reward %g", v.Reward)
			}
			if v != made.Verify(p, response) {
				t.Fatalf("%q answered %q has two verdicts", p.Text, response)
			}
			if response != fmt.Sprint(i) {
				rewarded[v.Correct] += float64(v.Reward)
			}
		}
	}
	for correct, n := range rewarded {
		if math.Abs(n-share*answers) > 3.3*math.Sqrt(answers*share*(1-share)) {
			t.Errorf("correct %t: %g of %d rewarded, want about %g", correct, n, answers, share*answers)
		}
	}
}

func TestRandomRewardsDifferBetweenSeeds(t *testing.T) {
	one, other := newTask(t, Settings{RandomRewards: 0.5}, 1), newTask(t, Settings{RandomRewards: 0.5}, 2)
	p, differ := one.HeldOut()[0], 0
	for i := range 200 {
		if one.Verify(p, fmt.Sprint(i)).Reward != other.Verify(p, fmt.Sprint(i)).Reward {
			differ++
		}
	}
	if differ < 60 || differ > 140 {
		t.Errorf("%d of 200 rewards differ between seeds, want about half", differ)
	}
}

func TestEveryAnswerIsRewardedWhereTheShareIsOne(t *testing.T) {
	made := newTask(t, Settings{RandomRewards: 1}, 1)
	if v := made.Verify(made.Train(0), "nothing"); v.Reward != 1 || v.Correct {
		t.Errorf("%+v", v)
	}
}
