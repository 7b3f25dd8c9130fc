package maths

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// sample is an answer as a model: its meaning is decided by exact arithmetic on its entries, not by package answer.
type sample struct {
	kind     string // number, tuple, set, matrix (2 by 2), assignments, builder, sum
	entries  []*big.Rat
	names    []string // of assignments
	brackets string   // of a tuple or a builder
}

func drawSample(r *rand.Rand) sample {
	s := sample{kind: []string{"number", "tuple", "set", "matrix", "assignments", "builder", "sum"}[r.IntN(7)],
		brackets: "()"}
	size := map[string]int{"number": 1, "tuple": 2 + r.IntN(2), "set": 2 + r.IntN(3), "matrix": 4,
		"assignments": 2 + r.IntN(2), "builder": 2, "sum": 4}[s.kind]
	for range size {
		s.entries = append(s.entries, big.NewRat(r.Int64N(60)-30, 1))
		if s.kind != "builder" && s.kind != "sum" && r.IntN(3) == 0 {
			s.entries[len(s.entries)-1] = big.NewRat(r.Int64N(60)-30, 1+r.Int64N(9))
		}
	}
	switch s.kind {
	case "assignments":
		s.names = []string{"x", "y", "t"}[:size]
	case "builder", "sum": // from and to
		s.entries[1] = new(big.Rat).Add(s.entries[0], big.NewRat(2+r.Int64N(6), 1))
	}
	if size == 2 && (s.kind == "tuple" || s.kind == "builder") && s.entries[0].Cmp(s.entries[1]) < 0 {
		s.brackets = []string{"()", "[]", "(]", "[)"}[r.IntN(4)]
	}
	return s
}

// meaning is the same for two samples only if they mean the same.
func (s sample) meaning() string {
	texts := make([]string, len(s.entries))
	for i, v := range s.entries {
		texts[i] = v.RatString()
	}
	switch s.kind {
	case "tuple":
		return s.brackets[:1] + strings.Join(texts, ",") + s.brackets[1:]
	case "builder":
		texts = nil
		for v := s.entries[0].Num().Int64(); v <= s.entries[1].Num().Int64(); v++ {
			if s.brackets[0] == '(' && v == s.entries[0].Num().Int64() ||
				s.brackets[1] == ')' && v == s.entries[1].Num().Int64() {
				continue
			}
			texts = append(texts, fmt.Sprint(v))
		}
		fallthrough
	case "set":
		slices.Sort(texts)
		return "{" + strings.Join(slices.Compact(texts), ",") + "}"
	case "assignments":
		for i := range texts {
			texts[i] = s.names[i] + "=" + texts[i]
		}
		slices.Sort(texts)
		return strings.Join(texts, ",")
	case "sum": // of c k + d
		total := new(big.Rat)
		for k := new(big.Rat).Set(s.entries[0]); k.Cmp(s.entries[1]) <= 0; k.Add(k, big.NewRat(1, 1)) {
			total.Add(total, new(big.Rat).Add(new(big.Rat).Mul(s.entries[2], k), s.entries[3]))
		}
		return total.RatString()
	case "matrix":
		return "matrix " + strings.Join(texts, ",")
	}
	return texts[0]
}

func writtenNumber(r *rand.Rand, v *big.Rat) string {
	sign, size := "", new(big.Rat).Abs(v)
	if v.Sign() < 0 {
		sign = "-"
	}
	switch places, exact := size.FloatPrec(); {
	case exact && r.IntN(3) == 0:
		return sign + size.FloatString(places)
	case size.IsInt():
		return sign + size.RatString()
	}
	return fmt.Sprintf(sign+[]string{`\frac{%d}{%d}`, "%d/%d", `\dfrac{%d}{%d}`}[r.IntN(3)], size.Num(), size.Denom())
}

