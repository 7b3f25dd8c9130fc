package study

import (
	"math"
	"testing"
)

// rated is an arm of a family at a learning rate, whose runs reach the target at the steps of compute given by seed; 0:
// not at all.
func rated(rate float64, reachedAt ...int) Runs {
	a := Runs{Arm: short()}
	a.Arm.Config = withRate(a.Arm.Config, rate)
	for i, at := range reachedAt {
		p := make([]float64, 5)
		for k := range p {
			if at > 0 && k >= at {
				p[k] = 0.5
			}
		}
		a.Runs = append(a.Runs, noted(uint64(i+1), true, p...))
	}
	return a
}

func TestAFailedRunCountsAsZeroInTheMedianCurve(t *testing.T) {
	whole := rated(0.1, 3, 3, 3)
	failing := rated(0.1, 1, 1, 1)
	failing.Runs[0] = noted(1, false, 0, 0.5)
	if got := curvesRatio(failing, whole); !(got > 0.3 && got < 0.4) {
		t.Errorf("with one of three runs failed the median curves' ratio is %g, want the 1/3 of the other two", got)
	}
	failing.Runs[1] = noted(2, false, 0, 0.5)
	if got := curvesRatio(failing, whole); !math.IsInf(got, 1) {
		t.Errorf("with two of three failed it is %g, want infinity: their median is nothing", got)
	}
}
