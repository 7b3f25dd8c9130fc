package words

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the held-out prompts: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736533

// Task asks for stories with certain words. It is safe for concurrent use.
type Task struct {
	Verifier
	settings Settings
	seed     uint64
	train    []string // openings
	order    task.Order
	heldOut  []task.Prompt
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{settings: s, seed: seed}
	split := task.Order{Seed: heldOutSeed, Purpose: "words held-out", N: len(s.Openings)}
	for i := range s.Openings {
		opening := s.Openings[split.At(uint64(i))]
		if i < s.HeldOut {
			t.heldOut = append(t.heldOut, t.prompt(opening, heldOutSeed, uint64(i)))
		} else {
			t.train = append(t.train, opening)
		}
	}
	t.order = task.Order{Seed: seed, Purpose: "words train", N: len(t.train)}
	return t, nil
}

// Train returns the i-th training prompt: every opening once per epoch, in a fresh order.
func (t *Task) Train(i uint64) task.Prompt { return t.prompt(t.train[t.order.At(i)], t.seed, i) }

// HeldOut returns the evaluation prompts, one for every held-out opening, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt asks for the words that prompt i of the seed draws.
func (t *Task) prompt(opening string, seed, i uint64) task.Prompt {
	words := t.settings.Words
	if n := t.settings.PerPrompt; 0 < n && n < len(words) {
		drawn := rollout.Stream(seed, "words drawn", i).Perm(len(words))[:n]
		slices.Sort(drawn)
		words = make([]string, n)
		for k, at := range drawn {
			words[k] = t.settings.Words[at]
		}
	}
	name := fnv.New64a()
	name.Write([]byte(opening))
	text := strings.NewReplacer(OpeningSlot, opening, WordsSlot, strings.Join(words, ", "))
	return task.Prompt{
		ID:     fmt.Sprintf("words/%016x/%s", name.Sum64(), strings.Join(words, "+")),
		Text:   text.Replace(t.settings.Template),
		Answer: strings.Join(words, " "),
	}
}
