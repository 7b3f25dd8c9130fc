package formula_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/expr-lang/expr"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// row is a rollout of which every column is known, and nothing of meta but what meta has.
type row struct {
	values map[string]float64
	meta   map[string]float64
}

func (r *row) Value(c formula.Column) float64 { return r.values[formula.Columns()[c][0]] }

func (r *row) Meta(name string) float64 {
	if v, ok := r.meta[name]; ok {
		return v
	}
	return math.NaN()
}

func sample() *row {
	return &row{
		values: map[string]float64{"reward": 1, "advantage": -0.5, "group_mean": 0.25, "group_std": 0.4,
			"mean_logprob": -1.5, "length": 12, "tokens": 20, "turns": 2, "truncated": 1, "uses": 3, "age": 4, "version": 6,
			"since_use": math.Inf(1)},
		meta: map[string]float64{"difficulty": 0.75, "pass rate": 0.5},
	}
}

func TestAScoreIsWhatItsExpressionSays(t *testing.T) {
	for text, want := range map[string]float64{
		"reward":                                1,
		"-age + 2 * uses ** 2":                  14,
		"2 ^ 3 ^ 2":                             512,
		"7 % 4 - 1 / 2":                         2.5,
		"reward > 0 ? length : -length":         12,
		"truncated && age < 4 ? 1 : 2":          2,
		"max(reward, age, 2) - min(uses, 8)":    1,
		"abs(advantage) * exp(0) + log(1)":      0.5,
		"floor(1.5) + ceil(1.5) * sqrt(9)":      7,
		"meta.difficulty + meta[\"pass rate\"]": 1.25,
		"known(meta.other) ? 1 : +0":            0,
		"1 < 2 < 3 ? 1_000 : 0x10":              1000,
		"since_use":                             math.Inf(1),
		"(tokens - length) | max(3)":            8,
	} {
		f, err := formula.Score(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Number(sample()); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
}

func TestAConditionHoldsWhereItsExpressionIsTrue(t *testing.T) {
	for text, want := range map[string]bool{
		"truncated":                         true,
		"not truncated":                     false,
		"reward >= 1 && age < 8":            true,
		"reward >= 1 and age > 4":           false,
		"reward < 1 || uses == 3":           true,
		"truncated == (turns > 1)":          true,
		"truncated != true":                 false,
		"meta.other > 0":                    false, // it is not known
		"meta.other <= 0":                   false,
		"meta.other != 0":                   true,
		"!known(meta.other) && !(age != 4)": true,
		"since_use > 1000":                  true,
		"true ? false : true":               false,
	} {
		f, err := formula.Condition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Holds(sample()); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
}

func TestAnExpressionThatCannotBeEvaluatedIsRefusedWithItsRemedy(t *testing.T) {
	nested := strings.Repeat("(", 45) + "age" + strings.Repeat(" ?: uses)", 45) // its text has 2^45 characters
	for _, c := range []struct {
		condition  bool
		text, want string
	}{
		{true, "rewrad > 0", `"rewrad > 0": there is no column rewrad: use reward`},
		{true, "entropy > 0", `there is no column entropy: use reward, advantage, group_mean,`},
		{true, "reward", `reward is a number, and the expression must be true or false: write an expression such as ` +
			`reward >= 1 && age < 8`},
		{false, "reward > 0", `reward > 0 is true or false, and the expression must be a number: write an expression`},
		{false, "truncated + 1", `truncated is true or false, and what + takes must be a number`},
		{true, "age && truncated", `age is a number, and what && takes must be true or false`},
		{true, "age == truncated", `truncated is true or false, and what == takes here must be a number`},
		{false, "age ? 1 : 2", `age is a number, and what stands before ? must be true or false`},
		{false, "truncated ? 1 : true", `true is true or false, and what stands after : must be a number`},
		{false, "not age", `age is a number, and what not takes, which binds before comparisons, must be true or`},
		{true, "reward > ", `unexpected token EOF`},
		{true, "", `unexpected token EOF`},
		{true, `meta.source == "web"`, `a text is neither a number nor true or false: use numbers, columns`},
		{true, "all(1..1000000, # > 0)", `there is no function all: use abs, ceil, exp`},
		{false, "sum(1..1000000)", `there is no function sum: use abs`},
		{false, "sqr(age)", `there is no function sqr: use sqrt`},
		{false, "reduce([1, 2], #acc + #)", `there is no function reduce`},
		{false, "let x = age; x", `a sequence of expressions is neither`},
		{false, "[age][0]", `a member of what is not meta: use meta.NAME`},
		{false, "age.meta", `a member of what is not meta`},
		{false, "meta?.x", `a part of it is neither a number nor`},
		{false, "meta", `there is no column meta: use reward,`},
		{false, "abs(age, 1)", `abs takes one number, and not 2: correct its arguments`},
		{false, "min(age)", `min takes two numbers or more, and not 1`},
		{false, "age ?? 1", `?? is no operator here: use + - * / % **`},
		{true, "age in 1..3", `in is no operator here`},
		{false, "age ?: uses", `a ?: b lacks what stands between ? and :, write a ? a : b`},
		{false, nested, `a ?: b lacks`},
		{false, "[" + nested + "]", `a list is neither`},
		{false, "age" + strings.Repeat(" + age", 60), `more than 100 numbers, columns, operators and calls: write a shorter`},
		{false, strings.Repeat(" ", 1000) + "1", `an expression of 1001 bytes: write one of at most 1000`},
		{false, "99999999999999999999", `integer literal`},
	} {
		parse := formula.Score
		if c.condition {
			parse = formula.Condition
		}
		if _, err := parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: got %v, want %s", c.text, err, c.want)
		}
	}
}

func TestAScheduleIsANumberAtEachVersion(t *testing.T) {
	f, err := formula.Schedule("max(0.1, 0.5 - version / 400)")
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[float64]float64{0: 0.5, 100: 0.25, 1000: 0.1} {
		if got := f.At(version); got != want {
			t.Errorf("at version %v it is %v, want %v", version, got, want)
		}
	}
	for text, want := range map[string]string{
		"reward":      "there is no column reward: use version",
		"meta.x":      "there is no column meta: use version",
		"version > 1": "version > 1 is true or false, and the expression must be a number",
	} {
		if _, err := formula.Schedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestAFormulaKnowsWhichColumnsItReads(t *testing.T) {
	f, err := formula.Condition("truncated ? max(1, age) > 2 : not (uses == 0)")
	if err != nil {
		t.Fatal(err)
	}
	if !f.Reads(formula.Age) || !f.Reads(formula.Reward, formula.Uses) || !f.Reads(formula.Truncated) ||
		f.Reads(formula.Reward, formula.SinceUse) {
		t.Error("it does not read what it reads")
	}
}

func TestAnEvaluationDoesNotAllocate(t *testing.T) {
	f, err := formula.Condition("reward >= 1 && abs(advantage) * 0.9 ** age > 0 && meta.difficulty > 0.5 && " +
		"max(uses, age) < 9")
	if err != nil {
		t.Fatal(err)
	}
	r := sample()
	if n := testing.AllocsPerRun(100, func() { f.Holds(r) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestRandomFormulasAgreeWithTheLibrary compares our evaluation with the library's own compiler and machine.
func TestRandomFormulasAgreeWithTheLibrary(t *testing.T) {
	const seed = 7
	t.Log("seed", seed)
	random := rollout.Stream(seed, "formula", 0)
	for range 3000 {
		g := generator{random}
		text := g.number(3)
		f, err := formula.Score(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		r, env := sample(), map[string]any{}
		for i, c := range formula.Columns() {
			r.values[c[0]] = random.NormFloat64() * 4
			if env[c[0]] = r.values[c[0]]; formula.Column(i) == formula.Truncated {
				r.values[c[0]] = float64(random.IntN(2))
				env[c[0]] = r.values[c[0]] == 1
			}
		}
		env["meta"] = r.meta
		answer, err := expr.Eval(text, env)
		want, ok := answer.(float64)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", text, answer, err)
		}
		if got := f.Number(r); got != want && (got == got || want == want) { // it may be NaN
			t.Fatalf("%s is %v, the library says %v", text, got, want)
		}
	}
}

// generator writes random formulas in which no number is an integer: the library has integers of its own.
type generator struct{ random *rand.Rand }

func (g generator) oneOf(list ...string) string { return list[g.random.IntN(len(list))] }

func (g generator) number(depth int) string {
	if depth == 0 {
		return g.oneOf("reward", "age", "mean_logprob", "uses", "meta.difficulty", "0.5", "2.25", "-1.5")
	}
	a, b := g.number(depth-1), g.number(depth-1)
	switch g.random.IntN(5) {
	case 0:
		return g.oneOf("min", "max") + "(" + a + ", " + b + ")"
	case 1:
		return g.oneOf("abs", "floor", "ceil") + "(" + a + ")"
	case 2:
		return "(" + g.condition(depth-1) + " ? " + a + " : " + b + ")"
	}
	return "(" + a + g.oneOf(" + ", " - ", " * ", " / ") + b + ")"
}

func (g generator) condition(depth int) string {
	if depth == 0 {
		return g.oneOf("truncated", "true", "(reward > 0.5)")
	}
	switch g.random.IntN(4) {
	case 0:
		return "(" + g.condition(depth-1) + g.oneOf(" && ", " || ", " == ", " != ") + g.condition(depth-1) + ")"
	case 1:
		return "not (" + g.condition(depth-1) + ")"
	}
	return "(" + g.number(depth-1) + g.oneOf(" < ", " <= ", " > ", " >= ", " == ", " != ") + g.number(depth-1) + ")"
}

func FuzzFormula(f *testing.F) {
	for _, text := range []string{"reward >= 1 && age < 8", "abs(advantage) * 0.9 ** age", "truncated ? 1 : meta[\"a b\"]",
		"((a ?: b) ?: c) ?: d", "let x = 1; x", "all([1], # > 0)", "age | max(2)", "1 not in 2..3", "if true {1} else {2}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := sample()
		if c, err := formula.Condition(text); err == nil {
			c.Holds(r)
			if _, err := formula.Score(text); err == nil {
				t.Errorf("%q is both a condition and a number", text)
			}
		}
		if s, err := formula.Score(text); err == nil {
			s.Number(r)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := formula.Condition("reward >= 1 && age < 8 && uses < 4"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFormula(b *testing.B) {
	f, err := formula.Condition("reward >= 1 && age < 8 && uses < 4")
	if err != nil {
		b.Fatal(err)
	}
	r := new(constant)
	b.ReportAllocs()
	for b.Loop() {
		f.Holds(r)
	}
}

// constant is a row whose columns cost nothing.
type constant struct{}

func (*constant) Value(formula.Column) float64 { return 1 }
func (*constant) Meta(string) float64          { return 1 }
