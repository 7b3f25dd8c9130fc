package policy

import (
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// inputCount is how many tensors a pass hands to the gradient program.
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
}

func newPass(rows, length int) pass {
	p := pass{rows: rows, length: length, tokens: make([]int32, rows*length)}
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
func (p *pass) tensors() []any {
	wide := func(s []float32) any { return tensors.FromFlatDataAndDimensions(s, p.rows, p.length) }
	list := []any{tensors.FromFlatDataAndDimensions(p.tokens, p.rows, p.length), tensors.FromValue(p.temperature),
		wide(p.mask), wide(p.behaviour), wide(p.advantage)}
	for _, s := range [][]float32{p.weight, p.keep, p.reward, p.groupMean} {
		list = append(list, tensors.FromValue(s))
	}
	return append(list, tensors.FromScalar(p.rollouts), tensors.FromScalar(p.policyTokens))
}

// put writes a draw into row i.
func (p *pass) put(i int, d rollout.Draw, keep bool) {
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
}

// pack lays the batches of all trainers out as passes, and sets the denominators that they share.
func (l *Learner) pack(batches []*rollout.Batch) ([][]pass, error) {
	shards := make([][]pass, len(batches))
	var rollouts, tokens float32
	for i, b := range batches {
		if len(b.Draws) == 0 {
			return nil, fmt.Errorf("trainer %d has an empty batch: give every trainer at least one rollout", i)
		}
		for from := 0; from < len(b.Draws); {
			part, err := l.cut(b.Draws[from:])
			if err != nil {
				return nil, fmt.Errorf("trainer %d: %w", i, err)
			}
			p := newPass(part.rows, part.length)
			p.draws = b.Draws[from:min(from+part.rows, len(b.Draws))]
			for j, d := range p.draws {
				keep := !l.options.MaskZeroVariance || d.GroupStd > 0
				p.put(j, d, keep)
				if keep || l.options.MaskedInDenominator {
					rollouts++
					tokens += policyTokens(d.Rollout)
				}
			}
			shards[i] = append(shards[i], p)
			from += part.rows
		}
	}
	for _, s := range shards {
		for i := range s {
			s[i].rollouts, s[i].policyTokens = max(rollouts, 1), max(tokens, 1)
		}
	}
	return shards, nil
}

func policyTokens(r *rollout.Rollout) float32 {
	var n float32
	for _, m := range r.Mask {
		n += float32(m)
	}
	return n
}

// cut says how many of the draws the next pass takes, and how long it is.
func (l *Learner) cut(draws []rollout.Draw) (extent, error) {
	longest := 0
	for _, d := range draws {
		longest = max(longest, len(d.Rollout.Tokens))
	}
	limit := l.model.config.MaxPositionEmbeddings
	if longest > limit {
		return extent{}, fmt.Errorf("a rollout has %d tokens, the model %d positions: shorten task prompts or max_tokens", longest, limit)
	}
	if longest < 2 {
		return extent{}, errors.New("rollouts of a single token teach nothing: prompts need at least one token")
	}
	length := bucket(longest, limit)
	rows := max(l.options.PassElements/(length*l.model.config.VocabSize), 1)
	if rows < len(draws) {
		return extent{rows: rows, length: length}, nil
	}
	return extent{rows: len(draws), length: length}, nil
}
