package policy

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"

	"github.com/reprise-rl/reprise/rollout"
)

// pack lays the batches of all trainers out as passes, each of the next draws of one trainer.
func (l *Learner) pack(batches []*rollout.Batch) ([][]pass, error) {
	shards := make([][]pass, len(batches))
	for i, b := range batches {
		if len(b.Draws) == 0 {
			return nil, fmt.Errorf("trainer %d has an empty batch: give every trainer at least one rollout", i)
		}
		for from := 0; from < len(b.Draws); {
			part, err := l.cut(b.Draws[from:])
			if err != nil {
				return nil, fmt.Errorf("trainer %d: %w", i, err)
			}
			p := l.model.newPass(part.rows, part.length)
			p.draws = b.Draws[from:min(from+part.rows, len(b.Draws))]
			for j, d := range p.draws {
				if err := p.put(j, d, !l.masked(d)); err != nil {
					return nil, fmt.Errorf("trainer %d: rollout %d: %w", i, d.ID, err)
				}
			}
			shards[i] = append(shards[i], p)
			from += part.rows
		}
	}
	return shards, nil
}

// masked tells whether MaskZeroVariance takes a draw out of the loss.
func (l *Learner) masked(d rollout.Draw) bool { return l.options.MaskZeroVariance && d.GroupStd <= 0 }

// divide sets the denominators that all passes share: the draws in the loss, with MaskedInDenominator those that
// MaskZeroVariance took out of it, and never those that MaxLogRatio did.
func (l *Learner) divide(shards [][]pass) {
	var rollouts, tokens float32
	for p := range eachPass(shards) {
		for j, d := range p.draws {
			if !p.drops(j) && (!l.masked(d) || l.options.MaskedInDenominator) {
				rollouts++
				tokens += policyTokens(d.Rollout)
			}
		}
	}
	for p := range eachPass(shards) {
		p.rollouts, p.policyTokens = max(rollouts, 1), max(tokens, 1)
	}
}

// eachPass yields the passes of all trainers in their order, to be changed in place.
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

// attentionElements bounds heads x positions x positions of the rows of one pass, the size of the matrices of attention, a dozen of
// which are held at once: 16 MB each. The rows are then a power of two, as batches tend to be, so that passes are of few sizes.
const attentionElements = 1 << 22

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
	c := l.model.config
	rows := max(l.options.PassElements/(length*c.VocabSize), 1)
	if fit := max(attentionElements/(length*length*c.NumAttentionHeads), 1); rows > fit {
		rows = 1 << (bits.Len(uint(fit)) - 1)
	}
	if rows < len(draws) {
		return extent{rows: rows, length: length}, nil
	}
	return extent{rows: len(draws), length: length}, nil
}
