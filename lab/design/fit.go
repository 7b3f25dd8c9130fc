package design

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Measurements are the gradient noise of a run. Only ratios of variances matter; their unit is free.
type Measurements struct {
	RolloutCost  float64 // mu as measured, 0 if unknown
	NewPerUpdate float64 // R, new rollouts per update, > 0 where Means are given

	Noise []Noise // by staleness, in any order, at least one
	Proxy bool    // Noise is 1/ESS by age: it stands for sigma2 up to a factor and is no variance of a gradient

	Means []MeanNoise // of mean gradients, of at least two b; without them the correlation stays unknown
}

// Noise is the variance of single rollouts' gradients at one staleness.
type Noise struct {
	Staleness float64 // versions, the mean over the rollouts measured, 0 to 1e6
	Variance  float64 // E ||g - mean g||^2, > 0
	Count     int     // rollouts measured; 0: unknown, taken as 1
	Error     float64 // standard error of Variance, 0 if unknown; if all are known, they replace the counts
}

// MeanNoise is the variance of the mean gradient of b draws.
type MeanNoise struct {
	Draws    int     // b, >= 1
	Variance float64 // > 0
	Count    int     // disjoint micro-batches measured; 0: unknown, taken as 1
}

// Validate reports every measurement out of its range.
func (m Measurements) Validate() error {
	var problems option.Problems
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	problems.Check(m.RolloutCost == 0 || positive(m.RolloutCost), "rollout_cost", m.RolloutCost, "a finite number "+
		"above 0, or 0 if unknown")
	problems.Check(len(m.Noise) > 0, "noise", "none", "at least the variance of fresh rollouts")
	for i, n := range m.Noise {
		key := fmt.Sprintf("noise[%d].", i)
		problems.Check(n.Staleness >= 0 && n.Staleness <= 1e6, key+"staleness", n.Staleness, "0 to 1e6 versions")
		problems.Check(positive(n.Variance), key+"variance", n.Variance, "a finite number above 0")
		problems.Check(n.Count >= 0, key+"count", n.Count, "0 or more")
		problems.Check(n.Error == 0 || positive(n.Error), key+"error", n.Error, "a finite number of 0 or more")
	}
	sizes := map[int]bool{}
	for i, n := range m.Means {
		key := fmt.Sprintf("means[%d].", i)
		sizes[n.Draws] = true
		problems.Check(n.Draws >= 1, key+"draws", n.Draws, "1 or more")
		problems.Check(positive(n.Variance), key+"variance", n.Variance, "a finite number above 0")
		problems.Check(n.Count >= 0, key+"count", n.Count, "0 or more")
	}
	if len(m.Means) > 0 {
		problems.Check(len(sizes) >= 2, "means", len(sizes), "micro-batches of at least two sizes, or none")
		problems.Check(positive(m.NewPerUpdate), "new_per_update", m.NewPerUpdate, "a finite number above 0")
	}
	return problems.Err()
}

// Fitted is a theory's parameters from measurements, with both kinds of profile. The one with the smaller residual is
// nearer.
type Fitted struct {
	RolloutCost float64 // mu, 0 if unknown

	Smoothed []Noise  // the measurements, one for each staleness, made to ascend with it; Count and Error are 0
	Table    *Table   // Smoothed at every whole staleness up to the greatest measured
	PowerLaw PowerLaw // the nearest one that does not fall

	TableResidual    float64 // root of the mean deviance from the table, relative
	PowerLawResidual float64 // the same for the power law; at least the table's, which may take any ascending shape

	Correlation *FittedCorrelation // nil without mean gradients
	Doubts      Doubts
}

// FittedCorrelation is the fit of var(mean of b draws) = sbar2 (1/b + c), from which rho = R c.
type FittedCorrelation struct {
	Mean    float64 // sbar2
	C       float64 // c; below 0 by chance, +Inf if more draws do not help at all
	Error   float64 // standard error of C from the scatter around the line, NaN with fewer than three b
	Rho     float64 // R c clipped to [0, 1]
	Clipped bool    // R c lay outside [0, 1]
}

