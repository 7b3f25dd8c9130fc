package design

// Configuration is a schedule that runs, and what the theory says of it. GPUs generate and train without a pause in it, as in [ER] §2.
type Configuration struct {
	Workers  int `json:"workers"`  // W
	Trainers int `json:"trainers"` // T, divides Batch and Capacity
	Capacity int `json:"capacity"` // N
	Batch    int `json:"batch"`    // B

	RolloutsPerUpdate float64 `json:"rollouts_per_update"`   // R = B (W/T)/mu
	ComputeRatio      float64 `json:"compute_ratio"`         // gamma = (1 + W/T)/(1 + mu)
	ReplayRatio       float64 `json:"expected_replay_ratio"` // y = B/R = mu T/W
	Horizon           float64 `json:"staleness_horizon"`     // x = N/R, versions
	Staleness         float64 `json:"staleness_bound"`       // about the greatest staleness of a use, N/R + 2D + 1 with D = G mu T/B
	Objective         float64 `json:"objective"`             // J(x, y)
	Savings           float64 `json:"expected_savings"`      // of Theory.Savings
}

// Point returns the configuration's x and y.
func (c Configuration) Point() Point { return Point{c.Horizon, c.ReplayRatio} }

// Neighbour is a configuration one step from another.
type Neighbour struct {
	Change string `json:"change"` // in words: "one GPU more trains"
	Configuration
	Refused string `json:"refused,omitempty"` // why it does not run, nothing if it does; J is that of the formula all the same
}

// Plan is the best configuration for a fleet with what lies around it.
type Plan struct {
	Configuration
	Group      int         `json:"group"`         // G
	Most       int         `json:"most_capacity"` // the most N that was allowed
	AtLimit    bool        `json:"at_limit"`      // N is the most that the fleet allows or the profile reaches: J falls further beyond
	Neighbours []Neighbour `json:"neighbours"`
	Grid       Grid        `json:"grid"`
}

// Grid is J over all splits of the GPUs that run and a range of capacities, NaN where the theory does not reach or N is too small.
type Grid struct {
	Splits     []Split     `json:"splits"`     // rows, by ascending T
	Capacities []int       `json:"capacities"` // columns: B, 2B, 4B, …
	Objective  [][]float64 `json:"-"`
	Savings    [][]float64 `json:"-"`
}

// Split is a division of the GPUs.
type Split struct {
	Workers  int `json:"workers"`
	Trainers int `json:"trainers"`
}
