package answer

import (
	"cmp"
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain returns the text with Unicode characters written as LaTeX commands, and without anything that only changes its
// look: sizes, spacing, styles and the delimiters of formulas.
func plain(text string) string {
	text = unicodeCommands.Replace(rowGaps.ReplaceAllString(text, `\\`))
	text = delimiters.Replace(text)
	text = strings.ReplaceAll(text, "\x00", `\usd `)
	for _, gap := range []string{"\x01 ", "\x01"} { // 10,\!000 is ten thousand even between brackets
		text = strings.ReplaceAll(text, ","+gap, "{,}")
		text = strings.ReplaceAll(text, gap, "")
	}
	text = strings.ReplaceAll(text, `\,`, thinSpace)
	text = spacing.Replace(text)
	text = strings.TrimRight(strings.TrimSpace(text), ",;: \n\t")
	if strings.HasSuffix(text, "..") { // 0.333... is not 0.333
		return text
	}
	return bareSet(strings.TrimRight(text, ".,;: \n\t"))
}

// bareSet writes the braces of {1, 2}, alone or after = or \in, as those of a set.
func bareSet(text string) string {
	at := max(strings.IndexByte(text, '{'), 0)
	before := strings.TrimSpace(text[:at])
	if before != "" && !strings.HasSuffix(before, "=") && !strings.HasSuffix(before, `\in`) {
		return text
	}
	inner, ok := Braced(text[at:])
	if !ok || at+len(inner)+len("{}") < len(text) || !strings.ContainsAny(inner, ",;:|") &&
		!strings.Contains(inner, `\mid`) {
		return text
	}
	return text[:at] + `\lbrace ` + inner + ` \rbrace`
}

// rowGaps are line breaks with a distance: \\[1ex].
var rowGaps = regexp.MustCompile(`\\\\\s*\[ *-?[\d.]+ *(ex|em|pt|cm|mm|in) *\]`)

// thinSpace stands for LaTeX's \, until it is known whether it separates thousands.
const thinSpace = "\u2009"

var (
	// delimiters keeps \$ and \! as control characters, which plain replaces later.
	delimiters = strings.NewReplacer(`\\`, `\newline `, `\$`, "\x00", `\%`, "%", `\!`, "\x01", `\{`, `\lbrace `, `\}`,
		`\rbrace `,
		`\(`, " ", `\)`, " ", `\[`, " ", `\]`, " ", "$", "")
	spacing = strings.NewReplacer(`\;`, " ", `\:`, " ", `\ `, " ", "~", " ", `\/`, "", `\&`, " and ", "\u00a0",
		" ", "\u202f", thinSpace)
	unicodeCommands = strings.NewReplacer(
		"−", "-", "–", "-", "×", `\times `, "·", `\cdot `, "⋅", `\cdot `, "÷", `\div `, "π", `\pi `, "∞", `\infty `,
		"°", `^\circ `, "≤", `\le `, "≥", `\ge `, "≠", `\ne `, "≈", `\approx `, "∪", `\cup `, "∩", `\cap `, "∈", `\in `,
		"∖", `\setminus `,
		"±", `\pm `, "∓", `\mp `, "²", "^{2}", "³", "^{3}", "½", `\frac{1}{2}`, "⅓", `\frac{1}{3}`, "⅔", `\frac{2}{3}`,
		"¼", `\frac{1}{4}`,
		"¾", `\frac{3}{4}`, "∅", `\emptyset `, "ℝ", `\mathbb{R}`, "ℤ", `\mathbb{Z}`, "ℚ", `\mathbb{Q}`, "ℂ",
		`\mathbb{C}`, "ℕ", `\mathbb{N}`,
		"θ", `\theta `, "α", `\alpha `, "β", `\beta `, "λ", `\lambda `, "√", `\surd `, "⟨", `\langle `, "⟩", `\rangle `,
		"“", "", "”", "", "’", "'", "**", "", "\u200b", "", "（", "(", "）", ")", "，", ",", "\t", " ")
)

type kind int

const (
	end     kind = iota
	number       // 12, 1,234, .5, 1.5e3, 0.1\overline{6}
	letter       // one letter
	word         // a run of letters that is neither a command nor a product
	command      // \pi, in lower case without the backslash; also pi and sqrt in plain letters
	prose        // the content of \text{…}
	symbol       // anything else, one character
)

// token is a piece of an answer.
type token struct {
	kind   kind
	text   string
	value  *big.Rat // of a number
	point  bool     // a number with a decimal point
	spaced bool     // white space precedes it
}

// Limits, so that a hostile answer costs neither memory nor time.
const (
	maxText   = 4000 // bytes of an answer
	maxDigits = 300  // of a number
)

var (
	errLong   = errors.New("longer than an answer is")
	errNumber = errors.New("not one number")
)

// lexer splits an answer into tokens.
type lexer struct {
	text   string
	at     int
	tokens []token
	open   []int // positions of the open brackets
}

// tokens splits the text of an answer, which plain has prepared.
func tokens(text string) ([]token, error) {
	if len(text) > maxText {
		return nil, errLong
	}
	l := &lexer{text: text}
	for l.at < len(l.text) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

func (l *lexer) rest() string { return l.text[l.at:] }

func (l *lexer) add(t token, size int) {
	before, _ := utf8.DecodeLastRuneInString(l.text[:l.at])
	t.spaced = l.at > 0 && unicode.IsSpace(before)
	l.at += size
	l.tokens = append(l.tokens, t)
}

func (l *lexer) next() error {
	r, size := utf8.DecodeRuneInString(l.rest())
	switch {
	case unicode.IsSpace(r):
		l.at += size
	case isDigit(l.rest(), 0) || r == '.' && isDigit(l.rest(), 1):
		return l.number()
	case r == '\\':
		return l.command()
	case unicode.IsLetter(r):
		l.letters()
	default:
		l.bracket(r)
		l.add(token{kind: symbol, text: l.rest()[:size]}, size)
	}
	return nil
}

// bracket tracks open brackets, since a comma between digits separates coordinates in them.
func (l *lexer) bracket(r rune) {
	switch r {
	case '(', '[':
		l.open = append(l.open, l.at)
	case ')', ']':
		if len(l.open) > 0 {
			l.open = l.open[:len(l.open)-1]
		}
	}
}

func (l *lexer) letters() {
	run := len(l.rest()) - len(strings.TrimLeftFunc(l.rest(), unicode.IsLetter))
	text := l.text[l.at : l.at+run]
	switch {
	case plainName(text):
		l.add(token{kind: command, text: strings.ToLower(text)}, run)
	case utf8.RuneCountInString(text) > 2 || knownWord(text) || l.afterNumber() && isMeasure(text):
		l.add(token{kind: word, text: text}, run)
	default:
		_, size := utf8.DecodeRuneInString(text)
		l.add(token{kind: letter, text: text[:size]}, size)
	}
}

func (l *lexer) afterNumber() bool {
	return len(l.tokens) > 0 && l.tokens[len(l.tokens)-1].kind == number
}

// command reads a command, including the content of those that hold prose.
func (l *lexer) command() error {
	name := l.text[l.at+1:]
	run := len(name) - len(strings.TrimLeftFunc(name, isLatin))
	name = name[:run]
	if run == 0 {
		_, size := utf8.DecodeRuneInString(l.rest()[1:])
		l.at += 1 + size
		return nil
	}
	switch {
	case skipped(name):
		l.at += 1 + run
		if (name == "left" || name == "right") && strings.HasPrefix(strings.TrimLeft(l.rest(), " "), ".") {
			l.at += strings.Index(l.rest(), ".") + 1
		}
	case proseCommand(name):
		return l.prose(run + 1)
	case name == "lbrace" || name == "langle":
		l.open = append(l.open, l.at)
		l.add(token{kind: command, text: name}, 1+run)
	case name == "rbrace" || name == "rangle":
		l.bracket(')')
		l.add(token{kind: command, text: name}, 1+run)
	default:
		l.add(token{kind: command, text: cmp.Or(synonyms[name], name)}, 1+run)
	}
	return nil
}

// prose reads the braces after \text and the like.
func (l *lexer) prose(skip int) error {
	rest := strings.TrimLeft(l.text[l.at+skip:], " ")
	size := len(l.text) - len(rest)
	content, ok := Braced(rest)
	if !ok {
		return errors.New("a \\text without its braces")
	}
	// \text{:}
	if strings.IndexFunc(content, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) < 0 {
		for _, r := range strings.TrimSpace(content) {
			l.add(token{kind: symbol, text: string(r)}, 0)
		}
		l.at = size + len(content) + 2
		return nil
	}
	if strings.TrimSpace(content) == `\usd` && !l.afterNumber() { // \text{\$}5
		l.add(token{kind: command, text: "usd"}, 0)
		l.at = size + len(content) + 2
		return nil
	}
	inner := strings.NewReplacer(`\usd`, "$", `\lbrace`, "", `\rbrace`, "", "{", "", "}", "", "\\", "").Replace(content)
	l.add(token{kind: prose, text: strings.Join(strings.Fields(inner), " ")}, 0)
	l.at = size + len(content) + 2
	return nil
}

// Braced returns the text between the brace that begins the text and the one that closes it.
func Braced(text string) (string, bool) {
	if !strings.HasPrefix(text, "{") {
		return "", false
	}
	depth := 0
	for i := 0; i < min(len(text), maxText); i++ {
		switch text[i] {
		case '\\': // an escaped brace does not count
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[1:i], true
			}
		}
	}
	return "", false
}

func isDigit(s string, at int) bool { return at < len(s) && s[at] >= '0' && s[at] <= '9' }

func isLatin(r rune) bool { return r < unicode.MaxASCII && unicode.IsLetter(r) }

// number reads digits with thousands separators, decimal places, repeating places and an exponent.
func (l *lexer) number() error {
	rest := l.rest()
	whole, size := l.whole(rest)
	places := ""
	point := size < len(rest) && rest[size] == '.' && (isDigit(rest, size+1) || strings.HasPrefix(rest[size+1:],
		`\overline`))
	if point {
		size++
		places = digits(rest[size:])
		size += len(places)
	}
	repeating := ""
	if point {
		repeating, size = repeated(rest, size)
	}
	exponent, width := scientific(rest[size:])
	size += width
	if size < len(rest) && (rest[size] == '.' && isDigit(rest, size+1) || strings.HasPrefix(rest[size:], "..") ||
		strings.HasPrefix(rest[size:], "…")) {
		return errNumber // 1.2.3, 0.333...
	}
	if len(whole)+len(places)+len(repeating) > maxDigits || point && size < len(rest) && rest[size] == '(' {
		return errNumber // 0.(3)
	}
	value := decimal(whole, places, repeating)
	ten := new(big.Rat).SetInt(power(10, max(exponent, -exponent)))
	if exponent < 0 {
		value.Quo(value, ten)
	} else {
		value.Mul(value, ten)
	}
	l.add(token{kind: number, text: rest[:size], value: value, point: point && repeating == ""}, size)
	return nil
}

// whole reads the digits before the point and joins groups of thousands.
func (l *lexer) whole(rest string) (joined string, size int) {
	joined = digits(rest)
	size = len(joined)
	if size == 0 || size > 3 || joined[0] == '0' {
		return joined, size
	}
	for _, separator := range []string{"{,}", thinSpace, ","} {
		if separator == "," && !l.thousands() {
			continue
		}
		more, at := joined, size
		for strings.HasPrefix(rest[at:], separator) && len(digits(strings.TrimLeft(rest[at+len(separator):],
			" "))) == 3 {
			group := rest[at+len(separator):]
			if separator == "," && group[0] == ' ' {
				break
			}
			gap := len(group) - len(strings.TrimLeft(group, " "))
			more += digits(group[gap:])
			at += len(separator) + gap + 3
		}
		if at > size {
			return more, at
		}
	}
	return joined, size
}

// thousands reports whether a bare comma may separate thousands here. Between brackets it separates coordinates, unless
// these are separated by a comma and a space.
func (l *lexer) thousands() bool {
	if len(l.open) == 0 {
		return true
	}
	inside := l.text[l.open[len(l.open)-1]:]
	if closing := strings.IndexAny(inside[1:], ")]"); closing >= 0 {
		inside = inside[:closing+1]
	}
	return strings.Contains(inside, ", ")
}

func digits(s string) string {
	n := 0
	for isDigit(s, n) {
		n++
	}
	return s[:n]
}

// repeated reads \overline{6} after decimal places that end at size.
func repeated(rest string, size int) (string, int) {
	const over = `\overline`
	if !strings.HasPrefix(rest[size:], over) {
		return "", size
	}
	content, ok := Braced(rest[size+len(over):])
	if !ok || content == "" || digits(content) != content {
		return "", size
	}
	return content, size + len(over) + len(content) + 2
}

// scientific reads the exponent of 1.5e3.
func scientific(rest string) (exponent, size int) {
	if rest == "" || rest[0] != 'e' && rest[0] != 'E' {
		return 0, 0
	}
	signed := strings.TrimLeft(rest[1:], "+-")
	if len(rest)-1-len(signed) > 1 {
		return 0, 0
	}
	written := digits(signed)
	if written == "" || len(written) > 3 {
		return 0, 0
	}
	exponent, _ = strconv.Atoi(written)
	if rest[1] == '-' {
		exponent = -exponent
	}
	if exponent > maxDigits || exponent < -maxDigits {
		return 0, 0
	}
	return exponent, len(rest) - len(signed) + len(written)
}

// decimal returns whole.places(repeating).
func decimal(whole, places, repeating string) *big.Rat {
	all, _ := new(big.Int).SetString("0"+whole+places, 10)
	value := new(big.Rat).SetFrac(all, power(10, len(places)))
	if repeating == "" {
		return value
	}
	again, _ := new(big.Int).SetString(repeating, 10)
	nines := new(big.Int).Sub(power(10, len(repeating)), big.NewInt(1))
	return value.Add(value, new(big.Rat).SetFrac(again, nines.Mul(nines, power(10, len(places)))))
}

func power(base int64, exponent int) *big.Int {
	return new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(exponent)), nil)
}

