package study

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// asksForADifference reports whether a claim must stay undecided when all arms are the same: its estimate is then the
// bound of its rule. The claim is of arms with the very same runs.
func (c claim) asksForADifference() bool {
	return !c.check && len(c.by) > 0 && !slices.ContainsFunc(c.by, func(t test) bool {
		same := 0.0
		if t.log {
			same = 1
		}
		value, ok := t.constant()
		return !ok || value != same || !strings.HasSuffix(t.holds, " "+number(same))
	})
}

// Arms that differ by nothing but the seed: the runs of all arms are drawn from those of one, on the same base model. A
// study's judge must decide even one of its claims in no more than 5% of such studies.
func TestJudgesRarelyDecideBetweenEqualArms(t *testing.T) {
	const resamples = 200
	for _, a := range archives(t) {
		t.Run(a.Study, func(t *testing.T) {
			t.Parallel()
			s, found := archivedStudy(t, a)
			judge := func(f *Found) Judgement {
				j, err := s.Judge(f)
				if err != nil {
					t.Fatal(err)
				}
				return j
			}
			var asked []int // the claims that are to stay undecided
			for i, c := range judge(equalArms(found, func(n int) int { return n - 1 })).claims {
				if c.asksForADifference() {
					asked = append(asked, i)
				}
			}
			rng, wrong := rand.New(rand.NewPCG(1, 2)), 0
			for range resamples {
				j := judge(equalArms(found, rng.IntN))
				if slices.ContainsFunc(asked, func(i int) bool { return j.Findings[i].Verdict != results.CannotTell }) {
					wrong++
				}
			}
			t.Logf("%d claims; %d of %d studies of equal arms decide one", len(asked), wrong, resamples)
			if len(asked) == 0 || float64(wrong) > falsely*resamples {
				t.Errorf("%d of %d studies of equal arms decide one of %d claims, want %g%% at most, of one or more", wrong,
					resamples, len(asked), 100*falsely)
			}
		})
	}
}

// archivedStudy returns a study with the runs of an archive.
func archivedStudy(t *testing.T, a *results.Archive) (Study, *Found) {
	t.Helper()
	s, err := ByName(a.Study)
	if err != nil {
		t.Fatal(err)
	}
	var found *Found
	judge := s.Judge
	s.Judge = func(f *Found) (Judgement, error) {
		found = f
		return judge(f)
	}
	r := Runner{Study: s, Options: Options{Seeds: a.Seeds, Quick: a.Quick}, Now: a.Ended.UTC, read: archived(a)}
	if _, err := r.judge(&results.Study{}, pool{}); err != nil {
		t.Fatal(err)
	}
	return s, found
}

// equalArms returns a study whose arms are all one of them, with its runs. Which arm, and which runs on each base model,
// is up to pick: pick(n) returns a number in [0, n).
func equalArms(f *Found, pick func(n int) int) *Found {
	equal, from := &Found{Options: f.Options}, f.Arms[pick(len(f.Arms))]
	for _, a := range f.Arms {
		runs := Runs{Arm: Arm{a.Name, from.Config}}
		for _, seed := range seedsOf(from) {
			same := slices.DeleteFunc(slices.Clone(from.Runs), func(r *results.Run) bool {
				return baseOf(r.Seed) != baseOf(seed)
			})
			drawn := *same[pick(len(same))]
			drawn.Seed = seed
			runs.Runs = append(runs.Runs, &drawn)
		}
		equal.Arms = append(equal.Arms, runs)
	}
	return equal
}
