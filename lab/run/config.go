package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/catalog"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Config is the whole configuration of a run, as its YAML file spells it. A file and --set change parts of [Default].
// The comments of the keys are the text of docs/reference.md.
type Config struct {
	Name       string         `yaml:"name"` // shown in reports
	Seed       uint64         `yaml:"seed"` // seeds all randomness but that of the start (warmup.seed)
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
	Live       Live           `yaml:"live"`

	own    func(seed uint64) (task.Task, error) // see WithTask; nil: Task names one
	tasks  *taskCache                           // holds the last task made
	remote *Remote                              // see WithBuffer; nil: the run has a table of its own
}

// WithTask returns the configuration with a task of the program's own instead of one of the catalog. of makes the task
// for a seed, and may be called several times. The run's config.yaml holds the name alone, so only the program can
// resume the run, by [Resume].
func (c Config) WithTask(name string, of func(seed uint64) (task.Task, error)) Config {
	c.Task, c.own, c.tasks = map[string]any{"name": name}, of, &taskCache{}
	return c
}

// Policy is the language model: a folder with weights, or the shape of one to start from scratch.
type Policy struct {
	Init         string `yaml:"init"`         // Hugging Face folder to start from [random weights of the shape below]
	Hidden       int    `yaml:"hidden"`       // width of the residual stream
	Intermediate int    `yaml:"intermediate"` // width of the feed-forward layer
	Layers       int    `yaml:"layers"`       // transformer blocks
	Heads        int    `yaml:"heads"`        // attention heads
	KVHeads      int    `yaml:"kv_heads"`     // heads of keys and values; divides heads
	Positions    int    `yaml:"positions"`    // longest sequence, in tokens
	Tied         bool   `yaml:"tied"`         // use the token embedding as the output head
	Vision       Vision `yaml:"vision"`       // tower for tasks with images
}

// Vision is the tower through which a new policy sees a task's images; a folder brings its own.
type Vision struct {
	Patch  int `yaml:"patch"`  // side of a patch in pixels; 0: no tower
	Hidden int `yaml:"hidden"` // width of the patch embedding
}

// Warmup is supervised learning on the task's demonstrations before reinforcement learning.
type Warmup struct {
	Steps        int     `yaml:"steps"`         // optimizer steps; 0: no warm-up
	Batch        int     `yaml:"batch"`         // demonstrations per step
	LearningRate float64 `yaml:"learning_rate"` // of AdamW
	Until        float64 `yaml:"until"`         // end early at this greedy accuracy on training prompts; 0: never
	// of the first weights and the demonstrations: runs of several seeds begin alike; own: each run's is its seed
	Seed BaseSeed `yaml:"seed"`
	// share of an environment's turns played at random, which are not imitated
	Noise float64 `yaml:"noise"`
}

// BaseSeed is the seed of the policy that a run begins with.
type BaseSeed uint64

// OwnSeed is that of the run.
const OwnSeed BaseSeed = 0

// String writes a number, or own.
func (s BaseSeed) String() string {
	if s == OwnSeed {
		return "own"
	}
	return strconv.FormatUint(uint64(s), 10)
}

// Want says what a configuration may give.
func (s BaseSeed) Want() string { return "a whole number, or own for the run's seed" }

// MarshalYAML writes a number, or own.
func (s BaseSeed) MarshalYAML() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalYAML reads a number, or own. Earlier builds wrote 0 for that.
func (s *BaseSeed) UnmarshalYAML(text []byte) error {
	word := strings.Trim(strings.TrimSpace(string(text)), `"'`)
	if word == OwnSeed.String() {
		*s = OwnSeed
		return nil
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not a seed: give a whole number, or own", word)
	}
	*s = BaseSeed(n)
	return nil
}

