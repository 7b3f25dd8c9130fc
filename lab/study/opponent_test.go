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

// A batch at an end of those tried has trials beyond it, until one is inside or there are three.
func TestNoBatchIsChosenAtAnEndOfThoseTried(t *testing.T) {
	search := opponentTasks()[1]
	for _, c := range []struct {
		name          string
		first, second int   // what is chosen of 240 to 3,840, and then of as before, half and twice that
		beyond        []int // what is chosen in the stages beyond: 0 as before, 1 the batch beyond
		want          []int
	}{
		{"inside", 1, 0, nil, nil}, {"240, and not less", 0, 0, nil, nil}, {"240, then 120", 0, 1, nil, []int{60}},
		{"120, then 60, whose half is no whole groups", 0, 1, []int{1}, []int{60, 28}},
		{"down to the last", 0, 1, []int{1, 1, 1}, []int{60, 28, 12}},
		{"3,840, then 7,680", 4, 2, nil, []int{15360}}, {"3,840, and not more", 4, 0, nil, nil},
	} {
		o := Options{Seeds: 12, chosen: map[string]int{"queue: batch": c.first, "queue: batch again": c.second}}
		for i, choice := range c.beyond {
			o.chosen["queue: "+[]string{"batch beyond", "batch further beyond", "batch furthest beyond"}[i]] = choice
		}
		var got []int
		for _, p := range search.contests(o)[0].pilots() {
			if strings.HasSuffix(p.Name, " beyond") && p.Name != "queue: beyond" {
				for _, a := range p.Arms[1:] {
					got = append(got, a.Config.Pipeline.Batch)
				}
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: batches %d are tried at the end, want %d", c.name, got, c.want)
		}
	}
}

// Where the largest share of right answers is best, larger ones are tried.
func TestTheShareOfRightAnswersIsTriedBeyondItsEnd(t *testing.T) {
	search := opponentTasks()[1]
	for choice, want := range [][]float64{nil, nil, {0.98, 1}} {
		o := Options{Seeds: 12, chosen: map[string]int{"recipe: last": choice}}
		pilots := search.contests(o)[len(families())-1].pilots()
		var got []float64
		for _, a := range pilots[len(pilots)-1].Arms[1:] {
			got = append(got, a.Config.Replay.PositiveShare)
		}
		if !slices.Equal(got, want) {
			t.Errorf("choice %d of the last stage: shares %v are tried beyond it, want %v", choice, got, want)
		}
	}
}
