package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// squad is SQuAD's format, of which the other fields are passed over.
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

// readSQuAD takes the paragraphs of the articles, with their titles, and the questions that have answers.
func (c *collector) readSQuAD(content []byte) error {
	var file squad
	if err := json.Unmarshal(bytes.TrimPrefix(content, []byte("\ufeff")), &file); err != nil {
		return fmt.Errorf("no SQuAD file, {\"data\": [{\"paragraphs\": [{\"context\": ..., \"qas\": [...]}]}]}: %w", err)
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
				question := Question{Text: asked.Question, Subject: subject}
				for _, answer := range asked.Answers {
					question.Answers = append(question.Answers, answer.Text)
				}
				if err := c.addQuestion(question); err != nil {
					return fmt.Errorf("data[%d].paragraphs[%d].qas[%d].%w", a, p, q, err)
				}
			}
		}
	}
	return nil
}

// LoadQuestions reads JSON lines, each an object with the string "question" and its right answers: the strings "answers", or
// "answer", which may be a string or several (as in NQ-open). Other fields are passed over; a question that occurs again adds
// its answers.
func LoadQuestions(path string) ([]Question, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &collector{questions: map[string]int{}}
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
	return c.Questions, nil
}

// parseQuestion reads one line.
func parseQuestion(line []byte) (Question, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return Question{}, fmt.Errorf("%.60q is no JSON object: want {\"question\": ..., \"answers\": [...]}", line)
	}
	text, err := task.StringField(fields, "question")
	if err != nil {
		return Question{}, err
	}
	raw, name := fields["answers"], "answers"
	if raw == nil {
		raw, name = fields["answer"], "answer"
	}
	if raw == nil {
		return Question{}, errors.New("field answers: missing: want a list of strings")
	}
	q := Question{Text: text}
	var single string
	if json.Unmarshal(raw, &q.Answers) == nil {
		return q, nil
	}
	if err := json.Unmarshal(raw, &single); err != nil {
		return Question{}, fmt.Errorf("field %s: %.40s: want a list of strings", name, raw)
	}
	q.Answers = []string{single}
	return q, nil
}