// synonyms maps commands to the one name of those that mean the same.
var synonyms = map[string]string{
	"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "choose": "binom",
	"le": "leq", "leqslant": "leq", "ge": "geq", "geqslant": "geq", "ne": "neq", "lt": "less", "gt": "greater",
	"varnothing": "emptyset", "lvert": "bar", "rvert": "bar", "vert": "bar", "mid": "bar", "ast": "times",
	"star":   "times",
	"degree": "circ", "varphi": "phi", "varepsilon": "epsilon", "bmatrix": "pmatrix", "smallmatrix": "pmatrix",
}

// skipped are commands that change only the look.
func skipped(name string) bool {
	return slices.Contains(strings.Fields("left right displaystyle textstyle quad qquad big Big bigg Bigg bigl bigr "+
		"Bigl Bigr limits nolimits hspace thinspace enspace space boldsymbol bm phantom hfill middle"), name)
}

// proseCommand are commands whose braces hold words rather than a formula.
func proseCommand(name string) bool {
	return slices.Contains(strings.Fields("text textbf textit textrm textnormal texttt textsf mbox hbox mathrm "+
		"operatorname emph"), name)
}

func isFunction(name string) bool {
	return slices.Contains(strings.Fields("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan ln "+
		"log lg exp"), name)
}

// isMany are functions of a list in brackets.
func isMany(name string) bool {
	return slices.Contains([]string{"max", "min", "gcd", "lcm"}, name)
}

func isGreek(name string) bool {
	return slices.Contains(strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi "+
		"rho sigma tau "+
		"upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar aleph"), name)
}

// plainName reports whether letters without a backslash are the name of a command.
func plainName(text string) bool {
	if text != strings.ToLower(text) {
		return false
	}
	return isFunction(text) || slices.Contains(strings.Fields("pi sqrt infty infinity frac theta alpha beta lambda "+
		"max min gcd lcm"), text)
}

// knownWord reports whether two letters are a word rather than a product.
func knownWord(text string) bool {
	return slices.Contains(strings.Fields("no or on is am pm"), strings.ToLower(text))
}
