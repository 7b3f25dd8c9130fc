// Package dataset reads problems with reference answers from files, and splits them into training and evaluation. The
// tasks gsm8k and math are built on it.
//
// A [Format] is how a task names and reads its problems. [New] makes a [Set], which gives the prompts: training
// problems in a fresh order every epoch, and held-out problems from a file of their own or a share of the only file.
package dataset

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Settings of a task with files of problems. Only TrainFile is required.
type Settings struct {
	TrainFile       string  `yaml:"train_file"`        // file of training problems; required
	HeldOutFile     string  `yaml:"held_out_file"`     // empty: a share of train_file
	HeldOutFraction float64 `yaml:"held_out_fraction"` // of train_file, at most 0.5; 0: 0.1; not with held_out_file
	HeldOut         int     `yaml:"held_out"`          // held-out problems to evaluate on; 0: all
	Format          string  `yaml:"format"`            // words or chat, for the model's chat template; empty: words
	Examples        int     `yaml:"examples"`          // solved problems before each prompt, for base models; 0: none
	Template        string  `yaml:"template"`          // the prompt, with a slot for the problem; empty: the task's own
	// longer prompts are left out; 0: the policy's positions less generate.max_tokens
	MaxPromptTokens int `yaml:"max_prompt_tokens"`
}

// Format is how a task names and reads its problems.
type Format struct {
	Name        string // of the task; problems and random streams are named after it
	HeldOutSeed uint64 // of the split of one file: a constant, so that all runs share it
	Template    string // default prompt
	Chat        string // default prompt with the format task.Chat
	Slot        string // place of the problem in a template
	File        string // describes a file: "JSON lines with question and answer"
	Object      string // describes an object: {"question": ..., "answer": ...}
	// Parse reads the question, answer and solution of a problem. It returns ErrNoAnswer for a problem to skip.
	Parse func(fields map[string]json.RawMessage) (Problem, error)
	// Same reports whether two answers to the same question agree.
	Same func(a, b string) bool
}

// ErrNoAnswer is returned for a problem without an answer. Public files have a few, and they are skipped.
var ErrNoAnswer = errors.New("no answer")

// Problem is one problem of a file.
type Problem struct {
	ID       string // derived from the question, the same in every file
	Question string
	Answer   string
	Solution string // empty: the file has none
}

// Resolve fills in the defaults.
func (s *Settings) Resolve(f Format) {
	if s.HeldOutFile == "" {
		s.HeldOutFraction = cmp.Or(s.HeldOutFraction, 0.1)
	}
	template := f.Template
	if s.Format == task.Chat {
		template = f.Chat
	}
	s.Template = cmp.Or(s.Template, template)
}

// Validate reports every problem with resolved settings, each an [option.Error]. It does not look into the files.
func (s Settings) Validate(f Format) error {
	var problems option.Problems
	problems.Check(s.TrainFile != "", "train_file", s.TrainFile, "the path of a file of %s", f.File)
	if s.HeldOutFile != "" {
		problems.Check(s.HeldOutFraction == 0, "held_out_fraction", s.HeldOutFraction,
			"held_out_file or held_out_fraction, not both: remove one")
		problems.Check(s.HeldOutFile != s.TrainFile, "held_out_file", s.HeldOutFile,
			"another file than train_file: leave it out and set held_out_fraction to split one file")
	} else {
		problems.Check(s.HeldOutFraction > 0 && s.HeldOutFraction <= 0.5, "held_out_fraction", s.HeldOutFraction,
			"above 0, at most 0.5")
	}
	problems.Check(s.HeldOut >= 0, "held_out", s.HeldOut, "0 (all) or more")
	problems.Check(s.Format == "" || task.InWords(s.Format), "format", s.Format, "%s or %s", task.Words, task.Chat)
	problems.Check(s.Examples >= 0, "examples", s.Examples, "0 (none) or more")
	problems.Check(s.MaxPromptTokens >= 0, "max_prompt_tokens", s.MaxPromptTokens, "0 (what the policy holds) or more")
	problems.Check(strings.Count(s.Template, f.Slot) == 1, "template", s.Template, "%s exactly once", f.Slot)
	return problems.Err()
}

