package countdown

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

func TestExpressionsAreRewardedByValueAndNumbers(t *testing.T) {
	for _, c := range []struct {
		verifier  Verifier
		answer    string
		response  string
		reward    float32
		extracted string
	}{
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)", 1, "(5-3)*(7+5)"},
		{Verifier{}, "(5-3)*(7+5)", "(7+5)*(5-3)", 1, "(7+5)*(5-3)"},
		{Verifier{}, "3 5 5 7=24", " ( 5 − 3 ) × ( 7 + 5 )\n", 1, "( 5 − 3 ) × ( 7 + 5 )"},
		{Verifier{}, "3 5 5 7=24", "(5-3)*7+5", 0.1, "(5-3)*7+5"},
		{Verifier{FormatReward: 0.3}, "3 5 5 7=24", "(5-3)*7+5", 0.3, "(5-3)*7+5"},
		{Verifier{FormatReward: -1}, "3 5 5 7=24", "(5-3)*7+5", 0, "(5-3)*7+5"},
		{Verifier{}, "3 5 5 7=24", "3/(5-5)+7", 0.1, "3/(5-5)+7"}, // divides by zero
		{Verifier{}, "3 5 5 7=24", "(5-3)*12", 0, ""},             // other numbers
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)*1", 0, ""},
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+3)", 0, ""}, // one of them twice
		{Verifier{}, "3 5 5 7=24", "5-3", 0, ""},         // not all
		{Verifier{Use: Any}, "3 5 5 7=2", "5-3", 1, "5-3"},
		{Verifier{Use: Any}, "3 5 5 7=10", "5+5", 1, "5+5"},
		{Verifier{Use: Any}, "3 5 7=10", "5+5", 0, ""},
		{Verifier{Use: Any}, "3 5 7=10", "7", 0.1, "7"},
		{Verifier{}, "3 5 5 7=24", "24", 0, ""},
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)=24", 0, ""},
		{Verifier{}, "3 5 5 7=24", "35*5-7", 0, ""}, // digits are not joined
		{Verifier{}, "3 5 5 7=24", "", 0, ""},
		{Verifier{}, "3 5 5 7=24", "So: <answer> (5-3)*(7+5) </answer>.", 1, "(5-3)*(7+5)"},
		// the last counts
		{Verifier{}, "3 5 5 7=24", "<answer>3</answer> no <answer>(5-3)*(7+5)</answer>", 1, "(5-3)*(7+5)"},
		{Verifier{}, "3 5 5 7=24", "<answer>(5-3)*(7+5)</answer> no <answer>3</answer>", 0, ""},
		{Verifier{}, "3 5 5 7=24", "<answer>(5-3)*(7+5)", 0, ""},
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)</answer>", 0, ""},
		{Verifier{}, "1 3=4", "1+3", 1, "1+3"},
		{Verifier{}, "1 3=-2", "1-3", 1, "1-3"},
		{Verifier{}, "1/3", "1/3", 1, "1/3"}, // an expression asks for its value, whole or not
		{Verifier{}, "four", "4", 0, ""},
		{Verifier{}, "1/0", "1/0", 0, ""},
		{Verifier{}, "", "", 0, ""},
	} {
		got := c.verifier.Verify(task.Prompt{Answer: c.answer}, c.response)
		if got.Reward != c.reward || got.Correct != (c.reward == 1) || got.Extracted != c.extracted {
			t.Errorf("%+v %q for %q: %+v, want %g and %q", c.verifier, c.response, c.answer, got, c.reward, c.extracted)
		}
	}
}

