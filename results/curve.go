package results

// CurvePoint is the accuracy of several runs at one step of the evaluation grid.
type CurvePoint struct {
	Grid   float64    // compute at which the evaluations were due
	At     Axes       // medians over the runs
	Pass1  float64    // median over the runs
	Q1, Q3 float64    // quartiles over the runs
	PassAt []PassRate // medians over the runs, for every k that all of them have
	Runs   int
}

// Axes is how far a run had come, by every measure.
type Axes struct {
	Update      float64
	Compute     float64
	ComputeBusy float64
	ComputeAll  float64
	Clock       float64
}

// MedianCurve returns the median over runs at every step of the grid that all runs were evaluated
// at. Where a run ended early the curve ends: a median over those that went on would compare
// different runs along one line.
func MedianCurve(runs [][]Eval) []CurvePoint {
	if len(runs) == 0 {
		return nil
	}
	byGrid := make([]map[float64]Eval, len(runs))
	for i, evals := range runs {
		byGrid[i] = make(map[float64]Eval, len(evals))
		for _, e := range evals {
			if _, seen := byGrid[i][e.Grid]; !seen {
				byGrid[i][e.Grid] = e
			}
		}
	}
	var curve []CurvePoint
	for i, first := range runs[0] {
		if i > 0 && first.Grid == runs[0][i-1].Grid {
			continue
		}
		var at []Eval
		for _, grid := range byGrid {
			if e, ok := grid[first.Grid]; ok {
				at = append(at, e)
			}
		}
		if len(at) == len(runs) {
			curve = append(curve, curvePoint(at))
		}
	}
	return curve
}

// MedianReach returns where the median curve of several runs reached the target.
func MedianReach(runs [][]Eval, target float64) Reach {
	curve := MedianCurve(runs)
	evals := make([]Eval, len(curve))
	for i, p := range curve {
		evals[i] = Eval{
			Update: int(p.At.Update), Pass1: p.Pass1, Compute: p.At.Compute,
			ComputeBusy: p.At.ComputeBusy, ComputeAll: p.At.ComputeAll, Clock: p.At.Clock,
		}
	}
	return ReachOf(evals, target)
}

// curvePoint summarizes the evaluations of all runs at one grid step.
func curvePoint(evals []Eval) CurvePoint {
	of := func(get func(Eval) float64) []float64 {
		values := make([]float64, len(evals))
		for i, e := range evals {
			values[i] = get(e)
		}
		return values
	}
	accuracy := Accuracies(evals)
	p := CurvePoint{
		Grid: evals[0].Grid,
		At: Axes{
			Update:      Median(of(func(e Eval) float64 { return float64(e.Update) })),
			Compute:     Median(of(func(e Eval) float64 { return e.Compute })),
			ComputeBusy: Median(of(func(e Eval) float64 { return e.ComputeBusy })),
			ComputeAll:  Median(of(func(e Eval) float64 { return e.ComputeAll })),
			Clock:       Median(of(func(e Eval) float64 { return e.Clock })),
		},
		Pass1: Median(accuracy), Q1: Quantile(accuracy, 0.25), Q3: Quantile(accuracy, 0.75),
		Runs: len(evals),
	}
	for _, rate := range evals[0].PassAt {
		rates := of(func(e Eval) float64 { return e.PassAtK(rate.K).Float() })
		if m := Num(Median(rates)); m.Known() {
			p.PassAt = append(p.PassAt, PassRate{rate.K, m.Float()})
		}
	}
	return p
}

// PassAtK returns the measured pass@k, nothing if it was not measured.
func (e Eval) PassAtK(k int) Number {
	for _, p := range e.PassAt {
		if p.K == k {
			return Num(p.Rate)
		}
	}
	return Number{}
}