// Generate is how rollouts are sampled.
type Generate struct {
	Temperature float64 `yaml:"temperature"` // of sampling, above 0
	TopP        float64 `yaml:"top_p"`       // nucleus, in (0, 1], or 0 for 1; below 1 ratios are over it
	MaxTokens   int     `yaml:"max_tokens"`  // of a completion, or of a turn
	KVCache     string  `yaml:"kv_cache"`    // when weights change within a rollout: keep the cache, or recompute it
	// rollouts of each group that are the task's own solution, without log-probs; 0 to one less than the group [0]
	Experts int    `yaml:"experts,omitempty"`
	Prefix  Prefix `yaml:"prefix,omitempty"` // first parts of the task's own answers, for the policy to go on with
	// format to which the workers' copy of the weights is rounded: float32 (not at all), bfloat16 or int8 [float32]
	Precision policy.Precision `yaml:"precision"`
}

// Pipeline is who does what when.
type Pipeline struct {
	pipeline.Options `yaml:",inline"`

	// sigma of the logarithm of the rollouts' lengths, 0 to 4, as the clock charges them: a group takes a worker group x
	// rollout_cost in the mean, by its lengths, and enters the table when its longest rollout ends; 0: all alike
	LengthSigma   float64      `yaml:"length_sigma"`
	RewardLatency task.Latency `yaml:"reward_latency"` // simulated time until the rewards of a group are known
}

// Replay is the table between workers and trainers: [replay.Options], and how a batch is composed. What other sections
// decide is not set here: shards (pipeline.trainers), group_size (pipeline.group), advantage (learner.advantage), vocab
// and max_tokens (the policy and the task), seed, lease_seconds. In a run capacity 0 is 2 x pipeline.batch, min_size 0
// a trainer's share of the batch, and importance_anneal those of the budget unless it is given.
type Replay struct {
	replay.Options `yaml:",inline"`

	Mix int `yaml:"mix"` // K, replay updates to each update on a fresh batch; 0: all updates alike
	// share of each batch reserved for rollouts not handed out as fresh before; 0: none
	FreshShare float64 `yaml:"fresh_share"`
}

// Prompts is which prompts are asked: how many there are, and prompt replay, which generates for some again.
type Prompts struct {
	Limit           int `yaml:"limit"` // number of prompts to train on, from the first, over and over; the warm-up uses all [all]
	prompts.Options `yaml:",inline"`
}

// chooses reports whether prompts are asked otherwise than each in its turn.
func (p Prompts) chooses() bool { return p.Fraction > 0 || p.Skip != "" }

