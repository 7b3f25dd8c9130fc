package results

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
)

// Summary is summary.json: a whole run.
type Summary struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	Arm    string `json:"arm,omitempty"` // "baseline" or "replay" in a comparison
	Task   string `json:"task"`
	Seed   uint64 `json:"seed"`
	Ended  string `json:"ended"` // why: "budget" or "interrupted"

	Updates    int   `json:"updates"`
	Version    int   `json:"version"`
	Parameters int64 `json:"parameters"` // of the policy

	Workers   int `json:"workers"`    // W, inference GPUs
	Trainers  int `json:"trainers"`   // T
	BatchSize int `json:"batch_size"` // B, rollouts per update
	Capacity  int `json:"capacity"`   // N, rollouts the table holds

	Clock       float64 `json:"clock"`
	Compute     float64 `json:"compute"`
	ComputeBusy float64 `json:"compute_busy"`
	ComputeAll  float64 `json:"compute_all"`

	RolloutCost         float64 `json:"rollout_cost"`          // mu, configured
	RolloutCostMeasured Number  `json:"rollout_cost_measured"` // (K_train/T)/(K_infer/W)
	ComputeRatio        float64 `json:"compute_ratio"`         // gamma; 1 for the baseline
	NewPerUpdate        Number  `json:"new_per_update"`        // R, measured
	NewPerUpdatePlanned float64 `json:"new_per_update_planned"`
	ReplayRatio         Number  `json:"replay_ratio"`         // measured
	ReplayRatioPlanned  float64 `json:"replay_ratio_planned"` // with unit step: for the measured steps per rollout

	Inserted  uint64            `json:"rollouts_inserted"`
	Used      uint64            `json:"rollouts_used"`
	NeverUsed uint64            `json:"never_used"` // evicted without a use
	Evicted   map[string]uint64 `json:"evicted"`    // by cause

	Dropped              Number `json:"rollouts_dropped,omitzero"`       // with pipeline.filter_groups only
	GeneratedPerInserted Number `json:"generated_per_inserted,omitzero"` // rollouts; with pipeline.filter_groups only

	Pass1First Number `json:"pass1_first"`
	Pass1Last  Number `json:"pass1_last"`
	Pass1Best  Number `json:"pass1_best"`            // of single evaluations
	Pass1Level Number `json:"pass1_level"`           // reached
	Target     Number `json:"target"`                // accuracy fixed before the run
	ToTarget   Reach  `json:"to_target"`             // where it was reached
	ToLevel    Number `json:"to_98_percent_of_best"` // compute at 98% of Pass1Level

	RewardFirst Number `json:"reward_first,omitzero"` // mean return of held-out episodes; environments only
	RewardLast  Number `json:"reward_last,omitzero"`
	Expert      *Bound `json:"expert,omitempty"` // of the task's experts, if it has any
	Random      *Bound `json:"random,omitempty"` // of random actions, if the task lists its actions

	Mismatch *Mismatch `json:"mismatch,omitempty"` // of the last evaluation; only if workers round the weights

	Staleness      Histogram `json:"staleness"`       // at use, in versions
	TokenStaleness Histogram `json:"token_staleness"` // at use, mean over the rollout's tokens, rounded down
	Uses           Histogram `json:"uses"`            // at eviction
	UsesPresent    Histogram `json:"uses_present"`    // of the rollouts in the table at the end
	SinceLastUse   Histogram `json:"since_last_use"`  // in updates; first uses are not counted

	Sampling     *Sampling     `json:"sampling,omitempty"`      // only of tables that replay
	ESSByAge     []AgeESS      `json:"ess_by_age,omitempty"`    // ascending in age
	PromptReplay *PromptReplay `json:"prompt_replay,omitempty"` // only if prompts are replayed
	TooLong      *TooLong      `json:"too_long,omitempty"`      // only if prompts were left out

	Live *Live `json:"live,omitempty"` // only of runs on the real clock

	WorkerTimes  []GPU `json:"worker_times"`
	TrainerTimes []GPU `json:"trainer_times"`

	Build Build `json:"build"`
}

// BudgetUnit returns the compute that counts as 1 in the configuration's budget.compute and evaluate.every: that of an
// update on a batch of this size without replay, B(1 + mu).
func (s *Summary) BudgetUnit() float64 { return float64(s.BatchSize) * (1 + s.RolloutCost) }

// AddAccuracy adds what the evaluations tell of the accuracy, and where the run reached its target.
func (s *Summary) AddAccuracy(evals []Eval) {
	if len(evals) == 0 {
		return
	}
	s.Pass1First, s.Pass1Last = Num(evals[0].Pass1), Num(evals[len(evals)-1].Pass1)
	s.Pass1Best, s.Pass1Level = BestPass1(evals), Level(evals)
	s.ToLevel = ComputeToShare(evals, 0.98)
	if s.Target.Known() {
		s.ToTarget = ReachOf(evals, s.Target.Float())
	}
}