// Set is the problems of a task. It is safe for concurrent use.
type Set struct {
	format    Format
	settings  Settings
	train     []Problem
	heldOut   []Problem
	solutions map[string]string // by ID
	order     task.Order
}

// New reads the files; the seed orders the training problems. The settings must be resolved and valid.
func New(f Format, s Settings, seed uint64) (*Set, error) {
	all, err := f.ReadFile(s.TrainFile)
	if err != nil {
		return nil, fmt.Errorf("train_file: %w", err)
	}
	t := &Set{format: f, settings: s, solutions: map[string]string{}}
	if s.HeldOutFile == "" {
		t.heldOut = f.choose(all, max(1, int(math.Round(s.HeldOutFraction*float64(len(all))))))
	} else if t.heldOut, err = f.ReadFile(s.HeldOutFile); err != nil {
		return nil, fmt.Errorf("held_out_file: %w", err)
	}
	reserved := make(map[string]bool, len(t.heldOut))
	for _, p := range t.heldOut {
		reserved[p.ID] = true
	}
	for _, p := range all {
		if !reserved[p.ID] {
			t.train = append(t.train, p)
		}
	}
	if len(t.train) == 0 {
		return nil, fmt.Errorf("train_file %s: no problems remain to train on, %d are held out: want two problems "+
			"at least",
			s.TrainFile, len(t.heldOut))
	}
	if s.HeldOut > 0 && s.HeldOut < len(t.heldOut) {
		t.heldOut = f.choose(t.heldOut, s.HeldOut)
	}
	for _, p := range t.Problems() {
		t.solutions[p.ID] = p.Solution
	}
	t.order = task.Order{Seed: seed, Purpose: f.Name + " train", N: len(t.train)}
	return t, nil
}

// choose returns n problems in their order, the same for every seed.
func (f Format) choose(problems []Problem, n int) []Problem {
	var picked []Problem
	for _, at := range (task.Order{Seed: f.HeldOutSeed, Purpose: f.Name + " held-out", N: len(problems)}).Pick(n) {
		picked = append(picked, problems[at])
	}
	return picked
}

// Train returns the i-th training prompt: every problem once per epoch, in a fresh order.
func (t *Set) Train(i uint64) task.Prompt { return t.prompt(t.train[t.order.At(i)]) }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Set) HeldOut() []task.Prompt { return t.prompts(t.heldOut) }

// Training returns every training prompt once.
func (t *Set) Training() []task.Prompt { return t.prompts(t.train) }

func (t *Set) prompts(problems []Problem) []task.Prompt {
	prompts := make([]task.Prompt, len(problems))
	for i, p := range problems {
		prompts[i] = t.prompt(p)
	}
	return prompts
}

// Problems returns all problems, those for training first.
func (t *Set) Problems() []Problem { return slices.Concat(t.train, t.heldOut) }

// Examples returns how many solved problems come before a prompt.
func (t *Set) Examples() int { return t.settings.Examples }

// Chat reports whether prompts are messages for a chat template.
func (t *Set) Chat() bool { return t.settings.Format == task.Chat }

// MaxPromptTokens returns the setting.
func (t *Set) MaxPromptTokens() int { return t.settings.MaxPromptTokens }

// Without returns the set without the problems of these IDs. Some training problems must be left.
func (t *Set) Without(ids map[string]bool) *Set {
	out := *t
	unwanted := func(p Problem) bool { return ids[p.ID] }
	out.train = slices.DeleteFunc(slices.Clone(t.train), unwanted)
	out.heldOut = slices.DeleteFunc(slices.Clone(t.heldOut), unwanted)
	out.order.N = len(out.train)
	return &out
}