// Fit fits the theory's parameters to measurements.
//
// Noise makes a profile of each kind, both of least deviance, 2 (r - 1 - log r) with r = measured/fitted. The error of
// an estimated variance is proportional to the variance, and deviance weighs it so. Squares of logarithms would take
// the few old rollouts of a buffer, whose estimates are skewed, for less noisy ones.
//
// The table is the isotonic regression of the variances on staleness, linear between the measured stalenesses and
// constant below the first: assumption 3.3 of [ER] wants a profile that does not fall, and without it the search would
// settle in valleys that chance carved. In the [PowerLaw], staleness s stands for all of [s, s+1), as in its integral.
// A measurement weighs as its Count or, if all standard errors are known, as (Variance/Error)^2.
//
// Means give the correlation, see [FittedCorrelation].
func Fit(m Measurements) (Fitted, error) {
	if err := m.Validate(); err != nil {
		return Fitted{}, fmt.Errorf("fit the noise profile: %w", err)
	}
	values := m.weighted()
	smooth := ascending(values)
	f := Fitted{RolloutCost: m.RolloutCost}
	for _, v := range smooth {
		f.Smoothed = append(f.Smoothed, Noise{Staleness: v.at, Variance: v.value})
	}
	sigma2 := make([]float64, int(smooth[len(smooth)-1].at)+1)
	for s := range sigma2 {
		sigma2[s] = interpolate(smooth, float64(s))
	}
	table, err := NewTable(sigma2)
	if err != nil {
		return Fitted{}, fmt.Errorf("fit the noise profile: %w", err)
	}
	f.Table = table
	f.TableResidual = residual(values, func(s float64) float64 { return interpolate(smooth, s) })
	f.PowerLaw, f.PowerLawResidual = fitPowerLaw(values)
	if len(m.Means) > 0 {
		f.Correlation = fitCorrelation(m.Means, m.NewPerUpdate)
	}
	f.Doubts = Doubts{Cost: m.costDoubts(), Noise: noiseDoubts(m, smooth, f.PowerLaw),
		Correlation: f.Correlation.doubts()}
	return f, errors.Join(f.Table.validate(), f.PowerLaw.validate())
}

// Theory returns the theory with a profile, the table or the power law. An unknown correlation is 0. An unknown rollout
// cost makes the theory invalid until its TrainCost is set.
func (f Fitted) Theory(p Profile) Theory {
	t := Theory{Profile: p}
	if f.RolloutCost > 0 {
		t.TrainCost = 1 / f.RolloutCost
	}
	if f.Correlation != nil {
		t.Correlation = f.Correlation.Rho
	}
	return t
}

// weighted is a measurement with its weight, above 0.
type weighted struct {
	at, value, weight float64
}

func (m Measurements) weighted() []weighted {
	known := m.errorsKnown()
	values := make([]weighted, len(m.Noise))
	for i, n := range m.Noise {
		w := float64(max(n.Count, 1))
		if known {
			w = square(n.Variance / n.Error)
		}
		values[i] = weighted{n.Staleness, n.Variance, w}
	}
	return values
}

func (m Measurements) errorsKnown() bool {
	return !slices.ContainsFunc(m.Noise, func(n Noise) bool { return n.Error == 0 })
}

// residual returns the root of the weighted mean deviance 2 (r - 1 - log r), r = measured/fitted: near 1 the root mean
// square of r - 1.
func residual(values []weighted, fitted func(s float64) float64) float64 {
	sum, weights := 0.0, 0.0
	for _, v := range values {
		off := v.value/fitted(v.at) - 1
		sum += v.weight * 2 * max(0, off-math.Log1p(off))
		weights += v.weight
	}
	return math.Sqrt(sum / weights)
}

// ascending returns the nearest values, by weighted least squares, that do not fall with at: isotonic regression by
// pooling adjacent violators. Values at the same place are averaged first, so the result has each place once, in order.
func ascending(values []weighted) []weighted {
	values = slices.Clone(values)
	slices.SortStableFunc(values, func(a, b weighted) int { return cmp.Compare(a.at, b.at) })
	merged := values[:0]
	for _, v := range values {
		if last := len(merged) - 1; last >= 0 && merged[last].at == v.at {
			merged[last] = pooled(merged[last], v)
			continue
		}
		merged = append(merged, v)
	}
	type block struct {
		weighted
		size int
	}
	var blocks []block
	for _, v := range merged {
		next := block{v, 1}
		for len(blocks) > 0 && blocks[len(blocks)-1].value > next.value {
			last := blocks[len(blocks)-1]
			next = block{pooled(last.weighted, next.weighted), last.size + next.size}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, next)
	}
	smooth, i := slices.Clone(merged), 0
	for _, b := range blocks {
		for range b.size {
			smooth[i].value = b.value
			i++
		}
	}
	return smooth
}

// pooled returns the weighted mean of two values, at the first one's place.
func pooled(a, b weighted) weighted {
	w := a.weight + b.weight
	return weighted{a.at, a.value + (b.value-a.value)*(b.weight/w), w}
}

