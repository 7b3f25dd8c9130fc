package results

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Quantile returns the q-quantile, q in [0, 1], by linear interpolation of order statistics: with the n values in order
// and h = (n-1)q, the value a share h - floor(h) of the way from number floor(h) to the next, counted from 0. Infinite
// values are in order like others. What is strictly between a finite and an infinite value is infinite; between the two
// infinities it is NaN. The result is NaN without values, and if a value is NaN. The argument is not changed.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	return quantileOf(slices.Sorted(slices.Values(values)), q)
}

func quantileOf(ordered []float64, q float64) float64 {
	h := float64(len(ordered)-1) * q
	i := min(int(h), len(ordered)-1)
	part := h - float64(i)
	switch {
	case part == 0 || ordered[i] == ordered[i+1]: // infinity minus itself would be NaN
		return ordered[i]
	case math.IsInf(ordered[i], -1) && !math.IsInf(ordered[i+1], 1): // so would minus infinity plus infinity
		return ordered[i]
	}
	return ordered[i] + part*(ordered[i+1]-ordered[i])
}

// MeanAndDeviation returns the mean of values and their standard deviation over n-1, which is NaN for fewer than two.
func MeanAndDeviation(values []float64) (mean, deviation float64) {
	mean = meanOf(values)
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	if len(values) < 2 {
		return mean, math.NaN()
	}
	return mean, math.Sqrt(squares / float64(len(values)-1))
}

// Median is Quantile at 1/2.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// resamples is how often Bootstrap draws. At 10,000, each end of a 95% interval rests on 250 draws.
const resamples = 10_000

// Bootstrap returns the percentile interval of the median at a level (0.95). It resamples the values with replacement.
// The same values and seed give the same interval.
func Bootstrap(values []float64, level float64, seed uint64) (low, high float64) {
	if len(values) == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN(), math.NaN()
	}
	rng := rand.New(rand.NewPCG(seed, 0x626f6f74)) // "boot"
	found, drawn := make([]float64, resamples), make([]float64, len(values))
	for i := range found {
		for j := range drawn {
			drawn[j] = values[rng.IntN(len(values))]
		}
		slices.Sort(drawn)
		found[i] = quantileOf(drawn, 0.5)
	}
	slices.Sort(found)
	return quantileOf(found, (1-level)/2), quantileOf(found, (1+level)/2)
}

// passAtK returns the chance that at least one of k responses is right, drawn without replacement from n responses of
// which c are right: 1 - C(n-c, k)/C(n, k), as a product, which does not overflow. It is NaN unless 1 <= k <= n and 0
// <= c <= n.
func passAtK(n, c, k int) float64 {
	switch {
	case k < 1 || k > n || c < 0 || c > n:
		return math.NaN()
	case n-c < k:
		return 1
	}
	wrong := 1.0
	for i := n - c + 1; i <= n; i++ {
		wrong *= 1 - float64(k)/float64(i)
	}
	return 1 - wrong
}

// MeanPassAtK returns pass@k, averaged over problems of which correct[i] of n responses are right. It is NaN without
// problems.
func MeanPassAtK(n int, correct []int, k int) float64 {
	var sum float64
	for _, c := range correct {
		sum += passAtK(n, c, k)
	}
	return sum / float64(len(correct))
}

// Isotonic returns the curve that never falls and is nearest to the values in squares: each stretch that falls is
// replaced by its mean (pool adjacent violators).
func Isotonic(values []float64) []float64 {
	type pool struct{ sum, n float64 }
	var pools []pool
	for _, v := range values {
		last := pool{v, 1}
		for k := len(pools) - 1; k >= 0 && pools[k].sum/pools[k].n >= last.sum/last.n; k-- {
			last.sum, last.n = last.sum+pools[k].sum, last.n+pools[k].n
			pools = pools[:k]
		}
		pools = append(pools, last)
	}
	fit := make([]float64, 0, len(values))
	for _, p := range pools {
		fit = append(fit, slices.Repeat([]float64{p.sum / p.n}, int(p.n))...)
	}
	return fit
}

// Reach is where a run reached its target: where the isotonic curve of its accuracy crosses it, linear between
// evaluations. If it never did, Reached is false and the costs, which are infinite, are null in JSON.
type Reach struct {
	Reached     bool   `json:"reached"`
	Update      Number `json:"update"`
	Compute     Number `json:"compute"`
	ComputeBusy Number `json:"compute_busy"`
	ComputeAll  Number `json:"compute_all"`
	Clock       Number `json:"clock"`
}

// ReachOf returns where a run with these evaluations reached the target.
func ReachOf(evals []Eval, target float64) Reach {
	fit := Isotonic(accuracies(evals))
	i := slices.IndexFunc(fit, func(v float64) bool { return v >= target })
	if i < 0 {
		return Reach{}
	}
	from, part := evals[i], 0.0
	if i > 0 {
		from, part = evals[i-1], (target-fit[i-1])/(fit[i]-fit[i-1])
	}
	between := func(of func(Axes) float64) Number {
		a, b := of(from.At()), of(evals[i].At())
		return Num(a + part*(b-a))
	}
	return Reach{
		Reached: true, Update: between(func(a Axes) float64 { return a.Update }),
		Compute:     between(func(a Axes) float64 { return a.Compute }),
		ComputeBusy: between(func(a Axes) float64 { return a.ComputeBusy }),
		ComputeAll:  between(func(a Axes) float64 { return a.ComputeAll }),
		Clock:       between(func(a Axes) float64 { return a.Clock }),
	}
}

// Spent returns what a run with these evaluations, one or more, spent by a cost until it reached the target or, if it
// did not, until its last evaluation. A run that went on would have arrived later than that: further evaluations can
// only lower what the isotonic curve was before them.
func Spent(evals []Eval, target float64, cost func(Axes) float64) (spent float64, reached bool) {
	if at := ReachOf(evals, target); at.Reached {
		return cost(at.At()), true
	}
	return cost(evals[len(evals)-1].At()), false
}

