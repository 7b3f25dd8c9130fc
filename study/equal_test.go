package study

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// compares reports whether all that a claim is judged by is the same for all runs, as a comparison of arms with the very
// same runs is.
func (c claim) compares() bool {
	return !c.check && len(c.by) > 0 && !slices.ContainsFunc(c.by, func(t test) bool {
		_, same := t.constant()
		return !same
	})
}

// Arms that differ by nothing but the seed: the runs of all arms are drawn from those of one, on the same base model. In
// no more than 5% of such studies may a judge decide a claim in another way than of arms with the very same runs.
func TestJudgesRarelyErrOfEqualArms(t *testing.T) {
	const (
		resamples = 200
		mostOfOne = 18 // a judge that errs in 5% errs in more of 200 once in 150 times
	)
	var wrong, studies atomic.Int64
	t.Run("in", func(t *testing.T) {
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
				same := judge(equalArms(found, func(n int) int { return n - 1 }))
				var compared []int
				for i, c := range same.claims {
					if c.compares() {
						compared = append(compared, i)
					}
				}
				if len(compared) == 0 {
					t.Skip("all are checks")
				}
				rng, errs := rand.New(rand.NewPCG(1, 2)), 0
				for range resamples {
					j := judge(equalArms(found, rng.IntN))
					if slices.ContainsFunc(compared, func(i int) bool {
						verdict := j.Findings[i].Verdict
						return verdict != results.CannotTell && verdict != same.Findings[i].Verdict
					}) {
						errs++
					}
				}
				if t.Logf("claims %v: the judge errs in %d of %d", compared, errs, resamples); errs > mostOfOne {
					t.Errorf("the judge errs in %d of %d studies of equal arms, want %d at most", errs, resamples, mostOfOne)
				}
				wrong.Add(int64(errs))
				studies.Add(resamples)
			})
		}
	})
	if w, n := wrong.Load(), studies.Load(); n == 0 || float64(w) > falsely*float64(n) {
		t.Errorf("judges err in %d of %d studies of equal arms, want %g%% at most", w, n, 100*falsely)
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

// equalArms returns a study whose arms are all one of them, with its runs. pick(n) returns a number in [0, n), which says
// which arm, and which runs on each base model.
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
