package design

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Fitted is a theory's parameters from measurements, with both kinds of profile; residuals tell which is nearer.
type Fitted struct {
	RolloutCost float64 // mu, 0 if it was not measured
	Proxy       bool    // of the measurements

	Smoothed []Noise  // the measurements, one for each staleness, made to ascend with it; Count and Error are not filled in
	Table    *Table   // the smoothed ones at every whole staleness up to the greatest measured
	PowerLaw PowerLaw // the nearest, which never falls either

	TableResidual    float64 // how far measurements lie from the table, as a share of it: the root of their mean deviance
	PowerLawResidual float64 // the same for the power law; never less than the table's, which may take any ascending shape

	Correlation *FittedCorrelation // nil without mean gradients
	Doubts      Doubts
}

// Fit returns the parameters that measurements speak for.
//
// Noise makes a profile of each kind, both of least deviance, 2 (r - 1 - log r) with r = measured/fitted. A variance that is estimated has an
// error in proportion to itself; deviance counts that as it is, and, unlike squares of logarithms, does not take the few old rollouts
// of a table, whose estimates are skewed, for less noisy ones. The table is the isotonic regression of the variances on
// staleness (assumption 3.3 of [ER] wants a profile that does not fall, and chance must not carve valleys into it in which the
// search would settle), linear between stalenesses that were measured and constant below the first. In the [PowerLaw] staleness
// s stands for the whole of [s, s+1), as in its integral. A measurement weighs as its Count, or, where all standard errors are known,
// as (Variance/Error)^2, the inverse square of its relative error.
//
// Means give the correlation, see [FittedCorrelation].
func Fit(m Measurements) (Fitted, error) {
	if err := m.Validate(); err != nil {
		return Fitted{}, fmt.Errorf("fit the noise profile: %w", err)
	}
	values := m.weighted()
	smooth := ascending(values)
	f := Fitted{RolloutCost: m.RolloutCost, Proxy: m.Proxy}
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
	f.Doubts = Doubts{Cost: m.costDoubts(), Noise: noiseDoubts(m, smooth, f.PowerLaw), Correlation: f.Correlation.doubts()}
	return f, errors.Join(f.Table.validate(), f.PowerLaw.validate())
}

// weighted returns the noise measurements with their weights.
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

// errorsKnown reports whether all measurements of noise have standard errors, so that weights are inverse squares of relative ones.
func (m Measurements) errorsKnown() bool {
	return !slices.ContainsFunc(m.Noise, func(n Noise) bool { return n.Error == 0 })
}

// residual returns the root of the weighted mean deviance 2 (r - 1 - log r), r = measured/fitted: near 1 the root mean square of r - 1.
func residual(values []weighted, fitted func(s float64) float64) float64 {
	sum, weights := 0.0, 0.0
	for _, v := range values {
		off := v.value/fitted(v.at) - 1
		sum += v.weight * 2 * max(0, off-math.Log1p(off))
		weights += v.weight
	}
	return math.Sqrt(sum / weights)
}

// WithTable returns the theory with the table as its profile. A correlation that was not measured is 0; a rollout cost that was not makes
// the theory invalid until its TrainCost is set.
func (f Fitted) WithTable() Theory { return f.with(f.Table) }

// WithPowerLaw returns the theory with the power law as its profile, and the rest as [Fitted.WithTable] does.
func (f Fitted) WithPowerLaw() Theory { return f.with(f.PowerLaw) }

func (f Fitted) with(p Profile) Theory {
	t := Theory{Profile: p}
	if f.RolloutCost > 0 {
		t.TrainCost = 1 / f.RolloutCost
	}
	if f.Correlation != nil {
		t.Correlation = f.Correlation.Rho
	}
	return t
}