// Solution returns the solution of a prompt in the file, empty if there is none.
func (t *Set) Solution(p task.Prompt) string { return t.solutions[p.ID] }

func (t *Set) prompt(p Problem) task.Prompt {
	text := strings.Replace(t.settings.Template, t.format.Slot, p.Question, 1)
	return task.Prompt{ID: p.ID, Text: text, Answer: p.Answer}
}

// ReadFile reads a file of problems; see Read.
func (f Format) ReadFile(path string) ([]Problem, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	problems, err := f.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return problems, nil
}

// Read reads problems: JSON lines or one JSON array of objects, gzipped or not, as the bytes show. A problem that
// occurs again with the same answer counts once; with another answer it is an error.
func (f Format) Read(r io.Reader) ([]Problem, error) {
	c := &collection{format: f, places: map[string]string{}, answers: map[string]string{}}
	if err := c.read(r); err != nil {
		return nil, err
	}
	if len(c.problems) == 0 {
		return nil, fmt.Errorf("no problems: want %s", f.File)
	}
	return c.problems, nil
}

// collection is the problems of a file while it is read.
type collection struct {
	format   Format
	problems []Problem
	places   map[string]string // of each problem's first occurrence, by ID
	answers  map[string]string // by ID
}

func (c *collection) read(r io.Reader) error {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(b)
		if err != nil {
			return err
		}
		b = bufio.NewReader(&limitedReader{unpacked, maxFile})
	}
	if beginsArray(b) {
		return c.readArray(b)
	}
	return task.EachLine(b, func(number int, line []byte) error {
		return c.add(line, fmt.Sprintf("line %d", number))
	})
}

// maxFile is the maximum size of an unpacked file in bytes.
const maxFile = 1 << 30

// limitedReader returns an error if the reader has more bytes than left.
type limitedReader struct {
	r    io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes when unpacked", maxFile)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// beginsArray reports whether a text begins with a bracket, after white space and a byte order mark.
func beginsArray(b *bufio.Reader) bool {
	for size := 1; ; size++ {
		head, err := b.Peek(size)
		if err != nil {
			return false
		}
		if last := head[size-1]; !bytes.ContainsRune([]byte(" \t\r\n\ufeff"), rune(last)) && last < 0x80 {
			return last == '['
		}
	}
}

// readArray reads a JSON array of objects, one at a time.
func (c *collection) readArray(b *bufio.Reader) error {
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" {
		_, _ = b.Discard(3)
	}
	d := json.NewDecoder(b)
	if _, err := d.Token(); err != nil {
		return err
	}
	for number := 1; d.More(); number++ {
		place := fmt.Sprintf("problem %d", number)
		var object json.RawMessage
		err := d.Decode(&object)
		if err == nil {
			err = c.add(object, place)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
	}
	_, err := d.Token()
	return err
}

// add reads one object.
func (c *collection) add(object []byte, place string) error {
	fields, err := task.Object(object, c.format.Object)
	if err != nil {
		return err
	}
	p, err := c.format.Parse(fields)
	if errors.Is(err, ErrNoAnswer) {
		return nil
	}
	if err != nil {
		return err
	}
	// Differences in spacing do not make another question.
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(p.Question), " ")))
	p.ID = c.format.Name + "/" + hex.EncodeToString(sum[:8])
	if first, known := c.places[p.ID]; known {
		if c.format.Same(c.answers[p.ID], p.Answer) {
			return nil
		}
		return fmt.Errorf("asked at %s already, answered %q there and %q here: remove one of them", first,
			c.answers[p.ID], p.Answer)
	}
	c.places[p.ID], c.answers[p.ID] = place, p.Answer
	c.problems = append(c.problems, p)
	return nil
}

// StringField returns a field that must be a string with more than white space.
func StringField(fields map[string]json.RawMessage, name, want string) (string, error) {
	text, err := task.StringField(fields, name)
	if err != nil {
		return "", err
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("field %s: %s: want %s", name, fields[name], want)
	}
	return text, nil
}
