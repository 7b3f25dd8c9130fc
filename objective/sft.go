package objective

import (
	"fmt"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// SFT is cross-entropy, minus the mean of log pi over the tokens of demonstrations: the supervised
// warm-up before reinforcement learning.
type SFT struct {
	Normalisation Normalisation // PerSequence or PerToken; empty: PerSequence
}

// Name returns "sft".
func (SFT) Name() string { return "sft" }

// Validate reports every option out of its range.
func (o SFT) Validate() error {
	switch o.Normalisation.orDefault() {
	case PerSequence, PerToken:
		return nil
	}
	return fmt.Errorf("normalisation: %q: want %q or %q", o.Normalisation, PerSequence, PerToken)
}

// Needs implements Objective: nothing.
func (SFT) Needs() Needs { return Needs{} }

// Loss implements Objective. Logprobs are those of the demonstration's tokens at temperature 1.
func (o SFT) Loss(in Inputs) Output {
	s := prepare(in, o)
	return s.output(Neg(o.Normalisation.reduce(s, s.logp, 0)), measured{})
}
