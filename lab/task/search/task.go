// Package search asks questions that are answered by looking them up: the policy writes a query, reads the passages
// that match it best, may search again, and answers.
//
// A [Task] is a task.Environment. Each turn of the policy is a query or an answer: "?kova eats" and "=rusk" for a small
// model trained from scratch, or the tags <search> and <answer> for a pretrained one, as in Search-R1 (Jin et al.
// 2025). An answer ends the episode. Its reward is 1 if it equals one of the question's answers after SQuAD's
// normalization, else 0. Any other text costs the penalty and its turn.
//
// Passages and questions come from a file or folder: SQuAD's JSON, and text files that are cut into passages at their
// paragraphs. Without one they are made up: facts about beings that do not exist, so that nothing but searching tells
// what "kova eats". Questions about some of these beings are held out.
//
// Passages are ranked by BM25 over an inverted index in memory. Episodes are task.Experts: they search by the words of
// the question and know the answer.
package search

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// slot is the place of the question in a template.
const slot = "{question}"

// wordsTemplate is the prompt that explains the tags to a pretrained model.
const wordsTemplate = "Answer the question. Think first. To look something up write <search>a few words</search>; " +
	"what is found stands between <information> and </information>. You may search several times. " +
	"When you know the answer, write it alone between tags, as in <answer>Paris</answer>.\nQuestion: " + slot + "\n"

// Settings of the task. The zero value asks about made-up facts in the terse format.
type Settings struct {
	Corpus string `yaml:"corpus"` // a file or folder of .txt and SQuAD .json; empty: made-up facts
	// JSON lines with question and answers, in addition to those of the corpus
	Questions string `yaml:"questions"`
	Format    string `yaml:"format"` // terse, words or chat; empty: words with a corpus, else terse
	// the prompt, with {question}; empty: the question alone, or an instruction in words
	Template      string `yaml:"template"`
	MaxSearches   int    `yaml:"max_searches"`   // of an episode, which has one more turn, at most 16; 0: 2
	Passages      int    `yaml:"passages"`       // shown for a query, at most 20; 0: 3
	PassageLength int    `yaml:"passage_length"` // characters at which paragraphs are cut, 20 to 10,000; 0: 600
	QueryLength   int    `yaml:"query_length"`   // characters of a query that count, 8 to 1,000; 0: 100
	HeldOut       int    `yaml:"held_out"`       // questions kept for evaluation, at most half of all; 0: 100
	// for a text that is neither query nor answer, at most 1; 0: 0.1; -1: none
	Penalty float64 `yaml:"penalty"`
}

// noPenalty is the setting for no penalty.
const noPenalty = -1

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	format := task.Terse
	if s.Corpus != "" {
		format = task.Words
	}
	s.Format = cmp.Or(s.Format, format)
	template := slot
	if task.InWords(s.Format) {
		template = wordsTemplate
	}
	s.Template = cmp.Or(s.Template, template)
	s.MaxSearches, s.Passages = cmp.Or(s.MaxSearches, 2), cmp.Or(s.Passages, 3)
	s.PassageLength, s.QueryLength = cmp.Or(s.PassageLength, 600), cmp.Or(s.QueryLength, 100)
	s.HeldOut = cmp.Or(s.HeldOut, 100)
	s.Penalty = cmp.Or(s.Penalty, 0.1)
}

// Validate reports every problem with the settings, each an [option.Error]. It does not look into the files.
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	problems.Check(s.Questions == "" || s.Corpus != "", "questions", s.Questions,
		"a corpus that answers them: set corpus, or leave questions out for made-up facts")
	task.CheckFormat(&problems, s.Format)
	problems.Check(strings.Count(s.Template, slot) == 1, "template", s.Template, "%s exactly once", slot)
	within := func(key string, value, least, most int) {
		problems.Check(value >= least && value <= most, key, value, "%d to %d", least, most)
	}
	within("max_searches", s.MaxSearches, 1, 16)
	within("passages", s.Passages, 1, 20)
	within("passage_length", s.PassageLength, 20, 10_000)
	within("query_length", s.QueryLength, 8, 1_000)
	problems.Check(s.HeldOut >= 0, "held_out", s.HeldOut, "0 (100) or more")
	problems.Check(s.Penalty == noPenalty || s.Penalty >= 0 && s.Penalty <= 1, "penalty", s.Penalty,
		"0 (0.1) to 1, or %d for none", noPenalty)
	return problems.Err()
}

