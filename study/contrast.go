package study

import "math"

// difference is how much more of a measure arm a has than b, seed by seed.
func difference(a, b Runs, m measure) spread {
	return pairs(a, b, m, func(x, y float64) float64 { return x - y })
}

// ratio is a measure of arm a over that of b, seed by seed. Seeds on which neither is finite are left out.
func ratio(a, b Runs, m measure) spread {
	return pairs(a, b, m, func(x, y float64) float64 { return x / y })
}

func pairs(a, b Runs, m measure, of func(x, y float64) float64) spread {
	var values []float64
	for _, seed := range seedsOf(a, b) {
		values = append(values, of(a.on(seed, m), b.on(seed, m))) // NaN where one is missing, or of two infinities
	}
	return spreadOf(values)
}

// trend is the rank correlation, Kendall's tau-b, of a measure with the arms' levels, seed by seed: 1 where it rises from each arm to
// the next, −1 where it falls, 0 where it is the same for all. Seeds that an arm lacks are left out.
func trend(arms []Runs, levels []float64, m measure) spread {
	var values []float64
	for _, seed := range seedsOf(arms...) {
		at := make([]float64, len(arms))
		for i, a := range arms {
			at[i] = a.on(seed, m)
		}
		values = append(values, rankCorrelation(levels, at))
	}
	return spreadOf(values)
}

// rankCorrelation is Kendall's tau-b of two lists of as many values, 0 where one of them is constant; NaN where a value is.
func rankCorrelation(x, y []float64) float64 {
	var agree, ofX, ofY float64
	for i := range x {
		if math.IsNaN(x[i]) || math.IsNaN(y[i]) {
			return math.NaN()
		}
		for j := range i {
			a, b := sign(x[i], x[j]), sign(y[i], y[j])
			agree += a * b
			ofX += a * a
			ofY += b * b
		}
	}
	if ofX == 0 || ofY == 0 {
		return 0
	}
	return agree / math.Sqrt(ofX*ofY)
}

// sign compares two values, infinite ones included.
func sign(a, b float64) float64 {
	switch {
	case a > b:
		return 1
	case a < b:
		return -1
	default:
		return 0
	}
}

// highest returns the arm with the highest median of a measure over the seeds other than one (0: over all), the first among equals.
func highest(arms []Runs, m measure, other uint64) Runs {
	top, at := math.Inf(-1), 0
	for i, a := range arms {
		if v := a.without(other).median(m); v > top {
			top, at = v, i
		}
	}
	return arms[at]
}

// without returns the arm without the run of a seed.
func (a Runs) without(seed uint64) Runs {
	rest := a
	rest.Runs = nil
	for _, r := range a.Runs {
		if r.Seed != seed {
			rest.Runs = append(rest.Runs, r)
		}
	}
	return rest
}

// chosenDifference is how much more of a measure the best arm of a family has than that of another, seed by seed. Which arm is the
// family's best is decided on the other seeds, so that a family gains nothing by being large.
func chosenDifference(family, other []Runs, m measure) spread {
	return spreadOf(chosenDifferences(family, other, m))
}

func chosenDifferences(family, other []Runs, m measure) []float64 {
	var values []float64
	for _, seed := range seedsOf(append(append([]Runs(nil), family...), other...)...) {
		values = append(values, highest(family, m, seed).on(seed, m)-highest(other, m, seed).on(seed, m))
	}
	return values
}

// of returns the runs of arms by their names.
func (f *Found) of(arms ...Arm) []Runs {
	list := make([]Runs, len(arms))
	for i, a := range arms {
		list[i] = f.Of(a.Name)
	}
	return list
}
