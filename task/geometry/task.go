package geometry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the held-out figures: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736538

// Task asks about figures. It is safe for concurrent use.
type Task struct {
	settings  Settings
	seed      uint64
	questions []question
	figures   map[shape][]figure
	heldOut   []task.Prompt
	reserved  map[figure]bool
	encoder   encoder
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{settings: s, seed: seed, figures: map[shape][]figure{}, reserved: map[figure]bool{}}
	for _, name := range s.Questions {
		q := of(name)
		t.questions = append(t.questions, q)
		if t.figures[q.shape] == nil {
			t.figures[q.shape] = figures(q.shape, s.Max)
		}
	}
	r := rollout.Stream(heldOutSeed, "geometry held-out", 0)
	for i := range s.HeldOut { // at most half of the figures of a shape are taken: two draws each at worst
		q := t.questions[i%len(t.questions)]
		f := t.free(q.shape, r)
		t.reserved[f] = true
		t.heldOut = append(t.heldOut, t.prompt(q, f, t.shift(f.shape, r)))
	}
	return t, nil
}

// free draws a figure that is not held out.
func (t *Task) free(s shape, r *rand.Rand) figure {
	for {
		all := t.figures[s]
		if f := all[r.IntN(len(all))]; !t.reserved[f] {
			return f
		}
	}
}

// Train returns the i-th training prompt: questions are equally likely, and so are the figures of a question.
func (t *Task) Train(i uint64) task.Prompt {
	r := rollout.Stream(t.seed, "geometry train", i)
	q := t.questions[r.IntN(len(t.questions))]
	f := t.free(q.shape, r)
	return t.prompt(q, f, t.shift(f.shape, r))
}

// shift draws where a figure stands in its image.
func (t *Task) shift(s shape, r *rand.Rand) offset {
	space := room(s, t.settings.ImageSize, t.settings.Max) + 1
	return offset{r.IntN(space), r.IntN(space)}
}

// HeldOut returns the evaluation prompts, the same for every seed; the questions take turns.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

func (t *Task) prompt(q question, f figure, shift offset) task.Prompt {
	return task.Prompt{
		ID:     fmt.Sprintf("geometry/%s/%v+%d,%d", q.name, f, shift.x, shift.y),
		Text:   q.text(t.settings.Format),
		Image:  t.encoder.file(f.draw(t.settings.ImageSize, t.settings.Max, shift)),
		Answer: strconv.Itoa(q.answer(f)),
	}
}

// Demonstrate returns the answer.
func (t *Task) Demonstrate(p task.Prompt) string { return p.Answer }

// ImageSize returns the pixels of a side of the images.
func (t *Task) ImageSize() int { return t.settings.ImageSize }

// Characters returns the digits, "?" and the letters of the questions, each once.
func (t *Task) Characters() string {
	characters := "0123456789?"
	for _, q := range t.questions {
		for _, c := range q.text(t.settings.Format) {
			if !strings.ContainsRune(characters, c) {
				characters += string(c)
			}
		}
	}
	return characters
}

// Verify rewards 1 for exactly the answer, 0 for anything else.
func (t *Task) Verify(p task.Prompt, response string) task.Verdict {
	return Verifier{}.Verify(p, response)
}

// Verifier rewards answers without knowing the figures.
type Verifier struct{}

// Verify rewards 1 for exactly the reference answer, 0 for anything else; without a reference answer nothing is right. A response
// counts as an answer, right or wrong, when it is digits and nothing else.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	if response == "" || strings.Trim(response, "0123456789") != "" {
		return task.Verdict{}
	}
	if response != p.Answer {
		return task.Verdict{Extracted: response}
	}
	return task.Verdict{Reward: 1, Correct: true, Extracted: response}
}
