// Package objective holds the losses that a language model learns with: graph nodes in, loss and metrics out. It does
// not know the model (package policy computes the log-probs), where advantages come from (package advantage) or the
// optimizer.
//
//   - [GRPO]: the clipped surrogate on importance ratios pi/b, by token or by sequence (METHODS section 5, grpo), and
//     the methods that use it with other advantages: [ReinforcePP], [ReinforcePPBaseline], [RLOO] and [DrGRPO].
//   - [OffPolicyGRPO]: clipped around r' = pi_k/b, minus the divergence from a reference policy ([OG] eq. 6 and 7).
//   - [PPO]: the same surrogate with a critic's advantages, plus the critic's clipped value loss.
//   - [AsymRE]: log-probs weighted by the reward above a shifted baseline, without ratios (METHODS section 5, asymre;
//     [ER] App. E).
//   - [OAPL] and [TrajectoryBalance]: the log-ratio of a whole rollout is fitted to its reward.
//   - [SFT]: cross-entropy, for the supervised warm-up.
//
// Each is a plain struct of options whose zero value is the documented default, and an [Objective]. [Methods] lists the
// objectives that learn from rewards, with the advantages that each takes.
//
// A batch is split over trainers, and one program runs per shard. The denominators ([Inputs.Rollouts], [Inputs.Tokens])
// are therefore inputs that cover the whole batch: the losses and gradients of the shards add up to those of the batch.
// Metrics are sums for the same reason ([Output.Sums]); [Combine] turns them into numbers to log. [Output.Rows] has the
// parts of them that belong to one rollout.
//
// Positions that the policy did not produce and rows that are not kept count nowhere. Their gradient is exactly zero,
// whatever they hold, NaN included.
package objective