// LogRatio returns the bounds of the logarithm of the ratio of two costs, a over b, from what was spent. They are equal
// if both runs reached their target. If b did not, the ratio is at most what it is now; if a did not, at least. They
// are NaN, no ratio, if neither did or one began there.
func LogRatio(a, b float64, aReached, bReached bool) (low, high float64) {
	ratio := math.Log(a / b)
	switch {
	case !aReached && !bReached || a == 0 || b == 0:
		return math.NaN(), math.NaN()
	case !bReached:
		return math.Inf(-1), ratio
	case !aReached:
		return ratio, math.Inf(1)
	default:
		return ratio, ratio
	}
}

func accuracies(evals []Eval) []float64 {
	a := make([]float64, len(evals))
	for i, e := range evals {
		a[i] = e.Pass1
	}
	return a
}

// BestPass1 returns the highest accuracy, nothing without evaluations.
func BestPass1(evals []Eval) Number {
	best := math.Inf(-1)
	for _, e := range evals {
		best = max(best, e.Pass1)
	}
	return Num(best)
}

// Level returns the accuracy that a run reached: the end of its isotonic curve, the mean over its last stretch without
// gain. It is nothing without evaluations.
func Level(evals []Eval) Number {
	if len(evals) == 0 {
		return Number{}
	}
	return Num(Isotonic(accuracies(evals))[len(evals)-1])
}

// Roughness returns the variance of a run's accuracies about a smooth curve, and the most of it that the sampling of
// the answers can explain. Both are nothing with fewer than four evaluations, or of an unknown number of problems.
//
// The variance is the mean of (y0 - 3 y1 + 3 y2 - y3)^2/20 over each four evaluations in a row: any curve that is a
// parabola over four evaluations has none, however steep, and independent noise has its variance. An evaluation with
// one sampled answer to each of n problems has the variance sum p_i (1 - p_i)/n^2, which is p (1 - p)/n at most and
// less if some problems are easier than others, or if the answers of neighbouring evaluations share their random
// numbers.
func Roughness(evals []Eval) (variance, sampling Number) {
	y, squares, binomial := accuracies(evals), 0.0, 0.0
	for i := 3; i < len(y); i++ {
		d := y[i-3] - 3*y[i-2] + 3*y[i-1] - y[i]
		squares += d * d / 20
	}
	for _, e := range evals {
		if spread := e.Pass1 * (1 - e.Pass1); spread > 0 { // a run that failed goes on at 0, on no problems
			binomial += spread / float64(e.Problems)
		}
	}
	return Num(squares / float64(max(len(y)-3, 0))), Num(binomial / float64(len(y)))
}

// ComputeToShare returns the compute at which a run reached a share (0.98) of its own level, nothing without
// evaluations.
func ComputeToShare(evals []Eval, share float64) Number {
	if len(evals) == 0 {
		return Number{}
	}
	return ReachOf(evals, share*Level(evals).Float()).Compute
}

// CurvePoint is the accuracy of several runs at one step of the evaluation grid.
type CurvePoint struct {
	Grid   float64    // compute at which the evaluations were due
	At     Axes       // medians over the runs
	Pass1  float64    // median over the runs
	Q1, Q3 float64    // quartiles over the runs
	PassAt []PassRate // medians over the runs, for every k that all of them have
	Runs   int
}

// Axes is how far a run has come, by every measure.
type Axes struct {
	Update      float64
	Compute     float64
	ComputeBusy float64
	ComputeAll  float64
	Clock       float64
}

// At returns how far the run had come.
func (e Eval) At() Axes {
	return Axes{float64(e.Update), e.Compute, e.ComputeBusy, e.ComputeAll, e.Clock}
}

// At returns how far the run has come after the update.
func (u Update) At() Axes {
	return Axes{float64(u.Update), u.Compute, u.ComputeBusy, u.ComputeAll, u.Clock}
}

// At returns how far the run had come. Its numbers are NaN if the target was not reached.
func (r Reach) At() Axes {
	return Axes{r.Update.Float(), r.Compute.Float(), r.ComputeBusy.Float(), r.ComputeAll.Float(), r.Clock.Float()}
}

// MedianCurve returns the median over runs at every step of the grid that all runs have. Where a run ends early the
// curve ends: going on with the others would compare different runs along one line.
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

// curvePoint summarizes the evaluations of all runs at one grid step.
func curvePoint(evals []Eval) CurvePoint {
	median := func(get func(Eval) float64) float64 {
		values := make([]float64, len(evals))
		for i, e := range evals {
			values[i] = get(e)
		}
		return Median(values)
	}
	accuracy := accuracies(evals)
	p := CurvePoint{
		Grid: evals[0].Grid,
		At: Axes{
			Update:      median(func(e Eval) float64 { return float64(e.Update) }),
			Compute:     median(func(e Eval) float64 { return e.Compute }),
			ComputeBusy: median(func(e Eval) float64 { return e.ComputeBusy }),
			ComputeAll:  median(func(e Eval) float64 { return e.ComputeAll }),
			Clock:       median(func(e Eval) float64 { return e.Clock }),
		},
		Pass1: Median(accuracy), Q1: Quantile(accuracy, 0.25), Q3: Quantile(accuracy, 0.75),
		Runs: len(evals),
	}
	for _, rate := range evals[0].PassAt {
		if m := Num(median(func(e Eval) float64 { return e.PassAtK(rate.K).Float() })); m.Known() {
			p.PassAt = append(p.PassAt, PassRate{rate.K, m.Float()})
		}
	}
	return p
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
