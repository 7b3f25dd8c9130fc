package gsm8k

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/lab/task"
)

// Verifier rewards answers without knowing the questions. It is safe for concurrent use.
type Verifier struct {
	// Flexible takes the last number of a response, whether #### or \boxed marks another, and also where it is part of
	// an expression, a range or a date. References are read as ever.
	Flexible bool
}

// Verify rewards 1 if the answer found in the response equals that of the prompt exactly, as rational numbers, and 0
// otherwise. Without a readable reference answer nothing is correct. Extracted is the canonical form of what was found:
// an integer or a decimal if that is exact, else a fraction in lowest terms.
func (v Verifier) Verify(p task.Prompt, response string) task.Verdict {
	read := extract
	if v.Flexible {
		read = extractFlexibly
	}
	got, ok := read(response)
	if !ok {
		return task.Verdict{}
	}
	verdict := task.Verdict{Extracted: canonical(got)}
	if want, ok := reference(p.Answer); ok && want.Cmp(got) == 0 {
		verdict.Reward, verdict.Correct = 1, true
	}
	return verdict
}

// CheckAnswer returns an error for an unusable reference answer.
func (Verifier) CheckAnswer(answer string) error {
	if _, ok := reference(answer); !ok {
		return fmt.Errorf("%.40q is not one number: give the number alone or a solution that ends in #### and "+
			"the number", answer)
	}
	return nil
}

// reading is what was found where an answer may be.
type reading int

const (
	nothing    reading = iota // no number: look elsewhere
	unreadable                // numbers, but not one answer: to look elsewhere would be to guess
	found
)

// extract returns the answer of a response: the last "#### n", else the last "\boxed{n}", else the last number.
func extract(response string) (*big.Rat, bool) {
	v, what := marked(response)
	if what == nothing {
		v, what = boxed(response)
	}
	if what == nothing {
		v, what = lastNumber(response)
	}
	return v, what == found
}

// reference reads the answer of a dataset: a number alone, "#### n" or "\boxed{n}".
func reference(answer string) (*big.Rat, bool) {
	v, what := marked(answer)
	if what == nothing {
		v, what = boxed(answer)
	}
	if what == nothing {
		v, what = alone(answer, false)
	}
	return v, what == found
}

const hashes = "####"

// marked reads the last "#### n". A heading of that level ("#### Step 1", "#### 2. Add") is not an answer.
func marked(text string) (*big.Rat, reading) {
	for {
		at := strings.LastIndex(text, hashes)
		if at < 0 {
			return nil, nothing
		}
		line := text[at+len(hashes):]
		if end := strings.IndexAny(line, "\r\n"); end >= 0 {
			line = line[:end]
		}
		if v, what := alone(line, true); what != nothing {
			return v, what
		}
		text = strings.TrimRight(text[:at], "#")
	}
}

// maxBox limits the bytes in a box. No number needs more, and nested boxes are read in linear time.
const maxBox = 400

// boxed reads the last "\boxed{n}".
func boxed(text string) (*big.Rat, reading) {
	const box = `\boxed{`
	for {
		at := strings.LastIndex(text, box)
		if at < 0 {
			return nil, nothing
		}
		content, closed := braced(text[at+len(box):])
		if !closed { // cut off or endless: its number would be a guess
			return nil, unreadable
		}
		if v, what := alone(content, false); what != nothing {
			return v, what
		}
		text = text[:at]
	}
}

// braced returns the text up to the brace that closes the one before it.
func braced(text string) (content string, closed bool) {
	depth := 1
	for i := 0; i < min(len(text), maxBox); i++ {
		switch text[i] {
		case '\\': // an escaped brace does not count
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], true
			}
		}
	}
	return "", false
}

// lastNumber reads the last number of a text. What looks like more than a number (a date, a range, an expression) is
// unreadable.
func lastNumber(text string) (*big.Rat, reading) {
	for text != "" {
		at := strings.LastIndexAny(text, "\r\n") + 1
		var last *token
		scan(plain(text[at:]), false, func(t token) { last = &t })
		if last != nil {
			return last.read()
		}
		text = text[:max(0, at-1)]
	}
	return nil, nothing
}