// heldOutSeed is the seed of the held-out questions: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736539

// Task asks questions that are answered by searching. It is safe for concurrent use.
type Task struct {
	settings Settings
	protocol protocol
	index    *passageIndex
	passages []string
	train    []question
	heldOut  []question
	order    task.Order
}

// New reads the corpus, or makes one up, and indexes it; the seed orders the training questions.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	c, analyze, err := load(s)
	if err != nil {
		return nil, err
	}
	if n := len(c.questions); s.HeldOut > n/2 {
		return nil, &option.Error{Key: "held_out", Value: s.HeldOut, Want: fmt.Sprintf(
			"at most %d, half of the %d questions: hold out fewer, or give more questions", n/2, n)}
	}
	t := &Task{settings: s, protocol: protocol{s.Format}, passages: c.passages}
	t.index = newIndex(t.passages, analyze)
	t.split(c.questions)
	t.order = task.Order{Seed: seed, Purpose: "search train", N: len(t.train)}
	return t, nil
}

// load returns the corpus of the settings, with its questions, and the analyzer for its language.
func load(s Settings) (*corpus, analyzer, error) {
	if s.Corpus == "" {
		return facts(), plain, nil
	}
	c, err := loadCorpus(s.Corpus, s.PassageLength)
	if err != nil {
		return nil, nil, fmt.Errorf("corpus: %w", err)
	}
	if s.Questions != "" {
		more, err := loadQuestions(s.Questions)
		if err != nil {
			return nil, nil, fmt.Errorf("questions: %w", err)
		}
		for _, q := range more {
			if err := c.addQuestion(q); err != nil {
				return nil, nil, err
			}
		}
	}
	if len(c.questions) == 0 {
		return nil, nil, &option.Error{Key: "questions", Value: s.Questions,
			Want: "a file of JSON lines with question and answers: no file of the corpus has questions"}
	}
	return c, english, nil
}

