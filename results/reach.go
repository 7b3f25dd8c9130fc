package results

import "math"

// Reach says where a run reached its target: the first of two evaluations in a row at or above
// it, without interpolation. A run that never did has reached it at infinity, which is Reached
// false and null in JSON.
type Reach struct {
	Reached     bool   `json:"reached"`
	Update      int    `json:"update"` // 0 where not reached
	Compute     Number `json:"compute"`
	ComputeBusy Number `json:"compute_busy"`
	ComputeAll  Number `json:"compute_all"`
	Clock       Number `json:"clock"`
}

// FirstReach returns the index of the first accuracy that is at or above the target together with
// the next one, -1 if there is none.
func FirstReach(accuracies []float64, target float64) int {
	for i := 0; i+1 < len(accuracies); i++ {
		if accuracies[i] >= target && accuracies[i+1] >= target {
			return i
		}
	}
	return -1
}

// Accuracies returns the greedy accuracy of each evaluation.
func Accuracies(evals []Eval) []float64 {
	a := make([]float64, len(evals))
	for i, e := range evals {
		a[i] = e.Pass1
	}
	return a
}

// ReachOf returns where a run with these evaluations reached the target.
func ReachOf(evals []Eval, target float64) Reach {
	i := FirstReach(Accuracies(evals), target)
	if i < 0 {
		return Reach{}
	}
	e := evals[i]
	return Reach{
		Reached: true, Update: e.Update, Compute: Num(e.Compute), ComputeBusy: Num(e.ComputeBusy),
		ComputeAll: Num(e.ComputeAll), Clock: Num(e.Clock),
	}
}

// BestPass1 returns the largest accuracy, nothing without evaluations.
func BestPass1(evals []Eval) Number {
	best := math.Inf(-1)
	for _, e := range evals {
		best = max(best, e.Pass1)
	}
	return Num(best)
}

// ComputeToShare returns the compute of the first evaluation that has the given share (0.98) of the
// run's own best accuracy, nothing without evaluations. One evaluation is enough here, as the best
// may be the last.
func ComputeToShare(evals []Eval, share float64) Number {
	best := BestPass1(evals).Float()
	for _, e := range evals {
		if e.Pass1 >= share*best {
			return Num(e.Compute)
		}
	}
	return Number{}
}
