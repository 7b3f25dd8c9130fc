package run

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Prefix has groups begin with the first part of the task's own answer, which the policy goes on with. The rollouts
// hold it without being learned from there: its tokens are masked, as those of the prompt.
type Prefix struct {
	Share float64 `yaml:"share"` // of the groups that may begin so, how many do, 0 to 1; 0: none [0]
	// most of the answer's tokens that a prefix has, as a share of them, above 0 and below 1. Each has at least one and is
	// as long as its group draws; an answer too short for one leaves its group without [0.5]
	Length float64 `yaml:"length"`
	// groups that may begin so: all, or replayed, those whose prompts prompt replay asks again [all]
	Of string `yaml:"of"`
}

// The groups of Prefix.Of.
const (
	prefixOfAll      = "all"
	prefixOfReplayed = "replayed"
)

// withDefaults returns the section with every zero but the share's replaced by its default.
func (p Prefix) withDefaults() Prefix {
	if p.Share != 0 {
		if p.Length == 0 {
			p.Length = 0.5
		}
		if p.Of == "" {
			p.Of = prefixOfAll
		}
	}
	return p
}

// validatePrefix reports what is wrong with the section.
func (c Config) validatePrefix() error {
	p := c.Generate.Prefix.withDefaults()
	var found option.Problems
	found.Check(p.Share >= 0 && p.Share <= 1, "share", p.Share, "0 (no group begins so) to 1")
	if p.Share == 0 {
		found.Check(p.Length == 0, "length", p.Length, "none with share 0: no group begins with a prefix")
		found.Check(p.Of == "", "of", p.Of, "none with share 0: no group begins with a prefix")
		return found.Err()
	}
	found.Check(p.Length > 0 && p.Length < 1, "length", p.Length, "a share of the answer's tokens, above 0 and below 1")
	found.Check(p.Of == prefixOfAll || p.Of == prefixOfReplayed, "of", p.Of, "%s or %s", prefixOfAll, prefixOfReplayed)
	found.Check(p.Of != prefixOfReplayed || c.Prompts.Fraction > 0, "of", p.Of,
		"%s with prompts.fraction 0, with which no prompt is asked again, or a fraction above 0", prefixOfAll)
	return found.Err()
}

// prefixes makes the prefixes of a run.
type prefixes struct {
	task.Demonstrator // not nil with a share
	Prefix
	seed uint64
}

// of returns the tokens that a job's group begins with after its prompt, nil for none. They leave room for another.
func (g *prefixes) of(job pipeline.Job, prompt policy.Input, m textModel, s policy.Sampling) ([]int32, error) {
	if g.Share == 0 || g.Of == prefixOfReplayed && !job.Replayed {
		return nil, nil
	}
	r := rollout.Stream(g.seed, "prefix", job.Number)
	if r.Float64() >= g.Share {
		return nil, nil
	}
	answer, err := m.encodeTurn(g.Demonstrate(job.Prompt))
	if err != nil {
		return nil, fmt.Errorf("prompt %s: %w", job.Prompt.ID, err)
	}
	answer = answer[:len(answer)-1] // without the token that ends it
	room := min(s.MaxTokens, m.model.Config().MaxPositionEmbeddings-len(prompt.Tokens)) - 1
	most := min(int(g.Length*float64(len(answer))), room)
	if most < 1 {
		return nil, nil
	}
	return answer[:1+r.IntN(most)], nil
}
