package study

import (
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// Whatever the stages choose, the families can run, learn from right answers alone and keep none; the recipe is that of
// the tournament.
func TestRightAnswersAloneBeginWithWhatTheTournamentChose(t *testing.T) {
	for _, x := range []imitation{{"raft", opponentTasks()[0]}, {"raft-countdown", opponentTasks()[2]}} {
		for pick := range 3 {
			o := Options{Seeds: 12, chosen: map[string]int{}}
			for stage := range 30 {
				for _, p := range x.pilots(o) {
					if p.stage == stage {
						o.chosen[p.Name] = (pick * (stage + 1)) % len(p.Arms)
					}
				}
			}
			own := 0
			for _, p := range x.pilots(o) {
				if !strings.Contains(p.Name, "right answers alone:") {
					continue
				}
				for _, a := range p.Arms {
					own++
					if err := a.Config.Validate(); err != nil {
						t.Errorf("%s: %v", a.Name, err)
					}
					if a.Config.Learner.Objective != "raft" || a.Config.Replays() {
						t.Errorf("%s learns by %s, and replays %v", a.Name, a.Config.Learner.Objective, a.Config.Replays())
					}
				}
			}
			if own < 30 {
				t.Errorf("%d trials of right answers alone, want 15 of each family or more", own)
			}
			arms, before := x.arms(o), x.task.arms(o)
			if got, want := arms[len(arms)-1], before[len(before)-1]; got.Name != want.Name ||
				!reflect.DeepEqual(got.Config, want.Config) {
				t.Errorf("the recipe is %+v, want %+v", got, want)
			}
		}
	}
}

func TestRightAnswersAloneAreJudgedByTheRuns(t *testing.T) {
	speeds := func(alone, recipe float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			b.speed = recipe
			if strings.Contains(a.Name, "right answers alone") {
				b.speed = alone
			}
			b.speed *= 1 + 0.02*alternating(seed)
			return b
		}
	}
	yes, no := results.Holds, results.DoesNotHold
	for _, c := range []struct {
		name          string
		alone, recipe float64
		want          []results.Verdict
	}{
		{"far ahead", 1, 4, []results.Verdict{yes, yes, yes}},
		{"a little ahead", 2, 2.5, []results.Verdict{yes, no, yes}},
		{"behind", 3, 2, []results.Verdict{no, no, no}},
	} {
		found := judged(t, imitations()[0], Options{Seeds: 12}, speeds(c.alone, c.recipe)).Findings
		if len(found) != len(c.want) {
			t.Fatalf("%s: %d claims, want %d", c.name, len(found), len(c.want))
		}
		for i, f := range found {
			if f.Verdict != c.want[i] {
				t.Errorf("%s: %q: %s, want %s: %s", c.name, f.Claim, f.Verdict, c.want[i], f.Found)
			}
		}
	}
}
