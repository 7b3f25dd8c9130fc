package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// pass is the rows of one forward and backward pass, padded on the right.
type pass struct {
	text
	draws                      []rollout.Draw // of the first rows; the rest is padding
	at                         []int          // of each, its place in the trainer's batch
	mask, behaviour, advantage []float32      // [rows, length]
	weight, keep               []float32      // [rows]
	expert                     []float32      // [rows] 1 if the rollout has no log-probs
	reward, groupMean          []float32      // [rows]
	rollouts, policyTokens     float32        // denominators of the whole step, over all trainers
	secondMoment               float32        // of the whole step, see objective.SecondMoment
	logZ                       []float32      // [rows] see objective.LogZ; nil: not needed
	staleness                  []float32      // [rows, length] of each token, in versions; nil: not needed

	scores map[*Weights]Score // what scoreOnce computed; slices are [rows, length]

	// What prepare computes before the gradient; nil if not needed.
	current, anchor, reference []float32 // [rows, length] log-probs under the policy, pi_k and the reference policy
	values, returns            []float32 // [rows, length] of the critic
	// [draws] mean over the policy's tokens of the critic's absolute one-step errors
	tdError  []float64
	filtered []bool // [draws] MaxLogRatio took it out
}

func (m *Model) newPass(rows, length int) pass {
	p := pass{text: m.newText(rows, length), scores: map[*Weights]Score{}}
	for _, s := range []*[]float32{&p.mask, &p.behaviour, &p.advantage} {
		*s = make([]float32, rows*length)
	}
	for _, s := range []*[]float32{&p.weight, &p.keep, &p.expert, &p.reward, &p.groupMean} {
		*s = make([]float32, rows)
	}
	return p
}

// set writes a draw into row i.
func (p *pass) set(i int, d rollout.Draw, keep bool) error {
	r, from := d.Rollout, i*p.length
	copy(p.tokens[from:], r.Tokens)
	for j, m := range r.Mask {
		if m == 0 {
			continue
		}
		p.mask[from+j] = 1
		p.behaviour[from+j] = r.Logprobs[j]
		p.advantage[from+j] = d.Advantage
		if r.Advantages != nil {
			p.advantage[from+j] = r.Advantages[j]
		}
	}
	p.temperature[i], p.weight[i] = r.Temperature, d.Weight
	p.reward[i], p.groupMean[i] = r.Reward, d.GroupMean
	if keep {
		p.keep[i] = 1
	}
	p.scoreMasked(i, r.Mask)
	return errors.Join(p.images.add(i, 0, r.Tokens, r.Mask, r.Images), p.restrict(i, r.SamplingMask))
}

// setStaleness says for each token of draw i how many versions older it is than the table was as it was drawn. Its
// staleness has grown since by the updates on its batch, which began at a version that Updates divides.
func (p *pass) setStaleness(i, updates int) {
	if p.staleness == nil {
		p.staleness = make([]float32, len(p.mask))
	}
	d := p.draws[i]
	newest := rollout.Version(d.Staleness) + d.Rollout.Version() - rollout.Version(updates)
	for at := range p.policyIndices(i) {
		p.staleness[at] = float32(newest - d.Rollout.Versions[at-i*p.length])
	}
}

// policyIndices yields where the policy's tokens of draw i are in arrays [rows, length].
func (p *pass) policyIndices(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for j, m := range p.draws[i].Rollout.Mask {
			if m == 1 && !yield(i*p.length+j) {
				return
			}
		}
	}
}

func countPolicyTokens(r *rollout.Rollout) float32 {
	var n float32
	for _, m := range r.Mask {
		n += float32(m)
	}
	return n
}

// eachPass yields the passes of all trainers in order, to be changed in place.
func eachPass(shards [][]pass) iter.Seq[*pass] {
	return func(yield func(*pass) bool) {
		for _, s := range shards {
			for i := range s {
				if !yield(&s[i]) {
					return
				}
			}
		}
	}
}

