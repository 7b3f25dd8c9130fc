package gsm8k

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a number as it stands in a text: bytes [begin, end), sign and currency included at the
// front, units left out at the back.
type token struct {
	number
	begin, end int
	unclear    bool // part of something larger: an expression, a range, a date, a power
}

// scanner finds the numbers in plain text from left to right, in time linear in its length. It
// rather finds a number unclear than guess: what looks like more than a number is none.
type scanner struct {
	text   string
	answer bool // the text is all answer: a dash at its start is a sign, not the mark of a list
	found  func(token)
	held   *token // the last number, until it is known that no fraction follows
}

// scan calls found for each number of the plain text s, in order.
func scan(s string, answer bool, found func(token)) {
	sc := scanner{text: s, answer: answer, found: found}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case isDigit(r), r == '.' && isDigit(sc.at(i+1)) && sc.before(i) != '.':
			i = sc.figure(i)
		case r == fracMark:
			i = sc.fraction(i)
		case r == opaque:
			i = sc.argument(i + n)
		case r == '^':
			i = sc.argument(i)
		case r == '_' && strings.ContainsRune("\x00 (*\"'_:", sc.before(i)): // emphasis
			i++
		case isWord(r):
			i = sc.name(i)
		default:
			i += n
		}
	}
	sc.release()
}

// figure reads the number that starts with the digit or point at i and returns where to go on.
func (sc *scanner) figure(i int) int {
	t := token{end: sc.run(i)}
	t.unclear = sc.text[i] == '.' && (isWord(sc.before(i)) || isDigit(sc.before(i)))
	t.split(sc.text[i:t.end])
	exponent, end, clear := sc.power(t.end)
	t.exponent, t.end = exponent, end
	t.unclear = t.unclear || !clear || end > i+maxRun
	return sc.place(t, i)
}

// maxRun bounds the bytes of a number: digits, and separators between them.
const maxRun = 2 * maxDigits

// split tells whole part and fraction of "5", "3/4" and "3 1/2" (with a thin space) apart.
func (t *token) split(s string) {
	t.whole = s
	if f := strings.IndexByte(s, '/'); f >= 0 {
		t.whole, t.num, t.den = "", s[:f], s[f+1:]
		if space := strings.IndexRune(t.num, thin); space >= 0 {
			t.whole, t.num = t.num[:space], t.num[space+utf8.RuneLen(thin):]
		}
	}
}

// run returns where the digits end that start at i, with everything between them that makes them
// belong together, for better (1,234.5) or worse (2024-01-05).
func (sc *scanner) run(i int) int {
	i++
	for i < len(sc.text) {
		r, n := utf8.DecodeRuneInString(sc.text[i:])
		switch {
		case isDigit(r):
			i++
		case strings.ContainsRune(".,:/-–_'’", r) && isDigit(sc.at(i+n)), r == thin && isDigit(sc.at(i+n)):
			i += n + 1
		case r|0x20 == 'e' && isDigit(sc.at(i+1)):
			i += 2
		case r|0x20 == 'e' && (sc.at(i+1) == '-' || sc.at(i+1) == '+') && isDigit(sc.at(i+2)):
			i += 3
		default:
			return i
		}
	}
	return i
}

// power reads "x 10^3" at i, if it is there; clear is false when it is but cannot be read.
func (sc *scanner) power(i int) (exponent, end int, clear bool) {
	rest := strings.TrimLeft(sc.text[i:], " "+string(thin))
	r, n := utf8.DecodeRuneInString(rest)
	if !strings.ContainsRune("×·xX*", r) {
		return 0, i, true
	}
	rest = strings.TrimLeft(rest[n:], " "+string(thin))
	if !strings.HasPrefix(rest, "10^") {
		return 0, i, true
	}
	rest = rest[len("10^"):]
	braced := strings.HasPrefix(rest, "{")
	rest = strings.TrimPrefix(rest, "{")
	neg := strings.HasPrefix(rest, "-")
	rest = strings.TrimPrefix(rest, "-")
	count := 0
	for count < len(rest) && isDigit(rune(rest[count])) {
		exponent = min(exponent*10+int(rest[count]-'0'), maxExponent+1)
		count++
	}
	rest = rest[count:]
	if neg {
		exponent = -exponent
	}
	clear = count > 0 && (!braced || strings.HasPrefix(rest, "}"))
	if braced {
		rest = strings.TrimPrefix(rest, "}")
	}
	return exponent, len(sc.text) - len(rest), clear
}

// fraction reads \frac{a}{b} at i and returns where to go on.
func (sc *scanner) fraction(i int) int {
	num, end := sc.group(i + utf8.RuneLen(fracMark))
	den, end := sc.group(end)
	num = strings.TrimPrefix(strings.TrimPrefix(num, "{"), "$")
	t := token{end: end}
	t.num, t.den = strings.TrimSpace(strings.TrimSuffix(num, "}")), strings.TrimSpace(strings.Trim(den, "{}"))
	if t.den == "" {
		t.den = "0" // no second argument: no number
	}
	return sc.place(t, i)
}

