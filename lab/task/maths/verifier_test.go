package maths

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
)

// pair is a response to a problem with a reference answer, and whether it is right.
type pair struct {
	Response string `json:"response"`
	Answer   string `json:"answer"`
	Correct  bool   `json:"correct"`
}

func pairs(t testing.TB, name string) []pair {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []pair
	if err := task.EachLine(f, func(_ int, line []byte) error {
		var p pair
		err := json.Unmarshal(line, &p)
		list = append(list, p)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// Half of the pairs of each file are wrong answers that look right. testdata/README.md tells when each was written, and
// what the first try scored. frozen.jsonl stays at its first score.
func TestTablesOfPairsAreJudgedWithoutAFalsePositive(t *testing.T) {
	for name, least := range map[string]int{"pairs.jsonl": 200, "blind.jsonl": 60, "frozen.jsonl": 194} {
		right, agreed := 0, 0
		for _, p := range pairs(t, name) {
			v := Verifier{}.Verify(task.Prompt{Answer: p.Answer}, p.Response)
			if p.Correct {
				right++
			}
			switch {
			case v.Correct && !p.Correct:
				t.Errorf("%s: false positive: %q for %q", name, p.Response, p.Answer)
			case v.Correct == p.Correct:
				agreed++
			default:
				t.Logf("%s: not recognised: %q for %q: %+v", name, p.Response, p.Answer, v)
			}
			if (v.Reward == 1) != v.Correct || v.Correct && v.Extracted == "" {
				t.Errorf("%s: %q: verdict %+v contradicts itself", name, p.Response, v)
			}
		}
		if all := len(pairs(t, name)); right != all/2 || agreed < least {
			t.Errorf("%s: %d of %d judged as labelled, want %d; %d labelled right, want half", name, agreed, all, least,
				right)
		}
	}
}

func TestTheAnswerOfAResponseIsFoundOrNone(t *testing.T) {
	for _, c := range [][2]string{
		// The last box, with its braces in balance.
		{`\boxed{5}`, "5"}, {`\boxed{1} then \boxed{2}`, "2"}, {`\boxed{\frac{1}{2}}`, `\frac{1}{2}`},
		{`\boxed{\{1,2\}}`, `\{1,2\}`}, {`\boxed{\boxed{5}}`, "5"},
		{`\fbox{7}`, "7"}, {`\boxed 5 is it`, "5"}, {`$\boxed 5$`, "5"}, {`\boxed {5}`, "5"}, {`\boxed{ 5 }`, "5"},
		{`\boxed{}`, ""}, {`\boxed{5`, ""}, {`7 \boxed{5`, ""},
		{`answer is 3 \boxed{4}`, "4"}, {"#### 3\n\\boxed{4}", "4"}, {`\boxed{4} and the answer is 3`, "4"},
		// Boxes that belong together.
		{`$\boxed{2}$ and $\boxed{3}$`, "2, 3"}, {`\boxed{2}, \boxed{3}`, "2, 3"},
		{`\boxed{2} or \boxed{3}`, `2 \text{ or } 3`}, {`\boxed{2} (or \boxed{3})`, `2 \text{ or } 3`},
		{"\\boxed{2}\n\\boxed{3}", "3"}, {`\boxed{2}, so \boxed{3}`, "3"},
		{`\boxed{1}, \boxed{2}, and \boxed{3}`, "1, 2, 3"}, {`\boxed{2} \boxed{3}`, "3"},
		{`\boxed{2} and \boxed{3`, ""}, {"\\boxed{2},\n\\boxed{3}", "3"},
		{`$x=\boxed{2}$ or $x=\boxed{3}$`, `2 \text{ or } 3`},
		{`\boxed{2} \text{ and } \boxed{6}`, "2, 6"}, {`\[\boxed{2} \quad \boxed{6}\]`, "2, 6"},
		{`$\boxed{2}$, $\boxed{4}$, and also $\boxed{6}$.`, "2, 4, 6"}, {`\boxed{2}. And \boxed{6}`, "6"},
		{`$x_1=\boxed{2}, x_2=\boxed{6}$`, "x_1=2, x_2=6"},
		{`$y=\boxed{1}$, $x=\boxed{2}$`, "y=1, x=2"}, {`$f(1)=\boxed{2}$ and $f(2)=\boxed{6}$`, "f(1)=2, f(2)=6"},
		{`$a=\boxed{2}$ and $a+b=\boxed{6}$`, "6"}, {`$a=\boxed{2}$ and $a + b = \boxed{6}$`, "6"},
		{`$a + b=\boxed{2}$ and $c=\boxed{6}$`, "2, 6"}, {`$y=\boxed{2} \text{ and }x=\boxed{6}$`, "y=2, x=6"},
		{`The smaller is \boxed{2} and the larger is \boxed{6}.`, "2, 6"}, {`\boxed{2} and hence \boxed{6}`, "6"},
		{`\boxed{2} as well as \boxed{6}`, "2, 6"}, {`\boxed{2} and 3 + 3 = \boxed{6}`, "6"},
		{`\boxed{2} \text{ or } \boxed{6}`, `2 \text{ or } 6`},
		{"$$\\boxed{2}$$\nand\n$$\\boxed{6}$$", "2, 6"}, {`\boxed{2} and then \boxed{6}`, "6"},
		{"\\boxed{2}.\n\nand \\boxed{6}", "6"}, {`\boxed{2} is one. The sum is \boxed{6}`, "6"},
		// Display formulas over several lines.
		{"so\n\\[\n9\n\\]", "9"}, {"so\n$$\nx = 9\n$$\n", "x = 9"}, {"The answer is\n\\[\n9\n\\]", "9"},
		{"\\[\n8\n\\]\nthen\n\\[\n\\frac{1}{2}\n\\]", `\frac{1}{2}`}, {"\\[\n9", "9"}, {"$$\n9", "9"},
		// Announced.
		{"Final Answer: The number of ways is 34.", "34"}, {"**Final Answer**: The area is $34$ cm.", "34"},
		{"Final Answer: the sum of 12 and 5 is $17$.", "$17$"}, {"Final Answer: the rest equals x+1.", "x+1"},
		{"Final Answer: The area is not 34.", "The area is not 34"}, {"Answer: it is at least 5", "it is at least 5"},
		{"Final Answer: one is 3 and the other is 4.", "one is 3 and the other is 4"},
		{"Answer: it is 3, or 4", "it is 3, or 4"},
		{"Answer: it is 3 if n is 5", "it is 3 if n is 5"}, {"Answer: neither 4 nor 3 is 5", "neither 4 nor 3 is 5"},
		{"Answer: it is wrong that x is 5", "it is wrong that x is 5"}, {"Answer: Nothing is 5", "Nothing is 5"},
		{"Answer: twice the value is 5", "twice the value is 5"}, {"Answer: x + 2 is 5", "x + 2 is 5"},
		{"Answer: x - 2 is 5", "x - 2 is 5"},
		{"Final Answer: 34 is the sum", "34 is the sum"}, {"Answer: it is about 5", "it is about 5"},
		{"The answer is 5.", "5"}, {"the final answer is $x=5$.", "x=5"}, {"Answer: 1/2", "1/2"},
		{"**Answer:** $5$", "5"}, {"### Answer\n5", "5"}, {"Answer:\n\n5", "5"},
		{"The answer is 5. Or 6.", "5"}, {"The answer is 5.5 cm", "5.5 cm"}, {"answer is 4\nanswer is 5", "5"},
		{"Answer: 4. No, the answer is 5", "5"}, {"The answer isn't 5", ""}, {"The answer is not 5.", "not 5"},
		{"The answer is therefore 5", "5"}, {"the answers are 2 and 3", "2 and 3"}, {"#### 42", "42"},
		{"The answer is: (C)", "(C)"}, {"ANSWER: 5", "5"}, {`the answer is \(5\)`, "5"},
		{"the answer is between $5$ and $7$", "between $5$ and $7$"}, {"the answers", ""}, {"The answer is", ""},
		// The last line.
		{"We add.\n$x = 12$", "x = 12"}, {"so $a=1$, $b=2$, thus $a+b=3$", "a+b=3"},
		{"it is $5$ or $7$", `5 \text{ or } 7`}, {"12", "12"}, {"so we get 12", "12"}, {"so 3 and 12.", "12"},
		{"12\nbye", ""}, {"It is not 12", ""}, {"It can't be 12", ""}, {"from 5 - 7", ""}, {"costs $5", "5"},
		{`\[x=5\]`, "x=5"}, {"$$\\frac12$$", `\frac12`}, {"", ""}, {"no idea", ""}, {"\n\n", ""},
	} {
		if got := extract(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestReferencesMayBeAnswersOrSolutions(t *testing.T) {
	for _, c := range []struct {
		answer  string
		correct bool
	}{
		{"5", true}, {" 5\n", true}, {"$5$", true}, {`\boxed{5}`, true}, {`We add 2 and 3. Thus $\boxed{5}$.`, true},
		{"2+3=5\n#### 5", true}, {"x=5", true}, {`\text{five}`, true},
		{`\boxed{6} wait \boxed{5}`, true}, {`\boxed{6}, not 5`, false}, {"6", false}, {"", false}, {"?", false},
		{`\boxed{5`, false}, {`5 \boxed{}`, false},
	} {
		if v := (Verifier{}).Verify(task.Prompt{Answer: c.answer}, `\boxed{5}`); v.Correct != c.correct ||
			v.Extracted != "5" {
			t.Errorf("5 for %q: %+v", c.answer, v)
		}
	}
	for _, answer := range []string{"", " ", "$$", `\boxed{}`, `\boxed{5`} {
		if err := (Verifier{}).CheckAnswer(answer); err == nil || !strings.Contains(err.Error(), "holds no answer") {
			t.Errorf("%q accepted as a reference: %v", answer, err)
		}
	}
	if err := (Verifier{}).CheckAnswer(`\frac12`); err != nil {
		t.Error(err)
	}
}

// Responses made to be slow: quadratic time would take minutes.
func TestHostileResponsesAreReadQuickly(t *testing.T) {
	for _, unit := range []string{
		"(", "{", "[", "|", "-", `\frac`, `\frac{`, `\sqrt{`, "x^", "9^{", `\sin `, "(x=", "5!", "1,", `\boxed{`,
		`\boxed{a`, `\boxed{5} and `, `\text{`, `\{`, "x+", "9^9^", `\pm`,
		"a or ", "x_", `\left(`, "(1,", "x<", "1000!+x+", `\frac{1}{x}+`, `\ln(`, "|x", "answer is ", "answer:", "$",
		"$1$ or ", `\begin{pmatrix}1&`, "((1 or 2) or ", `\sqrt[`, `0.\overline{3}`,
		"100!^{100}", `2^{9999}\cdot`, "9", "\n", `\`, "#", "=", "x=", "1:", "½",
		`\sum_{k=1}^{200}9^{1000}+`, `\sum_{k=1}^{2}`, `\{x:`, `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, "{1,", `\[`,
		"$$\n",
		`\boxed{5} \quad `, "f(x)=",
	} {
		for _, size := range []int{60, 1500, tests.Count(1<<18, 1<<14)} {
			text := strings.Repeat(unit, size/len(unit)+1)
			start := time.Now()
			for _, response := range []string{text, `\boxed{` + text + "}", "answer is " + text} {
				Verifier{}.Verify(task.Prompt{Answer: text + "1"}, response)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("%q to %d bytes: %v", unit, size, took)
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	for _, name := range []string{"pairs.jsonl", "blind.jsonl"} {
		for _, p := range pairs(f, name) {
			f.Add(p.Response, p.Answer)
		}
	}
	f.Fuzz(func(t *testing.T, response, answer string) {
		v := Verifier{}.Verify(task.Prompt{Answer: answer}, response)
		if (v.Reward == 1) != v.Correct || v.Correct && (v.Extracted == "" || Verifier{}.CheckAnswer(answer) != nil) {
			t.Fatalf("%q for %q: %+v", response, answer, v)
		}
		// An answer is right for itself, and not also for itself and one more.
		if v.Extracted == "" || strings.ContainsAny(v.Extracted, "{}\\#") ||
			strings.Contains(strings.ToLower(v.Extracted), "answer") {
			return
		}
		box := `\boxed{` + v.Extracted + "}"
		if (Verifier{}).CheckAnswer(box) == nil && !(Verifier{}).Verify(task.Prompt{Answer: box}, box).Correct {
			t.Fatalf("%q is not right for itself", box)
		}
		if v.Correct && (Verifier{}).Verify(task.Prompt{Answer: "(" + reference(answer) + ")+1"}, response).Correct {
			t.Fatalf("%q is right for %q and for one more", response, answer)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	list := pairs(b, "pairs.jsonl")
	for b.Loop() {
		for _, p := range list {
			Verifier{}.Verify(task.Prompt{Answer: p.Answer}, p.Response)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/response")
}