// prepare lays out the batches of a step and computes what the loss needs before the gradient: log-probs and values of
// other weights, then which draws count (keep), then the advantages and denominators, which are over those draws.
func (l *Learner) prepare(ctx context.Context, batches []*rollout.Batch) ([][]pass, error) {
	shards, err := l.pack(batches)
	if err != nil {
		return nil, err
	}
	l.reuseScores(shards)
	if err := l.evaluate(ctx, shards); err != nil {
		return nil, err
	}
	l.filter(shards)
	if err := l.estimateAdvantages(shards); err != nil {
		return nil, err
	}
	l.penalise(shards)
	l.setDenominators(shards, batches)
	l.setSecondMoment(shards)
	l.setLogZ(shards)
	return shards, l.weighExperts(shards)
}

// pack lays the batches of all trainers out as passes. Each takes some draws of one trainer, of similar length.
func (l *Learner) pack(batches []*rollout.Batch) ([][]pass, error) {
	shards := make([][]pass, len(batches))
	for i, b := range batches {
		if len(b.Draws) == 0 {
			return nil, fmt.Errorf("trainer %d has an empty batch: give every trainer at least one rollout", i)
		}
		for order := l.packed(b.Draws); len(order) > 0; {
			rows, length, err := l.passSize(len(order), len(b.Draws[order[0]].Rollout.Tokens))
			if err != nil {
				return nil, fmt.Errorf("trainer %d: %w", i, err)
			}
			p := l.model.newPass(rows, length)
			p.at, order = order[:min(rows, len(order))], order[min(rows, len(order)):]
			most := 0
			for _, at := range p.at {
				most = max(most, int(countPolicyTokens(b.Draws[at].Rollout)))
			}
			p.scoreAtMost(most)
			for j, at := range p.at {
				d := b.Draws[at]
				if !d.Rollout.LogprobsKnown() {
					if !objective.TakesExperts(l.options.Objective) {
						return nil, fmt.Errorf("trainer %d: rollout %d: logprobs: NaN: want numbers: objective %s reads them; "+
							"set learner.experts, with an objective that takes it, or leave such rollouts out by a source "+
							"with where: known(mean_logprob)", i, d.ID, l.options.Objective.Name())
					}
					p.expert[j] = 1
				}
				p.draws = append(p.draws, d)
				if l.options.Objective.Needs().Staleness {
					p.setStaleness(j, int(l.weights.Version)%l.options.Updates)
				}
				if err := p.set(j, d, !l.masked(d)); err != nil {
					return nil, fmt.Errorf("trainer %d: rollout %d: %w", i, d.ID, err)
				}
			}
			shards[i] = append(shards[i], p)
		}
	}
	return shards, nil
}

// packed returns the places of the draws that passes take, the longest first, so that there is little padding.
func (l *Learner) packed(draws []rollout.Draw) []int {
	var order []int
	for i, d := range draws {
		if !l.skipped(d) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(len(draws[j].Rollout.Tokens), len(draws[i].Rollout.Tokens))
	})
	return order
}

// attentionElements bounds heads x positions x positions of the rows of one pass, the size of the matrices of
// attention. A dozen of them, 16 MB each, exist at once. The number of rows is then a power of two, as batches tend to
// be, so that passes have few sizes.
const attentionElements = 1 << 22

// passSize returns the rows of the next pass of n draws, of which the longest has the given number of tokens, and its
// length.
func (l *Learner) passSize(n, longest int) (rows, length int, err error) {
	c := l.model.config
	if limit := c.MaxPositionEmbeddings; longest > limit {
		return 0, 0, fmt.Errorf("a rollout has %d tokens, the model %d positions: shorten task prompts or max_tokens",
			longest, limit)
	}
	if longest < 2 {
		return 0, 0, errors.New("a batch of rollouts of a single token: want 2 tokens or more, one of them the " +
			"prompt's")
	}
	length = roundLength(longest, c.MaxPositionEmbeddings)
	rows = max(l.options.PassElements/(length*c.VocabSize), 1)
	if fit := max(attentionElements/(length*length*c.NumAttentionHeads), 1); rows > fit {
		rows = 1 << (bits.Len(uint(fit)) - 1)
	}
	return min(rows, roundRows(n)), length, nil
}

// roundRows rounds a number of rows up by an eighth at most, so that few shapes are compiled.
func roundRows(n int) int {
	step := max(1<<bits.Len(uint(n-1))/16, 1)
	return (n + step - 1) / step * step
}

// masked reports whether MaskZeroVariance takes a draw out of the loss.
func (l *Learner) masked(d rollout.Draw) bool {
	if l.options.Regrouped {
		return l.options.MaskZeroVariance && d.Advantage == 0
	}
	return l.options.MaskZeroVariance && d.GroupStd <= 0
}

