package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// question is a question with its answers.
type question struct {
	Text    string   `json:"question"`
	Subject string   `json:"subject"` // of the passage that it was asked about, if known
	Answers []string `json:"answers"` // each of them right; one or more
}

// corpus is what is searched and what is asked. Adding to it leaves out duplicates.
type corpus struct {
	passages  []string
	questions []question
	length    int             // characters at which paragraphs are cut
	known     map[string]bool // passages
	asked     map[string]int  // places of the questions, by text
}

func newCorpus(length int) *corpus {
	return &corpus{length: length, known: map[string]bool{}, asked: map[string]int{}}
}

// loadCorpus reads a file, or a folder with everything below it, in the order of paths. Files that end in .json are in
// SQuAD's format and give passages and questions. Those that end in .txt give passages. Others in a folder are ignored.
// Paragraphs longer than length, in characters, become several passages.
func loadCorpus(path string, length int) (*corpus, error) {
	c := newCorpus(length)
	files := 0
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		read := map[string]func([]byte) error{".txt": c.readText,
			".json": c.readSQuAD}[strings.ToLower(filepath.Ext(name))]
		if read == nil && name != path {
			return nil
		}
		if read == nil {
			return fmt.Errorf("%s: want a folder, or a file that ends in .txt or .json", name)
		}
		files++
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := read(content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case files == 0:
		return nil, fmt.Errorf("%s: no file in it ends in .txt or .json", path)
	case len(c.passages) == 0:
		return nil, fmt.Errorf("%s: no passages in it", path)
	}
	return c, nil
}

// readText adds the paragraphs of a text, which blank lines separate.
func (c *corpus) readText(content []byte) error {
	text := strings.ReplaceAll(string(content), "\r\n", "\n")
	var paragraph []string
	for _, line := range append(strings.Split(text, "\n"), "") {
		if strings.TrimSpace(line) != "" {
			paragraph = append(paragraph, line)
			continue
		}
		c.addPassages("", strings.Join(paragraph, " "))
		paragraph = nil
	}
	return nil
}

// squad is SQuAD's format, without the fields that are ignored.
type squad struct {
	Data []struct {
		Title      string `json:"title"`
		Paragraphs []struct {
			Context   string `json:"context"`
			Questions []struct {
				Question   string `json:"question"`
				Impossible bool   `json:"is_impossible"` // of version 2: the paragraph does not answer it
				Answers    []struct {
					Text string `json:"text"`
				} `json:"answers"`
			} `json:"qas"`
		} `json:"paragraphs"`
	} `json:"data"`
}

// readSQuAD adds the paragraphs of the articles, with their titles, and the questions that have answers.
func (c *corpus) readSQuAD(content []byte) error {
	var file squad
	if err := json.Unmarshal(bytes.TrimPrefix(content, []byte("\ufeff")), &file); err != nil {
		return fmt.Errorf("not a SQuAD file, {\"data\": [{\"paragraphs\": [{\"context\": ..., \"qas\": [...]}]}]}: %w",
			err)
	}
	if len(file.Data) == 0 {
		return errors.New("data: missing or empty: want the articles of a SQuAD file")
	}
	for a, article := range file.Data {
		subject := oneLine(strings.ReplaceAll(article.Title, "_", " "))
		for p, paragraph := range article.Paragraphs {
			if strings.TrimSpace(paragraph.Context) == "" {
				return fmt.Errorf("data[%d].paragraphs[%d].context: missing or empty: want a text", a, p)
			}
			c.addPassages(subject, paragraph.Context)
			for q, asked := range paragraph.Questions {
				if asked.Impossible {
					continue
				}
				added := question{Text: asked.Question, Subject: subject}
				for _, answer := range asked.Answers {
					added.Answers = append(added.Answers, answer.Text)
				}
				if err := c.addQuestion(added); err != nil {
					return fmt.Errorf("data[%d].paragraphs[%d].qas[%d].%w", a, p, q, err)
				}
			}
		}
	}
	return nil
}

// addPassages cuts a paragraph into passages, each with the subject before it.
func (c *corpus) addPassages(subject, paragraph string) {
	for _, passage := range cut(oneLine(paragraph), c.length) {
		if subject != "" {
			passage = subject + ": " + passage
		}
		if !c.known[passage] {
			c.known[passage] = true
			c.passages = append(c.passages, passage)
		}
	}
}