// extractFlexibly returns the last number of a response. A denominator is none: "1/12" and "1 / 12" are the fraction.
// Nor are exponents, indices, arguments of roots and digits of words; nothing is extracted if one of the first three
// comes last.
func extractFlexibly(response string) (*big.Rat, bool) {
	for text := response; text != ""; {
		at := strings.LastIndexAny(text, "\r\n") + 1
		line := plain(text[at:])
		var previous, last *token
		scan(line, false, func(t token) { previous, last = last, &t })
		if last != nil {
			return last.literal(line, previous)
		}
		text = text[:max(0, at-1)]
	}
	return nil, false
}

// literal returns the value of a token of a line whatever is around it, with what it divides if the token before it is
// a numerator.
func (t token) literal(line string, previous *token) (*big.Rat, bool) {
	v, ok := t.written()
	before, divides := strings.CutSuffix(trimSpaces(line[:t.begin]), "/")
	if !ok || !divides {
		return v, ok
	}
	before = trimSpaces(before)
	if previous == nil || previous.end != len(before) || v.Sign() == 0 ||
		strings.HasSuffix(trimSpaces(line[:previous.begin]), "/") {
		return nil, false
	}
	numerator, ok := previous.written()
	if !ok {
		return nil, false
	}
	return numerator.Quo(numerator, v), true
}

// written returns the value of a token's digits, the last ones of a range, a date or a time. It reports false if it has
// none or they are not one number.
func (t token) written() (*big.Rat, bool) {
	if t.whole == "" && t.den == "" {
		return nil, false
	}
	if v, ok := t.value(); ok {
		return v, true
	}
	parts := strings.FieldsFunc(t.whole, func(r rune) bool { return strings.ContainsRune(":-–_'’", r) })
	if len(parts) < 2 || t.den != "" || strings.ContainsAny(t.whole, "eE") {
		return nil, false
	}
	return number{whole: parts[len(parts)-1], exponent: t.exponent}.value()
}

func trimSpaces(s string) string { return strings.TrimRight(s, " "+string(thin)) }

// read returns the value of a token.
func (t token) read() (*big.Rat, reading) {
	if t.unclear {
		return nil, unreadable
	}
	v, ok := t.value()
	if !ok {
		return nil, unreadable
	}
	return v, found
}

// alone reads a text that is nothing but an answer: one number, after an equation if there is one ("x = 7"). A strict
// text must begin with its number, as after ####.
func alone(text string, strict bool) (*big.Rat, reading) {
	s := strings.TrimSpace(plain(text))
	var first, previous, last *token
	scan(s, true, func(t token) {
		previous, last = last, &t
		if first == nil {
			first = &t
		}
	})
	if last == nil || strict && heading(s, *first) {
		return nil, nothing
	}
	equals := strings.LastIndexByte(s[:last.begin], '=')
	if previous != nil && previous.end > equals || equals >= 0 && several(s[:equals]) {
		return nil, unreadable
	}
	return last.read()
}

// heading reports whether a line after #### with the first number t is a heading: it begins with words ("Step 1") other
// than a variable ("x = 1"), or with the number of a list item ("1. Add").
func heading(line string, t token) bool {
	if before := line[:t.begin]; strings.IndexFunc(before, unicode.IsLetter) >= 0 {
		variable := strings.Trim(before, " ($*{")
		return len(variable) < 2 || strings.TrimSpace(variable[1:]) != "="
	}
	after := strings.TrimLeft(line[t.end:], ".:)")
	words := strings.TrimLeft(after, " *")
	return len(after) < len(line)-t.end && len(words) < len(after) && strings.IndexFunc(words, unicode.IsLetter) == 0
}

// several reports whether the left side of an equation holds more than one statement.
func several(s string) bool {
	for i, r := range s {
		if r == ';' || r == ',' && !(i+1 < len(s) && isDigit(rune(s[i+1]))) {
			return true
		}
	}
	return strings.Contains(s, " and ") || strings.Contains(s, " or ")
}

// Limits of numbers, so that a hostile response costs neither memory nor time.
const (
	maxDigits   = 300 // written digits
	maxExponent = 300 // of a power of ten, either sign
)

