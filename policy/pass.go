package policy

import (
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// inputCount is how many tensors a pass hands to the gradient program at least: those of needs and images follow.
const inputCount = 11

// pass is the rows of one forward and backward pass, padded on the right to a bucket length.
type pass struct {
	rows, length               int
	draws                      []rollout.Draw // in the first rows; a row beyond them is padding
	tokens                     []int32        // [rows, length]
	mask, behaviour, advantage []float32      // [rows, length]
	temperature, weight, keep  []float32      // [rows]
	reward, groupMean          []float32      // [rows]
	rollouts, policyTokens     float32        // denominators of the whole step, all trainers together
	sight                      *sight

	known map[*Weights]opinion // what was asked of the pass, see Learner.ask

	// What the learner finds out before the gradient, see consult; nil is what it does not need.
	current, start, reference []float32 // [rows, length] log-probs under the policy, pi_k and the reference policy
	values, returns           []float32 // [rows, length] of the critic
	tdError                   []float64 // [draws] mean over the policy's tokens of the critic's absolute one-step errors
	dropped                   []bool    // [draws] MaxLogRatio took it out
}

func (m *Model) newPass(rows, length int) pass {
	p := pass{rows: rows, length: length, tokens: make([]int32, rows*length), sight: m.newSight(rows, length), known: map[*Weights]opinion{}}
	for _, s := range []*[]float32{&p.mask, &p.behaviour, &p.advantage} {
		*s = make([]float32, rows*length)
	}
	for _, s := range []*[]float32{&p.temperature, &p.weight, &p.keep, &p.reward, &p.groupMean} {
		*s = make([]float32, rows)
	}
	for i := range p.temperature {
		p.temperature[i] = 1
	}
	return p
}

// tensors returns the inputs in the order that gradientGraph reads them.
func (p *pass) tensors(n objective.Needs) []any {
	list := append(p.text(), p.wide(p.mask), p.wide(p.behaviour), p.wide(p.advantage))
	for _, s := range [][]float32{p.weight, p.keep, p.reward, p.groupMean} {
		list = append(list, tall(s))
	}
	list = append(list, tensors.FromScalar(p.rollouts), tensors.FromScalar(p.policyTokens))
	if n.Reference {
		list = append(list, p.wide(p.reference))
	}
	if n.Anchor {
		list = append(list, p.wide(p.start))
	}
	if n.Critic {
		list = append(list, p.wide(p.values), p.wide(p.returns))
	}
	return append(list, p.sight.tensors()...)
}

// text returns the tokens and temperatures.
func (p *pass) text() []any {
	return []any{tensors.FromFlatDataAndDimensions(p.tokens, p.rows, p.length), tall(p.temperature)}
}

func tall(s []float32) any { return tensors.FromFlatDataAndDimensions(s, len(s)) }

func (p *pass) wide(s []float32) any { return tensors.FromFlatDataAndDimensions(s, p.rows, p.length) }

// put writes a draw into row i.
func (p *pass) put(i int, d rollout.Draw, keep bool) error {
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
	return p.sight.put(i, 0, r.Tokens, r.Mask, r.Images)
}

func policyTokens(r *rollout.Rollout) float32 {
	var n float32
	for _, m := range r.Mask {
		n += float32(m)
	}
	return n
}
