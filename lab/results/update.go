package results

import (
	"math"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Update is a line of metrics.jsonl: one optimizer update, and how far the run has come after it. Its fields are
// written in this order, with the names and definitions of docs/METHODS.md.
//
// Time is virtual, in units of the time in which one trainer takes one rollout. Compute is in the same unit times GPUs.
// Means "of the batch" are over the batches of all trainers. A field's group, by default train, is where
// [Update.Scalars] puts it.
type Update struct {
	Update      int     `json:"update"`                        // number of this update, from 1
	Version     int     `json:"version" group:"progress"`      // of the weights after it
	Clock       float64 `json:"clock" group:"progress"`        // virtual time at its end
	Compute     float64 `json:"compute" group:"progress"`      // so far, by formula, or busy; the headline measure
	ComputeBusy float64 `json:"compute_busy" group:"progress"` // so far, busy time of all GPUs by the clock
	ComputeAll  float64 `json:"compute_all" group:"progress"`  // so far, (W+T) times the clock, idle time included

	Inserted    uint64 `json:"rollouts_inserted" group:"progress"` // so far
	Used        uint64 `json:"rollouts_used" group:"progress"`     // so far, every use counted
	ReplayRatio Number `json:"replay_ratio" group:"replay"`        // Used/Inserted

	Reward      Number `json:"reward"`       // mean of the rollouts inserted or dropped since the last update
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
	ZeroVariance     Number `json:"zero_variance"` // share of the batch in groups of one reward, in [0, 1]
	MeanAbsAdvantage Number `json:"mean_abs_advantage"`

	StalenessMean  Number `json:"staleness_mean" group:"replay"` // of the batch's rollouts, in versions
	StalenessMax   Number `json:"staleness_max" group:"replay"`
	ResponseLength Number `json:"response_length"` // mean policy tokens of the batch's rollouts

	WorkerBusy     Number `json:"worker_busy" group:"gpus"`    // shares of the time since the last update, over GPUs
	WorkerStalled  Number `json:"worker_stalled" group:"gpus"` // by a full table
	WorkerIdle     Number `json:"worker_idle" group:"gpus"`    // in the trainers' turn
	TrainerBusy    Number `json:"trainer_busy" group:"gpus"`
	TrainerStalled Number `json:"trainer_stalled" group:"gpus"` // by a table with too few rollouts
	TrainerIdle    Number `json:"trainer_idle" group:"gpus"`    // in the workers' turn

	WeightMean  Number `json:"weight_mean" group:"replay"`  // of the draws' importance weights, largest 1
	WeightMin   Number `json:"weight_min" group:"replay"`   // the least of them
	WeightESS   Number `json:"weight_ess" group:"replay"`   // (sum w)^2/(n sum w^2) of them, in (0, 1]
	FreshShare  Number `json:"fresh_share" group:"replay"`  // of the batch, drawn as fresh, in [0, 1]
	NeverDrawn  Number `json:"never_drawn" group:"replay"`  // share of the rollouts held that were never drawn
	AgeDecay    Number `json:"age_decay" group:"replay"`    // tau in use, in versions; none: infinite, or no use
	PromptsHeld Number `json:"prompts_held" group:"replay"` // by prompt replay
	PromptShare Number `json:"prompt_share" group:"replay"` // of replayed ones in the groups inserted since then

	TableSize int `json:"table_size" group:"replay"` // rollouts held

	// with pipeline.filter_groups only
	Dropped              Number `json:"rollouts_dropped,omitzero" group:"progress"`       // so far
	DroppedGroups        Number `json:"groups_dropped,omitzero"`                          // since the last update
	GeneratedPerInserted Number `json:"generated_per_inserted,omitzero" group:"progress"` // rollouts, so far; 1 or more

	// of environments only
	Turns   Number `json:"turns,omitzero" group:"episodes"`   // of the episodes inserted since then, mean
	Invalid Number `json:"invalid,omitzero" group:"episodes"` // share of those turns without a valid action, in [0, 1]
	Success Number `json:"success,omitzero" group:"episodes"` // share of those episodes that succeeded, in [0, 1]

	Other map[string]Number `json:"other,omitempty"` // further metrics of the objective, by name
}

// Timing is a line of timing.jsonl: the wall time of one update, in seconds. It is not in metrics.jsonl because it
// differs between two runs of the same configuration.
type Timing struct {
	Update   int     `json:"update"`
	Elapsed  float64 `json:"elapsed"`  // since the run started, without the time between interruption and resume
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

	Problems    int        `json:"problems"`
	Pass1       float64    `json:"pass1"`                // share of problems solved by one answer to each, in [0, 1]
	Temperature Number     `json:"temperature,omitzero"` // of these answers; none: greedy
	Samples     int        `json:"samples"`              // per problem behind PassAt; 0: none were drawn
	PassAt      []PassRate `json:"pass_at,omitempty"`    // for ascending k
	MeanLength  Number     `json:"mean_length"`          // tokens of the responses that pass@1 counts
	Truncated   Number     `json:"truncated"`            // share of them stopped by length
	Reward      Number     `json:"reward,omitzero"`      // their mean reward, or return of their episodes
	Turns       Number     `json:"turns,omitzero"`       // mean of their episodes; environments only
	Invalid     Number     `json:"invalid,omitzero"`     // share of those turns without a valid action; environments only
	Solved      Solved     `json:"solved,omitempty"`     // which problems pass@1 counts, of the first MostProblems

	Mismatch *Mismatch `json:"mismatch,omitempty"` // only of runs whose workers round the weights
}

// Mismatch is how far the workers' rounded copy of the weights is from the trainers' weights of the same version: k =
// p/b on tokens that the copy generated, p the probability by the trainers' weights and b by the copy.
type Mismatch struct {
	Tokens int    `json:"k_tokens"`  // behind the numbers below
	Mean   Number `json:"k_mean"`    // of k
	AbsLog Number `json:"k_abs_log"` // mean of |log k|, nats
	Low    Number `json:"k_low"`     // 1st percentile of k
	High   Number `json:"k_high"`    // 99th percentile of k
}

// MismatchOf measures the mismatch on the values of log k, one a token, in nats.
func MismatchOf(logs []float64) *Mismatch {
	var mean, abs float64
	ks := make([]float64, len(logs))
	for i, l := range logs {
		ks[i] = math.Exp(l)
		mean += ks[i] / float64(len(logs))
		abs += math.Abs(l) / float64(len(logs))
	}
	return &Mismatch{len(logs), Num(mean), Num(abs), Num(Quantile(ks, 0.01)), Num(Quantile(ks, 0.99))}
}

// Bound is the score of a reference player, an expert or random actions, on the held-out problems of an environment.
type Bound struct {
	Pass1  float64 `json:"pass1"`  // share of episodes that end in success, in [0, 1]
	Reward float64 `json:"reward"` // mean return
}

// PassRate is pass@k for one k.
type PassRate struct {
	K    int     `json:"k"`
	Rate float64 `json:"rate"` // in [0, 1]
}

// PassAtK returns the measured pass@k, nothing if it was not measured.
func (e Eval) PassAtK(k int) Number {
	for _, p := range e.PassAt {
		if p.K == k {
			return Num(p.Rate)
		}
	}
	return Number{}
}

// parseUpdates reads the text of a metrics.jsonl. Updates must be consecutive.
func parseUpdates(text []byte) ([]Update, error) {
	return parseLines(text, func(before, u *Update) error {
		var c checks
		if before != nil {
			c.ascending(before.Update, u.Update)
		}
		c.Check(u.Update >= 1, "update", u.Update, "1 or more")
		c.Check(u.Version >= 0, "version", u.Version, "0 or more")
		c.Check(u.TableSize >= 0, "table_size", u.TableSize, "0 or more")
		c.positive("clock", u.Clock)
		c.positive("compute", u.Compute)
		c.positive("compute_busy", u.ComputeBusy)
		c.positive("compute_all", u.ComputeAll)
		for _, x := range []struct {
			key   string
			value Number
		}{
			{"clip_fraction", u.ClipFraction}, {"ess", u.ESS}, {"ess_rollout", u.ESSRollout},
			{"zero_variance", u.ZeroVariance},
			{"worker_busy", u.WorkerBusy}, {"worker_stalled", u.WorkerStalled}, {"worker_idle", u.WorkerIdle},
			{"trainer_busy", u.TrainerBusy}, {"trainer_stalled", u.TrainerStalled}, {"trainer_idle", u.TrainerIdle},
			{"weight_mean", u.WeightMean}, {"weight_min", u.WeightMin}, {"weight_ess", u.WeightESS},
			{"fresh_share", u.FreshShare}, {"never_drawn", u.NeverDrawn}, {"prompt_share", u.PromptShare},
			{"invalid", u.Invalid}, {"success", u.Success},
		} {
			c.share(x.key, x.value.Float())
		}
		c.positive("chi_square", u.ChiSquare.Float())
		c.positive("d2", u.D2.Float())
		c.positive("age_decay", u.AgeDecay.Float())
		c.positive("prompts_held", u.PromptsHeld.Float())
		c.positive("turns", u.Turns.Float())
		c.positive("rollouts_dropped", u.Dropped.Float())
		c.positive("groups_dropped", u.DroppedGroups.Float())
		c.positive("generated_per_inserted", u.GeneratedPerInserted.Float())
		return c.Err()
	})
}

// ParseTimings reads the text of a timing.jsonl. Updates must be consecutive.
func ParseTimings(text []byte) ([]Timing, error) {
	return parseLines(text, func(before, t *Timing) error {
		var c checks
		if before != nil {
			c.ascending(before.Update, t.Update)
		}
		c.positive("elapsed", t.Elapsed)
		c.positive("generate", t.Generate)
		c.positive("learn", t.Learn)
		c.positive("evaluate", t.Evaluate)
		return c.Err()
	})
}

// ParseEvals reads the text of an eval.jsonl. Evaluations must be in the order of their compute.
func ParseEvals(text []byte) ([]Eval, error) {
	return parseLines(text, func(before, e *Eval) error {
		var c checks
		if before != nil {
			c.Check(e.Compute >= before.Compute, "compute", e.Compute, "%v or more, as on the line before",
				before.Compute)
			c.Check(e.Grid >= before.Grid, "grid", e.Grid, "%v or more, as on the line before", before.Grid)
		}
		c.Check(e.Update >= 0, "update", e.Update, "0 or more")
		c.Check(e.Version >= 0, "version", e.Version, "0 or more")
		c.Check(e.Problems >= 1, "problems", e.Problems, "1 or more")
		c.Check(e.Samples >= 0, "samples", e.Samples, "0 or more")
		want := (min(e.Problems, MostProblems) + 7) / 8
		c.Check(e.Solved == nil || len(e.Solved) == want, "solved", len(e.Solved),
			"%d bytes, a bit for each of %d problems", want, min(e.Problems, MostProblems))
		for _, p := range e.PassAt {
			c.Check(p.K >= 1 && p.K <= e.Samples, "pass_at.k", p.K, "1 to %d, the samples", e.Samples)
			c.share("pass_at.rate", p.Rate)
		}
		c.positive("grid", e.Grid)
		c.positive("compute", e.Compute)
		c.positive("compute_busy", e.ComputeBusy)
		c.positive("compute_all", e.ComputeAll)
		c.positive("clock", e.Clock)
		c.share("pass1", e.Pass1)
		c.share("truncated", e.Truncated.Float())
		c.share("invalid", e.Invalid.Float())
		c.positive("turns", e.Turns.Float())
		if m := e.Mismatch; m != nil {
			c.Check(m.Tokens >= 0, "mismatch.k_tokens", m.Tokens, "0 or more")
			c.positive("mismatch.k_mean", m.Mean.Float())
			c.positive("mismatch.k_abs_log", m.AbsLog.Float())
			c.positive("mismatch.k_low", m.Low.Float())
			c.positive("mismatch.k_high", m.High.Float())
		}
		return c.Err()
	})
}

// checks collects the fields of a line that are out of range. NaN, a Number without a value, is never out of range.
type checks struct{ option.Problems }

// rounding is how far sums and quotients may be outside their range.
const rounding = 1e-9

func (c *checks) positive(key string, v float64) { c.Check(!(v < -rounding), key, v, "0 or more") }

func (c *checks) share(key string, v float64) {
	c.Check(!(v < -rounding || v > 1+rounding), key, v, "0 to 1")
}

// ascending checks that updates are in order. A trainer on the real clock that was killed leaves out those it lost.
func (c *checks) ascending(before, update int) {
	c.Check(update > before, "update", update, "more than %d, that of the line before", before)
}
