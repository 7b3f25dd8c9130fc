package design

import "math"

// FittedCorrelation is the fit of var(mean of b draws) = sbar2 (1/b + c), which gives the correlation as rho = R c.
type FittedCorrelation struct {
	Mean     float64 // sbar2
	C        float64 // c; below 0 by chance, +Inf where more draws do not help at all
	Error    float64 // standard error of C from the scatter around the line, NaN with fewer than three b
	Rho      float64 // R c clipped to [0, 1]
	Clipped  bool    // R c lay outside [0, 1]
	Residual float64 // root mean square of (measured - fitted)/fitted, weighted by counts
}

// fitCorrelation is a straight line in 1/b, slope sbar2 and intercept sbar2 c. An estimated variance has an error in proportion to
// itself, over the root of its count, so a measurement weighs count/fitted^2, found by iteration from what c = 0 would give.
// Weights from the measured values would favour those that happen to be small.
func fitCorrelation(means []MeanNoise, newPerUpdate float64) *FittedCorrelation {
	fitted := make([]float64, len(means))
	for i, m := range means {
		fitted[i] = 1 / float64(m.Draws)
	}
	var l line
	for range 20 {
		l = fitLine(means, fitted)
		for i, m := range means {
			// A line that fell to 0 within the data would give infinite weights; a floor far below any real one keeps them finite.
			fitted[i] = max(l.slope/float64(m.Draws)+l.intercept, 1e-3*m.Variance)
		}
	}
	f := &FittedCorrelation{Mean: l.slope, C: l.intercept / l.slope, Error: math.NaN()}
	sum, weights := 0.0, 0.0
	for i, m := range means {
		n := float64(max(m.Count, 1))
		sum += n * square((m.Variance-fitted[i])/fitted[i])
		weights += n
	}
	f.Residual = math.Sqrt(sum / weights)
	if l.slope <= 0 {
		f.C, f.Rho, f.Clipped = math.Inf(1), 1, true
		return f
	}
	if len(means) > 2 {
		scatter := sum / float64(len(means)-2)
		f.Error = math.Sqrt(scatter*(l.varIntercept+square(f.C)*l.varSlope-2*f.C*l.covariance)) / l.slope
	}
	rho := newPerUpdate * f.C
	f.Rho = min(max(rho, 0), 1)
	f.Clipped = f.Rho != rho
	return f
}

// line is a weighted least-squares line with the covariance of its coefficients for weights that are inverse variances.
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
