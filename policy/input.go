package policy

import "fmt"

// Input is tokens that the policy did not produce: a prompt, or what an environment says between turns. Where the model has a
// tower, every image is a run of as many image tokens (hf.Vision) as it has patches, and the images stand in the order of their runs.
type Input struct {
	Tokens []int32
	Images [][]byte // PNG, squares of the tower's ImageSize
	Mask   []uint8  // of a whole sequence to score: 1 where the policy produced the token, so that it is none of an image; nil: nowhere
}

// Plain returns inputs of tokens alone.
func Plain(tokens ...[]int32) []Input {
	list := make([]Input, len(tokens))
	for i, t := range tokens {
		list[i].Tokens = t
	}
	return list
}

// checkInput reports what a model cannot read.
func (m *Model) checkInput(row int, in Input) error {
	if err := m.checkTokens(row, in.Tokens); err != nil {
		return err
	}
	if in.Mask != nil && len(in.Mask) != len(in.Tokens) {
		return fmt.Errorf("row %d: a mask of %d for %d tokens: give one entry for each", row, len(in.Mask), len(in.Tokens))
	}
	if err := m.checkImages(m.imageTokens(in.Tokens, in.Mask), in.Images); err != nil {
		return fmt.Errorf("row %d: %w", row, err)
	}
	return nil
}

func (m *Model) checkTokens(row int, tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("row %d has no tokens: give at least one", row)
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= m.config.VocabSize {
			return fmt.Errorf("row %d, token %d: id %d is out of range: the vocabulary is 0 to %d", row, i, t, m.config.VocabSize-1)
		}
	}
	return nil
}

// imageTokens counts the tokens that stand for patches: image tokens that the policy did not write (mask, nil: it wrote none).
func (m *Model) imageTokens(tokens []int32, mask []uint8) int {
	if m.config.Vision.Tokens() == 0 {
		return 0
	}
	n := 0
	for i, t := range tokens {
		if int(t) == m.config.Vision.ImageTokenID && (mask == nil || mask[i] == 0) {
			n++
		}
	}
	return n
}