// Learner is how batches become updates. A key that the objective does not read stays at its default.
type Learner struct {
	// grpo, grpo_off, asymre, raft, ppo, reinforce++, reinforce++-baseline, rloo, dr_grpo, cispo, oapl or
	// trajectory_balance
	Objective string `yaml:"objective"`
	// group, no_std, leave_one_out, log_mean_exp, batch, group_batch or gae [the objective's own]
	Advantage string `yaml:"advantage"`
	Ratio     string `yaml:"ratio"` // ratio of the surrogate: by token or by sequence
	// mean of the loss: by sequence, token or constant [sequence; constant for dr_grpo, token for cispo]
	Normalisation string `yaml:"normalisation"`
	// tokens, with normalisation constant [with dr_grpo those of the longest episode]
	ConstantLength int     `yaml:"constant_length"`
	ClipLow        float64 `yaml:"clip_low"`    // clip the ratio below 1 minus this [0.2; 1 for cispo]
	ClipHigh       float64 `yaml:"clip_high"`   // clip the ratio above 1 plus this [0.2; 4 for cispo]
	DualClip       float64 `yaml:"dual_clip"`   // bound of the ratio where the advantage is negative; 0: off
	Clip           float64 `yaml:"clip"`        // grpo_off: eps on either side of r'
	RPrime         string  `yaml:"r_prime"`     // grpo_off: one or exact
	KLCoef         float64 `yaml:"kl_coef"`     // grpo_off: weight of KL(pi || pi_ref) in the loss; 0: none
	KLWeighted     bool    `yaml:"kl_weighted"` // grpo_off: multiply that KL by the ratio
	// grpo_off: share of that KL that is taken to the weights at the start of the batch instead of pi_ref, 0 to 1 [0]
	KLAnchor float64 `yaml:"kl_anchor,omitempty"`
	// advantages batch and group_batch: weight of KL(pi || pi_ref) in the reward; 0: none
	KLPenalty float64 `yaml:"kl_penalty"`
	// M, updates after which pi_ref becomes the current policy; 0: never
	ReferenceEvery int     `yaml:"reference_every"`
	ReferenceSwaps int     `yaml:"reference_swaps"` // S, times that it does; 0: no limit
	ValueCoef      float64 `yaml:"value_coef"`      // ppo: weight of the value loss
	ValueClip      float64 `yaml:"value_clip"`      // ppo: clip of the values, in units of reward
	Gamma          float64 `yaml:"gamma"`           // ppo: discount of GAE
	Lambda         float64 `yaml:"lambda"`          // ppo: lambda of GAE
	// ppo: recompute the values, or use those stored at generation
	Values string  `yaml:"values"`
	Shift  float64 `yaml:"shift"` // asymre: dV, added to the group's mean reward
	// oapl, trajectory_balance: reward for a nat of log-ratio [0.001; 0.012 for trajectory_balance]
	Beta              float64 `yaml:"beta,omitempty"`
	MaskZeroVariance  bool    `yaml:"mask_zero_variance"` // drop groups whose rewards are all equal from the loss
	MaskedDenominator string  `yaml:"masked_denominator"` // average the loss over the groups kept, or over all
	// drop rollouts whose mean log(pi/b) is greater from the loss; 0: none
	MaxLogRatio float64 `yaml:"max_log_ratio"`
	// the policy that ratios are taken to: behaviour; recompute, the weights at the start of the batch, with terms
	// weighted for the difference; unweighted, the same without; or interpolate, between behaviour and the present by
	// staleness, weighted [behaviour]
	Proximal string `yaml:"proximal"`
	// what is done about rollouts of other policies: a list of {kind, level, low, high, limit} [none]
	Correction []objective.Correction `yaml:"correction"`
	// how rollouts without log-probs are learned from: sft, phi or shaped; with grpo and what has its surrogate but ppo
	// [they are refused]
	Experts     string  `yaml:"experts,omitempty"`
	ExpertGamma float64 `yaml:"expert_gamma,omitempty"` // experts: shaped, pi/(pi + gamma) [0.1]
	// weight of the mean over rollouts without log-probs, the others' mean having the rest: a number from 0 to 1, or an
	// expression over version, such as max(0.05, 0.9 - version / 200) [all rollouts weigh alike]
	ExpertWeight string `yaml:"expert_weight,omitempty"`
	policy.Adam  `yaml:",inline"`
}

// Evaluate is when and how the policy is tried on the held-out problems. Compute is counted in updates of the no-replay
// baseline, B(1+mu), so that arms with different updates are evaluated at equal compute.
type Evaluate struct {
	Every  float64 `yaml:"every"`  // compute between evaluations
	Target float64 `yaml:"target"` // pass@1 whose compute is reported, fixed before the run; 0: none
	// of the one answer to each problem that pass@1 counts, 0 or more; 0: greedy
	Temperature float64 `yaml:"temperature"`
	// held-out problems that are tried: all; choose, the first fifth, to choose settings by; judge, the others [all]
	Problems string `yaml:"problems"`
	Samples  int    `yaml:"samples"` // samples per problem at temperature 1, for pass@k; 0: none
	PassAt   []int  `yaml:"pass_at"` // the k of pass@k
	// updates between measurements of [OG]'s lower bound on the improvement, beside the true change; 0: never
	BoundEvery int `yaml:"bound_every"`
}

// Budget ends a run at whichever limit comes first.
type Budget struct {
	Compute float64 `yaml:"compute"` // in updates of the no-replay baseline; 0: no limit
	Updates int     `yaml:"updates"` // optimizer updates; 0: no limit
}

// Checkpoint is how often a run is saved. It is always saved at its end.
type Checkpoint struct {
	Every int `yaml:"every"` // updates between checkpoints
}

