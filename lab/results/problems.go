package results

import (
	"math/bits"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
)

// Bounds of what a run records of its held-out problems one by one.
const (
	MostProblems = 16_384 // the first of them
	problemText  = 160    // bytes of an id, and of a text
)

// Problem is a line of problems.jsonl: a held-out problem.
type Problem struct {
	ID   string `json:"id"`
	Text string `json:"text"` // its beginning
}

// NewProblem returns a problem with the beginnings of its texts.
func NewProblem(id, text string) Problem {
	clip := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), problemText)], "") }
	return Problem{clip(id), clip(text)}
}

// WriteProblems writes problems.jsonl: the problems that a run's evaluations ask, in their order, at most MostProblems.
func WriteProblems(dir string, list []Problem) error {
	var lines []byte
	for _, p := range list {
		line, err := encode(p, "")
		if err != nil {
			return err
		}
		lines = append(lines, line...)
	}
	return disk.WriteFile(filepath.Join(dir, ProblemsFile), lines)
}

func parseProblems(text []byte) ([]Problem, error) {
	return parseLines(text, func(_, _ *Problem) error { return nil })
}

// Solved tells which problems an evaluation solved: the i-th by bit i%8 of byte i/8. In JSON it is base64.
type Solved []byte

// NewSolved notes the first MostProblems of n problems.
func NewSolved(n int, solved func(i int) bool) Solved {
	n = min(n, MostProblems)
	s := make(Solved, (n+7)/8)
	for i := range n {
		if solved(i) {
			s[i/8] |= 1 << (i % 8)
		}
	}
	return s
}

// Has reports whether a problem was solved.
func (s Solved) Has(i int) bool { return i/8 < len(s) && s[i/8]&(1<<(i%8)) != 0 }

// Count is the number of problems solved.
func (s Solved) Count() (n int) {
	for _, b := range s {
		n += bits.OnesCount8(b)
	}
	return n
}

// Recorded is how many problems an evaluation tells of one by one; 0: an earlier build wrote it.
func (e *Eval) Recorded() int {
	if e.Solved == nil {
		return 0
	}
	return min(e.Problems, MostProblems)
}

// Flips returns the problems that the later of two evaluations solved and the earlier did not, and the other way round.
func Flips(before, after *Eval) (gained, lost []int) {
	for i := range min(before.Recorded(), after.Recorded()) {
		switch was, is := before.Solved.Has(i), after.Solved.Has(i); {
		case is && !was:
			gained = append(gained, i)
		case was && !is:
			lost = append(lost, i)
		}
	}
	return gained, lost
}
