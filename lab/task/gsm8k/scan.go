package gsm8k

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a number in a text: bytes [begin, end), including sign and currency at the front, without units at the back.
type token struct {
	number
	begin, end int
	unclear    bool // part of something larger: an expression, a range, a date, a power
}

// scanner finds the numbers in plain text from left to right, in linear time. In doubt a number is unclear.
type scanner struct {
	text   string
	answer bool // the text is nothing but an answer: a dash at its start is a sign, not a list marker
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

// figure reads the number that starts with the digit or point at i and returns where to continue.
func (sc *scanner) figure(i int) int {
	t := token{end: sc.run(i)}
	t.unclear = sc.text[i] == '.' && (isWord(sc.before(i)) || isDigit(sc.before(i)))
	t.split(sc.text[i:t.end])
	exponent, end, clear := sc.power(t.end)
	t.exponent, t.end = exponent, end
	t.unclear = t.unclear || !clear || end > i+maxRun
	return sc.place(t, i)
}

// maxRun limits the bytes of a number: digits and the separators between them.
const maxRun = 2 * maxDigits

// split separates whole part and fraction of "5", "3/4" and "3 1/2" (with a thin space).
func (t *token) split(s string) {
	t.whole = s
	if f := strings.IndexByte(s, '/'); f >= 0 {
		t.whole, t.num, t.den = "", s[:f], s[f+1:]
		if space := strings.IndexRune(t.num, thin); space >= 0 {
			t.whole, t.num = t.num[:space], t.num[space+utf8.RuneLen(thin):]
		}
	}
}

// run returns the end of the digits that start at i, including everything between them that joins them: 1,234.5 but
// also 2024-01-05.
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

// power reads "x 10^3" at i, if there is one; clear is false if it cannot be read.
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

// fraction reads \frac{a}{b} at i and returns where to continue.
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

// group returns the balanced {...} or the single character at i, after spaces, and its end.
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

// argument skips the argument of a power, an index or an unknown command. Digits in it are no numbers of the text, but
// make its last number unclear.
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

// mark notes an unclear number at [begin, end) if there is a digit in it, and returns where to continue.
func (sc *scanner) mark(begin, end int) int {
	if strings.ContainsAny(sc.text[begin:end], "0123456789") {
		sc.release()
		sc.held = &token{begin: begin, end: end, unclear: true}
	}
	return end
}

// name skips a word with the digits, indices and powers that belong to it: "H2O", "x_1", "m^2".
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

// place completes a number whose digits start at start with its context, and holds it until the next number.
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

// join puts a number after the held one. The fraction of a mixed number is merged into it. Two numbers with too little
// between them are both unclear.
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

// glued reports whether the text between two numbers makes them one unreadable number: marks without a space ("1;2",
// "1{.}2"), or a separator with space before it ("1 , 234").
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

// lead reads the sign and the currency before the digits at start; begin is where they start. clear is false if the
// text before makes the number part of something larger.
func (sc *scanner) lead(start int) (neg bool, begin int, clear bool) {
	sign := func(i int) bool { return sc.before(i) == '-' || sc.before(i) == '+' }
	i, signed := start, false
	if sign(i) {
		i, signed = i-1, true
	}
	if at := sc.spaces(i); isCurrency(sc.before(at)) {
		i = at - utf8.RuneLen(sc.before(at))
	}
	switch {
	case signed || sign(i):
		if !signed { // the sign precedes the currency
			i--
		}
		clear = sc.unary(i)
		neg = strings.HasPrefix(strings.TrimLeft(sc.text[i:start], "$€£¥₹ "+string(thin)), "-")
	case sc.before(sc.spaces(i)) == '-':
		at := sc.spaces(i) - 1
		if neg, clear = sc.dash(at); neg {
			i = at
		}
	default:
		clear = true
	}
	return neg, i, clear && !sc.operator(i)
}

// unary reports whether a sign at i can belong to the number after it rather than join two.
func (sc *scanner) unary(i int) bool {
	r := sc.before(i)
	if r == ' ' || r == thin {
		return !sc.operand(i)
	}
	return !isWord(r) && !unicode.IsNumber(r) && !strings.ContainsRune(")]}%°!-+–", r)
}

// dash classifies a dash at i that is followed by space: a sign (as in "= - 5"), a list marker or a dash between words
// (neither), or unclear (an operation, a range).
func (sc *scanner) dash(i int) (neg, clear bool) {
	if sc.before(i) == '-' { // "--", a dash in ASCII
		return false, true
	}
	switch r := sc.before(sc.spaces(i)); {
	case r == 0:
		return sc.answer, true
	case strings.ContainsRune("=({[:$,≈", r):
		return true, true
	}
	return false, false
}

// operand reports whether the text before i, ignoring space, can be the left side of an operation.
func (sc *scanner) operand(i int) bool {
	at := sc.spaces(i)
	r := sc.before(at)
	if isWord(r) {
		return !isWord(sc.before(at-utf8.RuneLen(r))) && !strings.ContainsRune("aAI", r)
	}
	return unicode.IsNumber(r) || strings.ContainsRune(")]}%°√", r)
}

// operator reports whether the text before i, ignoring space, applies to the number at i.
func (sc *scanner) operator(i int) bool {
	at := sc.spaces(i)
	r := sc.before(at)
	if r == 0 {
		return false
	}
	previous := at - utf8.RuneLen(r)
	switch {
	case strings.ContainsRune("×·÷±∓√^/≠≤≥∑∏∫", r):
		return true
	case r == '(' && at == i: // f(5), 5(2), 0.(3)
		b := sc.before(previous)
		return isWord(b) || unicode.IsNumber(b) || b == ')' || b == '.'
	case r == '.' && at == i: // 3..5
		for sc.before(previous) == '.' {
			previous--
		}
		return isDigit(sc.before(previous))
	case r == '+':
		return sc.before(sc.spaces(previous)) != 0 // at the start of a line it marks a list
	case r == '–':
		return at == i || sc.operand(previous)
	case r == '*':
		return sc.star(at, at < i)
	case r == '<':
		return sc.before(previous) != '<' // "<<" opens a calculation of the dataset
	case r == '>':
		return sc.greater(previous)
	case r == 'x' || r == 'X':
		return !isWord(sc.before(previous)) && sc.operand(previous)
	}
	return false
}

// star reports whether the asterisks that end at i multiply; otherwise they are emphasis or a list marker.
func (sc *scanner) star(i int, spaced bool) bool {
	for sc.before(i) == '*' {
		i--
	}
	r := sc.before(i)
	switch {
	case r == 0:
		return false
	case r == ' ' || r == thin:
		before := sc.before(sc.spaces(i))
		return spaced && before != 0 || unicode.IsNumber(before) || before == ')'
	}
	return unicode.IsNumber(r) || r == ')' || isWord(r) && !spaced
}

// greater reports whether a ">" after i compares; otherwise it ends a tag, an arrow, or a calculation of the dataset,
// or marks a quotation.
func (sc *scanner) greater(i int) bool {
	const longest = 24 // bytes of a tag
	from := max(0, i-longest)
	if tag := strings.LastIndexByte(sc.text[from:i], '<'); tag >= 0 && !strings.ContainsAny(sc.text[from+tag:i], " >") {
		return false
	}
	r := sc.before(sc.spaces(i))
	return isWord(r) || unicode.IsNumber(r) || strings.ContainsRune(")]}", r)
}

// spaces returns where the spaces that end at i start.
func (sc *scanner) spaces(i int) int {
	for r := sc.before(i); r == ' ' || r == thin; r = sc.before(i) {
		i -= utf8.RuneLen(r)
	}
	return i
}

// following is the context after the digits of a number.
type following struct {
	end      int  // of the digits with the unit
	exponent int  // of "million" and the like
	unclear  bool // the number is part of something larger
	ordinal  bool // "2nd" is not a number
}

// follow reads the context after the number that ends at i.
func (sc *scanner) follow(i int) following {
	r := sc.at(i)
	switch {
	case r == ' ' || r == thin:
		return sc.apart(i)
	case isWord(r):
		return sc.unit(i, i)
	case r == '%' || isCurrency(r):
		return following{end: i + utf8.RuneLen(r)}
	case r == '°' || strings.HasPrefix(sc.text[i:], "^°") || strings.HasPrefix(sc.text[i:], "^{°}"):
		return following{end: i + strings.Index(sc.text[i:], "°") + len("°")}
	case r == '/':
		return following{end: i, unclear: sc.symbolic(i + 1)}
	case r == '-':
		next := sc.at(i + 1)
		return following{end: i, unclear: sc.symbolic(i+1) || next == '$' || next == '(' || next == '.'}
	case r == '(' || r == '[':
		return following{end: i, unclear: sc.symbolic(i + 1)}
	case r == '.':
		return following{end: i, unclear: sc.continued(i)}
	case r == '!': // in an answer a factorial, in a sentence its end
		return following{end: i, unclear: sc.answer}
	case r == '*':
		stars := i + len(sc.text[i:]) - len(strings.TrimLeft(sc.text[i:], "*"))
		return following{end: i, unclear: sc.symbolic(stars)}
	}
	return following{end: i, unclear: binds(r) || unicode.IsNumber(r) || unicode.IsMark(r)}
}

// apart reads the context after a number and the space at i.
func (sc *scanner) apart(i int) following {
	next := i
	for r := sc.at(next); r == ' ' || r == thin; r = sc.at(next) {
		next += utf8.RuneLen(r)
	}
	r := sc.at(next)
	after := sc.at(next + max(1, utf8.RuneLen(r)))
	switch {
	case isWord(r):
		return sc.unit(i, next)
	case r == '%':
		return following{end: next + 1}
	case r == '-' || r == '–' || r == '/':
		gap := next + utf8.RuneLen(r)
		for sc.at(gap) == ' ' {
			gap++
		}
		return following{end: i, unclear: sc.symbolic(gap) || isCurrency(sc.at(gap)) || sc.at(gap) == '('}
	case r == '*':
		return following{end: i, unclear: after == ' ' || sc.symbolic(next+1)}
	case r == '<' || r == '>':
		return following{end: i, unclear: after == ' '}
	}
	return following{end: i, unclear: binds(r)}
}

// binds reports whether a symbol after a number makes it part of an expression.
func binds(r rune) bool { return strings.ContainsRune("×·÷±∓√^+≠≤≥∑∏∫", r) }

// symbolic reports whether an expression continues at i: a digit, a sign, a command or a variable.
func (sc *scanner) symbolic(i int) bool {
	r := sc.at(i)
	if isWord(r) {
		return !isWord(sc.at(i+utf8.RuneLen(r))) && !isUnit(r)
	}
	return unicode.IsNumber(r) || strings.ContainsRune("+√", r) || r == fracMark || r == '-' && isDigit(sc.at(i+1))
}

// continued reports whether the point at i is more than the end of a sentence: a recurring decimal ("0.333...",
// "0.(3)", "0.\overline{3}") or the index of a list of symbols.
func (sc *scanner) continued(i int) bool {
	if sc.at(i+1) == '.' {
		digits := i
		for isDigit(sc.before(digits)) {
			digits--
		}
		return sc.before(digits) == '.'
	}
	return sc.at(i+1) == opaque || sc.at(i+1) == '(' && isDigit(sc.at(i+2))
}

// unit reads the word at i, after the number that ends at end: a unit, a word of scale, or something that makes the
// number unclear.
func (sc *scanner) unit(end, i int) following {
	attached := end == i
	w, stop := sc.word(i)
	next := sc.at(stop)
	switch w {
	case "st", "nd", "rd", "th":
		return following{end: stop, ordinal: attached}
	case "and":
		return following{end: end, unclear: attached || sc.andFraction(stop)}
	}
	if e := magnitude(w); e > 0 {
		f := following{end: stop, exponent: e}
		if more, after := sc.word(stop + 1); sc.at(stop) == ' ' && magnitude(more) > 0 { // hundred thousand
			f.end, f.exponent = after, e+magnitude(more)
		}
		return f
	}
	first := sc.at(i)
	single := stop == i+utf8.RuneLen(first) && !isDigit(next)
	unclear := isShare(w) || unicode.Is(unicode.Greek, first)
	if attached {
		unclear = unclear || isDigit(next) || single && first != '_' && !isUnit(first) || sc.indexed(i)
	} else {
		unclear = unclear || single && strings.ContainsRune("xyznbkXYZNBKM", first)
	}
	// Millions in short, or metres.
	unclear = unclear || w == "bn" || w == "mn" || w == "m" && isCurrency(sc.currency(end))
	return following{end: end, unclear: unclear}
}

// indexed reports whether underscores at i begin an index, as of a number in another base, rather than end emphasis.
func (sc *scanner) indexed(i int) bool {
	if sc.at(i) != '_' {
		return false
	}
	for sc.at(i) == '_' {
		i++
	}
	r := sc.at(i)
	return isWord(r) || unicode.IsNumber(r) || r == '{'
}

// word returns the letters at i in lower case, empty if there are many, and their end.
func (sc *scanner) word(i int) (string, int) {
	const longest = 16 // bytes; no word looked for is longer
	if i >= len(sc.text) {
		return "", len(sc.text)
	}
	start := i
	for isWord(sc.at(i)) {
		i += utf8.RuneLen(sc.at(i))
	}
	if i-start > longest {
		return "", i
	}
	return strings.ToLower(sc.text[start:i]), i
}

// andFraction reports whether " a half" or the like follows at i.
func (sc *scanner) andFraction(i int) bool {
	_, i = sc.word(i + 1)
	if r := sc.at(i); r != ' ' && r != '-' {
		return false
	}
	share, _ := sc.word(i + 1)
	return isShare(share) || strings.HasPrefix(share, "hal") || strings.HasPrefix(share, "quarter")
}

// currency returns the currency sign before the digits that end at end, 0 if there is none.
func (sc *scanner) currency(end int) rune {
	for isDigit(sc.before(end)) || sc.before(end) == '.' || sc.before(end) == ',' {
		end--
	}
	return sc.before(sc.spaces(end))
}

// magnitude returns the power of ten of a word of scale, 0 for other words.
func magnitude(w string) int { return magnitudes[w] }

var magnitudes = map[string]int{"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}

// isShare reports whether a word after a number makes it a count of parts or of powers of ten.
func isShare(w string) bool {
	switch strings.TrimSuffix(w, "s") {
	case "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "hundredth", "thousandth",
		"millionth":
		return true
	}
	return strings.HasSuffix(w, "s") && magnitude(w[:len(w)-1]) > 0
}

// isUnit reports whether a letter right after a number is read as a unit rather than a variable.
func isUnit(r rune) bool {
	return strings.ContainsRune("mgshlLdcpFCVWJ", r) || r >= utf8.RuneSelf && !unicode.Is(unicode.Greek, r)
}

func isCurrency(r rune) bool { return r != 0 && strings.ContainsRune("$€£¥₹¢", r) }
