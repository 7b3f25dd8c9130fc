package run

import (
	"fmt"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/task"
)

// speaker is a model with the tokenizer of its texts.
type speaker struct {
	model     *policy.Model
	tokenizer *hf.Tokenizer
}

// input returns a prompt as the policy reads it: the token that begins a text if the tokenizer has one, the image, the text.
func (s speaker) input(p task.Prompt) (policy.Input, error) {
	tokens, err := s.tokenizer.Encode(p.Text)
	if err != nil {
		return policy.Input{}, fmt.Errorf("encode prompt %q: %w", p.Text, err)
	}
	begin := 0
	if len(tokens) > 0 && s.tokenizer.BOS() != hf.NoToken && int(tokens[0]) == s.tokenizer.BOS() {
		begin = 1
	}
	in := s.shown(tokens, begin, p.Image)
	if n, most := len(in.Tokens), s.model.Config().MaxPositionEmbeddings; n >= most {
		return policy.Input{}, fmt.Errorf("policy.positions: %d: want %d or more: prompt %s has %d tokens, which leave no room for a turn", most, n+1, p.ID, n)
	}
	return in, nil
}

// observation returns what an environment answered as the policy reads it before its next turn: the image, the text.
func (s speaker) observation(step task.Step) (policy.Input, error) {
	tokens, err := s.tokenizer.EncodePart(step.Text)
	if err != nil {
		return policy.Input{}, fmt.Errorf("encode the observation %q: %w", step.Text, err)
	}
	return s.shown(tokens, 0, step.Image), nil
}

// shown puts an image, if there is one, before the token at a place.
func (s speaker) shown(tokens []int32, at int, image []byte) policy.Input {
	if image == nil {
		return policy.Input{Tokens: tokens}
	}
	tower := s.model.Config().Vision
	all := append([]int32{}, tokens[:at]...)
	for range tower.Tokens() {
		all = append(all, int32(tower.ImageTokenID))
	}
	return policy.Input{Tokens: append(all, tokens[at:]...), Images: [][]byte{image}}
}

// said returns the text of a row's latest turn, without the token that ended it.
func (s speaker) said(row policy.Row) string {
	return s.tokenizer.Decode(row.Tokens[row.Turn:])
}

// written returns a text of the policy's as tokens, ended by the end-of-sequence token.
func (s speaker) written(text string) ([]int32, error) {
	tokens, err := s.tokenizer.EncodePart(text)
	if err != nil {
		return nil, fmt.Errorf("encode the demonstration %q: %w", text, err)
	}
	eos := s.tokenizer.EOS()
	if len(eos) == 0 {
		return nil, fmt.Errorf("the tokenizer has no end-of-sequence token to learn: add eos_token_id to config.json")
	}
	return append(tokens, eos[0]), nil
}