// Histogram counts integers as [value, count] pairs in ascending order of value.
type Histogram [][2]uint64

// Count returns how many values were counted.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, b := range h {
		n += b[1]
	}
	return n
}

// Mean returns the mean of the values counted, nothing if there are none.
func (h Histogram) Mean() Number {
	var sum, n float64
	for _, b := range h {
		sum += float64(b[0]) * float64(b[1])
		n += float64(b[1])
	}
	return Num(sum / n)
}

// Max returns the largest value counted, 0 if there are none.
func (h Histogram) Max() uint64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1][0]
}

// Shares returns the share of the counts in bins of a width from 0 to the highest value, each at the middle of its bin.
func (h Histogram) Shares(width, highest uint64) []Point {
	bins := make([]uint64, highest/width+1)
	for _, b := range h {
		if b[0] <= highest {
			bins[b[0]/width] += b[1]
		}
	}
	points := make([]Point, len(bins))
	for i, n := range bins {
		points[i] = Point{X: float64(uint64(i)*width) + float64(width-1)/2, Y: Num(float64(n) / float64(h.Count()))}
	}
	return points
}

// TooLong counts the prompts that a run leaves out because they have more tokens than fit.
type TooLong struct {
	Limit       int `json:"limit"`        // tokens of a prompt, at most
	Longest     int `json:"longest"`      // tokens
	Training    int `json:"training"`     // prompts left out
	AllTraining int `json:"all_training"` // of how many
	HeldOut     int `json:"held_out"`     // prompts left out
	AllHeldOut  int `json:"all_held_out"` // of how many
}

// String says it in a sentence.
func (t TooLong) String() string {
	return fmt.Sprintf("%s of %s training and %s of %s held-out prompts have more than %s tokens, up to %s, and are "+
		"left out: task.max_prompt_tokens sets the limit", words.Thousands(t.Training), words.Thousands(t.AllTraining),
		words.Thousands(t.HeldOut), words.Thousands(t.AllHeldOut), words.Thousands(t.Limit), words.Thousands(t.Longest))
}

// GPU is how one worker or trainer spent its virtual time.
type GPU struct {
	Busy    float64 `json:"busy"`
	Stalled float64 `json:"stalled"` // a worker by a full table, a trainer by a table with too few rollouts
	Idle    float64 `json:"idle"`    // in synchronous mode: while the others had their turn
}