// interpolate returns the value at x, linear between the neighbours in ascending order and constant beyond the ends.
func interpolate(values []weighted, x float64) float64 {
	i, exact := slices.BinarySearchFunc(values, x, func(v weighted, x float64) int { return cmp.Compare(v.at, x) })
	switch {
	case exact || i == 0:
		return values[i].value
	case i == len(values):
		return values[i-1].value
	}
	a, b := values[i-1], values[i]
	return a.value + (b.value-a.value)*((x-a.at)/(b.at-a.at))
}

// maxExponent bounds the search for an exponent. From 1/2 on the theory says to stay on-policy, whatever the exponent.
const maxExponent = 5

// fitPowerLaw returns the power law of least deviance and its residual. The law's variance at staleness s is its mean
// over [s, s+1). So staleness 0 takes part, and sbar2 at whole horizons is the average of the fitted values; s^(2a) at
// s would give neither.
func fitPowerLaw(values []weighted) (PowerLaw, float64) {
	best := 0.0
	if slices.ContainsFunc(values, func(v weighted) bool { return v.at != values[0].at }) {
		best = fitExponent(values)
	}
	if best < 1e-6 {
		best = 0
	}
	law := PowerLaw{Exponent: best, Scale: fitScale(values, best)}
	return law, residual(values, law.mean)
}

// fitExponent returns the best a in [0, maxExponent]: the best of a grid, refined by golden section between its
// neighbours.
func fitExponent(values []weighted) float64 {
	cost := func(a float64) float64 {
		return residual(values, PowerLaw{Exponent: a, Scale: fitScale(values, a)}.mean)
	}
	const spacing = 0.01
	best, least := 0.0, cost(0)
	for i := 1; i <= maxExponent/spacing; i++ {
		if c := cost(float64(i) * spacing); c < least {
			best, least = float64(i)*spacing, c
		}
	}
	low, high := max(0, best-spacing), min(maxExponent, best+spacing)
	const golden = 0.6180339887498949
	for range 50 {
		a, b := high-golden*(high-low), low+golden*(high-low)
		if cost(a) <= cost(b) {
			high = b
		} else {
			low = a
		}
	}
	return (low + high) / 2
}

// fitScale returns the scale of least deviance for an exponent: the weighted mean of measured over fitted.
func fitScale(values []weighted, a float64) float64 {
	sum, weights := 0.0, 0.0
	for _, v := range values {
		sum += v.weight * (v.value / versionMean(v.at, a))
		weights += v.weight
	}
	return sum / weights
}

// fitCorrelation fits a straight line in 1/b, slope sbar2 and intercept sbar2 c. The error of an estimated variance is
// proportional to the variance over the root of its count, so a measurement weighs count/fitted^2. The weights are
// iterated from those of c = 0; weights from the measured values would favour those that happen to be small.
func fitCorrelation(means []MeanNoise, newPerUpdate float64) *FittedCorrelation {
	fitted := make([]float64, len(means))
	for i, m := range means {
		fitted[i] = 1 / float64(m.Draws)
	}
	var l line
	for range 20 {
		l = fitLine(means, fitted)
		for i, m := range means {
			// A line that falls to 0 within the data would give infinite weights. A floor far below any real one keeps
			// them finite.
			fitted[i] = max(l.slope/float64(m.Draws)+l.intercept, 1e-3*m.Variance)
		}
	}
	f := &FittedCorrelation{Mean: l.slope, C: l.intercept / l.slope, Error: math.NaN()}
	if l.slope <= 0 {
		f.C, f.Rho, f.Clipped = math.Inf(1), 1, true
		return f
	}
	if len(means) > 2 {
		scatter := 0.0
		for i, m := range means {
			scatter += float64(max(m.Count, 1)) * square((m.Variance-fitted[i])/fitted[i])
		}
		scatter /= float64(len(means) - 2)
		f.Error = math.Sqrt(scatter*(l.varIntercept+square(f.C)*l.varSlope-2*f.C*l.covariance)) / l.slope
	}
	rho := newPerUpdate * f.C
	f.Rho = min(max(rho, 0), 1)
	f.Clipped = f.Rho != rho
	return f
}

// line is a weighted least-squares line with the covariance of its coefficients, for weights that are inverse
// variances.
type line struct {
	slope, intercept                   float64
	varSlope, varIntercept, covariance float64
}

