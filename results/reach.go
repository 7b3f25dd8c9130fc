package results

// Reach says where a run reached its target: the first of two evaluations in a row at or above it,
// without interpolation. A run that never did has reached it at infinity, which is Reached false and
// null in JSON.
type Reach struct {
	Reached     bool   `json:"reached"`
	Update      int    `json:"update"` // 0 where not reached
	Compute     Number `json:"compute"`
	ComputeBusy Number `json:"compute_busy"`
	ComputeAll  Number `json:"compute_all"`
	Clock       Number `json:"clock"`
}

// FirstReach returns the index of the first evaluation that is at or above the target together with
// the next one, -1 if there is none.
func FirstReach(evals []Eval, target float64) int {
	for i := 0; i+1 < len(evals); i++ {
		if evals[i].Pass1 >= target && evals[i+1].Pass1 >= target {
			return i
		}
	}
	return -1
}

// ReachOf returns where a run with these evaluations reached the target.
func ReachOf(evals []Eval, target float64) Reach {
	i := FirstReach(evals, target)
	if i < 0 {
		return Reach{}
	}
	e := evals[i]
	return Reach{
		Reached: true, Update: e.Update, Compute: Num(e.Compute), ComputeBusy: Num(e.ComputeBusy),
		ComputeAll: Num(e.ComputeAll), Clock: Num(e.Clock),
	}
}

// ComputeToShare returns the compute of the first evaluation that has the given share (0.98) of the
// best accuracy of all, nothing without evaluations. One evaluation is enough, as the best may be
// the last.
func ComputeToShare(evals []Eval, share float64) Number {
	best := BestPass1(evals)
	for _, e := range evals {
		if e.Pass1 >= share*best.Float() {
			return Num(e.Compute)
		}
	}
	return Number{}
}

// BestPass1 returns the largest accuracy, nothing without evaluations.
func BestPass1(evals []Eval) Number {
	best := Number{}
	for _, e := range evals {
		if !best.Known() || e.Pass1 > best.Float() {
			best = Num(e.Pass1)
		}
	}
	return best
}