import (
	"errors"
	"fmt"
	"math"
	"slices"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// Objective builds the graph of a loss. Implementations are immutable values, safe for concurrent use. Like every
// function that builds a graph, Loss reports misuse by panicking with an error; gomlx returns it from the call that
// builds the graph.
type Objective interface {
	Name() string    // as in a configuration
	Validate() error // reports every option out of its range
	Needs() Needs
	Loss(in Inputs) Output
}

// Needs names the inputs that only some objectives read. Each costs further forward passes.
type Needs struct {
	Reference bool // Inputs.Reference: log-probs under a reference policy
	Anchor    bool // Inputs.Anchor: log-probs under the policy at the start of the batch
	// Inputs.Values, OldValues and Returns: a model with a value head, and the advantages estimated with it
	Critic    bool
	Staleness bool // Inputs.Staleness
	// Inputs.SecondMoment with this as [SecondMoment]'s limit; 0: not needed
	SecondMoment float64
	LogZ         float64 // Inputs.LogZ with this as [LogZ]'s beta; 0: not needed
}

// Inputs is one trainer's shard of a batch: B rows of T positions, all nodes of one float type. Entry t of a row
// belongs to token t.
type Inputs struct {
	Logprobs  *Node // [B, T] log pi of the tokens at the rollout's temperature; the loss is differentiated through it
	Behaviour *Node // [B, T] log b recorded at generation; nil if there is no ratio (SFT)
	Entropy   *Node // [B, T] of the policy, for the metric only; nil: not measured
	Mask      *Node // [B, T] not 0 where the policy produced the token
	Advantage *Node // [B, T] of each token; GRPO, OffPolicyGRPO, PPO, OAPL
	Weight    *Node // [B] replay weight, multiplies the rollout's terms; nil: 1
	Keep      *Node // [B] 0 if the row is padding or masked out; nil: all rows are kept
	// [B] not 0 if the rollout has no log-probs: Behaviour is not read, and its ratios count as 1 in metrics; nil: all
	// have. See [TakesExperts]
	Expert    *Node
	Reward    *Node // [B] AsymRE, RAFT, TrajectoryBalance
	GroupMean *Node // [B] V, the group's mean reward at insertion; AsymRE

	// See Needs; nil if not needed. Only Values are differentiated through.
	// [B, T] log-probs under the reference policy; OffPolicyGRPO with a KLCoef, TrajectoryBalance
	Reference *Node
	// [B, T] log-probs under the policy at the start of the batch: pi_k of OffPolicyGRPO with RPrimeExact or KLAnchor,
	// p of ProximalRecompute and ProximalUnweighted
	Anchor *Node
	// [B, T] versions between the weights that sampled the token and those at the start of the batch, 0 or more;
	// ProximalInterpolate
	Staleness *Node
	Values    *Node // [B, T] the critic's value before each token; PPO
	OldValues *Node // [B, T] values that the advantages were estimated with; PPO
	Returns   *Node // [B, T] what Values are fitted to; PPO

	// [M2PO]'s bound on the square of log pi - log b, a scalar: see [SecondMoment]. It covers the whole batch.
	SecondMoment *Node

	LogZ *Node // [B] of the rollout's prompt over the whole batch, see [LogZ]; TrajectoryBalance

	// Denominators over all shards, scalars: kept rollouts (all rollouts with masked_denominator: all) and their policy
	// tokens. Values below 1 count as 1, so that a batch without a kept rollout has loss 0.
	Rollouts *Node
	Tokens   *Node
}

// Output is what an objective computes from one shard.
type Output struct {
	Loss *Node // scalar: this shard's summand of the batch's loss
	Sums *Node // [sums] without gradient; for ReadSums and Combine
	Rows *Node // [B, columns] without gradient; for ReadRows
}

// Method describes an objective that learns from rewards.
type Method struct {
	Name       string
	Advantages []string // the kinds of package advantage that it takes, the default first
	Critic     bool     // it trains a value head
}

// Methods returns every objective that learns from rewards, the default first. Its kinds of advantage are those of
// package advantage. The losses of AsymRE, RAFT and TrajectoryBalance read rewards; their advantages serve priorities
// and metrics.
func Methods() []Method {
	anyKind := []string{"group", "no_std", "leave_one_out", "batch", "group_batch"}
	return []Method{
		{Name: GRPO{}.Name(), Advantages: anyKind},
		{Name: OffPolicyGRPO{}.Name(), Advantages: anyKind},
		{Name: AsymRE{}.Name(), Advantages: anyKind},
		{Name: RAFT{}.Name(), Advantages: anyKind},
		{Name: PPO{}.Name(), Advantages: []string{"gae"}, Critic: true},
		{Name: ReinforcePP, Advantages: []string{"batch"}},
		{Name: ReinforcePPBaseline, Advantages: []string{"group_batch"}},
		{Name: RLOO, Advantages: []string{"leave_one_out"}},
		{Name: DrGRPO, Advantages: []string{"no_std"}},
		{Name: CISPO, Advantages: anyKind},
		{Name: OAPL{}.Name(), Advantages: []string{"log_mean_exp", "no_std", "leave_one_out"}},
		{Name: TrajectoryBalance{}.Name(), Advantages: []string{"no_std", "group", "leave_one_out"}},
	}
}

// FindMethod returns the method of that name.
func FindMethod(name string) (m Method, ok bool) {
	i := slices.IndexFunc(Methods(), func(m Method) bool { return m.Name == name })
	if i < 0 {
		return Method{}, false
	}
	return Methods()[i], true
}

// Names returns the names of [Methods].
func Names() []string {
	var names []string
	for _, m := range Methods() {
		names = append(names, m.Name)
	}
	return names
}

// shard is a checked set of inputs. Everything that does not count is replaced by 0: what a Where leaves out has no
// gradient, while 0 times NaN is NaN.
type shard struct {
	in     Inputs
	counts *Node // [B, T] bool: the token counts
	mask   *Node // [B, T] 1 where it counts
	length *Node // [B] tokens that count
	weight *Node // [B] 0 for rows that are not kept
	logp   *Node // [B, T] 0 where the token does not count
	expert *Node // [B, T] bool: the rollout has no log-probs; nil: all have
}

// newShard checks the options and inputs of an objective; required names the optional inputs that it reads.
func newShard(in Inputs, o Objective, required ...string) shard {
	if err := errors.Join(o.Validate(), in.check(required)); err != nil {
		panic(fmt.Errorf("objective %s: %w", o.Name(), err))
	}
	var expert *Node
	if in.Expert != nil {
		expert = BroadcastToShape(ExpandAxes(NotEqual(in.Expert, ZerosLike(in.Expert)), -1), in.Logprobs.Shape())
		if in.Behaviour != nil {
			in.Behaviour = Where(expert, StopGradient(in.Logprobs), in.Behaviour)
		}
	}
	s := shard{in: in, expert: expert, counts: NotEqual(in.Mask, ZerosLike(in.Mask))}
	if in.Keep != nil {
		kept := ExpandAxes(NotEqual(in.Keep, ZerosLike(in.Keep)), -1) // [B, 1]
		s.counts = LogicalAnd(s.counts, BroadcastToShape(kept, s.counts.Shape()))
	}
	s.mask = ConvertDType(s.counts, in.Logprobs.DType())
	s.length = ReduceSum(s.mask, 1)
	s.logp = s.masked(in.Logprobs)
	s.weight = s.maskedRows(OnesLike(s.length))
	if in.Weight != nil {
		s.weight = s.maskedRows(in.Weight)
	}
	return s
}

// check reports every input that is missing or whose shape or type does not fit Logprobs.
func (in Inputs) check(required []string) error {
	if in.Logprobs == nil || in.Logprobs.Rank() != 2 || !in.Logprobs.DType().IsFloat() {
		return errors.New("input Logprobs: want a float node of shape [B, T]")
	}
	dims, dtype := in.Logprobs.Shape().Dimensions, in.Logprobs.DType()
	required = append(required, "Mask", "Rollouts", "Tokens")
	var errs []error
	for _, f := range []struct {
		name string
		node *Node
		rank int
	}{
		{"Behaviour", in.Behaviour, 2}, {"Entropy", in.Entropy, 2}, {"Mask", in.Mask, 2}, {"Advantage", in.Advantage,
			2},
		{"Weight", in.Weight, 1}, {"Keep", in.Keep, 1}, {"Expert", in.Expert, 1}, {"Reward", in.Reward, 1}, {"GroupMean", in.GroupMean, 1},
		{"Reference", in.Reference, 2}, {"Anchor", in.Anchor, 2},
		{"Staleness", in.Staleness, 2}, {"Values", in.Values, 2},
		{"OldValues", in.OldValues, 2}, {"Returns", in.Returns, 2},
		{"SecondMoment", in.SecondMoment, 0}, {"LogZ", in.LogZ, 1}, {"Rollouts", in.Rollouts, 0}, {"Tokens", in.Tokens, 0},
	} {
		want := dims[:f.rank]
		switch {
		case f.node == nil && slices.Contains(required, f.name):
			errs = append(errs, fmt.Errorf("input %s is nil: want shape %v", f.name, want))
		case f.node != nil && (f.node.DType() != dtype || !slices.Equal(f.node.Shape().Dimensions, want)):
			errs = append(errs, fmt.Errorf("input %s has shape %s: want %s%v, as Logprobs has",
				f.name, f.node.Shape(), dtype, want))
		}
	}
	return errors.Join(errs...)
}

// masked returns x [B, T] with 0 where the token does not count.
func (s shard) masked(x *Node) *Node { return Where(s.counts, x, ZerosLike(x)) }

// maskedRows returns x [B] with 0 for rows in which no token counts.
func (s shard) maskedRows(x *Node) *Node {
	return Where(GreaterThan(s.length, ZerosLike(s.length)), x, ZerosLike(x))
}

// rowMean returns the mean [B] of x [B, T] over the tokens that count, 0 for a row without any. x is 0 where the token
// does not count.
func (s shard) rowMean(x *Node) *Node { return Div(ReduceSum(x, 1), MaxScalar(s.length, 1)) }

// meanOverRollouts returns this shard's summand of the batch's weighted mean of x [B].
func (s shard) meanOverRollouts(x *Node) *Node {
	return Div(ReduceAllSum(Mul(s.weight, x)), MaxScalar(s.in.Rollouts, 1))
}

// maxLogRatio bounds the exponent of a ratio: rho stays within [e^-20, e^20] = [2e-9, 5e8], so that rho^2 summed over a
// batch is finite in float32. Beyond it the ratio is constant and has no gradient. The metric ratio_clamped counts the
// tokens that reach it.
const maxLogRatio = 20.0

// logRatio returns log pi - log b [B, T], 0 where the token does not count.
func (s shard) logRatio() *Node { return Sub(s.logp, s.masked(s.in.Behaviour)) }

// boundedExp returns exp of a log-ratio clipped to +-maxLogRatio.
func boundedExp(logRatio *Node) *Node {
	return Exp(ClipScalar(logRatio, -maxLogRatio, maxLogRatio))
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