// fitLine fits the variances over 1/b with weights count/fitted^2.
func fitLine(means []MeanNoise, fitted []float64) line {
	var w, wx, wy, wxx, wxy float64
	for i, m := range means {
		k := float64(max(m.Count, 1)) / square(fitted[i])
		x := 1 / float64(m.Draws)
		w += k
		wx += k * x
		wy += k * m.Variance
		wxx += k * x * x
		wxy += k * x * m.Variance
	}
	d := w*wxx - wx*wx
	return line{
		slope:        (w*wxy - wx*wy) / d,
		intercept:    (wxx*wy - wx*wxy) / d,
		varSlope:     w / d,
		varIntercept: wxx / d,
		covariance:   -wx / d,
	}
}

// Doubts are sentences about what makes a fit doubtful, by parameter.
type Doubts struct {
	Cost        []string
	Noise       []string
	Correlation []string
	Scale       []string // of the noise scale, without a full stop
}

// All returns every sentence but those of the noise scale, which the recommendation leads with.
func (d Doubts) All() []string { return slices.Concat(d.Cost, d.Noise, d.Correlation) }

func (m Measurements) costDoubts() []string {
	if m.RolloutCost > 0 {
		return nil
	}
	return []string{"The rollout cost was not measured."}
}

func noiseDoubts(m Measurements, smooth []weighted, law PowerLaw) []string {
	var doubts []string
	add := func(when bool, format string, args ...any) {
		if when {
			doubts = append(doubts, fmt.Sprintf(format, args...))
		}
	}
	first, last := smooth[0].at, smooth[len(smooth)-1].at
	few := slices.ContainsFunc(m.Noise, func(n Noise) bool { return n.Count > 0 && n.Count < 30 })
	add(m.Proxy, "The noise profile is 1/ESS by age, a proxy: it shows how importance ratios spread, not how "+
		"gradients do.")
	add(first >= 1, "Nothing was measured below staleness %.3g; fresh rollouts are taken to be as noisy as those.",
		first)
	add(len(smooth) == 1, "Noise was measured at one staleness only. How it grows is unknown, and both profiles "+
		"are flat.")
	add(len(smooth) > 1 && last < 4, "Noise was measured up to staleness %.3g only. Beyond it the power law is a "+
		"guess and the table has no values.", last)
	if doubt := growthDoubt(smooth, law, m.errorsKnown()); len(smooth) > 1 && doubt != "" {
		doubts = append(doubts, doubt)
	}
	add(few, "Some variances rest on fewer than 30 rollouts.")
	return doubts
}

// growthDoubt returns what is doubtful about the growth of noise, empty where it is plain. If errors are known, weights
// are inverse squares of relative errors. The table's ends are the lowest and highest of several values, which
// exaggerates its rise; so a rise of less than two standard errors counts as none.
func growthDoubt(smooth []weighted, law PowerLaw, errorsKnown bool) string {
	low, high := smooth[0].value, smooth[len(smooth)-1].value
	// The table is the nearest of all ascending profiles, so a flat table means a flat law.
	if high <= low*(1+1e-9) {
		return "Noise as measured does not grow with staleness: both profiles are flat."
	}
	flat := law.Exponent == 0
	lowError, highError := low*plateauError(smooth, low), high*plateauError(smooth, high)
	switch {
	case errorsKnown && high-low < 2*math.Hypot(lowError, highError):
		text := fmt.Sprintf("The noise may not grow at all: the table rises from %.3g ± %.1g to %.3g ± %.1g", low,
			lowError, high, highError)
		if flat {
			return text + ", and the nearest power law is flat."
		}
		return text + "."
	case flat:
		return fmt.Sprintf("The nearest power law is flat, although the table rises to %.3g times its first value: "+
			"where noise falls before it rises, the table keeps only the rise.", high/low)
	}
	return ""
}

// plateauError returns the relative standard error of a smoothed value, from all measurements pooled into it.
func plateauError(smooth []weighted, value float64) float64 {
	sum := 0.0
	for _, v := range smooth {
		if v.value == value {
			sum += v.weight
		}
	}
	return 1 / math.Sqrt(sum)
}

// doubts of nil are those of a correlation that was not measured.
func (c *FittedCorrelation) doubts() []string {
	switch {
	case c == nil:
		return []string{"The correlation was not measured and is taken as 0, which flatters large buffers and " +
			"many uses."}
	case c.Clipped && c.Rho == 0:
		return []string{"The measured correlation is below 0, which is chance; it is taken as 0."}
	case c.Clipped:
		return []string{"The measured correlation is above 1 and is taken as 1."}
	case c.Error > math.Abs(c.C)/2:
		return []string{fmt.Sprintf("The correlation may be 0: c is %.3g with a standard error of %.3g.", c.C, c.Error)}
	}
	return nil
}