// Build identifies the program that wrote a folder.
type Build struct {
	Go       string `json:"go"`
	Module   string `json:"module,omitempty"` // version of this module
	GoMLX    string `json:"gomlx,omitempty"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a changed working tree
}

// ThisBuild identifies the running program.
func ThisBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{}
	}
	b := Build{Go: info.GoVersion, Module: info.Main.Version}
	for _, d := range info.Deps {
		if strings.HasSuffix(d.Path, "/gomlx/gomlx") {
			b.GoMLX = d.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Sampling is how a table drew, and what it held at the end of the run.
type Sampling struct {
	Sampler    string  `json:"sampler"`
	Unit       string  `json:"unit"`             // what a draw falls on: rollout, step or group
	Mix        int     `json:"mix"`              // K, replay updates to each on a fresh batch; 0: none
	FreshShare float64 `json:"fresh_share"`      // of each batch, configured
	NeverUsed  Number  `json:"never_used_share"` // share of all inserted rollouts

	Priority *Priority `json:"priority,omitempty"` // of weighted samplers
}

// Priority is the configuration of a prioritized sampler and its state at the end of the run.
type Priority struct {
	Base       string        `json:"base"`
	Exponent   float64       `json:"exponent"`   // alpha
	AgeDecay   Number        `json:"age_decay"`  // tau at the end, in versions; none: infinite
	Auto       bool          `json:"auto"`       // tau follows the measured ESS
	TargetESS  Number        `json:"target_ess"` // that it aims at
	Decay      string        `json:"decay"`      // before_exponent or after_exponent
	HalfLife   Number        `json:"half_life"`  // of a rollout's probability, in versions; none: infinite
	Draws      string        `json:"draws"`      // stratified or independent
	Entry      string        `json:"entry"`      // own or max
	Beta       Number        `json:"beta"`       // at the end
	Normalised string        `json:"normalised"` // weights, by batch or table
	ByAge      []AgePriority `json:"by_age"`     // ascending in age
}

// AgePriority is the units of one age in a table.
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
	Tokens float64 `json:"tokens"` // behind it, older ones count less
}

// PromptReplay counts the prompt replay of a run.
type PromptReplay struct {
	Fraction  float64   `json:"fraction"` // f
	Band      float64   `json:"band"`
	Cooldown  int       `json:"cooldown"` // versions
	MaxReuse  int       `json:"max_reuse"`
	Keep      string    `json:"keep,omitempty"` // this and the next three: expressions that were given
	Score     string    `json:"score,omitempty"`
	Interval  string    `json:"interval,omitempty"`
	Skip      string    `json:"skip,omitempty"`
	Held      int       `json:"held"`              // at the end
	Replayed  uint64    `json:"replayed"`          // groups generated for a prompt from the buffer
	Fresh     uint64    `json:"fresh"`             // groups generated for another
	Skipped   uint64    `json:"skipped,omitempty"` // fresh prompts that were passed over
	Reuse     Histogram `json:"reuse"`             // prompts by how often they were replayed, from 1
	PassRates Histogram `json:"pass_rates"`        // of the prompts held, in percent rounded down
}

// Noise is the measured noise of a run's policy gradient: its size for one rollout, how it grows with staleness, and
// how much of it remains when a batch is averaged (METHODS section 6, Fit from a run). Variances are traces of
// covariances, over all parameters, of gradients of the run's own loss, in the square of that loss's unit.
type Noise struct {
	Run     string `json:"run"` // folder
	Seed    uint64 `json:"seed"`
	Version int    `json:"version"` // of the weights at which the gradient was taken
	// Proxy: no gradient was taken. Variances are n/ESS of the importance ratios by age, in units of that of a rollout
	// of the present policy, and what does not average out is not known.
	Proxy bool `json:"proxy"`
	// Clipped: the gradients are those of the loss with its clipping.
	Clipped bool `json:"clipped"`

	RolloutCost  Number `json:"rollout_cost"`   // mu, measured: (K_train/T)/(K_infer/W)
	NewPerUpdate Number `json:"new_per_update"` // R: rollouts, or steps if the table keeps steps, inserted per update

	Held  int `json:"held"`  // rollouts of the table whose gradients were taken, chosen uniformly
	Fresh int `json:"fresh"` // rollouts generated with these weights, from which the true gradient is estimated

	// The noise scale (McCandlish et al. 2018, arXiv 1812.06162): the fresh rollouts whose mean gradient has as much noise
	// as signal. None if there were too few to tell the signal from 0.
	Scale Number `json:"noise_scale"`
	// Alike is the correlation of a rollout's gradient noise before and after an update on a batch of Batch others: how
	// much of the noise returns when the rollout is used again. None if it was not measured.
	Alike Number `json:"alike"`
	Batch int    `json:"batch,omitempty"`
	// ascending; without Proxy the first is of fresh rollouts
	ByStaleness  []StaleNoise `json:"by_staleness"`
	MicroBatches []BatchNoise `json:"micro_batches,omitempty"` // ascending in draws
	// Mean and Common are the two terms of v(b) = Mean (1/b + Common), the variance about the true gradient of the mean
	// of b disjoint draws. Mean is sbar2, over the staleness that the table holds. Common is c, which chance can make
	// negative. CommonError is the standard error of c, in the approximation that all gradients scatter in the same
	// directions, and those of one group independently.
	Mean        Number `json:"mean"`
	Common      Number `json:"common"`
	CommonError Number `json:"common_error"`
	// Residual is how far one deal into micro-batches is from v(b): the root of the mean of (dealt/v - 1)^2 over b.
	Residual Number `json:"residual"`

	Warnings []string `json:"warnings,omitempty"`
}

// StaleNoise is the noise of rollouts of a range of staleness.
type StaleNoise struct {
	First    int     `json:"first"` // versions
	Last     int     `json:"last"`
	Age      float64 `json:"age"`      // mean
	Rollouts int     `json:"rollouts"` // measured; 0 of a proxy
	// Tokens behind a proxy, else 0. Older measurements count less. Staleness 0 is known exactly and gets the tokens of
	// all.
	Tokens   float64 `json:"tokens"`
	Variance float64 `json:"variance"` // sigma2, of one rollout's gradient about the true one
	Error    Number  `json:"error"`    // standard error of Variance, with independent groups of dependent rollouts
}

// BatchNoise is the noise of the mean of several rollouts.
type BatchNoise struct {
	Draws    int     `json:"draws"`    // b
	Variance float64 `json:"variance"` // v(b), the mean over all ways to deal the rollouts to disjoint micro-batches
	Batches  int     `json:"batches"`  // of one deal
	Dealt    float64 `json:"dealt"`    // the mean over these
}
