package results

// Update is a line of metrics.jsonl: what one optimizer update did, and how far the run had come
// after it. Its fields are written in this order. Names and definitions are those of
// docs/METHODS.md.
//
// Time is the virtual clock's, in the time that one trainer takes for one rollout. Compute is in
// the same unit times GPUs. Means "of the batch" are over the batches of all trainers.
type Update struct {
	Update      int     `json:"update"`       // number of this update, from 1
	Version     int     `json:"version"`      // of the weights after it
	Clock       float64 `json:"clock"`        // virtual time at its end
	Compute     float64 `json:"compute"`      // so far, by formula; the headline measure
	ComputeBusy float64 `json:"compute_busy"` // so far, busy time of all GPUs by the clock
	ComputeAll  float64 `json:"compute_all"`  // so far, (W+T) times the clock, idle time included

	Inserted    uint64 `json:"rollouts_inserted"` // so far
	Used        uint64 `json:"rollouts_used"`     // so far, every use counted
	ReplayRatio Number `json:"replay_ratio"`      // Used/Inserted

	Reward      Number `json:"reward"`       // mean of the rollouts inserted since the last update
	BatchReward Number `json:"batch_reward"` // mean of the batch

	Loss             Number `json:"loss"`
	Entropy          Number `json:"entropy"`       // of the policy, nats per token
	KLK1             Number `json:"kl_k1"`         // KL(b||pi), mean of log b - log pi over the batch's tokens
	KLK3             Number `json:"kl_k3"`         // the same by r - 1 - log r, r = pi/b; never negative
	ClipFraction     Number `json:"clip_fraction"` // of tokens, in [0, 1]
	MeanRatio        Number `json:"mean_ratio"`    // of pi/b
	ESS              Number `json:"ess"`           // effective sample size over n, in [0, 1]
	ESSRollout       Number `json:"ess_rollout"`   // the same by rollout, with the ratio exp(mean log ratio)
	ChiSquare        Number `json:"chi_square"`    // 1/ESS - 1, by token
	D2               Number `json:"d2"`            // -log ESS, by token: the Renyi divergence of order 2, in nats
	GradNorm         Number `json:"grad_norm"`     // before clipping
	ZeroVariance     Number `json:"zero_variance"` // share of the batch whose group has one reward for all, in [0, 1]
	MeanAbsAdvantage Number `json:"mean_abs_advantage"`

	StalenessMean  Number `json:"staleness_mean"` // of the batch's rollouts, in versions
	StalenessMax   Number `json:"staleness_max"`
	ResponseLength Number `json:"response_length"` // mean policy tokens of the batch's rollouts

	WorkerBusy     Number `json:"worker_busy"`    // shares of the time since the last update, mean over GPUs, in [0, 1]
	WorkerStalled  Number `json:"worker_stalled"` // by a full table
	WorkerIdle     Number `json:"worker_idle"`    // in the trainers' turn
	TrainerBusy    Number `json:"trainer_busy"`
	TrainerStalled Number `json:"trainer_stalled"` // by a table with too little
	TrainerIdle    Number `json:"trainer_idle"`    // in the workers' turn

	WeightMean  Number `json:"weight_mean"`  // of the draws' importance weights, largest 1
	WeightMin   Number `json:"weight_min"`   // the least of them
	WeightESS   Number `json:"weight_ess"`   // (sum w)^2/(n sum w^2) of them, in (0, 1]
	FreshShare  Number `json:"fresh_share"`  // of the batch, drawn as fresh, in [0, 1]
	NeverDrawn  Number `json:"never_drawn"`  // share of the rollouts held that no draw fell on yet, in [0, 1]
	AgeDecay    Number `json:"age_decay"`    // tau in use, in versions; nothing where it is infinite or does not apply
	PromptsHeld Number `json:"prompts_held"` // by prompt replay
	PromptShare Number `json:"prompt_share"` // of the groups inserted since the last update, of replayed prompts, in [0, 1]

	TableSize int `json:"table_size"` // rollouts held

	Turns   Number `json:"turns,omitzero"`   // of the episodes inserted since the last update, mean; of environments only, as what follows
	Invalid Number `json:"invalid,omitzero"` // share of those turns that were no action, in [0, 1]
	Success Number `json:"success,omitzero"` // share of those episodes that ended in success, in [0, 1]

	Other map[string]Number `json:"other,omitempty"` // what the objective measured beyond these, by name
}

// Timing is a line of timing.jsonl: the wall time of one update, in seconds. It is kept out of
// metrics.jsonl because it differs between two runs of the same configuration.
type Timing struct {
	Update   int     `json:"update"`
	Elapsed  float64 `json:"elapsed"`  // since the run started, time between interruption and resume left out
	Generate float64 `json:"generate"` // spent in generation since the last update, summed over workers
	Learn    float64 `json:"learn"`    // spent in the optimizer step
	Evaluate float64 `json:"evaluate"` // spent in evaluation since the last update
	Tokens   int64   `json:"tokens"`   // generated since the last update
}

// Eval is a line of eval.jsonl: accuracy on the held-out problems.
type Eval struct {
	Update  int `json:"update"`  // updates before this evaluation; 0 is the warm start
	Version int `json:"version"` // of the weights evaluated

	Grid        float64 `json:"grid"`         // compute at which this evaluation was due, the same for both arms
	Compute     float64 `json:"compute"`      // compute spent when it happened, by formula; at least Grid
	ComputeBusy float64 `json:"compute_busy"` // as in Update
	ComputeAll  float64 `json:"compute_all"`  // as in Update
	Clock       float64 `json:"clock"`        // virtual time

	Problems   int        `json:"problems"`
	Pass1      float64    `json:"pass1"`             // share of problems answered greedily, in [0, 1]
	Samples    int        `json:"samples"`           // per problem behind PassAt; 0: none were drawn
	PassAt     []PassRate `json:"pass_at,omitempty"` // for ascending k
	MeanLength Number     `json:"mean_length"`       // tokens of the greedy responses
	Truncated  Number     `json:"truncated"`         // share of greedy responses stopped by length
	Reward     Number     `json:"reward,omitzero"`   // mean of the greedy responses, or of the greedy episodes' returns
	Turns      Number     `json:"turns,omitzero"`    // mean of the greedy episodes; of environments only
	Invalid    Number     `json:"invalid,omitzero"`  // share of those turns that were no action; of environments only
}

// Bound is what a player that is no policy makes of the held-out problems of an environment.
type Bound struct {
	Pass1  float64 `json:"pass1"`  // share of episodes that end in success, in [0, 1]
	Reward float64 `json:"reward"` // mean return
}

// PassRate is pass@k for one k.
type PassRate struct {
	K    int     `json:"k"`
	Rate float64 `json:"rate"` // in [0, 1]
}
