// Package geometry asks questions about figures that are shown in an image and nowhere else: the area and the perimeter
// of a rectangle on a grid, the length of a segment, the degrees of an angle, the area of a right triangle, the third
// angle of a triangle and the hypotenuse of a right one. It is a small version of the tasks that vision-language models
// train on.
//
// [Settings] choose the questions, the size of the image and the size of the figures. Every answer is an integer that
// follows exactly from the figure, and the question ("area?") does not reveal it. A figure is a shape with its sizes,
// place and rotation, shifted in its image by some pixels. Held-out figures are drawn once from a seed of their own and
// are never trained on, with no question and no shift.
//
// A [Task] has a single turn. It is a task.Demonstrator (the answer is the demonstration), a task.Alphabet and a
// task.Seeing, so a character model with a small vision tower can learn it from scratch.
package geometry

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/frame"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Limits of the settings.
const (
	minImage, maxImage = 16, 256
	minLabels          = 32 // pixels of an image with room for numbers
	minCell            = 2  // pixels of a cell
	maxMax             = 12
)

// Settings of the task. The zero value asks all questions that do not need numbers to be read, on a grid of 6 cells.
type Settings struct {
	// of length, area, perimeter, angle, triangle, third, hypotenuse; none: the first four
	Questions []string `yaml:"questions"`
	ImageSize int      `yaml:"image_size"` // side in pixels, 16 to 256; 0: 32
	Max       int      `yaml:"max"`        // cells of a side, 2 to 12; 0: 6
	// figures kept for evaluation, each with one question; 0: 100; at most half of all
	HeldOut int    `yaml:"held_out"`
	Format  string `yaml:"format"` // terse ("a?") or words ("area?"); empty: terse
}

// Resolve fills in the defaults and puts the questions into their canonical order.
func (s *Settings) Resolve() {
	if len(s.Questions) == 0 {
		s.Questions = names()[:4]
	}
	s.Questions = task.Sorted(s.Questions, names())
	s.ImageSize = cmp.Or(s.ImageSize, 32)
	s.Max = cmp.Or(s.Max, 6)
	s.HeldOut = cmp.Or(s.HeldOut, 100)
	s.Format = cmp.Or(s.Format, task.Terse)
}

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	task.CheckChoices(&problems, "questions", s.Questions, names())
	problems.Check(s.Max >= 2 && s.Max <= maxMax, "max", s.Max, "2 to %d cells", maxMax)
	least := minCell*(s.Max+1) + 1
	if s.ImageSize < minImage || s.ImageSize > maxImage {
		problems.Check(false, "image_size", s.ImageSize, "%d to %d pixels", minImage, maxImage)
	} else if s.ImageSize < least {
		problems.Check(false, "image_size", s.ImageSize, "at least %d pixels for %d cells: enlarge it, or lower max",
			least, s.Max)
	} else if slices.Contains(s.Questions, Third) || slices.Contains(s.Questions, Hypotenuse) {
		problems.Check(s.ImageSize >= minLabels, "image_size", s.ImageSize,
			"at least %d pixels for the numbers of %s and %s: enlarge it, or leave them out", minLabels,
			Third, Hypotenuse)
	}
	problems.Check(s.Format == task.Terse || s.Format == task.Words, "format", s.Format, "%s or %s: there is no chat "+
		"template for images", task.Terse, task.Words)
	if s.HeldOut < 0 || len(problems) > 0 {
		problems.Check(s.HeldOut >= 0, "held_out", s.HeldOut, "0 (100) or more")
	} else if most := s.maxHeldOut(); s.HeldOut > most {
		problems.Check(false, "held_out", s.HeldOut, "at most %d, so that half of the figures of every question "+
			"remain to train on: hold out fewer, or raise max", most)
	}
	return problems.Err()
}

// maxHeldOut returns how many figures can be held out. Questions take turns, so the shape with the fewest figures sets
// the bound. The settings must be resolved and valid, except HeldOut.
func (s Settings) maxHeldOut() int {
	asking := map[shape]int{}
	for _, name := range s.Questions {
		asking[of(name).shape]++
	}
	most := -1
	for shape, times := range asking {
		bound := len(figures(shape, s.Max)) / 2 / times * len(s.Questions)
		if most < 0 || bound < most {
			most = bound
		}
	}
	return most
}

// Questions in their canonical order.
const (
	Length     = "length"     // of a segment, in cells
	Area       = "area"       // of a rectangle, in cells
	Perimeter  = "perimeter"  // of a rectangle, in sides of cells
	Angle      = "angle"      // between two rays, in degrees
	Triangle   = "triangle"   // the area of a right triangle, in cells
	Third      = "third"      // the third angle of a triangle, in degrees, with the others written next to it
	Hypotenuse = "hypotenuse" // of a right triangle, with the legs written next to it
)

// question is one that can be asked about a shape.
type question struct {
	name   string
	cue    string // in the terse format
	shape  shape
	answer func(f figure) int
}

func questions() []question {
	return []question{
		{Length, "l?", segment, func(f figure) int { return f.a }},
		{Area, "a?", rectangle, func(f figure) int { return f.a * f.b }},
		{Perimeter, "p?", rectangle, func(f figure) int { return 2 * (f.a + f.b) }},
		{Angle, "d?", rays, func(f figure) int { return degrees * f.a }},
		{Triangle, "t?", rightTriangle, func(f figure) int { return f.a * f.b / 2 }},
		{Third, "x?", labelledTriangle, func(f figure) int { return 180 - f.a - f.b }},
		{Hypotenuse, "h?", labelledRight, func(f figure) int { return hypotenuse(f.a, f.b) }},
	}
}

func names() []string {
	all := questions()
	list := make([]string, len(all))
	for i, q := range all {
		list[i] = q.name
	}
	return list
}

// of returns the question with a known name.
func of(name string) question {
	for _, q := range questions() {
		if q.name == name {
			return q
		}
	}
	return question{}
}

// text returns the text of the prompt.
func (q question) text(format string) string {
	if format == task.Words {
		return q.name + "?"
	}
	return q.cue
}

// heldOutSeed is the seed of the held-out figures: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736538

// Task asks about figures. It is safe for concurrent use.
type Task struct {
	Verifier
	settings  Settings
	seed      uint64
	questions []question
	figures   map[shape][]figure
	heldOut   []task.Prompt
	reserved  map[figure]bool
	encoder   frame.Encoder
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

// Train returns the i-th training prompt: all questions are equally likely, and so are the figures of a question.
func (t *Task) Train(i uint64) task.Prompt {
	r := rollout.Stream(t.seed, "geometry train", i)
	q := t.questions[r.IntN(len(t.questions))]
	f := t.free(q.shape, r)
	return t.prompt(q, f, t.shift(f.shape, r))
}

// shift draws the position of a figure in its image.
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
		Image:  t.encoder.Encode(f.draw(t.settings.ImageSize, t.settings.Max, shift).Paletted),
		Answer: strconv.Itoa(q.answer(f)),
	}
}

// Demonstrate returns the answer.
func (t *Task) Demonstrate(p task.Prompt) string { return p.Answer }

// ImageSize returns the side of the images in pixels.
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

// Verifier rewards answers without knowing the figures.
type Verifier struct{}

// Verify rewards 1 for exactly the reference answer and 0 for anything else. A response counts as an answer, correct or
// not, if it is digits and nothing else.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	return task.ExactVerdict(p, response, response != "" && strings.Trim(response, "0123456789") == "")
}
