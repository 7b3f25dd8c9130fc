package policy

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// shardGradient is the gradient of one trainer's shard.
type shardGradient struct {
	gradient []*tensors.Tensor
	sums     []objective.Sums   // of each pass
	feedback []rollout.Feedback // of each draw
}

// inFlight bounds the passes that run at the same time, over all learners: more of them than cores would take memory
// and gain nothing.
var inFlight = make(chan struct{}, runtime.GOMAXPROCS(0))

// shardGradient runs a shard pass by pass and adds up the gradients. Draws in no pass have feedback too.
func (l *Learner) shardGradient(ctx context.Context, passes []pass, draws []rollout.Draw) (g shardGradient, err error) {
	g.feedback = make([]rollout.Feedback, len(draws))
	for i, d := range draws {
		g.feedback[i] = l.noFeedback(d)
	}
	if g.gradient, err = l.model.zeros(); err != nil {
		return g, err
	}
	for _, p := range passes {
		if err := ctx.Err(); err != nil {
			return g, err
		}
		args, err := l.model.donate(l.weights.args(), g.gradient)
		if err != nil {
			return g, err
		}
		inFlight <- struct{}{}
		out, err := l.gradient.call(p.dims(), append(args, l.passArgs(&p)...))
		<-inFlight
		if err != nil {
			return g, fmt.Errorf("gradient of %d rows x %d tokens: %w", p.rows, p.length, err)
		}
		n := len(g.gradient)
		g.gradient = out[:n]
		flat, err := copyAll(out[n:])
		if err != nil {
			return g, err
		}
		var norms []float32
		if l.options.LogitGradients {
			norms = flat[2]
		}
		g.sums = append(g.sums, objective.ReadSums(flat[0]))
		for i, f := range p.feedback(objective.ReadRows(flat[1]), norms) {
			g.feedback[p.at[i]] = f
		}
	}
	return g, nil
}

// passArgs returns the inputs of a pass in the order in which gradientGraph reads them.
func (l *Learner) passArgs(p *pass) []any {
	args := append(p.args(), p.perToken(p.mask), p.perToken(p.behaviour), p.perToken(p.advantage),
		p.perRow(p.weight), p.perRow(p.keep), p.perRow(p.reward), p.perRow(p.groupMean),
		tensors.FromScalar(p.rollouts), tensors.FromScalar(p.policyTokens))
	if objective.TakesExperts(l.options.Objective) {
		args = append(args, p.perRow(p.expert))
	}
	needs := l.options.passNeeds()
	if needs.Reference {
		args = append(args, p.perToken(p.reference))
	}
	if needs.Anchor {
		args = append(args, p.perToken(p.anchor))
	}
	if needs.Staleness {
		args = append(args, p.perToken(p.staleness))
	}
	if needs.Critic {
		args = append(args, p.perToken(p.values), p.perToken(p.returns))
	}
	if needs.SecondMoment > 0 {
		args = append(args, tensors.FromScalar(p.secondMoment))
	}
	if needs.LogZ > 0 {
		args = append(args, p.perRow(p.logZ))
	}
	return append(args, p.lastArgs()...)
}

// gradientGraph: parameters, gradients so far, the inputs of a pass -> gradients with this pass's added, sums, rows,
// and with LogitGradients the norms of the gradients by logits.
func (l *Learner) gradientGraph(in []*Node) []*Node {
	d, rest := l.model.split(in)
	d.products = make(map[*Node]product)
	params := len(in) - len(rest)
	next := func() *Node {
		n := rest[0]
		rest = rest[1:]
		return n
	}
	sofar := make([]*Node, params)
	for i := range sofar {
		sofar[i] = next()
	}
	tokens, temperature := next(), next()
	inputs := objective.Inputs{
		Mask: next(), Behaviour: next(), Advantage: next(), Weight: next(), Keep: next(), Reward: next(),
		GroupMean: next(),
		Rollouts:  next(), Tokens: next(),
	}
	if objective.TakesExperts(l.options.Objective) {
		inputs.Expert = next()
	}
	needs := l.options.passNeeds()
	if needs.Reference {
		inputs.Reference = next()
	}
	if needs.Anchor {
		inputs.Anchor = next()
	}
	if needs.Staleness {
		inputs.Staleness = next()
	}
	if needs.Critic {
		inputs.OldValues, inputs.Returns = next(), next()
	}
	if needs.SecondMoment > 0 {
		inputs.SecondMoment = next()
	}
	if needs.LogZ > 0 {
		inputs.LogZ = next()
	}
	scores := d.score(tokens, temperature, rest)
	inputs.Logprobs, inputs.Entropy = scores.logprobs, scores.entropy
	if needs.Critic {
		inputs.Values = scores.values
	}
	if l.options.Objective.Needs().Anchor && !needs.Anchor { // the policy itself
		inputs.Anchor = StopGradient(scores.logprobs)
	}
	out := l.options.Objective.Loss(inputs)
	grads, logitGradient := d.gradient(out.Loss, in[:params], scores.logits)
	for i := range sofar {
		grads[i] = Add(sofar[i], grads[i])
	}
	grads = append(grads, out.Sums, out.Rows)
	if l.options.LogitGradients {
		grads = append(grads, logitGradientNorms(logitGradient, inputs.Rollouts, inputs.Weight))
	}
	return grads
}

