package gsm8k

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lead reads the sign and the currency before the digits at start. begin is where they start; clear
// is false when what stands before makes the number part of something larger.
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
		if !signed { // the sign stands before the currency
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

// dash tells what a dash at i with space after it is: a sign (as in "= - 5"), the mark of a list or
// a dash between words (neither), or unclear (an operation, a range).
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

// operand reports whether what stands before i, space aside, can be the left side of an operation.
func (sc *scanner) operand(i int) bool {
	at := sc.spaces(i)
	r := sc.before(at)
	if isWord(r) {
		return !isWord(sc.before(at-utf8.RuneLen(r))) && !strings.ContainsRune("aAI", r)
	}
	return unicode.IsNumber(r) || strings.ContainsRune(")]}%°√", r)
}

// operator reports whether what stands before i, space aside, applies to the number at i.
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

// star reports whether the asterisks that end at i multiply; otherwise they are emphasis or mark a list.
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

// greater reports whether a ">" after i compares; otherwise it ends a tag, an arrow, or a
// calculation of the dataset, or marks a quotation.
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

// following is what stands after the digits of a number.
type following struct {
	end      int  // of the digits with the unit
	exponent int  // of "million" and its like
	unclear  bool // the number is part of something larger
	ordinal  bool // "2nd" is no number
}

// follow reads what stands after the number that ends at i.
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

// apart reads what stands after a number and the space at i.
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

// symbolic reports whether an expression goes on at i: a digit, a sign, a command or a variable.
func (sc *scanner) symbolic(i int) bool {
	r := sc.at(i)
	if isWord(r) {
		return !isWord(sc.at(i+utf8.RuneLen(r))) && !isUnit(r)
	}
	return unicode.IsNumber(r) || strings.ContainsRune("+√", r) || r == fracMark || r == '-' && isDigit(sc.at(i+1))
}

// continued reports whether the point at i is more than the end of a sentence: a recurring decimal
// ("0.333...", "0.(3)", "0.\overline{3}") or the index of a list of symbols.
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

// unit reads the word at i, after the number that ends at end: a unit, a word of scale, or
// something that makes the number unclear.
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

// word returns the letters at i in lower case, at most a few, and where they end.
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

// andFraction reports whether " a half" or its like stands at i.
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
func magnitude(w string) int {
	switch w {
	case "hundred":
		return 2
	case "thousand":
		return 3
	case "million":
		return 6
	case "billion":
		return 9
	case "trillion":
		return 12
	}
	return 0
}

// isShare reports whether a word after a number makes it a count of parts or of powers of ten.
func isShare(w string) bool {
	switch strings.TrimSuffix(w, "s") {
	case "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "hundredth", "thousandth",
		"millionth":
		return true
	}
	return strings.HasSuffix(w, "s") && magnitude(w[:len(w)-1]) > 0
}

// isUnit reports whether a letter right after a number is read as a unit, not as a variable.
func isUnit(r rune) bool {
	return strings.ContainsRune("mgshlLdcpFCVWJ", r) || r >= utf8.RuneSelf && !unicode.Is(unicode.Greek, r)
}

func isCurrency(r rune) bool {
	switch r {
	case '$', '€', '£', '¥', '₹', '¢':
		return true
	}
	return false
}