// skipped reports whether a draw is in no pass: it is out of the loss, and no filter needs its log-ratio.
func (l *Learner) skipped(d rollout.Draw) bool { return l.masked(d) && l.options.MaxLogRatio == 0 }

// evaluate computes the log-probs and values that passes need of the policy, of the policy at the start of the batch
// and of the reference policy. Shards run concurrently. If nothing is needed, there is no forward pass.
func (l *Learner) evaluate(ctx context.Context, shards [][]pass) error {
	return concurrently(len(shards), func(i int) error {
		for j := range shards[i] {
			if err := l.evaluatePass(ctx, &shards[i][j]); err != nil {
				return fmt.Errorf("trainer %d: %w", i, err)
			}
		}
		return nil
	})
}

func (l *Learner) evaluatePass(ctx context.Context, p *pass) error {
	o := l.options
	var current, anchor, reference Score
	var errs [3]error
	if o.MaxLogRatio > 0 || o.KLPenalty > 0 || o.Objective.Needs().SecondMoment > 0 ||
		o.Objective.Needs().LogZ > 0 {
		current, errs[0] = l.scoreOnce(ctx, p, l.weights)
	}
	if o.passNeeds().Anchor || o.recomputesValues() {
		anchor, errs[1] = l.scoreOnce(ctx, p, l.anchorOrNewest())
	}
	if o.needsReference() {
		reference, errs[2] = l.scoreOnce(ctx, p, l.reference)
	}
	p.current, p.anchor, p.reference = current.Logprobs, anchor.Logprobs, reference.Logprobs
	if o.recomputesValues() {
		p.values = anchor.Values
	}
	return errors.Join(errs[:]...)
}

// scoreOnce scores a pass with weights, once for each. The policy, pi_k and the reference policy are often the same
// weights, and the steps on a batch share some.
func (l *Learner) scoreOnce(ctx context.Context, p *pass, w *Weights) (Score, error) {
	if s, ok := p.scores[w]; ok {
		return s, nil
	}
	if err := ctx.Err(); err != nil {
		return Score{}, err
	}
	inFlight <- struct{}{}
	s, err := l.model.scoreText(w, p.text)
	<-inFlight
	if err == nil {
		p.scores[w] = s
	}
	return s, err
}

// keepScores keeps the passes of a step, with the scores that the next step may need, if that is on the same batch.
func (l *Learner) keepScores(shards [][]pass) {
	l.previous = nil
	if l.step%l.options.Updates == 0 {
		return
	}
	l.previous = shards
	for p := range eachPass(shards) {
		p.images, p.allowed = nil, nil // large
		maps.DeleteFunc(p.scores, func(w *Weights, _ Score) bool {
			return w != l.weights && w != l.anchorOrNewest() && w != l.reference
		})
	}
}

// reuseScores gives passes the scores of the step before if they have the same rollouts, which are immutable.
func (l *Learner) reuseScores(shards [][]pass) {
	for i, s := range shards {
		for j := range s {
			if i < len(l.previous) && j < len(l.previous[i]) && l.previous[i][j].sameRollouts(&s[j]) {
				s[j].scores = l.previous[i][j].scores
			}
		}
	}
}

// sameRollouts reports whether two passes have the same size and rollouts.
func (p *pass) sameRollouts(q *pass) bool {
	if p.rows != q.rows || p.length != q.length || len(p.draws) != len(q.draws) {
		return false
	}
	for i := range p.draws {
		if p.draws[i].Rollout != q.draws[i].Rollout {
			return false
		}
	}
	return true
}

// filter takes the draws whose mean log-ratio is above MaxLogRatio out of the loss.
func (l *Learner) filter(shards [][]pass) {
	if l.options.MaxLogRatio == 0 {
		return
	}
	for p := range eachPass(shards) {
		p.filtered = make([]bool, len(p.draws))
		for i, d := range p.draws {
			if n := max(countPolicyTokens(d.Rollout), 1); p.logRatio(i, p.current, p.behaviour)/float64(n) > l.options.MaxLogRatio {
				p.filtered[i], p.keep[i] = true, 0
			}
		}
	}
}

