package results

// Sampling says how a table drew, and what stood in it at the end of the run.
type Sampling struct {
	Sampler    string  `json:"sampler"`
	Unit       string  `json:"unit"`             // what a draw falls on: rollout, step or group
	Mix        int     `json:"mix"`              // K, replay updates to each on a fresh batch; 0: none
	FreshShare float64 `json:"fresh_share"`      // of each batch, configured
	NeverUsed  Number  `json:"never_used_share"` // share of all inserted that was never used

	Priority *Priority `json:"priority,omitempty"` // of samplers that weigh
}

// Priority is the configuration of a prioritized sampler and its state at the end of the run.
type Priority struct {
	Base       string        `json:"base"`
	Exponent   float64       `json:"exponent"`   // alpha
	AgeDecay   Number        `json:"age_decay"`  // tau at the end, in versions; nothing: infinite
	Auto       bool          `json:"auto"`       // tau follows the measured ESS
	TargetESS  Number        `json:"target_ess"` // that it aims at
	Decay      string        `json:"decay"`      // before_exponent or after_exponent
	HalfLife   Number        `json:"half_life"`  // of a rollout's probability, in versions; nothing: infinite
	Draws      string        `json:"draws"`      // stratified or independent
	Entry      string        `json:"entry"`      // own or max
	Beta       Number        `json:"beta"`       // at the end
	Normalised string        `json:"normalised"` // weights, by batch or table
	ByAge      []AgePriority `json:"by_age"`     // ascending in age
}

// AgePriority is the units of one age that a table holds.
type AgePriority struct {
	Age         int     `json:"age"`         // versions
	Count       int     `json:"count"`       // units
	Base        float64 `json:"base"`        // mean of their bases
	Probability float64 `json:"probability"` // with which a draw falls on one of them
}

// AgeESS is the effective sample size by token measured at one age, smoothed over the run.
type AgeESS struct {
	Age    int     `json:"age"`    // versions, the least of the bin
	Last   int     `json:"last"`   // versions, the greatest of the bin
	ESS    float64 `json:"ess"`    // ESS/n, in (0, 1]
	Tokens float64 `json:"tokens"` // behind it, those longer ago counting less
}

// PromptReplay is what prompt replay did in a run.
type PromptReplay struct {
	Fraction  float64   `json:"fraction"` // f
	Band      float64   `json:"band"`
	Cooldown  int       `json:"cooldown"` // versions
	MaxReuse  int       `json:"max_reuse"`
	Held      int       `json:"held"`       // at the end
	Replayed  uint64    `json:"replayed"`   // groups generated for a prompt from the buffer
	Fresh     uint64    `json:"fresh"`      // groups generated for another
	Reuse     Histogram `json:"reuse"`      // prompts by the number of times they were replayed; those never replayed are not counted
	PassRates Histogram `json:"pass_rates"` // of the prompts held, in percent rounded down
}
