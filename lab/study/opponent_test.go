package study

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// Whatever the stages choose, every arm can be run, and has the task's budget in rollouts.
func TestTheStagesOfTheTournamentMakeConfigurationsThatRun(t *testing.T) {
	for _, task := range opponentTasks() {
		for pick := range 4 {
			quick := pick >= 3
			o := Options{Seeds: 12, Quick: quick, chosen: map[string]int{}}
			for stage := range 20 {
				for _, p := range task.pilots(o) {
					if p.stage == stage {
						o.chosen[p.Name] = (pick * (stage + 1)) % len(p.Arms)
					}
				}
			}
			for _, p := range task.pilots(o) {
				for _, a := range p.Arms {
					if err := a.Config.Validate(); err != nil {
						t.Errorf("%s: %v", a.Name, err)
					}
				}
			}
			for _, a := range task.arms(o) {
				if got := a.Config.Budget.Compute * float64(a.Config.Pipeline.Batch); !quick && got != task.compute {
					t.Errorf("%s has a budget of %v rollouts, want %v", a.Name, got, task.compute)
				}
			}
		}
	}
}

// Every family has as many trials: what is tried does not depend on which family it is.
func TestEveryFamilyIsTunedByAsManyTrials(t *testing.T) {
	o := Options{Seeds: 12}
	trials := make(map[string]int)
	for _, c := range opponentTasks()[0].contests(o) {
		for _, p := range c.pilots() {
			trials[c.family.name] += len(p.Arms)
		}
	}
	for name, n := range trials {
		if n != trials["queue"] {
			t.Errorf("%s has %d trials, the queue %d", name, n, trials["queue"])
		}
	}
}

func TestTheOpponentIsJudgedByTheRuns(t *testing.T) {
	speeds := func(queue, reuse, buffer, recipe float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			switch {
			case strings.Contains(a.Name, "queue"):
				b.speed = queue
			case strings.Contains(a.Name, "reuse"):
				b.speed = reuse
			case strings.Contains(a.Name, "buffer"):
				b.speed = buffer
			default:
				b.speed = recipe
			}
			b.speed *= 1 + 0.02*alternating(seed)
			return b
		}
	}
	yes, no := results.Holds, results.DoesNotHold
	for _, c := range []struct {
		name string
		w    world
		want [4]results.Verdict
	}{
		{"the recipe far ahead", speeds(1, 1, 2, 4), [4]results.Verdict{yes, yes, yes, yes}},
		{"the recipe a little ahead", speeds(2, 1, 1.5, 2.5), [4]results.Verdict{yes, no, no, yes}},
		{"reuse ahead of everything", speeds(1, 4, 2, 2), [4]results.Verdict{no, no, no, no}},
	} {
		for i, f := range judged(t, opponents()[0], Options{Seeds: 12}, c.w).Findings {
			if f.Verdict != c.want[i] {
				t.Errorf("%s: %q: %s, want %s: %s", c.name, f.Claim, f.Verdict, c.want[i], f.Found)
			}
		}
	}
}

func TestAStudyOfTwoBlocksHasSixBaseModels(t *testing.T) {
	counts := make(map[uint64]int)
	for _, seed := range opponents()[0].seeds(12) {
		counts[baseOf(seed)]++
	}
	if len(counts) != 6 {
		t.Errorf("%d base models, want 6", len(counts))
	}
	for base, n := range counts {
		if n != 2 {
			t.Errorf("base model %d has %d runs, want 2", base, n)
		}
	}
}

// A batch at an end of those tried has one more trial beyond it.
func TestNoBatchIsChosenAtAnEndOfThoseTried(t *testing.T) {
	search := opponentTasks()[1]
	for _, c := range []struct {
		name          string
		first, second int // what is chosen of 240 to 3,840, and then of as before, half and twice that
		want          []int
	}{
		{"inside", 1, 0, nil}, {"240, and not less", 0, 0, nil}, {"240, then 120", 0, 1, []int{60}},
		{"3,840, then 7,680", 4, 2, []int{15360}}, {"3,840, and not more", 4, 0, nil},
	} {
		o := Options{Seeds: 12, chosen: map[string]int{"queue: batch": c.first, "queue: batch again": c.second}}
		pilots := search.contests(o)[0].pilots()
		var got []int
		for _, a := range pilots[len(pilots)-1].Arms[1:] {
			got = append(got, a.Config.Pipeline.Batch)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: batches %d are tried at the end, want %d", c.name, got, c.want)
		}
	}
}
