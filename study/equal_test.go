package study

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// asksForADifference reports whether a claim is neither true nor false of arms that all do the same: whoever decides it
// then is wrong.
func (c claim) asksForADifference() bool {
	return !c.check && len(c.by) > 0 && !slices.ContainsFunc(c.by, func(t test) bool {
		return !t.compares || t.equivalence || t.scaled(t.bound) != 0
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
			rng := rand.New(rand.NewPCG(1, 2))
			claims, wrong := 0, 0
			for range resamples {
				j, err := s.Judge(equalArms(found, rng))
				if err != nil {
					t.Fatal(err)
				}
				claims = 0
				decided := false
				for i, c := range j.claims {
					if c.asksForADifference() {
						claims++
						decided = decided || j.Findings[i].Verdict != results.CannotTell
					}
				}
				if decided {
					wrong++
				}
			}
			t.Logf("%d claims; %d of %d studies of equal arms decide one", claims, wrong, resamples)
			if claims > 0 && float64(wrong) > falsely*resamples {
				t.Errorf("%d of %d studies of equal arms decide a claim, want %g%% at most", wrong, resamples, 100*falsely)
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

// equalArms returns a study whose arms are all one of them, with its runs: which one, and which runs on each base model,
// is up to chance.
func equalArms(f *Found, rng *rand.Rand) *Found {
	equal, from := &Found{Options: f.Options}, f.Arms[rng.IntN(len(f.Arms))]
	for _, a := range f.Arms {
		runs := Runs{Arm: Arm{a.Name, from.Config}}
		for _, seed := range seedsOf(from) {
			same := slices.DeleteFunc(slices.Clone(from.Runs), func(r *results.Run) bool {
				return baseOf(r.Seed) != baseOf(seed)
			})
			drawn := *same[rng.IntN(len(same))]
			drawn.Seed = seed
			runs.Runs = append(runs.Runs, &drawn)
		}
		equal.Arms = append(equal.Arms, runs)
	}
	return equal
}