// group returns the balanced {...} or the single character at i, after spaces, and where it ends.
func (sc *scanner) group(i int) (string, int) {
	for i < len(sc.text) && sc.text[i] == ' ' {
		i++
	}
	if i == len(sc.text) {
		return "", i
	}
	depth := 0
	for j := i; j < len(sc.text); {
		r, n := utf8.DecodeRuneInString(sc.text[j:])
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		j += n
		if depth <= 0 {
			return sc.text[i:j], j
		}
	}
	return sc.text[i:], len(sc.text)
}

// argument passes over what a power, an index or an unknown command applies to, so that no number
// in it is taken for one of the text; a digit there makes the last number of the text unclear.
func (sc *scanner) argument(i int) int {
	start := i
	for i < len(sc.text) {
		r, n := utf8.DecodeRuneInString(sc.text[i:])
		switch {
		case r == '{':
			_, i = sc.group(i)
		case r == '[':
			end := strings.IndexByte(sc.text[i:], ']')
			if end < 0 {
				end = len(sc.text) - i - 1
			}
			i += end + 1
		case isDigit(r):
			i = sc.run(i)
		case strings.ContainsRune(" ^_-", r), r == thin, isWord(r) && sc.before(i) == '^':
			i += n
		default:
			return sc.mark(start, i)
		}
	}
	return sc.mark(start, i)
}

// mark notes an unclear number at [begin, end) if there is a digit in it, and returns where to go on.
func (sc *scanner) mark(begin, end int) int {
	if strings.ContainsAny(sc.text[begin:end], "0123456789") {
		sc.release()
		sc.held = &token{begin: begin, end: end, unclear: true}
	}
	return end
}

// name passes over a word with the digits, indices and powers that belong to it: "H2O", "x_1", "m^2".
func (sc *scanner) name(i int) int {
	for i < len(sc.text) {
		r, n := utf8.DecodeRuneInString(sc.text[i:])
		switch {
		case isWord(r) || unicode.IsNumber(r) || unicode.IsMark(r):
			i += n
		case strings.ContainsRune(".,:", r) && isDigit(sc.at(i+1)) && isDigit(sc.before(i)):
			i++
		case r == '^':
			if i++; sc.at(i) == '{' {
				_, i = sc.group(i)
			} else if sc.at(i) == '-' {
				i++
			}
		case r == '{' && sc.before(i) == '_':
			_, i = sc.group(i)
		default:
			return i
		}
	}
	return i
}

// place completes a number whose digits start at start with what stands before and after it, and
// holds it back until the next one.
func (sc *scanner) place(t token, start int) int {
	neg, begin, clear := sc.lead(start)
	t.neg, t.begin = neg, begin
	t.unclear = t.unclear || !clear
	f := sc.follow(t.end)
	if f.ordinal && !t.unclear {
		return f.end
	}
	t.exponent += f.exponent
	t.unclear = t.unclear || f.unclear
	if neg && sc.before(begin) == '|' && sc.at(t.end) == '|' { // |-5|
		t.unclear = true
	}
	sc.join(t)
	return f.end
}

// join puts a number after the held one. The fraction of a mixed number joins it; numbers with too
// little between them to be two are both unclear.
func (sc *scanner) join(t token) {
	h := sc.held
	if h == nil {
		sc.held = &t
		return
	}
	gap := sc.text[h.end:max(h.end, t.begin)]
	space := strings.Trim(gap, " "+string(thin)) == ""
	mixed := t.den != "" && t.whole == "" && h.den == "" && !t.neg && h.exponent == 0
	if mixed && (space || gap == " and ") {
		joined := *h
		joined.num, joined.den, joined.exponent = t.num, t.den, t.exponent
		joined.end, joined.unclear = t.end, h.unclear || t.unclear
		sc.held = &joined
		return
	}
	if space || glued(gap) {
		h.unclear, t.unclear = true, true
	}
	sc.release()
	sc.held = &t
}

// glued reports whether what stands between two numbers rather makes them one that cannot be read:
// marks without a space ("1;2", "1{.}2"), or a separator with space before it ("1 , 234").
func glued(gap string) bool {
	const longest = 8 // bytes; more is text
	if len(gap) > longest {
		return false
	}
	if mark := strings.TrimSpace(gap); gap[0] == ' ' && (mark == "." || mark == "," || mark == ":") {
		return true
	}
	return strings.IndexFunc(gap, func(r rune) bool { return isWord(r) || strings.ContainsRune(" =<>|", r) }) < 0
}

// release passes the held number on.
func (sc *scanner) release() {
	if sc.held != nil {
		sc.found(*sc.held)
		sc.held = nil
	}
}

// at returns the character at i, 0 at the end.
func (sc *scanner) at(i int) rune {
	if i >= len(sc.text) {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(sc.text[i:])
	return r
}

// before returns the character that ends at i, 0 at the start.
func (sc *scanner) before(i int) rune {
	if i == 0 {
		return 0
	}
	r, _ := utf8.DecodeLastRuneInString(sc.text[:i])
	return r
}

// isWord reports whether r is part of a word and no digit.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) }