func TestAnswersWithoutAProblemSayWhy(t *testing.T) {
	for answer, want := range map[string]string{
		"3 5=15":     "",
		"3*5":        "",
		" 3  5 =-2 ": "",
		"":           "neither an expression nor",
		"four":       "neither an expression nor",
		"3/(1-1)":    "divides by zero",
		"=5":         "no numbers",
		"3 x=5":      `"x" is not a number`,
		"3 -5=5":     `"-5" is not a number`,
		"3 5=":       `"" is not a number`,
		"3 5=7=9":    `"7=9" is not a number`,
		"3 5=1.5":    `"1.5" is not a number`,
	} {
		err := Verifier{}.CheckAnswer(answer)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", answer, err, want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("3 5=15", "3*5")
	f.Add("3*5", "<answer>5*3</answer>")
	f.Add("=\xff", "</answer><answer>")
	f.Fuzz(func(t *testing.T, answer, response string) {
		v := Verifier{}.Verify(task.Prompt{Answer: answer}, response)
		if v.Correct != (v.Reward == 1) || v.Reward != 0 && v.Reward != 1 && v.Reward != 0.1 ||
			(v.Reward == 0) != (v.Extracted == "") {
			t.Fatalf("%q for %q: %+v", response, answer, v)
		}
		if v.Reward > 0 && (Verifier{}).CheckAnswer(answer) != nil {
			t.Fatalf("%q for %q, which is no problem: %+v", response, answer, v)
		}
	})
}

func TestExpressionsAreParsedExactly(t *testing.T) {
	for text, want := range map[string]expression{
		"7":                   {[]int{7}, big.NewRat(7, 1)},
		"0":                   {[]int{0}, new(big.Rat)},
		"3+5*2":               {[]int{3, 5, 2}, big.NewRat(13, 1)},
		"(3+5)*2":             {[]int{3, 5, 2}, big.NewRat(16, 1)},
		"10-4-3":              {[]int{10, 4, 3}, big.NewRat(3, 1)}, // from left to right
		"10-(4-3)":            {[]int{10, 4, 3}, big.NewRat(9, 1)},
		"12/4/3":              {[]int{12, 4, 3}, big.NewRat(1, 1)},
		"2/3*3":               {[]int{2, 3, 3}, big.NewRat(2, 1)},
		"1/3-1/3":             {[]int{1, 3, 1, 3}, new(big.Rat)}, // no floating point
		"8/(3-8/3)":           {[]int{8, 3, 8, 3}, big.NewRat(24, 1)},
		" ( 1 + 2 )\n*\t3 ":   {[]int{1, 2, 3}, big.NewRat(9, 1)},
		"((((1))))":           {[]int{1}, big.NewRat(1, 1)},
		"6×2÷3−1":             {[]int{6, 2, 3, 1}, big.NewRat(3, 1)},
		"5/(3-3)":             {[]int{5, 3, 3}, nil},
		"1+5/0*2":             {[]int{1, 5, 0, 2}, nil},
		"0*(5/0)":             {[]int{0, 5, 0}, nil},
		"999999999*999999999": {[]int{999999999, 999999999}, new(big.Rat).SetFrac64(999999998000000001, 1)},
		strings.Repeat("(", 50) + "1" + strings.Repeat(")", 50): {[]int{1}, big.NewRat(1, 1)},
	} {
		got, err := parse(text)
		if err != nil || !reflect.DeepEqual(got.numbers, want.numbers) || (got.value == nil) != (want.value == nil) ||
			want.value != nil && got.value.Cmp(want.value) != 0 {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestMalformedExpressionsAreRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "+", "-3+5", "+3", "3+", "3+-5", "3++5", "(3", "3)", "()", "3 5", "(3)(5)", "2(3)", "3.5", "3,5",
		"0x10", "1e3", "05", "00",
		"1234567890", "3+5=8", "3^2", "3**2", "3//2", "x", "3+x", "３", "1\x00", "\xff", "√4", "5!", "3 plus 5", "1_0",
		strings.Repeat("(", 51) + "1" + strings.Repeat(")", 51), "1" + strings.Repeat("+1", 200),
	} {
		if e, err := parse(text); err == nil {
			t.Errorf("%q is read as %v", text, e)
		}
	}
}

// judge computes with Go's own parser; false: an operation by zero.
func judge(t *testing.T, e ast.Expr) (*big.Rat, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return judge(t, e.X)
	case *ast.BasicLit:
		n, err := strconv.ParseInt(e.Value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return big.NewRat(n, 1), true
	case *ast.BinaryExpr:
		a, ok := judge(t, e.X)
		b, also := judge(t, e.Y)
		if !ok || !also {
			return nil, false
		}
		switch e.Op {
		case token.ADD:
			return new(big.Rat).Add(a, b), true
		case token.SUB:
			return new(big.Rat).Sub(a, b), true
		case token.MUL:
			return new(big.Rat).Mul(a, b), true
		case token.QUO:
			if b.Sign() == 0 {
				return nil, false
			}
			return new(big.Rat).Quo(a, b), true
		}
	}
	t.Fatalf("%T is no part of an expression", e)
	return nil, false
}

// agree holds what Parse makes of a text to Go's parser.
func agree(t *testing.T, text string) {
	t.Helper()
	e, err := parse(text)
	if err != nil {
		return
	}
	text = strings.NewReplacer("×", "*", "÷", "/", "−", "-", "\n", " ", "\r", " ").Replace(text)
	theirs, err := goparser.ParseExpr(strings.ReplaceAll(text, "/", " / ")) // "/*" begins a comment of Go's
	if err != nil {
		t.Fatalf("%q is read as %v, but Go says %v", text, e, err)
	}
	want, ok := judge(t, theirs)
	if ok != (e.value != nil) || ok && want.Cmp(e.value) != 0 {
		t.Fatalf("%q is %v, Go says %v", text, e.value, want)
	}
}

// random writes an expression.
func random(draw func(int) int, depth int) string {
	switch draw(3 + 3*min(depth, 1)) {
	case 0, 1:
		return strconv.Itoa(draw(30))
	case 2:
		return "(" + random(draw, max(0, depth-1)) + ")"
	}
	return random(draw, depth-1) + []string{"+", "-", "*", "/", " − ", " ÷"}[draw(6)] + random(draw, depth-1)
}

func TestRandomExpressionsHaveTheValueThatGoComputes(t *testing.T) {
	for seed := range uint64(3000) {
		text := random(rollout.Stream(seed, "countdown test expression", 0).IntN, 5)
		if _, err := parse(text); err != nil && len(text) <= maxBytes {
			t.Fatalf("%q: %v", text, err)
		}
		agree(t, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("(3+5)*2-7/(1-1)")
	f.Add(" 6×2÷3−1")
	f.Add("((1)")
	f.Add("1/*2*/3")
	f.Fuzz(agree)
}
