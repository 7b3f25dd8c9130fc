package design

import (
	"fmt"
	"math"
)

// Doubts is what makes a fit doubtful, in sentences, by what they are about.
type Doubts struct {
	Cost        []string
	Noise       []string
	Correlation []string
}

// All returns every sentence.
func (d Doubts) All() []string {
	var all []string
	for _, about := range [][]string{d.Cost, d.Noise, d.Correlation} {
		all = append(all, about...)
	}
	return all
}

func (m Measurements) costDoubts() []string {
	if m.RolloutCost > 0 {
		return nil
	}
	return []string{"The rollout cost was not measured."}
}

// noiseDoubts says what makes fitted profiles doubtful.
func noiseDoubts(m Measurements, smooth []weighted, law PowerLaw) []string {
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
	say(first >= 1, "Nothing was measured below staleness %.3g; fresh rollouts are taken to be as noisy as those.", first)
	say(len(smooth) == 1, "Noise was measured at one staleness only, so nothing is known of how it grows; both profiles are flat.")
	say(len(smooth) > 1 && last < 4, "Noise was measured up to staleness %.3g only; beyond it the power law is a guess and the table says nothing.", last)
	if doubt := growthDoubt(smooth, law, m.errorsKnown()); len(smooth) > 1 && doubt != "" {
		said = append(said, doubt)
	}
	say(few, "Some variances rest on fewer than 30 rollouts.")
	return said
}

// growthDoubt says what is doubtful about the growth of noise, nothing where it is plain. Errors are known where weights are inverse squares of
// relative errors. That the table's ends are the lowest and highest of several makes its rise look larger beside its error
// than it is, so that less than two errors are none.
func growthDoubt(smooth []weighted, law PowerLaw, errorsKnown bool) string {
	low, high := smooth[0].value, smooth[len(smooth)-1].value
	// Of all ascending profiles the table is the nearest, so that the law is flat as well where the table is.
	if high <= low*(1+1e-9) {
		return "Noise does not grow with staleness as measured: both profiles are flat."
	}
	flat := law.Exponent == 0
	lowError, highError := low*plateauError(smooth, low), high*plateauError(smooth, high)
	switch {
	case errorsKnown && high-low < 2*math.Hypot(lowError, highError):
		text := fmt.Sprintf("The growth of noise is not distinguished from none: the table rises from %.3g ± %.1g to %.3g ± %.1g", low, lowError, high, highError)
		if flat {
			return text + ", and the nearest power law is flat."
		}
		return text + "."
	case flat:
		return fmt.Sprintf("The nearest power law is flat, although the table rises to %.3g times its first value: where noise falls before it rises, a table that may not fall keeps the rise alone.", high/low)
	}
	return ""
}

// plateauError returns the relative standard error of the smoothed value that those measured with it share.
func plateauError(smooth []weighted, value float64) float64 {
	sum := 0.0
	for _, v := range smooth {
		if v.value == value {
			sum += v.weight
		}
	}
	return 1 / math.Sqrt(sum)
}

// doubts says what makes a fitted correlation doubtful; nil is one that was not measured.
func (c *FittedCorrelation) doubts() []string {
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
