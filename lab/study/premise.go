package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/results"
)

// premise is what must have happened in the runs for a claim to be about them. If it did not, the claim is untested,
// whatever its own figures: a source that says what prevents crashes is not refuted by runs that never crash.
type premise struct {
	text     string // what must have happened
	figure   string // what did
	occurred bool
}

// String says whether it happened, with its figure.
func (p *premise) String() string {
	if p.occurred {
		return fmt.Sprintf("It presupposes that %s. It did: %s.", p.text, p.figure)
	}
	return fmt.Sprintf("It presupposes that %s. These runs do not show it: %s.", p.text, p.figure)
}

// inEach asks of every arm that an estimate is above 0, by a one-sided test at 5%. The figure is that of the arm that
// shows it least.
func inEach(text string, of func(Runs) estimate, arms ...Runs) *premise {
	p, highest := &premise{text: text}, -1.0
	for _, a := range arms {
		e := of(a)
		if chance := e.pairs.PAbove(0); chance > highest {
			highest, p.figure = chance, fmt.Sprintf("%s of %q, %s", e.what, a.Name, e)
		}
	}
	p.occurred = highest >= 0 && highest <= falsely
	return p
}

// falls: what a source says of the best accuracy is about runs that pass it. It asks for a fall of the mean accuracy
// from the third quarter of the budget to the last; a maximum less the end would be above 0 by noise alone.
func falls(arms ...Runs) *premise {
	return inEach("accuracy falls after a peak", func(a Runs) estimate {
		return quantity(a, func(a Runs, r *results.Run) float64 {
			return meanBetweenShares(0.5, 0.75)(a, r) - meanBetweenShares(0.75, 1)(a, r)
		}, "the fall from the third quarter of the budget to the last", change)
	}, arms...)
}

// wavers: what a source says of stability is about runs that are not stable.
func wavers(arms ...Runs) *premise {
	return inEach("accuracy wavers by more than the sampling of its answers explains", func(a Runs) estimate {
		return quantity(a, func(a Runs, r *results.Run) float64 {
			variance, sampling := roughness(a, r)
			return variance - sampling
		}, "the root of the variance less that of sampling", root)
	}, arms...)
}

// crashes: what a source says of crashes is about runs of which some crash.
func crashes(arms ...Runs) *premise {
	crashed, of := 0, 0
	for _, a := range arms {
		crashed, of = crashed+a.crashes(), of+len(a.Runs)
	}
	return &premise{"runs crash", fmt.Sprintf("%d of %d crashed", crashed, of), crashed > 0}
}

// pretrained: what a source says of a policy that knows much already is about one that was pretrained.
func pretrained(arms ...Runs) *premise {
	begun, of := 0, 0
	for _, a := range arms {
		of += len(a.Runs)
		if a.Config.Policy.Init != "" {
			begun += len(a.Runs)
		}
	}
	return &premise{"the policy was pretrained", fmt.Sprintf("%d of %d runs began with a pretrained one", begun, of),
		begun > 0}
}