// addQuestion adds a question, or its answers if it was asked before.
func (c *corpus) addQuestion(q question) error {
	q.Text = oneLine(q.Text)
	if q.Text == "" {
		return errors.New("question: empty: want a question")
	}
	var answers []string
	for _, a := range q.Answers {
		if a = oneLine(a); a != "" && !slices.Contains(answers, a) {
			answers = append(answers, a)
		}
	}
	if len(answers) == 0 {
		return errors.New("answers: none: want one or more that are not empty")
	}
	at, asked := c.asked[q.Text]
	if !asked {
		c.asked[q.Text] = len(c.questions)
		c.questions = append(c.questions, question{q.Text, q.Subject, answers})
		return nil
	}
	for _, a := range answers {
		if known := &c.questions[at]; !slices.Contains(known.Answers, a) {
			known.Answers = append(known.Answers, a)
		}
	}
	return nil
}

// oneLine replaces white space by single spaces, and invalid UTF-8 by the replacement character.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
}

// cut divides a line into pieces of at most length characters: after the last sentence that ends in the second half of
// a piece, else between words, else anywhere.
func cut(line string, length int) []string {
	var pieces []string
	for rest := []rune(line); len(rest) > 0; {
		end := len(rest)
		if end > length {
			end = boundary(rest, length)
		}
		if piece := strings.TrimSpace(string(rest[:end])); piece != "" {
			pieces = append(pieces, piece)
		}
		rest = rest[end:]
	}
	return pieces
}

// boundary returns where the first piece of a longer line ends.
func boundary(line []rune, length int) int {
	between := 0
	for i := length; i > 0; i-- { // line[i] is the first character of the rest
		if line[i] != ' ' {
			continue
		}
		if i >= length/2 && strings.ContainsRune(".!?", line[i-1]) {
			return i
		}
		between = max(between, i)
	}
	if between > 0 {
		return between
	}
	return length
}

// loadQuestions reads JSON lines, each an object with the string "question" and its right answers: the strings
// "answers", or "answer", which may be a string or several (as in NQ-open). Other fields are ignored.
func loadQuestions(path string) ([]question, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := newCorpus(0)
	err = task.EachLine(f, func(_ int, line []byte) error {
		q, err := parseQuestion(line)
		if err != nil {
			return err
		}
		if err := c.addQuestion(q); err != nil {
			return fmt.Errorf("field %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c.questions, nil
}

// parseQuestion reads one line.
func parseQuestion(line []byte) (question, error) {
	fields, err := task.Object(line, `{"question": ..., "answers": [...]}`)
	if err != nil {
		return question{}, err
	}
	text, err := task.StringField(fields, "question")
	if err != nil {
		return question{}, err
	}
	raw, name := fields["answers"], "answers"
	if raw == nil {
		raw, name = fields["answer"], "answer"
	}
	if raw == nil {
		return question{}, errors.New("field answers: missing: want a list of strings")
	}
	q := question{Text: text}
	var single string
	if json.Unmarshal(raw, &q.Answers) == nil {
		return q, nil
	}
	if err := json.Unmarshal(raw, &single); err != nil {
		return question{}, fmt.Errorf("field %s: %.40s: want a list of strings", name, raw)
	}
	q.Answers = []string{single}
	return q, nil
}

// factsSeed is the seed of the made-up facts: a constant, so that all runs share them.
const factsSeed = 0x7265707269736538

// The size of the made-up world.
const (
	beings = 400
	things = 120
)

// verbs are those of the facts about every being.
func verbs() []string { return []string{"eats", "owns", "sells", "fears"} }

// facts returns made-up facts, such as "kova eats rus.", and the questions about them, "kova eats?", with the answer
// "rus". There are 400 beings with names of four letters, each with four facts about four different things, whose names
// have three. The questions about one being are consecutive, and the beings are in random order, so the last of them
// can be held out.
func facts() *corpus {
	r := rollout.Stream(factsSeed, "search facts", 0)
	names := words(r.IntN, beings, 4)
	known := words(r.IntN, things, 3)
	c := &corpus{}
	for _, name := range names {
		told := r.Perm(len(known))[:len(verbs())]
		for i, v := range r.Perm(len(verbs())) {
			fact, thing := name+" "+verbs()[v], known[told[i]]
			c.passages = append(c.passages, fact+" "+thing+".")
			c.questions = append(c.questions, question{Text: fact + "?", Subject: name, Answers: []string{thing}})
		}
	}
	return c
}

// words returns n different words of the given length, of alternating consonants and vowels.
func words(draw func(int) int, n, length int) []string {
	letters := []string{"bdfgklmnprstvz", "aeiou"}
	var list []string
	for len(list) < n {
		var word []byte
		for i := range length {
			from := letters[i%2]
			word = append(word, from[draw(len(from))])
		}
		if !slices.Contains(list, string(word)) {
			list = append(list, string(word))
		}
	}
	return list
}
