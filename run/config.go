package run

import "github.com/reprise-rl/reprise/task"

// Config is the whole configuration of a run, as its YAML file spells it. [Default] is the laboratory's built-in
// experiment; a file and --set change parts of it.
type Config struct {
	Name       string         `yaml:"name"` // shown in reports
	Seed       uint64         `yaml:"seed"` // of everything random, the initial weights included
	Task       map[string]any `yaml:"task"` // name, and the settings of that task
	Policy     Policy         `yaml:"policy"`
	Warmup     Warmup         `yaml:"warmup"`
	Generate   Generate       `yaml:"generate"`
	Pipeline   Pipeline       `yaml:"pipeline"`
	Replay     Replay         `yaml:"replay"`
	Prompts    Prompts        `yaml:"prompts"`
	Learner    Learner        `yaml:"learner"`
	Evaluate   Evaluate       `yaml:"evaluate"`
	Budget     Budget         `yaml:"budget"`
	Checkpoint Checkpoint     `yaml:"checkpoint"`
	Baseline   Baseline       `yaml:"baseline"`
}

// Policy is the language model: a folder with weights, or the shape of one to start from scratch.
type Policy struct {
	Init         string `yaml:"init"` // Hugging Face folder to start from; empty: random weights of the shape below
	Hidden       int    `yaml:"hidden"`
	Intermediate int    `yaml:"intermediate"`
	Layers       int    `yaml:"layers"`
	Heads        int    `yaml:"heads"`
	KVHeads      int    `yaml:"kv_heads"`
	Positions    int    `yaml:"positions"` // longest sequence, in tokens
	Tied         bool   `yaml:"tied"`      // the output head is the token embedding
}

// Warmup is supervised learning on the task's demonstrations before reinforcement learning.
type Warmup struct {
	Steps        int     `yaml:"steps"` // 0: none
	Batch        int     `yaml:"batch"` // demonstrations per step
	LearningRate float64 `yaml:"learning_rate"`
	Until        float64 `yaml:"until"` // greedy accuracy on training prompts at which it ends early; 0: never
}

// Generate is how rollouts are sampled.
type Generate struct {
	Temperature float64 `yaml:"temperature"`
	TopP        float64 `yaml:"top_p"`
	MaxTokens   int     `yaml:"max_tokens"` // of a completion
	KVCache     string  `yaml:"kv_cache"`   // keep or recompute, when weights change within a rollout
}

// Pipeline is who does what when; the names are those of pipeline.Options.
type Pipeline struct {
	Mode           string       `yaml:"mode"`    // async or sync
	Workers        int          `yaml:"workers"` // W
	Trainers       int          `yaml:"trainers"`
	Batch          int          `yaml:"batch"`           // B, rollouts per update
	Group          int          `yaml:"group"`           // G, rollouts per prompt
	RolloutCost    float64      `yaml:"rollout_cost"`    // mu
	WeightSync     string       `yaml:"weight_sync"`     // group or token
	Chunk          int          `yaml:"chunk"`           // positions between looks at the weights, with weight_sync: token
	PublishEvery   int          `yaml:"publish_every"`   // versions between those that workers get
	WeightTransfer float64      `yaml:"weight_transfer"` // time until published weights arrive
	RewardLatency  task.Latency `yaml:"reward_latency"`
	SyncRollouts   int          `yaml:"sync_rollouts"` // new rollouts per turn, mode: sync; 0: one batch
	SyncUpdates    int          `yaml:"sync_updates"`  // updates per turn, mode: sync; 0: 1, with replay.mix K 1 + K
}

// Replay is the table between workers and trainers; the names are those of replay.Options.
type Replay struct {
	Sampler           string  `yaml:"sampler"`        // lifo and fifo consume: no replay
	Unit              string  `yaml:"unit"`           // what a draw falls on: rollout, step (a turn) or group
	Capacity          int     `yaml:"capacity"`       // N, rollouts; 0: 2 x batch
	CapacityBytes     int64   `yaml:"capacity_bytes"` // of payload; 0: no limit
	Retention         string  `yaml:"retention"`      // fifo or positive
	PositiveFraction  float64 `yaml:"positive_fraction"`
	PositiveThreshold float64 `yaml:"positive_threshold"`
	MaxStaleness      int     `yaml:"max_staleness"` // versions; 0: no limit
	MaxUses           int     `yaml:"max_uses"`      // 0: no limit
	MinSize           int     `yaml:"min_size"`      // rollouts that each trainer's shard holds before it may be sampled; 0: what the batch needs

	Mix        int     `yaml:"mix"`         // K, replay updates to each on a fresh batch; 0: all updates alike
	FreshShare float64 `yaml:"fresh_share"` // of each batch, rollouts not handed out as fresh before; 0: none in particular

	// Of sampler prioritized; see replay.Prioritization.
	PriorityBase       string   `yaml:"priority_base"`       // advantage, reward, gradient_norm or recency
	PriorityEpsilon    float64  `yaml:"priority_epsilon"`    // added to every base
	PriorityExponent   float64  `yaml:"priority_exponent"`   // alpha
	AgeDecay           AgeDecay `yaml:"age_decay"`           // tau in versions; inf: none; auto
	Decay              string   `yaml:"decay"`               // before_exponent or after_exponent
	TargetESS          float64  `yaml:"target_ess"`          // of a batch, for age_decay: auto
	Draws              string   `yaml:"draws"`               // stratified or independent
	Entry              string   `yaml:"entry"`               // own or max
	ImportanceBeta     float64  `yaml:"importance_beta"`     // of the weights (N P)^-beta at version 0
	ImportanceVersions int      `yaml:"importance_versions"` // over which beta rises to 1; 0: those of the budget; -1: it stays
	ImportanceNorm     string   `yaml:"importance_norm"`     // batch or table
}

