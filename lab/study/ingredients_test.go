package study

import (
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// A part that makes every combination faster is found, whatever the others do; one that helps only where another is
// missing is not said to help beside it.
func TestTheGainOfAPartIsFoundAmongAllCombinations(t *testing.T) {
	parts := ingredientParts().parts
	w := func(a Arm, seed uint64) behaviour {
		b := usual()
		answers, recent := strings.Contains(a.Name, parts[withAnswers]), strings.Contains(a.Name, parts[withRecent])
		b.speed = 0.8 * (1 + 0.02*alternating(seed))
		if answers {
			b.speed *= 2
		}
		if recent && !answers {
			b.speed *= 1.8
		}
		if recent && answers {
			b.speed *= 0.8
		}
		if strings.Contains(a.Name, parts[withLoss]) {
			b.speed *= 0.7
		}
		if strings.Contains(a.Name, parts[withSmall]) {
			b.speed *= 1.3
		}
		return b
	}
	yes, no := results.Holds, results.DoesNotHold
	for i, f := range judged(t, ingredients(), Options{Seeds: 12}, w).Findings {
		if want := []results.Verdict{yes, yes, no, yes, yes}[i]; f.Verdict != want {
			t.Errorf("%q: %s, want %s: %s", f.Claim, f.Verdict, want, f.Found)
		}
	}
}

func TestEveryCombinationHasAnotherConfiguration(t *testing.T) {
	o := Options{Seeds: 12}
	for _, arms := range [][]Arm{ingredientArms(o), freshPartArms(o), peakArms(o)} {
		digests := make(map[string]string)
		for _, a := range arms {
			if err := a.Config.Validate(); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
			digest := digestOf(t, a.Config)
			if other := digests[digest]; other != "" {
				t.Errorf("%q is the same as %q", a.Name, other)
			}
			digests[digest] = a.Name
		}
	}
}

func TestThePartsOfFreshnessAreJudgedByTheRuns(t *testing.T) {
	parts := freshPartList().parts
	w := func(entry, fades, weights float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			b.level = 0.5 * (1 + 0.02*alternating(seed))
			for i, by := range []float64{entry, fades, weights} {
				if strings.Contains(a.Name, parts[i]) {
					b.level += by
				}
			}
			return b
		}
	}
	yes, no := results.Holds, results.DoesNotHold
	for _, c := range []struct {
		world world
		want  [3]results.Verdict
	}{{w(0.1, 0.05, 0.01), [3]results.Verdict{yes, yes, yes}}, {w(-0.1, -0.05, -0.1), [3]results.Verdict{no, no, no}}} {
		for i, f := range judged(t, freshParts(), Options{Seeds: 12}, c.world).Findings {
			if f.Verdict != c.want[i] {
				t.Errorf("%q: %s, want %s: %s", f.Claim, f.Verdict, c.want[i], f.Found)
			}
		}
	}
}

// Claims about peaks are judged where runs fall after one, and are untested where they do not.
func TestPeaksAreJudgedWhereRunsFall(t *testing.T) {
	w := func(drop float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			b.drop = drop * (1 + 0.1*alternating(seed))
			b.level = 0.6 * (1 + 0.01*alternating(seed))
			switch a.Name {
			case peakCells()[1].String(), peakLate:
				b.level += 0.2
			case peakCells()[0].String():
				b.level += 0.1
			case peakCells()[2].String():
				b.level -= 0.1
			case peakFast:
				if b.rough = 0.1; drop > 0 && seed%2 == 0 {
					b.failsAt = 0.8
				}
			}
			return b
		}
	}
	for i, f := range judged(t, peaks(), Options{Seeds: 12}, w(0.15)).Findings {
		if f.Verdict != results.Holds {
			t.Errorf("%d: %q: %s: %s; %s", i, f.Claim, f.Verdict, f.Found, f.Why)
		}
	}
	for i, f := range judged(t, peaks(), Options{Seeds: 12}, w(0)).Findings {
		want := results.Untested
		if i == 4 { // runs waver
			want = results.Holds
		}
		if f.Verdict != want {
			t.Errorf("%d: %q: %s: %s", i, f.Claim, f.Verdict, f.Found)
		}
	}
}