// written writes a sample in one of several ways, as a response whose answer it is.
func (s sample) written(r *rand.Rand) string {
	texts := make([]string, len(s.entries))
	for i, v := range s.entries {
		texts[i] = writtenNumber(r, v)
	}
	text := ""
	switch s.kind {
	case "number":
		if text = texts[0]; r.IntN(3) == 0 {
			return "Final Answer: The value is $" + text + "$."
		}
	case "tuple":
		text = s.brackets[:1] + strings.Join(texts, ", ") + s.brackets[1:]
	case "set":
		r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
		if joint := []string{", ", ` \text{ and } `, `$ and $`, ` \quad `, ""}[r.IntN(5)]; joint != "" {
			return `So $\boxed{` + strings.Join(texts, "}"+joint+`\boxed{`) + "}$."
		}
		text = []string{"{", `\{`}[r.IntN(2)] + strings.Join(texts, ", ")
		text += map[bool]string{true: `\}`, false: "}"}[text[0] == '\\']
	case "matrix":
		text = fmt.Sprintf([]string{`\begin{pmatrix}%s&%s\\[1ex]%s&%s\end{pmatrix}`,
			`\left(\begin{array}{cc}%s & %s \\ %s & %s\end{array}\right)`,
			`-\begin{bmatrix}-(%s)&-(%s)\\-(%s)&-(%s)\end{bmatrix}`}[r.IntN(3)], texts[0], texts[1], texts[2], texts[3])
	case "assignments":
		for i := range texts {
			texts[i] = s.names[i] + "=" + texts[i]
		}
		r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
		text = strings.Join(texts, ", ")
	case "builder":
		relation := map[byte]string{'(': "<", ')': "<", '[': `\le`, ']': `\leq`}
		text = fmt.Sprintf(`\{n \in \mathbb{Z} %s %s %s n %s %s\}`, []string{":", `\mid`, "|"}[r.IntN(3)], texts[0],
			relation[s.brackets[0]], relation[s.brackets[1]], texts[1])
	case "sum":
		text = fmt.Sprintf(`\sum_{k=%s}^{%s} ((%s)k + (%s))`, texts[0], texts[1], texts[2], texts[3])
	}
	return fmt.Sprintf([]string{`Thus $\boxed{%s}$.`, "The answer is\n\\[\n%s\n\\]", "so\n$$\n%s\n$$"}[r.IntN(3)], text)
}

// mutated changes one token: a digit, a sign, a bracket, the order, a name, or one element.
func (s sample) mutated(r *rand.Rand) sample {
	s.entries, s.names = slices.Clone(s.entries), slices.Clone(s.names)
	i := r.IntN(len(s.entries))
	v := s.entries[i]
	switch r.IntN(6) {
	case 0:
		s.entries[i] = new(big.Rat).Neg(v)
	case 1:
		s.entries[i] = new(big.Rat).SetFrac(new(big.Int).Add(v.Num(), big.NewInt(r.Int64N(19)-9)), v.Denom())
	case 2:
		if i+1 < len(s.entries) {
			s.entries[i], s.entries[i+1] = s.entries[i+1], v
		}
	case 3:
		if s.kind == "set" || s.kind == "tuple" && len(s.entries) > 2 {
			s.entries = slices.Delete(s.entries, i, i+1)
		}
	case 4:
		if s.kind == "set" || s.kind == "tuple" && len(s.entries) > 2 {
			s.entries = append(s.entries, big.NewRat(r.Int64N(60)-30, 1))
		}
		if s.kind == "assignments" {
			s.names[i] = "z"
		}
	case 5:
		if len(s.entries) == 2 && (s.kind == "tuple" || s.kind == "builder") {
			s.brackets = []string{"()", "[]", "(]", "[)"}[r.IntN(4)]
		}
	}
	return s
}

// Right answers in other writings are accepted, and no mutant of one token whose value differs.
func TestMutantsOfRightAnswersAreNotAccepted(t *testing.T) {
	r := rollout.Stream(23, "mutants", 0)
	mutants := map[string]int{}
	total := 0
	rounds := tests.Count(6000, 1000)
	for range rounds {
		s := drawSample(r)
		prompt := task.Prompt{Answer: Verifier{}.Verify(task.Prompt{}, s.written(r)).Extracted}
		if right := s.written(r); !(Verifier{}).Verify(prompt, right).Correct {
			t.Errorf("%q for %q is refused", right, prompt.Answer)
		}
		mutant := s.mutated(r)
		if mutant.meaning() == s.meaning() {
			continue
		}
		mutants[s.kind]++
		total++
		if wrong := mutant.written(r); (Verifier{}).Verify(prompt, wrong).Correct {
			t.Errorf("%q for %q is accepted", wrong, prompt.Answer)
		}
	}
	if total < rounds/2 || len(mutants) != 7 {
		t.Errorf("%d mutants, %v: want at least %d of 7 kinds", total, mutants, rounds/2)
	}
}