// Prompts is prompt replay: which prompts are generated for again. The names are those of prompts.Options.
type Prompts struct {
	Fraction float64 `yaml:"fraction"`  // f, of a batch's prompts; 0: no prompt replay
	Band     float64 `yaml:"band"`      // a prompt is kept while |pass rate - 1/2| is at most this
	Cooldown int     `yaml:"cooldown"`  // versions before a prompt is generated for again
	MaxReuse int     `yaml:"max_reuse"` // times that a prompt is replayed
}

// Learner is how batches become updates.
type Learner struct {
	Objective         string  `yaml:"objective"`          // grpo or asymre
	Advantage         string  `yaml:"advantage"`          // a kind of package advantage
	Ratio             string  `yaml:"ratio"`              // grpo: token or sequence
	Normalisation     string  `yaml:"normalisation"`      // grpo: sequence, token or constant
	ConstantLength    int     `yaml:"constant_length"`    // grpo: tokens, with normalisation: constant
	ClipLow           float64 `yaml:"clip_low"`           // grpo
	ClipHigh          float64 `yaml:"clip_high"`          // grpo
	DualClip          float64 `yaml:"dual_clip"`          // grpo; 0: off
	Shift             float64 `yaml:"shift"`              // asymre: dV
	MaskZeroVariance  bool    `yaml:"mask_zero_variance"` // groups with one reward for all leave the loss
	MaskedDenominator string  `yaml:"masked_denominator"` // kept or all
	LearningRate      float64 `yaml:"learning_rate"`
	Warmup            int     `yaml:"warmup"` // updates over which the rate rises
	Beta1             float64 `yaml:"beta1"`
	Beta2             float64 `yaml:"beta2"`
	Epsilon           float64 `yaml:"epsilon"`
	WeightDecay       float64 `yaml:"weight_decay"`
	ClipNorm          float64 `yaml:"clip_norm"` // -1: off
}

// Evaluate is when and how the policy is tried on the held-out problems. Compute is counted in updates of the
// no-replay baseline, B(1+mu), so that arms with different updates are evaluated at equal compute.
type Evaluate struct {
	Every   float64 `yaml:"every"`   // compute between evaluations
	Target  float64 `yaml:"target"`  // pass@1 whose compute is reported, fixed before the run; 0: none
	Samples int     `yaml:"samples"` // per problem at temperature 1, for pass@k; 0: greedy only
	PassAt  []int   `yaml:"pass_at"` // the k of pass@k
}

// Budget ends a run at whichever limit comes first.
type Budget struct {
	Compute float64 `yaml:"compute"` // in updates of the no-replay baseline; 0: no limit
	Updates int     `yaml:"updates"` // optimizer updates; 0: no limit
}

// Checkpoint is when a run is saved besides at its end.
type Checkpoint struct {
	Every int `yaml:"every"` // updates
}

// Baseline is what the no-replay arm of a comparison does otherwise. Zeros are chosen: see docs.
type Baseline struct {
	Sampler      string  `yaml:"sampler"`       // lifo or fifo
	Capacity     int     `yaml:"capacity"`      // 0: 2 x batch
	Workers      int     `yaml:"workers"`       // 0 with trainers 0: the split of at most as many GPUs that stalls least
	Trainers     int     `yaml:"trainers"`      //
	LearningRate float64 `yaml:"learning_rate"` // 0: as the replay arm
}

// Default is the built-in experiment: addition below 100 on six workers and two trainers.
func Default() Config {
	return Config{
		Name:     "addition",
		Seed:     1,
		Task:     map[string]any{"name": "arithmetic"},
		Policy:   Policy{Hidden: 64, Intermediate: 176, Layers: 2, Heads: 4, KVHeads: 4, Positions: 64},
		Warmup:   Warmup{Steps: 600, Batch: 64, LearningRate: 1e-3, Until: 0.35},
		Generate: Generate{Temperature: 1, TopP: 1, MaxTokens: 4, KVCache: "keep"},
		Pipeline: Pipeline{
			Mode: "async", Workers: 6, Trainers: 2, Batch: 1024, Group: 8, RolloutCost: 5.28,
			WeightSync: "group", Chunk: 32, PublishEvery: 1,
		},
		Replay: Replay{Sampler: "unseen", Capacity: 4096, Retention: "fifo", PositiveThreshold: 1,
			Unit: "rollout", PriorityBase: "advantage", PriorityEpsilon: 1e-6, PriorityExponent: 0.6, AgeDecay: "500",
			Decay: "before_exponent", TargetESS: 0.8, Draws: "stratified", Entry: "own", ImportanceBeta: 0.4, ImportanceNorm: "batch",
		},
		Prompts: Prompts{Band: 0.3, Cooldown: 5, MaxReuse: 10},
		Learner: Learner{
			Objective: "grpo", Advantage: "group", Ratio: "token", Normalisation: "sequence", ClipLow: 0.2, ClipHigh: 0.2,
			Shift: -0.1, MaskedDenominator: "kept",
			LearningRate: 6e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1,
		},
		Evaluate:   Evaluate{Every: 5, Target: 0.65, Samples: 4, PassAt: []int{1, 2, 4}},
		Budget:     Budget{Compute: 400},
		Checkpoint: Checkpoint{Every: 50},
		Baseline:   Baseline{Sampler: "lifo", LearningRate: 8e-4},
	}
}
