package design

import (
	"fmt"
	"math"
)

// noiseWarnings says what makes fitted profiles doubtful.
func noiseWarnings(m Measurements, smooth []weighted, law PowerLaw) []string {
	var said []string
	say := func(when bool, format string, args ...any) {
		if when {
			said = append(said, fmt.Sprintf(format, args...))
		}
	}
	first, last := smooth[0].at, smooth[len(smooth)-1].at
	few := false
	for _, n := range m.Noise {
		few = few || n.Count > 0 && n.Count < 30
	}
	say(m.Proxy, "The noise profile is 1/ESS by age, a proxy: it shows how importance ratios spread, not how gradients do.")
	say(m.RolloutCost == 0, "The rollout cost was not measured.")
	say(first >= 1, "Nothing was measured below staleness %.3g; fresh rollouts are taken to be as noisy as those.", first)
	say(len(smooth) == 1, "Noise was measured at one staleness only, so nothing is known of how it grows; both profiles are flat.")
	say(len(smooth) > 1 && last < 4, "Noise was measured up to staleness %.3g only; beyond it the power law is a guess and the table says nothing.", last)
	say(len(smooth) > 1 && law.Exponent == 0, "Noise does not grow with staleness as measured, so the power law is flat.")
	say(few, "Some variances rest on fewer than 30 rollouts.")
	return said
}

// warnings says what makes a fitted correlation doubtful; nil is one that was not measured.
func (c *FittedCorrelation) warnings() []string {
	switch {
	case c == nil:
		return []string{"The correlation was not measured and is taken as 0, which flatters large buffers and many uses."}
	case c.Clipped && c.Rho == 0:
		return []string{"The measured correlation is below 0, which only chance can make it; it is taken as 0."}
	case c.Clipped:
		return []string{"The measured correlation is above 1 and is taken as 1."}
	case c.Error > math.Abs(c.C)/2:
		return []string{fmt.Sprintf("The correlation is not distinguished from 0: c is %.3g with a standard error of %.3g.", c.C, c.Error)}
	}
	return nil
}