// Baseline is what the no-replay arm of a comparison does differently. Keys left at 0 get the values in brackets.
type Baseline struct {
	Sampler  replay.Sampler `yaml:"sampler" values:"lifo fifo"` // queue of the no-replay arm
	Capacity int            `yaml:"capacity"`                   // rollouts [2 x pipeline.batch]
	// GPUs that generate [the split of at most as many GPUs that stalls least]
	Workers      int     `yaml:"workers"`
	Trainers     int     `yaml:"trainers"`      // GPUs that train [as workers]
	LearningRate float64 `yaml:"learning_rate"` // the baseline's [learner.learning_rate]
	// learner keys for the baseline only, such as {clip_high: 0.4}
	Learner map[string]any `yaml:"learner,omitempty"`
	// pipeline keys for the baseline only, such as {batch: 960, batch_updates: 3}. The compute stays the same
	Pipeline map[string]any `yaml:"pipeline,omitempty"`
}

// Default returns every key at its default: addition below 100, six workers, two trainers.
func Default() Config {
	return Config{
		tasks:    &taskCache{},
		Name:     "addition",
		Seed:     1,
		Task:     map[string]any{"name": "arithmetic"},
		Policy:   Policy{Hidden: 64, Intermediate: 176, Layers: 2, Heads: 4, KVHeads: 4, Positions: 64},
		Warmup:   Warmup{Steps: 600, Batch: 64, LearningRate: 1e-3, Until: 0.35, Seed: 1},
		Generate: Generate{Temperature: 1, TopP: 1, MaxTokens: 4, KVCache: "keep"},
		Pipeline: Pipeline{Options: pipeline.Options{
			Mode: pipeline.Async, Workers: 6, Trainers: 2, Batch: 1024, Group: 8, RolloutCost: 5.28,
			WeightSync: pipeline.ByGroup, Chunk: 32, PublishEvery: 1, BatchUpdates: 1,
		}},
		Replay:  Replay{Options: replay.Options{Sampler: replay.Unseen, Capacity: 4096}},
		Prompts: Prompts{Options: prompts.Options{Band: 0.3, Cooldown: 5, MaxReuse: 10}},
		Learner: Learner{
			Objective: "grpo", Ratio: "token", Clip: 0.2, RPrime: "one",
			ValueCoef: 0.1, ValueClip: 0.2, Gamma: 1, Lambda: 0.95, Values: "recompute",
			Shift: -0.1, MaskedDenominator: "kept",
			Adam: policy.Adam{LearningRate: 6e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1},
		},
		Evaluate:   Evaluate{Every: 5, Target: 0.65, Samples: 4, PassAt: []int{1, 2, 4}},
		Budget:     Budget{Compute: 400},
		Checkpoint: Checkpoint{Every: 50},
		Live:       Live{Rows: 16, Keep: 3},
		Baseline:   Baseline{Sampler: "lifo", LearningRate: 8e-4},
	}
}

// Live is a run on the real clock, of `reprise up` and `reprise train --publish`. Nothing else reads it.
type Live struct {
	// processes of `reprise engine serve` that up starts [2, or 0 with addresses]
	Engines int `yaml:"engines"`
	// engines that run already, vllm+http://HOST:PORT or sglang+http://HOST:PORT
	Addresses []string `yaml:"addresses"`
	Rows      int      `yaml:"rows"`      // completions decoded at once in each engine that up starts
	InFlight  int      `yaml:"in_flight"` // rollouts being generated at once over all engines [rows x engines]
	// versions that generators may run ahead: they start nothing that would be older when it is due. Without it they
	// go on while the table has room [none]
	MaxStaleness *int `yaml:"max_staleness"`
	Keep         int  `yaml:"keep"` // published versions of the weights that stay
}

