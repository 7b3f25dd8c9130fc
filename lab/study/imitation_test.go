package study

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// Whatever the stages choose, every arm can be run; without a buffer it learns from right answers alone.
func TestRightAnswersAloneBeginWithWhatTheTournamentChose(t *testing.T) {
	for i, task := range opponentTasks() {
		x, pick := imitation{task}, i+1
		o := Options{Seeds: 12, chosen: map[string]int{}}
		for stage := 0; ; stage++ {
			last := true
			for _, p := range x.pilots(o) {
				if p.stage == stage {
					o.chosen[p.Name] = (pick * (stage + 1)) % len(p.Arms)
				}
				last = last && p.stage <= stage
			}
			if last {
				break
			}
		}
		trials := make(map[string]int)
		for _, p := range x.pilots(o) {
			family, _, own := strings.Cut(p.Name, ", right answers alone:")
			if !own {
				continue
			}
			for _, a := range p.Arms {
				trials[family]++
				if err := a.Config.Validate(); err != nil {
					t.Errorf("%s: %v", a.Name, err)
				}
				if family != "recipe" && (a.Config.Learner.Objective != "raft" || a.Config.Replays()) {
					t.Errorf("%s learns by %s, and replays %v", a.Name, a.Config.Learner.Objective, a.Config.Replays())
				}
			}
		}
		if len(trials) != 3 || trials["queue"] < 20 || trials["reuse, sync"] < 20 || trials["recipe"] < 20 {
			t.Errorf("%s: trials %v, want 20 or more of each family", x.name, trials)
		}
		parent, _ := x.opponentTask.contests(o)[4].chosen()
		first := x.pilots(o)[slices.IndexFunc(x.pilots(o), func(p Pilot) bool {
			return p.Name == "recipe, right answers alone: loss"
		})]
		got, err := first.Arms[0].Config.Digest()
		if want, e := parent.Digest(); err != nil || e != nil || got != want {
			t.Errorf("%s: the recipe's first trial is not what the tournament chose", x.name)
		}
	}
}

func TestRightAnswersAloneAreJudgedByTheRuns(t *testing.T) {
	speeds := func(alone, recipe float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			b.speed = alone
			if strings.HasPrefix(a.Name, "recipe") {
				b.speed = recipe
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
