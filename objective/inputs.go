package objective

import (
	"errors"
	"fmt"
	"slices"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// Inputs is one trainer's shard of a batch: B rows of T positions, of one float type. Entry t of a
// row speaks of token t.
type Inputs struct {
	Logprobs  *Node // [B, T] log pi of the tokens at the rollout's temperature; the loss is differentiated through it
	Behaviour *Node // [B, T] log b recorded at generation; nil where no ratio is meant (SFT)
	Entropy   *Node // [B, T] of the policy, for the metric only; nil: not measured
	Mask      *Node // [B, T] not 0 where the policy produced the token
	Advantage *Node // [B, T] the rollout's advantage at each of its tokens; GRPO
	Weight    *Node // [B] replay weight, multiplies the rollout's terms; nil: 1
	Keep      *Node // [B] 0 where the row is padding or masked out (zero variance); nil: all are kept
	Reward    *Node // [B] AsymRE
	GroupMean *Node // [B] V, the group's mean reward at insertion; AsymRE

	// What Needs asks for; nil otherwise. Nothing is differentiated through them, Values excepted.
	Reference *Node // [B, T] log-probs under the reference policy; OffPolicyGRPO with a KLCoef
	Anchor    *Node // [B, T] log-probs under the policy at the start of the batch, pi_k; OffPolicyGRPO with RPrimeExact
	Values    *Node // [B, T] of the critic before each token; the loss is differentiated through them; PPO
	OldValues *Node // [B, T] that the advantages were estimated with; PPO
	Returns   *Node // [B, T] that Values are fitted to; PPO

	// Denominators over all shards, scalars: the kept rollouts (or all of them, with
	// masked_denominator), and their policy tokens. Values below 1 count as 1, so that a batch of
	// which nothing is kept has loss 0.
	Rollouts *Node
	Tokens   *Node
}

// Output is what an objective computes of one shard.
type Output struct {
	Loss *Node // scalar: this shard's summand of the batch's loss
	Sums *Node // [NumSums] no gradient; its values go through ReadSums to Combine
	Rows *Node // [B, columns] no gradient; its values go through ReadRows
}

// Objective builds the graph of a loss. Implementations are immutable values, safe for concurrent
// use. Like every graph-building function, Loss reports misuse by panicking with an error that
// gomlx returns from the call that builds the graph.
type Objective interface {
	Name() string // as in a configuration
	Validate() error
	Needs() Needs
	Loss(in Inputs) Output
}

// shard is a checked set of inputs with everything that does not count replaced by harmless values:
// what a Where leaves out has no gradient, while 0 times NaN is NaN.
type shard struct {
	in     Inputs
	counts *Node // [B, T] bool: the token counts
	mask   *Node // [B, T] 1 where it counts
	length *Node // [B] tokens that count
	weight *Node // [B] 0 for rows that are not kept
	logp   *Node // [B, T] 0 where the token does not count
}

// prepare checks shapes and makes a shard; needs are the further inputs that the objective reads.
func prepare(in Inputs, o Objective, needs ...string) shard {
	if err := errors.Join(o.Validate(), in.check(needs)); err != nil {
		panic(fmt.Errorf("objective %s: %w", o.Name(), err))
	}
	s := shard{in: in, counts: NotEqual(in.Mask, ZerosLike(in.Mask))}
	if in.Keep != nil {
		kept := ExpandAxes(NotEqual(in.Keep, ZerosLike(in.Keep)), -1) // [B, 1]
		s.counts = LogicalAnd(s.counts, BroadcastToShape(kept, s.counts.Shape()))
	}
	s.mask = ConvertDType(s.counts, in.Logprobs.DType())
	s.length = ReduceSum(s.mask, 1)
	s.logp = s.only(in.Logprobs)
	s.weight = s.rows(OnesLike(s.length))
	if in.Weight != nil {
		s.weight = s.rows(in.Weight)
	}
	return s
}

// only returns x [B, T] with 0 where the token does not count.
func (s shard) only(x *Node) *Node { return Where(s.counts, x, ZerosLike(x)) }

// rows returns x [B] with 0 where no token of the row counts.
func (s shard) rows(x *Node) *Node {
	return Where(GreaterThan(s.length, ZerosLike(s.length)), x, ZerosLike(x))
}

// perToken repeats x [B] along the tokens of each row: [B, T].
func (s shard) perToken(x *Node) *Node {
	return BroadcastToShape(ExpandAxes(x, -1), s.mask.Shape())
}

// rowMean returns the mean of x [B, T] over the tokens that count, [B]; 0 for a row without any. x
// is 0 where the token does not count.
func (s shard) rowMean(x *Node) *Node { return Div(ReduceSum(x, 1), MaxScalar(s.length, 1)) }

// check reports every input that is missing or whose shape or type does not fit Logprobs and Mask.
func (in Inputs) check(needs []string) error {
	if in.Logprobs == nil || in.Logprobs.Rank() != 2 || !in.Logprobs.DType().IsFloat() {
		return errors.New("input Logprobs: want a float node of shape [B, T]")
	}
	dims, dtype := in.Logprobs.Shape().Dimensions, in.Logprobs.DType()
	var errs []error
	for _, f := range []struct {
		name     string
		node     *Node
		rank     int
		required bool
	}{
		{"Behaviour", in.Behaviour, 2, false}, {"Entropy", in.Entropy, 2, false}, {"Mask", in.Mask, 2, true},
		{"Advantage", in.Advantage, 2, false}, {"Weight", in.Weight, 1, false}, {"Keep", in.Keep, 1, false},
		{"Reference", in.Reference, 2, false}, {"Anchor", in.Anchor, 2, false}, {"Values", in.Values, 2, false},
		{"OldValues", in.OldValues, 2, false}, {"Returns", in.Returns, 2, false},
		{"Reward", in.Reward, 1, false}, {"GroupMean", in.GroupMean, 1, false},
		{"Rollouts", in.Rollouts, 0, true}, {"Tokens", in.Tokens, 0, true},
	} {
		switch {
		case f.node == nil && (f.required || slices.Contains(needs, f.name)):
			errs = append(errs, fmt.Errorf("input %s is nil: want shape %v", f.name, dims[:f.rank]))
		case f.node != nil && (f.node.DType() != dtype || !slices.Equal(f.node.Shape().Dimensions, dims[:f.rank])):
			errs = append(errs, fmt.Errorf("input %s has shape %s: want %s%v as Logprobs says", f.name, f.node.Shape(), dtype, dims[:f.rank]))
		}
	}
	return errors.Join(errs...)
}
