package gsm8k

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
)

// cases are responses with the answer that is read in them; "" where none may be.
func cases() [][2]string {
	return [][2]string{
		// Plain numbers.
		{"42", "42"}, {"42.", "42"}, {"42!", "42"}, {"-7", "-7"}, {"+7", "7"}, {"007", "7"}, {"-0", "0"},
		{"0.50", "0.5"}, {".5", "0.5"},
		{"The answer is 42.", "42"}, {"It is 3, then 4, so 5.", "5"}, {"x = 7", "7"}, {"x=-7", "-7"}, {"x = - 7", "-7"},
		{"−7", "-7"},
		{"**42**", "42"}, {"*42*", "42"}, {"**Answer:** 42", "42"}, {"(42)", "42"}, {"“42”", "42"},
		{"<answer>42</answer>", "42"},
		{"42</s>", "42"}, {"42<|endoftext|>", "42"}, {"3 + 4 = 7", "7"}, {"12/60 = $<<12/60=0.2>>0.2", "0.2"},
		{"=> 7", "7"}, {"-> 7", "7"},
		{"It costs 5, 6 or 7\nSo buy it.", "7"}, {"- 5 apples", "5"}, {"Total - 5", ""}, {"* 5 apples", "5"},
		{"> 5", "5"}, {"| 5 | 6 |", "6"},
		{"on the 2nd day 5", "5"}, {"5 on the 2nd day", "5"}, {"H2O", ""}, {"x1 and x2", ""}, {"5 for x1", "5"},
		// Thousands, decimals, scientific notation.
		{"1,234.50", "1234.5"}, {"1,234", "1234"}, {"12,345,678", "12345678"}, {"1{,}234", "1234"},
		{`10,\!000`, "10000"}, {`1\,234`, "1234"},
		{`5~000`, "5000"}, {"1\u202f234", "1234"}, {"1,2", ""}, {"1,23", ""}, {"1234,567", ""}, {"1,234,56", ""},
		{"0,123", ""}, {"1.234,50", ""},
		{"1, 2", "2"}, {"1.2.3", ""}, {"3..5", ""}, {"1 234", ""}, {"1_000", ""}, {"0x1F", ""}, {"1.5e3", "1500"},
		{"1e-3", "0.001"}, {"2E+2", "200"},
		{"1.5 x 10^3", "1500"}, {`1.5 \times 10^{3}`, "1500"}, {`2\cdot10^{-2}`, "0.02"}, {"1e999999999", ""},
		{"1e301", ""}, {`5 \times 10^{99999999999}`, ""},
		{"1e", ""}, {"10^3", ""}, {"2^{10}", ""}, {"10³", ""}, {strings.Repeat("9", 301), ""},
		{strings.Repeat("9", 300), strings.Repeat("9", 300)},
		{"0.333...", ""}, {"0.333…", ""}, {"0.(3)", ""}, {`0.\overline{3}`, ""}, {"so...5", "5"}, {"5...", "5"},
		// Fractions.
		{"3/4", "0.75"}, {"1/3", "1/3"}, {"2/6", "1/3"}, {"-1/2", "-0.5"}, {"1,000/3", "1000/3"}, {"3 1/2", "3.5"},
		{"-3 1/2", "-3.5"}, {"3 and 1/2", "3.5"},
		{"3 3/2", ""}, {"3.5 1/2", ""}, {"1/0", ""}, {"0/5", "0"}, {"1/2/3", ""}, {"1/-2", ""}, {"1.5/2", ""},
		{"3½", "3.5"}, {"½", "0.5"}, {"-¾", "-0.75"},
		{"½5", ""}, {"1⁄2", "0.5"}, {`\frac{3}{4}`, "0.75"}, {`\dfrac{3}{4}`, "0.75"}, {`\tfrac34`, "0.75"},
		{`-\frac{3}{4}`, "-0.75"}, {`\frac{-3}{4}`, "-0.75"},
		{`3\frac{1}{2}`, "3.5"}, {`3 \frac{1}{2}`, "3.5"}, {`\frac{x}{4}`, ""}, {`\frac{3}{0}`, ""}, {`\frac{3}`, ""},
		{`\frac{\frac{1}{2}}{3}`, ""}, {`\frac123`, ""},
		{`\frac{1{,}000}{3}`, "1000/3"}, {"3 and a half", ""}, {"2 thirds", ""},
		// Currency, percent, units.
		{"$5", "5"}, {"-$5", "-5"}, {`-\$5`, "-5"}, {"$-5", "-5"}, {"-$-5", ""}, {"$ 5", "5"}, {"5 $", "5"},
		{"£1,234.50", "1234.5"}, {"€5", "5"}, {"5€", "5"},
		{"5 dollars", "5"}, {"12%", "12"}, {`12\%`, "12"}, {"12 percent", "12"}, {"5 apples", "5"}, {"5kg", "5"},
		{"5 km/h", "5"}, {"$5/hour", "5"}, {"5 m^2", "5"},
		{"5 cm²", "5"}, {`5\text{ m}^2`, "5"}, {`90^\circ`, "90"}, {`90^{\circ}`, "90"}, {"20°C", "20"},
		{`5~\mathrm{kg}`, "5"}, {`5\;\text{apples}`, "5"},
		{"a 5-year plan", "5"}, {"5 million", "5000000"}, {"$1.5 million", "1500000"}, {"3 hundred thousand", "300000"},
		{"$5k", ""}, {"$5 m", ""}, {"3 dozen", "3"},
		{"5 a day", "5"}, {"5m", "5"}, {`5\text{ and }6`, "6"}, {`5\text{and}6`, ""},
		// More than a number.
		{"2024-01-05", ""}, {"12/25/2024", ""}, {"3:30", ""}, {"3:4", ""}, {"3-5", ""}, {"3–5", ""}, {"3 - 5", ""},
		{"3 + 4", ""}, {"3+4", ""}, {"3 * 4", ""}, {"3*4", ""},
		{"3 x 4", ""}, {"3x4", ""}, {`3 \times 4`, ""}, {"12 / 4", ""}, {"x + 5", ""}, {"5 + x", ""}, {"x-5", ""},
		{"COVID-19", ""}, {"10 -5", ""}, {"5x", ""}, {"5 x", ""},
		{`5\pi`, ""}, {"5π", ""}, {`5\sqrt{2}`, ""}, {`\sqrt{5}`, ""}, {`\sqrt[3]{8}`, ""}, {`\pm 5`, ""},
		{"x > 5", ""}, {`x \geq 5`, ""}, {"x != 5", ""}, {`\log_2 8`, ""},
		{"|-5|", ""}, {"(3)^2", ""}, {"5'6", ""}, {"5(2)", ""}, {`\overline{42}`, ""}, {"4\u200b2", ""},
		{"4２", ""}, {"４２", ""},
		{"1;234", ""}, {"1‚234", ""}, {"1，234", ""}, {"1{.}234", ""}, {`1{\,}234`, ""}, {"1 , 234", ""}, {"4 . 5", ""},
		{"5 : 6", ""}, {"101_2", ""}, {"101_{2}", ""},
		{"__42__", "42"}, {"_42_", "42"}, {`\boxed{5!}`, ""}, {`\boxed{5 \mod 7}`, ""},
		{`\boxed{\lfloor 5.5 \rfloor}`, ""}, {"-.5", "-0.5"}, {`42\n`, "42"},
		{"7=7", "7"}, {"5|6", "6"}, {`\boxed{12\frac{1}{2}\%}`, "12.5"}, {"5 m/s²", "5"}, {"5 ft (about 1.5 m)", "1.5"},
		{"18 - that is it", "18"},
		// Marked.
		{"#### 42", "42"}, {"####42", "42"}, {"3 and 4.\n#### 7\nBye 9.", "7"}, {"#### 1\n#### 2", "2"},
		{"#### 5 apples", "5"}, {"#### $1,234.50", "1234.5"},
		{"#### -$5", "-5"}, {"#### - 5", "-5"}, {"#### x = 7", "7"}, {"#### **42**", "42"}, {`#### \(42\)`, "42"},
		{`#### $\frac{3}{4}$`, "0.75"}, {"#### 42.", "42"},
		{"#### 1.2.3", ""}, {"7 #### 1/0", ""}, {"#### 3 or 4", ""}, {"#### 3 + x", ""}, {"#### 3 + 4 = 7", "7"},
		{"#### 2024-01-05", ""},
		{"#### Step 1\n\\boxed{7}", "7"}, {"#### 1. Add 3\nIt is 7", "7"}, {"####\n7", "7"}, {"#### none\nBut 7", "7"},
		{`\boxed{3} #### 4`, "4"}, {`#### 4` + "\n" + `\boxed{3}`, "4"},
		// Boxed.
		{`\boxed{42}`, "42"}, {`so \boxed{\frac{3}{4}} of 5`, "0.75"}, {`\boxed{1} \boxed{2}`, "2"},
		{`\boxed{\boxed{5}}`, "5"}, {`\boxed{x = 7}`, "7"}, {`\boxed{7 = x}`, "7"},
		{`\boxed{\text{Answer: }5}`, "5"}, {`\boxed{5 \text{ apples}}`, "5"}, {`\boxed{\$1{,}234}`, "1234"},
		{`\boxed{12\%}`, "12"}, {`\boxed{-\$5}`, "-5"}, {`\boxed{- 5}`, "-5"},
		{`\boxed{3, 4}`, ""}, {`\boxed{3,4}`, ""}, {`\boxed{x=7, y=8}`, ""}, {`\boxed{x-5}`, ""}, {`\boxed{4`, ""},
		{`5 \boxed{A}`, "5"}, {`\boxed{f(5)}`, ""}, {"(3)(4)", ""}, {`\boxed{5} \boxed{\text{yes}}`, "5"},
		{`\boxed{1e999999999}`, ""}, {`\boxed{x > 5}`, ""}, {`\boxed{5 \text{ ft } 6 \text{ in}}`, ""},
		{`\boxed{\{5\}}`, "5"}, {`$\boxed{ 42 }$.`, "42"},
		// Nothing.
		{"", ""}, {"no number", ""}, {"####", ""}, {`\boxed{}`, ""}, {".", ""}, {"-", ""}, {"\\", ""}, {"\x00\xff", ""},
	}
}

