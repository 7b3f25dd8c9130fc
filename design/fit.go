package design

import (
	"errors"
	"fmt"
	"math"
)

// Fitted is a theory's parameters from measurements, with both kinds of profile; residuals tell which is nearer.
type Fitted struct {
	RolloutCost float64 // mu, 0 if it was not measured
	Proxy       bool    // of the measurements

	Smoothed []Noise  // the measurements, one for each staleness, made to ascend with it; Count and Error are not filled in
	Table    *Table   // the smoothed ones at every whole staleness up to the greatest measured
	PowerLaw PowerLaw // least squares in logarithms

	TableResidual    float64 // root mean square of log(measured/table's), weighted like the fit
	PowerLawResidual float64 // the same for the power law

	Correlation *FittedCorrelation // nil without mean gradients
	Warnings    []string           // what makes the fit doubtful, in sentences
}

// Fit returns the parameters that measurements speak for.
//
// Noise makes a profile of each kind. The table is the isotonic regression of the variances on staleness (assumption 3.3 of [ER] wants a
// profile that does not fall, and chance must not carve valleys into it in which the search would settle), linear between
// stalenesses that were measured and constant below the first. The power law is weighted least squares in logarithms, see
// [PowerLaw]; staleness s stands for the whole of [s, s+1), as in its integral. A measurement weighs as its Count, or, where all standard
// errors are known, as (Variance/Error)^2, the inverse square of its relative error.
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
	f.Warnings = append(noiseWarnings(m, smooth, f.PowerLaw), f.Correlation.warnings()...)
	return f, errors.Join(f.Table.validate(), f.PowerLaw.validate())
}

// weighted returns the noise measurements with their weights.
func (m Measurements) weighted() []weighted {
	known := true
	for _, n := range m.Noise {
		known = known && n.Error > 0
	}
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

// residual returns the weighted root mean square of log(measured/fitted).
func residual(values []weighted, fitted func(s float64) float64) float64 {
	sum, weights := 0.0, 0.0
	for _, v := range values {
		sum += v.weight * square(math.Log(v.value/fitted(v.at)))
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