// number is a number as written: whole, plus num/den if there is a fraction, times 10^exponent.
type number struct {
	neg      bool
	whole    string // "1,234.5", ".5" or "1.5e3"; "" for a fraction alone
	num, den string // integers; "" without a fraction
	exponent int    // of "x 10^3" and "million"
}

// value returns the exact value. It reports false if the text is not one number ("1,2", "1.2.3", "1/0") or exceeds the
// limits.
func (n number) value() (*big.Rat, bool) {
	v := new(big.Rat)
	if n.whole != "" {
		whole, ok := decimal(n.whole)
		if !ok {
			return nil, false
		}
		v = whole
	}
	if n.den != "" {
		f, ok := fraction(n.num, n.den)
		// A mixed number is an integer and a positive fraction below one.
		if !ok || n.whole != "" && (!v.IsInt() || strings.ContainsAny(n.whole, ".eE") || f.Sign() < 0 ||
			f.Cmp(big.NewRat(1, 1)) >= 0) {
			return nil, false
		}
		v.Add(v, f)
	}
	if !scale(v, n.exponent) {
		return nil, false
	}
	if n.neg {
		v.Neg(v)
	}
	return v, true
}

// fraction reads num/den; num may have a sign.
func fraction(num, den string) (*big.Rat, bool) {
	neg := strings.HasPrefix(num, "-")
	a, ok := integer(strings.TrimPrefix(num, "-"))
	b, okay := integer(den)
	if !ok || !okay || b.Sign() == 0 {
		return nil, false
	}
	if neg {
		a.Neg(a)
	}
	return new(big.Rat).SetFrac(a, b), true
}

// decimal reads "1,234.50", ".5", "42" or "1.5e-3".
func decimal(s string) (*big.Rat, bool) {
	exponent := 0
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		if strings.ContainsRune(s, ',') || len(s)-e > len("e-300") {
			return nil, false
		}
		var err error
		if exponent, err = strconv.Atoi(s[e+1:]); err != nil {
			return nil, false
		}
		s = s[:e]
	}
	whole, places, point := strings.Cut(s, ".")
	if point && (places == "" || !digits(places)) {
		return nil, false
	}
	v := new(big.Rat)
	if whole != "" || !point {
		n, ok := integer(whole)
		if !ok {
			return nil, false
		}
		v.SetInt(n)
	}
	if point {
		n, _ := new(big.Int).SetString(places, 10)
		v.Add(v, new(big.Rat).SetFrac(n, power(len(places))))
	}
	return v, scale(v, exponent)
}

// integer reads digits, whole or in groups of three separated by commas or thin spaces.
func integer(s string) (*big.Int, bool) {
	for _, separator := range []string{",", string(thin)} {
		if !strings.Contains(s, separator) {
			continue
		}
		groups := strings.Split(s, separator)
		if len(groups[0]) > 3 || strings.HasPrefix(s, "0") {
			return nil, false
		}
		for _, g := range groups[1:] {
			if len(g) != 3 {
				return nil, false
			}
		}
		s = strings.Join(groups, "")
		break
	}
	if !digits(s) {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

// digits reports whether s is one to maxDigits digits.
func digits(s string) bool {
	for i := range len(s) {
		if !isDigit(rune(s[i])) {
			return false
		}
	}
	return 0 < len(s) && len(s) <= maxDigits
}

// scale multiplies v by 10^exponent, within the limits.
func scale(v *big.Rat, exponent int) bool {
	switch {
	case exponent > maxExponent || exponent < -maxExponent:
		return false
	case exponent > 0:
		v.Mul(v, new(big.Rat).SetInt(power(exponent)))
	case exponent < 0:
		v.Quo(v, new(big.Rat).SetInt(power(-exponent)))
	}
	return true
}

func power(exponent int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exponent)), nil)
}

// canonical writes a value as in Extracted and Prompt.Answer: an integer or a decimal if that is exact, else a fraction
// in lowest terms.
func canonical(v *big.Rat) string {
	if v.IsInt() {
		return v.Num().String()
	}
	if places, exact := v.FloatPrec(); exact {
		return v.FloatString(places)
	}
	return v.String()
}