func TestTheAnswerOfAResponseIsReadOrRefused(t *testing.T) {
	if len(cases()) < 80 {
		t.Fatalf("only %d cases", len(cases()))
	}
	for _, c := range cases() {
		if got := (Verifier{}).Verify(task.Prompt{}, c[0]).Extracted; got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

// Every case answers exactly those references whose value it has: no false positive among all pairs.
func TestOnlyEqualValuesVerify(t *testing.T) {
	for _, c := range cases() {
		for _, reference := range cases() {
			if reference[1] == "" {
				continue
			}
			v := Verifier{}.Verify(task.Prompt{Answer: reference[1]}, c[0])
			if want := c[1] == reference[1]; v.Correct != want || (v.Reward == 1) != want {
				t.Errorf("%q against %q: %+v", c[0], reference[1], v)
			}
		}
	}
}

func TestReferencesMayBeWrittenInAnyForm(t *testing.T) {
	for _, c := range []struct {
		answer, response string
		correct          bool
	}{
		{"1,234.5", "#### 1234.50", true},
		{"He has 3+4 = <<3+4=7>>7.\n#### 7", "7", true},
		{"He has 3+4 = <<3+4=7>>7.\n#### 7", "4", false},
		{`\boxed{\frac{3}{4}}`, "0.75", true},
		{"12%", "12", true},
		{"12%", "0.12", false},
		{"5 dollars", "$5", true},
		{"x = 7", "7", true},
		{"3 or 4", "4", false},
		{"1/0", "1/0", false},
		{"", "", false},
		{"", "0", false},
		{"five", "five", false},
	} {
		if v := (Verifier{}).Verify(task.Prompt{Answer: c.answer}, c.response); v.Correct != c.correct {
			t.Errorf("%q for %q: %+v", c.response, c.answer, v)
		}
	}
	for _, answer := range []string{"", "five", "1/0", "3 or 4"} {
		if err := (Verifier{}).CheckAnswer(answer); err == nil || !strings.Contains(err.Error(), "not one number") {
			t.Errorf("%q accepted as a reference: %v", answer, err)
		}
	}
}

// flexible are responses with the last number in them; "" where it is none.
func flexible() [][2]string {
	return [][2]string{
		{"#### 7\nBye 9.", "9"}, {`\boxed{3} or 4`, "4"}, {"#### 3 or 4", "4"}, {"It is 3, then 4, so 5.", "5"},
		{"#### 42", "42"}, {"1,234.50", "1234.5"}, {`\boxed{1{,}234}`, "1234"}, {"-$5", "-5"}, {"12%", "12"},
		{"5 million", "5000000"}, {"1.5e3", "1500"}, {"3 1/2", "3.5"}, {`\boxed{4`, "4"}, {"0.333...", "0.333"},
		// expressions, ranges, dates, times
		{"3 + 4", "4"}, {"5x", "5"}, {`5\pi`, "5"}, {"24 ÷ 12", "12"}, {"3-5", "5"}, {"-3-5", "5"}, {"7 - 5", "5"},
		{"2024-01-05", "5"}, {"3:30", "30"}, {"1 234", "234"}, {"9–11", "11"}, {"5 apples\n\nGood.", "5"},
		// fractions: a denominator is no number
		{"1/12", "1/12"}, {"1 / 12", "1/12"}, {"-1/12", "-1/12"}, {"6 / 12", "0.5"}, {`\frac{1}{12}`, "1/12"},
		{"½", "0.5"}, {"x + 1/12", "1/12"}, {`3 + \frac{1}{12}`, "1/12"}, {"1,000/8", "125"}, {"5 of 12", "12"},
		{"x/12", ""}, {"5 km / 12", ""}, {"1 / 3 / 12", ""}, {"1/3/12", ""}, {`\frac{x}{12}`, ""},
		{`\frac{3-5}{12}`, ""}, {"1/0", ""}, {"1 / 0", ""}, {"/12", ""},
		// no number at the end: exponents, roots, words, what is not written as one
		{"x^2", ""}, {"10^{3}", ""}, {`\sqrt{5}`, ""}, {"7 for H2O", "7"}, {"7 on the 2nd", "7"}, {"H2O", ""},
		{"1,2", ""}, {"1.2.3", ""}, {"1e-400", ""}, {"", ""}, {"five", ""},
	}
}

func TestAFlexibleVerifierTakesTheLastNumber(t *testing.T) {
	for _, c := range flexible() {
		if got := (Verifier{Flexible: true}).Verify(task.Prompt{}, c[0]).Extracted; got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
	// The denominator is right for verl.
	for answer, want := range map[string]bool{"12": false, "1/12": true} {
		if v := (Verifier{Flexible: true}).Verify(task.Prompt{Answer: answer}, "so 1/12"); v.Correct != want {
			t.Errorf("1/12 for %s: %+v", answer, v)
		}
	}
}

// A response of megabytes made to be slow is read in time linear in its length.
func TestHostileResponsesAreReadQuickly(t *testing.T) {
	size := tests.Count(1<<18, 1<<14)
	for _, unit := range []string{
		"9", "9 ", " ", "#", "####", "####a", `\boxed{`, `\boxed{a}`, `\boxed{a`, `\frac{`, `\frac`, "{", "}", "√[",
		`\sqrt{`, "1e9", "1,", "x^{",
		"-", "9-", "*", "9*", "$", "9\n", "\n", "½", `\`, "<", ">", "9>", "a_{", "...9", "1 1/2 ", " and ", "million ",
	} {
		text := strings.Repeat(unit, size/len(unit))
		start := time.Now()
		Verifier{}.Verify(task.Prompt{Answer: "1"}, text)
		Verifier{Flexible: true}.Verify(task.Prompt{Answer: "1"}, text)
		Verifier{}.Verify(task.Prompt{Answer: text}, "1")
		if took := time.Since(start); took > 10*time.Second { // quadratic time is minutes
			t.Errorf("%q repeated: %v", unit, took)
		}
	}
}

func FuzzVerify(f *testing.F) {
	for _, c := range cases() {
		f.Add(c[0])
	}
	f.Fuzz(func(t *testing.T, response string) {
		v := Verifier{}.Verify(task.Prompt{Answer: response}, response)
		if v.Correct && v.Extracted == "" {
			t.Fatalf("%q: right without an answer", response)
		}
		if v.Extracted == "" {
			return
		}
		value, ok := new(big.Rat).SetString(v.Extracted)
		if !ok || canonical(value) != v.Extracted {
			t.Fatalf("%q: %q is not canonical", response, v.Extracted)
		}
		if len(v.Extracted) > maxDigits { // beyond what is read again
			return
		}
		for _, form := range []string{v.Extracted, "#### " + v.Extracted, `\boxed{` + v.Extracted + "}",
			"It is " + v.Extracted + "."} {
			if !(Verifier{}).Verify(task.Prompt{Answer: v.Extracted}, form).Correct {
				t.Fatalf("%q: canonical %q does not verify as %q", response, v.Extracted, form)
			}
		}
		other := canonical(value.Add(value, big.NewRat(1, 1)))
		if (Verifier{}).Verify(task.Prompt{Answer: other}, response).Correct {
			t.Fatalf("%q is right for %s and for one more", response, v.Extracted)
		}
	})
}

func FuzzFlexible(f *testing.F) {
	for _, c := range append(cases(), flexible()...) {
		f.Add(c[0])
	}
	f.Fuzz(func(t *testing.T, response string) {
		got := Verifier{Flexible: true}.Verify(task.Prompt{}, response).Extracted
		// Where the last number is read without marks, it is the same.
		if v, what := lastNumber(response); what == found && canonical(v) != got {
			t.Fatalf("%q: %q, want %q", response, got, canonical(v))
		}
		if got == "" {
			return
		}
		value, ok := new(big.Rat).SetString(got)
		if !ok || canonical(value) != got {
			t.Fatalf("%q: %q is not canonical", response, got)
		}
		// Without marks nothing is found where the flexible verifier finds nothing, and a number behind is the last.
		response += "\nIt is 17."
		if last := (Verifier{Flexible: true}).Verify(task.Prompt{}, response).Extracted; last != "17" {
			t.Fatalf("%q: %q, want 17", response, last)
		}
	})
}

// Numbers written in every supported form have the value they were written from.
func FuzzWrittenForms(f *testing.F) {
	f.Add(int64(1234567), uint8(50), uint16(4))
	f.Add(int64(-5), uint8(0), uint16(3))
	f.Fuzz(func(t *testing.T, whole int64, cents uint8, den uint16) {
		for form, want := range forms(whole, int64(cents%100), int64(den)+2) {
			for _, frame := range []string{"%", "so #### % is it", "#### %", `\boxed{%}`, `$\boxed{ x = % }$.`,
				"the answer is **%**.", "%</s>"} {
				response := strings.ReplaceAll(frame, "%", form)
				if got := (Verifier{}).Verify(task.Prompt{}, response).Extracted; got != canonical(want) {
					t.Errorf("%q: %q, want %s", response, got, canonical(want))
				}
			}
		}
	})
}

// forms writes whole.cents and whole + 1/den in all manner of ways.
func forms(whole, cents, den int64) map[string]*big.Rat {
	negative, sign := whole < 0, ""
	size := new(big.Int).Abs(big.NewInt(whole))
	if negative {
		sign = "-"
	}
	signed := func(v *big.Rat) *big.Rat {
		if negative {
			v.Neg(v)
		}
		return v
	}
	grouped := size.String()
	for at := len(grouped) - 3; at > 0; at -= 3 {
		grouped = grouped[:at] + "," + grouped[at:]
	}
	fraction := big.NewRat(1, den)
	money := new(big.Rat).Add(new(big.Rat).SetInt(size), big.NewRat(cents, 100))
	places := "." + string([]byte{byte('0' + cents/10), byte('0' + cents%10)})
	d := big.NewInt(den).String()
	return map[string]*big.Rat{
		sign + grouped:                   signed(new(big.Rat).SetInt(size)),
		sign + size.String() + " apples": signed(new(big.Rat).SetInt(size)),
		sign + size.String() +
			"e2": signed(new(big.Rat).SetInt(new(big.Int).Mul(size, big.NewInt(100)))),
		sign + "$" + grouped + places:                               signed(new(big.Rat).Set(money)),
		sign + `\$` + size.String() + places:                        signed(new(big.Rat).Set(money)),
		sign + strings.ReplaceAll(grouped, ",", `\,`) + `\text{ m}`: signed(new(big.Rat).SetInt(size)),
		sign + strings.ReplaceAll(grouped, ",", "{,}") + `\%`:       signed(new(big.Rat).SetInt(size)),
		sign + size.String() + `\frac{1}{` + d +
			"}": signed(new(big.Rat).Add(new(big.Rat).SetInt(size), fraction)),
		sign + grouped + " 1/" +
			d: signed(new(big.Rat).Add(new(big.Rat).SetInt(size), fraction)),
	}
}

func BenchmarkVerify(b *testing.B) {
	response := strings.Repeat("He sells 48/2 = <<48/2=24>>24 clips in May.\n", 8) + "#### 72"
	for b.Loop() {
		Verifier{}.Verify(task.Prompt{Answer: "72"}, response)
	}
}