// split holds questions out. Made-up facts hold out the questions about the last beings; the remaining questions about
// the first of these are not asked at all. Other questions are drawn.
func (t *Task) split(questions []question) {
	n := t.settings.HeldOut
	if t.settings.Corpus == "" {
		per := len(verbs())
		first := len(questions) - (n+per-1)/per*per
		t.train, t.heldOut = questions[:first], questions[first:first+n]
		return
	}
	order := task.Order{Seed: heldOutSeed, Purpose: "search held-out", N: len(questions)}
	for i := range questions {
		if q := questions[order.At(uint64(i))]; i < n {
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
func (t *Task) prompt(q question) task.Prompt {
	state, err := json.Marshal(q)
	if err != nil {
		panic(err) // strings
	}
	sum := sha256.Sum256([]byte(q.Text))
	return task.Prompt{
		ID:     "search/" + hex.EncodeToString(sum[:8]),
		Text:   strings.Replace(t.settings.Template, slot, q.Text, 1),
		Answer: q.Answers[0],
		State:  string(state),
	}
}

// Chat reports whether prompts and observations are messages for a chat template.
func (t *Task) Chat() bool { return t.settings.Format == task.Chat }

// MaxTurns returns the number of searches plus one for the answer.
func (t *Task) MaxTurns() int { return t.settings.MaxSearches + 1 }

// Reset starts to answer a prompt's question. Nothing in an episode is random. A prompt without a state of this task is
// a question that nothing answers.
func (t *Task) Reset(p task.Prompt, _ uint64) task.Episode {
	var q question
	if err := json.Unmarshal([]byte(p.State), &q); err != nil {
		q = question{}
	}
	return &episode{task: t, question: q}
}

// Characters returns every character of passages, questions, answers and the text around them.
func (t *Task) Characters() string {
	texts := slices.Concat(t.passages, t.protocol.texts(), []string{strings.Replace(t.settings.Template, slot, "", 1)})
	for _, q := range slices.Concat(t.train, t.heldOut) {
		texts = append(append(texts, q.Text, " "), q.Answers...)
	}
	used := map[rune]bool{}
	for _, text := range texts {
		for _, r := range text {
			used[r] = true
		}
	}
	return string(slices.Sorted(maps.Keys(used)))
}

// find returns the passages for a query, of which only the first characters count. Invalid UTF-8 separates words.
func (t *Task) find(query string) []string {
	hits := t.index.search(t.shorten(strings.ToValidUTF8(query, " ")), t.settings.Passages)
	found := make([]string, len(hits))
	for i, h := range hits {
		found[i] = t.passages[h.passage]
	}
	return found
}

func (t *Task) shorten(query string) string {
	runes := []rune(query)
	return string(runes[:min(len(runes), t.settings.QueryLength)])
}

// episode is the search for the answer of one question.
type episode struct {
	task     *Task
	question question
	turns    int
	searches int
	found    bool // a passage with the answer has been shown
	done     bool
}

// Step takes a turn: a query shows passages, an answer ends the episode with its reward, and anything else, including a
// query too many, costs the penalty. The last turn ends the episode in any case.
func (e *episode) Step(response string) task.Step {
	if e.done {
		return task.Step{Done: true}
	}
	e.turns++
	step := e.act(response)
	if !step.Done && e.turns == e.task.MaxTurns() {
		step.Text, step.Done, step.Cut = "", true, true
	}
	e.done = step.Done
	return step
}

func (e *episode) act(response string) task.Step {
	kind, body := e.task.protocol.parse(response)
	switch {
	case kind == answer && matches(body, e.question.Answers):
		return task.Step{Reward: 1, Done: true, Correct: true}
	case kind == answer:
		return task.Step{Done: true}
	case kind == query && e.searches < e.task.settings.MaxSearches:
		e.searches++
		passages := e.task.find(body)
		e.found = e.found || e.answered(passages)
		return task.Step{Text: e.task.protocol.results(passages)}
	}
	reward := min(0, float32(-e.task.settings.Penalty)) // -1: none
	return task.Step{Text: e.task.protocol.refusal(kind == query), Reward: reward, Invalid: true}
}

// answered reports whether one of the passages has the answer.
func (e *episode) answered(passages []string) bool {
	return slices.ContainsFunc(passages, func(p string) bool { return contains(p, e.question.Answers) })
}

// Advise searches until a passage with the answer has been shown, as long as a search and a turn to answer are left.
// Then it gives the first of the question's answers: the expert knows it, found or not.
func (e *episode) Advise() string {
	p := e.task.protocol
	left := min(e.task.settings.MaxSearches-e.searches, e.task.MaxTurns()-e.turns-1)
	if text := e.query(); !e.found && left > 0 && text != "" {
		return p.write(query, text)
	}
	if len(e.question.Answers) == 0 {
		return p.write(answer, "?")
	}
	return p.write(answer, e.question.Answers[0])
}

// query returns the expert's first query that finds the answer: the question's words, the same after its subject, or
// the subject alone. If none does, it takes turns with the first two.
func (e *episode) query() string {
	text := e.keywords(e.question.Text)
	subject := e.keywords(e.question.Subject)
	candidates := []string{text, strings.TrimSpace(subject + " " + text), subject}
	for _, c := range candidates {
		if c != "" && e.answered(e.task.find(c)) {
			return c
		}
	}
	return candidates[e.searches%2]
}

// keywords returns the words of a text that the index has terms for, each once, within the length of a query.
func (e *episode) keywords(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	var query string
	seen := map[string]bool{}
	for _, w := range words {
		if len(e.task.index.terms(w)) == 0 || seen[w] {
			continue
		}
		seen[w] = true
		longer := strings.TrimSpace(query + " " + w)
		if longer != e.task.shorten(longer) {
			break
		}
		query = longer
	}
	return query
}
