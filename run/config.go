package run

import (
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/task"
)

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

	own    func(seed uint64) (task.Task, error) // see WithTask; nil: Task names one
	tasks  *taskCache                           // holds the last task made
	remote *Remote                              // see WithBuffer; nil: the run has a table of its own
}

// WithTask returns the configuration with a task of the program's own, which is made for a seed and called by a name, in place
// of one of the catalog. It may be made several times, once for each seed at least. The run's config.yaml has the name alone, so that only the program can
// go on with the run, by [Resume].
func (c Config) WithTask(name string, of func(seed uint64) (task.Task, error)) Config {
	c.Task, c.own, c.tasks = map[string]any{"name": name}, of, &taskCache{}
	return c
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
	Vision       Vision `yaml:"vision"`    // for a task with images
}

// Vision is the tower through which a new policy sees a task's images; a folder brings its own.
type Vision struct {
	Patch  int `yaml:"patch"`  // pixels of a patch's side; 0: no tower
	Hidden int `yaml:"hidden"` // width of the patch embedding
}

// Warmup is supervised learning on the task's demonstrations before reinforcement learning.
type Warmup struct {
	Steps        int     `yaml:"steps"` // 0: none
	Batch        int     `yaml:"batch"` // demonstrations per step
	LearningRate float64 `yaml:"learning_rate"`
	Until        float64 `yaml:"until"` // greedy accuracy on training prompts at which it ends early; 0: never
	Noise        float64 `yaml:"noise"` // share of an environment's turns that chance plays instead of the expert, not to be imitated
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
	SyncUpdates    int          `yaml:"sync_updates"`  // updates per turn, mode: sync; 0: batch_updates, with replay.mix K times 1 + K
	BatchUpdates   int          `yaml:"batch_updates"` // i, updates in a row on each batch
}

// Replay is the table between workers and trainers: [replay.Options], and how a batch is composed. What other sections decide is
// not set here: shards (pipeline.trainers), group_size (pipeline.group), advantage (learner.advantage), vocab and max_tokens (the
// policy and the task), seed, lease_seconds. In a run capacity 0 is 2 x pipeline.batch, min_size 0 a trainer's share of the batch,
// and importance_anneal those of the budget unless it is given.
type Replay struct {
	replay.Options `yaml:",inline"`

	Mix        int     `yaml:"mix"`         // K, replay updates to each on a fresh batch; 0: all updates alike
	FreshShare float64 `yaml:"fresh_share"` // of each batch, rollouts not handed out as fresh before; 0: none in particular
}

// Prompts is which prompts are asked: how many there are, and prompt replay, which generates for some again.
type Prompts struct {
	Limit           int `yaml:"limit"` // train on the first so many prompts, over and over; 0: all the task has. The warm-up has all
	prompts.Options `yaml:",inline"`
}

