package search

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Corpus is what is searched and what is asked.
type Corpus struct {
	Passages  []string // different from one another
	Questions []Question
}

// Question is a question with its answers.
type Question struct {
	Text    string   `json:"question"`
	Subject string   `json:"subject"` // of the passage that it was asked about, if known
	Answers []string `json:"answers"` // each of them right; one or more
}

// Load reads a corpus: a file or a folder with all below it, in the order of their paths. Files that end in .json are in
// SQuAD's format and give passages and questions, those that end in .txt give passages; others in a folder are passed over.
// Paragraphs longer than length, in characters, become several passages.
func Load(path string, length int) (*Corpus, error) {
	c := &collector{length: length, passages: map[string]bool{}, questions: map[string]int{}}
	files := 0
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		read := c.reader(name)
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
	case len(c.Passages) == 0:
		return nil, fmt.Errorf("%s: no passages in it", path)
	}
	return &c.Corpus, nil
}

// collector gathers a corpus.
type collector struct {
	Corpus
	length    int
	passages  map[string]bool
	questions map[string]int // where they stand, by text
}

// reader returns what reads a file of this name; nil: nothing.
func (c *collector) reader(name string) func([]byte) error {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".txt":
		return c.readText
	case ".json":
		return c.readSQuAD
	}
	return nil
}

// readText takes the paragraphs of a text, between blank lines.
func (c *collector) readText(content []byte) error {
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

// addPassages cuts a paragraph into passages, each with the subject before it, and adds those that are new.
func (c *collector) addPassages(subject, paragraph string) {
	for _, passage := range cut(oneLine(paragraph), c.length) {
		if subject != "" {
			passage = subject + ": " + passage
		}
		if !c.passages[passage] {
			c.passages[passage] = true
			c.Passages = append(c.Passages, passage)
		}
	}
}

// addQuestion adds a question, or its answers to those of the same question.
func (c *collector) addQuestion(q Question) error {
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
	at, asked := c.questions[q.Text]
	if !asked {
		c.questions[q.Text] = len(c.Questions)
		c.Questions = append(c.Questions, Question{q.Text, q.Subject, answers})
		return nil
	}
	for _, a := range answers {
		if known := &c.Questions[at]; !slices.Contains(known.Answers, a) {
			known.Answers = append(known.Answers, a)
		}
	}
	return nil
}

// oneLine puts single spaces for all white space, and the replacement character for bytes that are no text.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
}

// cut divides a line into pieces of at most length characters: after the last sentence that ends in the second half of a
// piece, else between words, else anywhere.
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