// logitGradientNorms returns Feedback.GradNorm [B] from the loss's gradient by scoreNodes.logits, see
// [Learning.LogitGradients]. It scales before it squares, because the squares would underflow at small weights.
func logitGradientNorms(gradient, rollouts, weight *Node) *Node {
	scaled := Mul(gradient, Reshape(Div(rollouts, weight), -1, 1, 1))
	return Sqrt(ReduceSum(ReduceSum(Square(scaled), -1), -1))
}

// Gradients visits the gradient of each draw of a batch, in order. Draw i's gradient is its share of the gradient that
// [Learner.Step] would take of the batch, times the number of draws. What the draws have in common (denominators,
// normalised advantages, who is in the loss) is that of the whole batch. The mean of the gradients is thus the gradient
// of the step, before clipping, and their scatter its noise. A draw that MaskZeroVariance or MaxLogRatio takes out has
// gradient 0.
//
// A gradient has all parameters in the order of [hf.Config.Specs], d/d theta of the loss that Step descends. The slice
// is valid during the visit only. An error from visit ends the walk. The learner does not change. Each draw that
// is learned from costs a pass of one row.
func (l *Learner) Gradients(ctx context.Context, b *rollout.Batch, visit func(i int, gradient []float32) error) error {
	single := *l
	single.options.PassElements, single.previous = 1, nil // passes of one row, which no step has scored
	cores := runtime.GOMAXPROCS(0)
	parts := splitBatch(b, cores)
	shards, err := single.prepare(ctx, parts)
	if err != nil {
		return fmt.Errorf("gradients of single rollouts: %w", err)
	}
	var places []*pass // of each draw of the batch; nil: it is not learned from
	for i, part := range parts {
		at := make([]*pass, len(part.Draws))
		for j := range shards[i] {
			at[shards[i][j].at[0]] = &shards[i][j]
		}
		places = append(places, at...)
	}
	i := 0
	for window := range slices.Chunk(places, cores) {
		gradients := make([][]float32, len(window))
		err := concurrently(len(window), func(k int) (err error) {
			gradients[k], err = single.rowGradient(ctx, window[k], float32(len(places)))
			return err
		})
		if err != nil {
			return fmt.Errorf("gradients of single rollouts: %w", err)
		}
		for _, g := range gradients {
			if err := visit(i, g); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

// splitBatch splits a batch into n parts, or as many as it has draws, so that they are prepared concurrently.
func splitBatch(b *rollout.Batch, n int) []*rollout.Batch {
	size := max((len(b.Draws)+n-1)/n, 1)
	var parts []*rollout.Batch
	for draws := range slices.Chunk(b.Draws, size) {
		parts = append(parts, &rollout.Batch{ID: b.ID, Version: b.Version, Shard: b.Shard, Draws: draws})
	}
	return parts
}

// rowGradient returns the gradient of a pass of one row, times scale.
func (l *Learner) rowGradient(ctx context.Context, p *pass, scale float32) ([]float32, error) {
	if p == nil || p.keep[0] == 0 {
		return make([]float32, l.model.config.Parameters()), nil
	}
	alone := *p
	alone.at = []int{0}
	r, err := l.shardGradient(ctx, []pass{alone}, p.draws)
	if err != nil {
		return nil, err
	}
	flat, err := copyAll(r.gradient)
	if err != nil {
		return nil, err
	}
	for _, t := range r.gradient {
		t.FinalizeAll()
	}
	g := slices.Concat(flat...)
	for i := range g {
		g[i] *= scale
	}
	return g, nil
}
