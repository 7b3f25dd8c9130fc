package search

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the held-out questions: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736539

// Task asks questions that are answered by searching. It is safe for concurrent use.
type Task struct {
	settings Settings
	protocol Protocol
	index    *Index
	passages []string
	train    []Question
	heldOut  []Question
	order    task.Order
}

// New reads the corpus, or makes one up, and indexes it; the seed orders the training questions.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	corpus, analyzer, err := load(s)
	if err != nil {
		return nil, err
	}
	if n := len(corpus.Questions); s.HeldOut > n/2 {
		return nil, &task.SettingError{Key: "held_out", Value: s.HeldOut, Want: fmt.Sprintf(
			"at most %d, half of the %d questions: hold out fewer, or give more questions", n/2, n)}
	}
	t := &Task{settings: s, protocol: NewProtocol(s.Format), passages: corpus.Passages}
	if t.index, err = NewIndex(t.passages, analyzer); err != nil {
		return nil, err
	}
	t.divide(corpus.Questions)
	t.order = task.Order{Seed: seed, Purpose: "search train", N: len(t.train)}
	return t, nil
}

// load returns the corpus that the settings name, with its questions, and the analyzer for its language.
func load(s Settings) (*Corpus, string, error) {
	if s.Corpus == "" {
		return Facts(), Plain, nil
	}
	corpus, err := Load(s.Corpus, s.PassageLength)
	if err != nil {
		return nil, "", fmt.Errorf("corpus: %w", err)
	}
	if s.Questions != "" {
		more, err := LoadQuestions(s.Questions)
		if err != nil {
			return nil, "", fmt.Errorf("questions: %w", err)
		}
		all := collector{Corpus: *corpus, questions: map[string]int{}}
		all.Questions = nil
		for _, q := range slices.Concat(corpus.Questions, more) {
			if err := all.addQuestion(q); err != nil {
				return nil, "", err
			}
		}
		corpus = &all.Corpus
	}
	if len(corpus.Questions) == 0 {
		return nil, "", &task.SettingError{Key: "questions", Value: s.Questions,
			Want: "a file of JSON lines with question and answers: no file of the corpus has questions"}
	}
	return corpus, English, nil
}

// divide holds questions out. Of made-up facts they are those after the last beings, and other questions after the last of
// these beings are not asked at all; of other questions they are drawn.
func (t *Task) divide(questions []Question) {
	n := t.settings.HeldOut
	if t.settings.Corpus == "" {
		per := len(verbs())
		first := len(questions) - (n+per-1)/per*per
		t.train, t.heldOut = questions[:first], questions[first:first+n]
		return
	}
	split := task.Order{Seed: heldOutSeed, Purpose: "search held-out", N: len(questions)}
	for i := range questions {
		if q := questions[split.At(uint64(i))]; i < n {
			t.heldOut = append(t.heldOut, q)
		} else {
			t.train = append(t.train, q)
		}
	}
}

// Train returns the i-th training prompt: every question once per epoch, in a fresh order.
func (t *Task) Train(i uint64) task.Prompt { return t.prompt(t.train[t.order.At(i)]) }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt {
	prompts := make([]task.Prompt, len(t.heldOut))
	for i, q := range t.heldOut {
		prompts[i] = t.prompt(q)
	}
	return prompts
}

// prompt asks a question. Its State is the question in JSON.
func (t *Task) prompt(q Question) task.Prompt {
	state, err := json.Marshal(q)
	if err != nil {
		panic(err) // strings
	}
	sum := sha256.Sum256([]byte(q.Text))
	return task.Prompt{
		ID:     "search/" + hex.EncodeToString(sum[:8]),
		Text:   strings.Replace(t.settings.Template, Slot, q.Text, 1),
		Answer: q.Answers[0],
		State:  string(state),
	}
}

// MaxTurns returns the searches and the answer.
func (t *Task) MaxTurns() int { return t.settings.MaxSearches + 1 }

// Reset begins to answer a prompt's question. Nothing in an episode is random. A prompt without a state of this task is a
// question that nothing answers.
func (t *Task) Reset(p task.Prompt, _ uint64) task.Episode {
	var q Question
	if err := json.Unmarshal([]byte(p.State), &q); err != nil {
		q = Question{}
	}
	return &episode{task: t, question: q}
}

// Characters returns every character of passages, questions, answers and of what stands around them.
func (t *Task) Characters() string {
	used := map[rune]bool{}
	for _, text := range slices.Concat(t.passages, t.protocol.texts(), []string{strings.Replace(t.settings.Template, Slot, "", 1)}) {
		for _, r := range text {
			used[r] = true
		}
	}
	for _, q := range slices.Concat(t.train, t.heldOut) {
		for _, text := range append([]string{q.Text, " "}, q.Answers...) {
			for _, r := range text {
				used[r] = true
			}
		}
	}
	return string(slices.Sorted(maps.Keys(used)))
}

// find returns the passages for a query, of which the first characters count. Bytes that are no text divide words.
func (t *Task) find(query string) []string {
	hits, err := t.index.Search(t.shorten(strings.ToValidUTF8(query, " ")), t.settings.Passages)
	if err != nil {
		panic(fmt.Errorf("search: the index in memory cannot be read: %w", err)) // no query can do this
	}
	found := make([]string, len(hits))
	for i, h := range hits {
		found[i] = t.passages[h.Passage]
	}
	return found
}

func (t *Task) shorten(query string) string {
	runes := []rune(query)
	return string(runes[:min(len(runes), t.settings.QueryLength)])
}