// logRatio returns the sum of logprobs - of over the policy's tokens of draw i; both are log-probs [rows, length].
func (p *pass) logRatio(i int, logprobs, of []float32) (sum float64) {
	for at := range p.policyIndices(i) {
		sum += float64(logprobs[at]) - float64(of[at])
	}
	return sum
}

// setDenominators sets the denominators that all passes share: the draws in the loss, with MaskedInDenominator also
// those that MaskZeroVariance took out of it, but never those that MaxLogRatio took out.
func (l *Learner) setDenominators(shards [][]pass, batches []*rollout.Batch) {
	var rollouts, tokens float32
	count := func(d rollout.Draw) {
		rollouts++
		tokens += countPolicyTokens(d.Rollout)
	}
	for p := range eachPass(shards) {
		for i, d := range p.draws {
			if !p.isFiltered(i) && (!l.masked(d) || l.options.MaskedInDenominator) {
				count(d)
			}
		}
	}
	for _, b := range batches {
		for _, d := range b.Draws {
			if l.options.MaskedInDenominator && l.skipped(d) {
				count(d)
			}
		}
	}
	for p := range eachPass(shards) {
		p.rollouts, p.policyTokens = max(rollouts, 1), max(tokens, 1)
	}
}

// setSecondMoment sets the bound of objective.M2PO, which all passes share.
func (l *Learner) setSecondMoment(shards [][]pass) {
	limit := l.options.Objective.Needs().SecondMoment
	if limit == 0 {
		return
	}
	var tokens []objective.Moment
	for p := range eachPass(shards) {
		for i := range p.draws {
			if p.keep[i] == 0 || p.expert[i] != 0 {
				continue
			}
			for at := range p.policyIndices(i) {
				tokens = append(tokens, objective.Moment{LogRatio: float64(p.current[at] - p.behaviour[at]),
					Advantage: float64(p.advantage[at])})
			}
		}
	}
	bound := float32(objective.SecondMoment(tokens, limit))
	for p := range eachPass(shards) {
		p.secondMoment = bound
	}
}

// weighExperts multiplies the weights of rollouts so that the loss is (1 - mu) times the mean over those with log-probs
// and mu times the mean over those without, mu being ExpertWeight.
func (l *Learner) weighExperts(shards [][]pass) error {
	if l.options.ExpertWeight == nil {
		return nil
	}
	mu := float32(l.expertWeight())
	if mu != mu {
		return fmt.Errorf("learner.expert_weight: not a number at version %d: write an expression that is one at every "+
			"version", l.weights.Version)
	}
	var n [2]float32 // with log-probs, and without
	for p := range eachPass(shards) {
		for i := range p.draws {
			n[int(p.expert[i])] += p.keep[i]
		}
	}
	of := [2]float32{(1 - mu) * (n[0] + n[1]) / max(n[0], 1), mu * (n[0] + n[1]) / max(n[1], 1)}
	for p := range eachPass(shards) {
		for i := range p.draws {
			p.weight[i] *= of[int(p.expert[i])]
		}
	}
	return nil
}

// expertWeight returns ExpertWeight at the newest version, held within [0, 1], and 0 without it. NaN stays.
func (l *Learner) expertWeight() float64 {
	if l.options.ExpertWeight == nil {
		return 0
	}
	return min(max(l.options.ExpertWeight(l.weights.Version), 0), 1)
}

// setLogZ estimates the normalisation of objective.TrajectoryBalance from the draws that count, over all trainers.
func (l *Learner) setLogZ(shards [][]pass) {
	beta := l.options.Objective.Needs().LogZ
	if beta == 0 {
		return
	}
	var draws []objective.Trajectory
	for p := range eachPass(shards) {
		p.logZ = make([]float32, p.rows)
		for i, d := range p.draws {
			if p.keep[i] != 0 {
				draws = append(draws, objective.Trajectory{Prompt: d.Rollout.PromptID, Reward: float64(p.reward[i]),
					LogRatio: p.logRatio(i, p.current, p.reference)})
			}
		}
	}
	list := objective.LogZ(draws, beta)
	for p := range eachPass(shards) {
		for i := range p.draws {
			if p.keep[i] != 0 {
				p.logZ[i], list = float32(list[0]), list[1:]
			}
		}
	}
}

// isFiltered reports whether MaxLogRatio took draw i out of the loss.
func (p *pass) isFiltered(i int) bool { return p.filtered != nil && p.filtered[i] }