// Load reads a configuration: the defaults, changed by a YAML file if one is named, then by assignments key=value. It
// reports every problem at once.
func Load(path string, assignments []string) (Config, error) {
	if path == "" {
		return Parse(nil, assignments)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(text, assignments)
}

// Parse is Load of a file's text; an empty one changes nothing.
func Parse(text []byte, assignments []string) (Config, error) {
	return ParseMethod(text, nil, assignments)
}

// ParseMethod is Parse with the text of a method of replay between the file and the assignments, see
// [Config.WithMethod]. nil: none.
func ParseMethod(text, method []byte, assignments []string) (Config, error) {
	c := Default()
	var problems option.Problems
	problems.Add(reader().YAML(text, &c))
	if method != nil {
		var err error
		c, err = c.WithMethod(method)
		problems.Add(err)
	}
	problems.Add(reader().Assign(assignments, &c))
	c.check(&problems)
	return c, problems.Err()
}

// WithMethod returns the configuration with the text of a method of replay over it. A method decides how rollouts and
// prompts are replayed and what the loss is: the sections replay, prompts and learner are at their defaults before it,
// but for the optimizer and the number of prompts. The result is not validated: what the method leaves to the
// configuration may still be missing.
func (c Config) WithMethod(method []byte) (Config, error) {
	d := Default()
	d.Prompts.Limit, d.Learner.Adam = c.Prompts.Limit, c.Learner.Adam
	c.Replay, c.Prompts, c.Learner = d.Replay, d.Prompts, d.Learner
	err := reader().YAML(method, &c)
	return c, err
}

// reader reads configurations, and the settings of tasks.
func reader() settings.Reader {
	return settings.Reader{Synonyms: synonyms(), Elsewhere: func(key string) bool { return decidedElsewhere()[key] != "" }}
}

// LoadFolder reads the configuration of a run's folder to resume it, with assignments that may change its budget only:
// any other change would make it another run.
func LoadFolder(dir string, assignments []string) (Config, error) {
	c, err := readConfig(dir)
	if err != nil {
		return c, err
	}
	if name := c.taskName(); !slices.Contains(catalog.Names(), name) {
		return c, fmt.Errorf("%s: task %s is of a program of its own: start that program, which alone has the task", dir,
			name)
	}
	changed := c
	if err := reader().Assign(assignments, &changed); err != nil {
		return c, err
	}
	same := changed
	same.Budget = c.Budget
	if !reflect.DeepEqual(same, c) {
		return c, errors.New("--resume goes on with the configuration in the folder: --set may change budget.compute " +
			"and budget.updates only")
	}
	return changed, changed.Validate()
}

// readConfig reads the configuration of a run's folder.
func readConfig(dir string) (Config, error) {
	c := Default()
	text, err := os.ReadFile(filepath.Join(dir, results.ConfigFile))
	if err != nil {
		return c, fmt.Errorf("%s holds no run: name the folder that was given to --out: %w", dir, err)
	}
	if err := reader().YAML(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

// synonyms maps names that other trainers and model files use to keys of a configuration, with their section where only
// one is meant.
func synonyms() map[string]string {
	return map[string]string{
		"hidden_size": "policy.hidden", "intermediate_size": "policy.intermediate", "num_layers": "policy.layers",
		"num_hidden_layers": "policy.layers", "num_attention_heads": "policy.heads",
		"num_key_value_heads": "policy.kv_heads", "max_position_embeddings": "policy.positions",
		"tie_word_embeddings": "policy.tied", "model": "policy.init", "model_name_or_path": "policy.init",
		"lr": "learning_rate", "max_grad_norm": "learner.clip_norm", "epsilon_low": "learner.clip_low",
		"epsilon_high": "learner.clip_high", "clip_ratio_low": "learner.clip_low",
		"clip_ratio_high": "learner.clip_high",
		"loss_type":       "learner.objective", "kl_loss_coef": "learner.kl_coef", "beta": "learner.kl_coef",
		"batch_size": "pipeline.batch", "train_batch_size": "pipeline.batch", "num_generations": "pipeline.group",
		"group_size": "pipeline.group", "num_workers": "pipeline.workers", "max_new_tokens": "generate.max_tokens",
		"max_completion_length": "generate.max_tokens", "max_response_length": "generate.max_tokens",
		"buffer_size": "replay.capacity", "max_steps": "budget.updates", "eval_steps": "evaluate.every",
		"save_steps": "checkpoint.every",
	}
}
