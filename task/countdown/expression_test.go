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

	"github.com/reprise-rl/reprise/rollout"
)

func TestExpressionsAreParsedExactly(t *testing.T) {
	for text, want := range map[string]Expression{
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
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got.Numbers, want.Numbers) || (got.Value == nil) != (want.Value == nil) ||
			want.Value != nil && got.Value.Cmp(want.Value) != 0 {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestWhatIsNoExpressionIsRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "+", "-3+5", "+3", "3+", "3+-5", "3++5", "(3", "3)", "()", "3 5", "(3)(5)", "2(3)", "3.5", "3,5", "0x10", "1e3", "05", "00",
		"1234567890", "3+5=8", "3^2", "3**2", "3//2", "x", "3+x", "３", "1\x00", "\xff", "√4", "5!", "3 plus 5", "1_0",
		strings.Repeat("(", 51) + "1" + strings.Repeat(")", 51), "1" + strings.Repeat("+1", 200),
	} {
		if e, err := Parse(text); err == nil {
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
	e, err := Parse(text)
	if err != nil {
		return
	}
	text = strings.NewReplacer("×", "*", "÷", "/", "−", "-", "\n", " ", "\r", " ").Replace(text)
	theirs, err := goparser.ParseExpr(strings.ReplaceAll(text, "/", " / ")) // "/*" begins a comment of Go's
	if err != nil {
		t.Fatalf("%q is read as %v, but Go says %v", text, e, err)
	}
	want, ok := judge(t, theirs)
	if ok != (e.Value != nil) || ok && want.Cmp(e.Value) != 0 {
		t.Fatalf("%q is %v, Go says %v", text, e.Value, want)
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

func TestRandomExpressionsAreWorthWhatGoMakesOfThem(t *testing.T) {
	for seed := range uint64(3000) {
		text := random(rollout.Stream(seed, "countdown test expression", 0).IntN, 5)
		if _, err := Parse(text); err != nil && len(text) <= mostBytes {
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
