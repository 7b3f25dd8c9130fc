package maths

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/maths/answer"
)

// Verifier rewards answers without knowing the problems. It is safe for concurrent use.
type Verifier struct{}

// Verify rewards 1 when the answer found in the response says what that of the prompt says (see package answer), and 0
// otherwise. Extracted is the answer as the response writes it.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	found := extract(response)
	if found == "" {
		return task.Verdict{}
	}
	verdict := task.Verdict{Extracted: found}
	if answer.Equal(answer.Parse(reference(p.Answer)), answer.Parse(found)) {
		verdict.Reward, verdict.Correct = 1, true
	}
	return verdict
}

// CheckAnswer reports why a reference answer cannot be verified against.
func (Verifier) CheckAnswer(text string) error {
	if a := answer.Parse(reference(text)); a.Empty() {
		return fmt.Errorf("%.40q holds no answer: give the answer alone, or a solution with the answer in \\boxed{}", text)
	}
	return nil
}

// reference returns the answer of a dataset: the content of the last box of a solution, what follows "####", or the whole.
func reference(text string) string {
	if content, found := boxed(text); found {
		return content
	}
	if at := strings.LastIndex(text, "####"); at >= 0 {
		return strings.TrimSpace(text[at+len("####"):])
	}
	return strings.TrimSpace(text)
}
