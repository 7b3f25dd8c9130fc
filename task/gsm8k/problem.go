package gsm8k

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Problem is one line of a file.
type Problem struct {
	ID       string // of the question, the same in every file
	Question string
	Solution string // as in the file, "#### n" included
	Answer   string // canonical
}

// ReadFile reads a file of JSON lines with question and answer.
func ReadFile(path string) ([]Problem, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path)
}

// Read reads JSON lines with question and answer; name is the file's in errors. Other fields and
// empty lines are passed over, and a question that occurs again with the same answer counts once.
func Read(r io.Reader, name string) ([]Problem, error) {
	var problems []Problem
	lines := map[string]int{} // of each question, by ID
	answers := map[string]string{}
	err := task.EachLine(r, func(number int, line []byte) error {
		p, err := parse(line)
		if err != nil {
			return err
		}
		if first := lines[p.ID]; first > 0 {
			if answers[p.ID] != p.Answer {
				return fmt.Errorf("field question: asked on line %d already, answered %s there and %s here: remove one of them",
					first, answers[p.ID], p.Answer)
			}
			return nil
		}
		lines[p.ID], answers[p.ID] = number, p.Answer
		problems = append(problems, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(problems) == 0 {
		return nil, fmt.Errorf("%s: no problems: want a JSON object with question and answer on every line", name)
	}
	return problems, nil
}

// parse reads one line.
func parse(line []byte) (Problem, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return Problem{}, fmt.Errorf("%.60q is no JSON object: want {\"question\": ..., \"answer\": ...}", line)
	}
	var p Problem
	var err error
	if p.Question, err = task.StringField(fields, "question"); err != nil {
		return Problem{}, err
	}
	if p.Solution, err = task.StringField(fields, "answer"); err != nil {
		return Problem{}, err
	}
	p.Question = strings.TrimSpace(p.Question)
	if p.Question == "" {
		return Problem{}, fmt.Errorf("field question: %q: want a question", fields["question"])
	}
	value, what := marked(p.Solution)
	if what != found {
		end := bytes.TrimSpace([]byte(p.Solution))
		return Problem{}, fmt.Errorf("field answer: ends in %q: want a solution that ends in \"#### \" and one number", end[max(0, len(end)-40):])
	}
	p.Answer = canonical(value)
	p.ID = identity(p.Question)
	return p, nil
}

// identity names a question by its words, so that differences in spacing do not make it another.
func identity(question string) string {
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(question), " ")))
	return "gsm8k/" + hex.EncodeToString(sum[:8])
}
