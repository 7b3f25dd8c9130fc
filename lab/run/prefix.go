package run

import (
	"bufio"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Prefix has groups begin with the first part of another's answer, which the policy goes on with. The rollouts hold it
// without being learned from there: its tokens are masked, as those of the prompt.
type Prefix struct {
	Share float64 `yaml:"share"` // of the groups that may begin so, how many do, 0 to 1; 0: none [0]
	// whose answer: expert, the task's own, or replay, the policy's latest right answer to the prompt that entered the
	// table, if one did [expert]
	Source string `yaml:"source"`
	// most of the answer's tokens that a prefix has, as a share of them, above 0 and below 1. Each has at least one and is
	// as long as its group draws; an answer too short for one leaves its group without [0.5]
	Length float64 `yaml:"length"`
	// groups that may begin so: all, or replayed, those whose prompts prompt replay asks again [all]
	Of string `yaml:"of"`
}

// The values of Prefix.Source and Of.
const (
	prefixOfExpert   = "expert"
	prefixOfEarlier  = "replay"
	prefixOfAll      = "all"
	prefixOfReplayed = "replayed"
)

// withDefaults returns the section with every zero but the share's replaced by its default.
func (p Prefix) withDefaults() Prefix {
	if p.Share != 0 {
		p.Source, p.Of = cmp.Or(p.Source, prefixOfExpert), cmp.Or(p.Of, prefixOfAll)
		p.Length = cmp.Or(p.Length, 0.5)
	}
	return p
}

// ShowsAnswers reports whether some rollouts are the task's own answers, or begin with them.
func (g Generate) ShowsAnswers() bool {
	p := g.Prefix.withDefaults()
	return g.Experts > 0 || p.Share > 0 && p.Source == prefixOfExpert
}

// validatePrefix reports what is wrong with the section.
func (c Config) validatePrefix() error {
	p := c.Generate.Prefix.withDefaults()
	var found option.Problems
	found.Check(p.Share >= 0 && p.Share <= 1, "share", p.Share, "0 (no group begins so) to 1")
	if p.Share == 0 {
		found.Check(p == Prefix{}, "share", p.Share, "more than 0 with source, length or of, or none of these")
		return found.Err()
	}
	found.Check(p.Source == prefixOfExpert || p.Source == prefixOfEarlier, "source", p.Source, "%s or %s", prefixOfExpert,
		prefixOfEarlier)
	found.Check(p.Source != prefixOfEarlier || c.Generate.Experts == 0, "source", p.Source,
		"%s with generate.experts %d, whose rollouts are no answers of the policy", prefixOfExpert, c.Generate.Experts)
	found.Check(p.Length > 0 && p.Length < 1, "length", p.Length, "a share of the answer's tokens, above 0 and below 1")
	found.Check(p.Of == prefixOfAll || p.Of == prefixOfReplayed, "of", p.Of, "%s or %s", prefixOfAll, prefixOfReplayed)
	found.Check(p.Of != prefixOfReplayed || c.Prompts.Fraction > 0, "of", p.Of,
		"%s with prompts.fraction 0, with which no prompt is asked again, or a fraction above 0", prefixOfAll)
	return found.Err()
}

// validateFor checks that the task has what prefixes are of.
func (p Prefix) validateFor(t task.Task, name string) error {
	p = p.withDefaults()
	_, shows := t.(task.Demonstrator)
	_, plays := t.(task.Environment)
	var found option.Problems
	found.Check(p.Source != prefixOfExpert || shows || plays, "generate.prefix.source", p.Source, "%s, or share 0: task %s has no "+
		"demonstrations of one turn", prefixOfEarlier, name)
	found.Check(p.Share == 0 || !plays, "generate.prefix.share", p.Share, "0: rollouts of task %s are episodes", name)
	return found.Err()
}

// prefixes makes the prefixes of a run.
type prefixes struct {
	task.Demonstrator // not nil with a share of source expert
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
	var answer []int32
	switch {
	case g.Source == prefixOfExpert:
		var err error
		if answer, err = m.encodeTurn(g.Demonstrate(job.Prompt)); err != nil {
			return nil, fmt.Errorf("prompt %s: %w", job.Prompt.ID, err)
		}
	case job.Earlier != nil:
		answer = job.Earlier.Tokens[len(prompt.Tokens):]
	}
	if len(answer) == 0 {
		return nil, nil
	}
	answer = answer[:len(answer)-1] // without the token that ends it
	room := min(s.MaxTokens, m.model.Config().MaxPositionEmbeddings-len(prompt.Tokens)) - 1
	most := min(int(g.Length*float64(len(answer))), room)
	if most < 1 {
		return nil, nil
	}
	return answer[:1+r.IntN(most)], nil
}

// answersFile is the part of a checkpoint that holds the earlier answers.
const answersFile = "answers.gob"

// maxAnswers bounds the prompts whose answers are kept. Where more are asked hardly any is asked again.
const maxAnswers = 1 << 16

// answers are the latest right answers to prompts. A nil one keeps none.
type answers struct {
	threshold float64 // a reward from which on an answer is right
	byPrompt  map[string]*rollout.Rollout
}

// newAnswers returns what keeps the answers of a run, nil where nothing begins like them.
func (c Config) newAnswers() *answers {
	if c.Generate.Prefix.withDefaults().Source != prefixOfEarlier {
		return nil
	}
	return &answers{float64(*c.replayOptions(0).WithDefaults().PositiveThreshold), make(map[string]*rollout.Rollout)}
}

// earlier gives the pipeline the answers, nil where none are kept.
func (s *session) earlier() pipeline.Answers {
	if s.answers == nil {
		return nil
	}
	return s.answers
}

// Answer returns the latest right answer to a job's prompt, nil if there is none.
func (a *answers) Answer(job pipeline.Job) *rollout.Rollout { return a.byPrompt[job.Prompt.ID] }

// keep takes the last right one of a group.
func (a *answers) keep(group []*rollout.Rollout) {
	if a == nil {
		return
	}
	for _, r := range group {
		if _, known := a.byPrompt[r.PromptID]; float64(r.Reward) >= a.threshold && (known || len(a.byPrompt) < maxAnswers) {
			a.byPrompt[r.PromptID] = r
		}
	}
}

func (a *answers) save(dir string) error {
	if a == nil {
		return nil
	}
	var list []*rollout.Rollout // in order, so that the same answers are the same bytes
	for _, id := range slices.Sorted(maps.Keys(a.byPrompt)) {
		list = append(list, a.byPrompt[id])
	}
	return writeStream(filepath.Join(dir, answersFile), func(w *bufio.Writer) error { return gob.NewEncoder(w).Encode(list) })
}

func (a *answers) restore(place string) error {
	if a == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(place, answersFile))
	if err != nil {
		return err
	}
	var list []*rollout.Rollout
	err = gob.NewDecoder(bufio.NewReader(f)).Decode(&list)
	for _, r := range list {
		a.byPrompt[r.PromptID] = r
	}
	return errors.Join(err, f.Close())
}
