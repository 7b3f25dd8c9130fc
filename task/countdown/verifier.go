package countdown

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Verifier rewards expressions. The zero value wants each number exactly once and gives 0.1 for a wrong value.
type Verifier struct {
	Use          string  // All or Any; empty: All
	FormatReward float64 // as that of Settings
}

// Verify rewards 1 for an expression that has the target's value and uses the numbers as it should, and the format reward,
// as TinyZero does (Pan et al. 2025), for one that uses them so but has another value or divides by zero. Anything else gets
// nothing, and nothing is extracted from it: what is no expression, or uses other numbers.
//
// The expression is the response, or what stands between its last <answer> and </answer> if it has these.
func (v Verifier) Verify(p task.Prompt, response string) task.Verdict {
	given, err := readProblem(p.Answer)
	if err != nil {
		return task.Verdict{}
	}
	text := strings.TrimSpace(between(response))
	e, err := Parse(text)
	if err != nil || !v.allows(e.Numbers, given.numbers) {
		return task.Verdict{}
	}
	if e.Value == nil || e.Value.Cmp(given.target) != 0 {
		return task.Verdict{Reward: v.wrong(), Extracted: text}
	}
	return task.Verdict{Reward: 1, Correct: true, Extracted: text}
}

// CheckAnswer returns nil if the answer is a problem: an expression or "numbers=target".
func (v Verifier) CheckAnswer(answer string) error {
	_, err := readProblem(answer)
	return err
}

// allows reports whether the used numbers are the given ones, or some of them.
func (v Verifier) allows(used, given []int) bool {
	left := slices.Clone(given)
	for _, n := range used {
		at := slices.Index(left, n)
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return v.Use == Any || len(left) == 0
}

// wrong returns the reward of a wrong value.
func (v Verifier) wrong() float32 {
	switch v.FormatReward {
	case none:
		return 0
	case 0:
		return 0.1
	}
	return float32(v.FormatReward)
}

// between returns what stands between the last opening tag and the closing one after it; all of it if there is no pair.
func between(response string) string {
	const opening, closing = "<answer>", "</answer>"
	end := strings.LastIndex(response, closing)
	if end < 0 {
		return response
	}
	start := strings.LastIndex(response[:end], opening)
	if start < 0 {
		return response
	}
	return response[start+len(opening) : end]
}

// problem is what an answer asks for.
type problem struct {
	numbers []int
	target  *big.Rat
}

// readProblem reads an answer: the problem that an expression solves, or "3 5 5 7=24".
func readProblem(answer string) (problem, error) {
	left, right, explicit := strings.Cut(answer, "=")
	if !explicit {
		e, err := Parse(answer)
		switch {
		case err != nil:
			return problem{}, fmt.Errorf("%.60q is neither an expression nor \"3 5 5 7=24\": %w", answer, err)
		case e.Value == nil:
			return problem{}, fmt.Errorf("%.60q divides by zero: give an expression that has a value", answer)
		}
		return problem{e.Numbers, e.Value}, nil
	}
	var p problem
	for _, field := range strings.Fields(left) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 || n > 999_999_999 {
			return problem{}, fmt.Errorf("%.60q: %.20q is no number of at most nine digits", answer, field)
		}
		p.numbers = append(p.numbers, n)
	}
	target, err := strconv.Atoi(strings.TrimSpace(right))
	if err != nil {
		return problem{}, fmt.Errorf("%.60q: %.20q is no number: want \"3 5 5 7=24\"", answer, right)
	}
	if len(p.numbers) == 0 {
		return problem{}, errors.New("no numbers: want an expression or \"3 5 5 7=24\"")
	}
	p.target = big.NewRat(int64(target), 1)
	return p, nil
}
