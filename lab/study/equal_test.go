package study

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
)

// compares reports whether the same runs in all arms make every estimate of a claim constant: it compares arms.
func (c claim) compares() bool {
	return !c.check && len(c.by) > 0 && !slices.ContainsFunc(c.by, func(t test) bool {
		_, same := t.constant()
		return !same && !t.around0()
	})
}

// around0 reports whether the values lie between bounds of which 0 is the middle.
func (e estimate) around0() bool {
	low, high := e.pairs.Values()
	for i := range low {
		if low[i] != -high[i] {
			return false
		}
	}
	return len(low) > 0
}

// compared returns the claims that compare arms, by number.
func (j Judgement) compared() (list []int) {
	for i, c := range j.claims {
		if c.compares() {
			list = append(list, i)
		}
	}
	return list
}

// Arms that differ by nothing but the seed: the runs of all arms are drawn from those of one, on the same base model. In
// no more than 5% of such studies may a judge contradict what it says of the very same runs, which are never better
// than themselves.
func TestJudgesRarelyErrOfEqualArms(t *testing.T) {
	resamples := tests.Rounds(200, 100, 50)
	for _, a := range archives(t) {
		t.Run(a.Study, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(a.Study, "opponent-") || strings.HasPrefix(a.Study, "raft") {
				tests.ByRequest(t) // judged as opponent is
			}
			s, found := archivedStudy(t, a)
			judge := func(f *Found) Judgement {
				j, err := s.Judge(f)
				if err != nil {
					t.Fatal(err)
				}
				return j
			}
			var same Judgement // of the arm whose runs have what most of the claims are about
			var compared []int
			for _, arm := range found.Arms {
				j := judge(equalArms(found, arm, func(n int) int { return n - 1 }))
				if list := j.compared(); len(list) >= len(compared) {
					same, compared = j, list
				}
			}
			if len(compared) == 0 {
				if slices.ContainsFunc(same.claims, func(c claim) bool { return !c.check && c.arithmetic == "" }) {
					t.Fatal("no claim compares arms")
				}
				t.Skip("all are checks")
			}
			for _, i := range compared {
				if f := same.Findings[i]; f.Verdict == results.Holds && !same.claims[i].allowsEquality() {
					t.Errorf("%q holds of the very same runs: %s", f.Claim, f.Found)
				}
			}
			rng, wrong := rand.New(rand.NewPCG(1, 2)), 0
			for range resamples {
				j := judge(equalArms(found, found.Arms[rng.IntN(len(found.Arms))], rng.IntN))
				if slices.ContainsFunc(compared, func(i int) bool {
					verdict := j.Findings[i].Verdict
					return verdict != results.Inconclusive && verdict != results.Untested &&
						verdict != same.Findings[i].Verdict
				}) {
					wrong++
				}
			}
			t.Logf("claims %v: the judge errs in %d of %d studies of equal arms", compared, wrong, resamples)
			if float64(wrong) > falsely*float64(resamples) {
				t.Errorf("the judge errs in %d of %d studies of equal arms, want %g%% at most", wrong, resamples,
					100*falsely)
			}
		})
	}
}

// allowsEquality reports whether equal arms can meet the claim: each of its rules has a margin, or includes its bound.
func (c claim) allowsEquality() bool {
	return !slices.ContainsFunc(c.by, func(t test) bool {
		return !t.equivalence && !strings.HasPrefix(t.holds, "at or ")
	})
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
	if err := r.judge(&results.Study{}, pool{}); err != nil {
		t.Fatal(err)
	}
	return s, found
}

// equalArms returns a study all of whose arms have the runs of one. pick(n) returns a number in [0, n), which says
// which of its runs on a base model.
func equalArms(f *Found, from Runs, pick func(n int) int) *Found {
	equal := &Found{Options: f.Options, pilots: f.pilots}
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
