package study

import (
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// A part that makes every combination faster is found, whatever the others do; one that helps only where another is
// missing is not said to help beside it.
func TestTheGainOfAPartIsFoundAmongAllCombinations(t *testing.T) {
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
	digests := make(map[string]string)
	for _, a := range ingredientArms(Options{Seeds: 12}) {
		j, err := newJob(a, 1)
		if err != nil {
			t.Fatal(err)
		}
		if other := digests[j.digest]; other != "" {
			t.Errorf("%q is the same as %q", a.Name, other)
		}
		digests[j.digest] = a.Name
	}
}