// Learner is how batches become updates. A key that the objective does not read stays at its default.
type Learner struct {
	Objective         string  `yaml:"objective"`          // grpo, grpo_off, asymre, ppo, reinforce++, reinforce++-baseline, rloo or dr_grpo
	Advantage         string  `yaml:"advantage"`          // a kind of package advantage; empty: the objective's own
	Ratio             string  `yaml:"ratio"`              // of the surrogate: token or sequence
	Normalisation     string  `yaml:"normalisation"`      // sequence, token or constant; empty: constant for dr_grpo, else sequence
	ConstantLength    int     `yaml:"constant_length"`    // tokens, with normalisation: constant; 0 with dr_grpo: those of the longest episode
	ClipLow           float64 `yaml:"clip_low"`           // of the surrogate
	ClipHigh          float64 `yaml:"clip_high"`          // of the surrogate
	DualClip          float64 `yaml:"dual_clip"`          // of the surrogate; 0: off
	Clip              float64 `yaml:"clip"`               // grpo_off: eps on either side of r'
	RPrime            string  `yaml:"r_prime"`            // grpo_off: one or exact
	KLCoef            float64 `yaml:"kl_coef"`            // grpo_off: of KL(pi || pi_ref) in the loss; 0: none
	KLWeighted        bool    `yaml:"kl_weighted"`        // grpo_off: that KL multiplied by the ratio
	KLPenalty         float64 `yaml:"kl_penalty"`         // advantages batch and group_batch: of KL(pi || pi_ref) in the reward; 0: none
	ReferenceEvery    int     `yaml:"reference_every"`    // M, updates after which pi_ref becomes the policy; 0: never
	ReferenceSwaps    int     `yaml:"reference_swaps"`    // S, so many times; 0: no limit
	ValueCoef         float64 `yaml:"value_coef"`         // ppo: of the value loss
	ValueClip         float64 `yaml:"value_clip"`         // ppo: of the values, in units of reward
	Gamma             float64 `yaml:"gamma"`              // ppo: of GAE
	Lambda            float64 `yaml:"lambda"`             // ppo: of GAE
	Values            string  `yaml:"values"`             // ppo: recompute, or stored at generation
	Shift             float64 `yaml:"shift"`              // asymre: dV
	MaskZeroVariance  bool    `yaml:"mask_zero_variance"` // groups with one reward for all leave the loss
	MaskedDenominator string  `yaml:"masked_denominator"` // kept or all
	MaxLogRatio       float64 `yaml:"max_log_ratio"`      // rollouts with a greater mean log(pi/b) leave the loss; 0: none
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
	// BoundEvery is after how many updates the improvement lower bound of [OG] and the true change of reward beside it are
	// measured; 0: never.
	BoundEvery int `yaml:"bound_every"`
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
	Sampler      replay.Sampler `yaml:"sampler"`       // lifo or fifo
	Capacity     int            `yaml:"capacity"`      // 0: 2 x batch
	Workers      int            `yaml:"workers"`       // 0 with trainers 0: the split of at most as many GPUs that stalls least
	Trainers     int            `yaml:"trainers"`      //
	LearningRate float64        `yaml:"learning_rate"` // 0: as the replay arm
}

// Default is the built-in experiment: addition below 100 on six workers and two trainers.
func Default() Config {
	return Config{
		tasks:    &taskCache{},
		Name:     "addition",
		Seed:     1,
		Task:     map[string]any{"name": "arithmetic"},
		Policy:   Policy{Hidden: 64, Intermediate: 176, Layers: 2, Heads: 4, KVHeads: 4, Positions: 64},
		Warmup:   Warmup{Steps: 600, Batch: 64, LearningRate: 1e-3, Until: 0.35},
		Generate: Generate{Temperature: 1, TopP: 1, MaxTokens: 4, KVCache: "keep"},
		Pipeline: Pipeline{
			Mode: "async", Workers: 6, Trainers: 2, Batch: 1024, Group: 8, RolloutCost: 5.28,
			WeightSync: "group", Chunk: 32, PublishEvery: 1, BatchUpdates: 1,
		},
		Replay:  Replay{Options: replay.Options{Sampler: replay.Unseen, Capacity: 4096}},
		Prompts: Prompts{Options: prompts.Options{Band: 0.3, Cooldown: 5, MaxReuse: 10}},
		Learner: Learner{
			Objective: "grpo", Ratio: "token", ClipLow: 0.2, ClipHigh: 0.2, Clip: 0.2, RPrime: "one",
			ValueCoef: 0.1, ValueClip: 0.2, Gamma: 1, Lambda: 0.95, Values: "recompute",
			Shift: -0.1, MaskedDenominator: "kept",
			LearningRate: 6e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1,
		},
		Evaluate:   Evaluate{Every: 5, Target: 0.65, Samples: 4, PassAt: []int{1, 2, 4}},
		Budget:     Budget{Compute: 400},
		Checkpoint: Checkpoint{Every: 50},
		Baseline:   Baseline{Sampler: "lifo", LearningRate: 8e-4},
	}
}
