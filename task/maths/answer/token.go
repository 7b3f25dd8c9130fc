package answer

import (
	"errors"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind int

const (
	end     kind = iota
	number       // 12, 1,234, .5, 1.5e3, 0.1\overline{6}
	letter       // one letter
	word         // a run of letters that is neither a name of the field nor a product
	command      // \pi, in lower case without the backslash; also pi and sqrt in plain letters
	prose        // the content of \text{…}
	symbol       // anything else, one character
)

// token is a piece of an answer.
type token struct {
	kind   kind
	text   string
	value  *big.Rat // of a number
	point  bool     // the number is written with a decimal point
	spaced bool     // white space stands before it
}

// Bounds, so that a hostile answer costs neither memory nor time.
const (
	maxText   = 4000 // bytes of an answer
	maxDigits = 300  // of a number
)

var (
	errLong   = errors.New("longer than an answer is")
	errNumber = errors.New("not one number")
)

// lexer cuts an answer into tokens.
type lexer struct {
	text   string
	at     int
	tokens []token
	open   []int // places of the brackets that are open
}

// tokens cuts the text of an answer, which plain has prepared.
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

// bracket remembers where brackets are open, since a comma between digits separates coordinates in them.
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

// command reads a command, with the content of those that hold prose.
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
		l.add(token{kind: command, text: synonym(name)}, 1+run)
	}
	return nil
}

// prose reads the braces after \text and its like.
func (l *lexer) prose(skip int) error {
	rest := strings.TrimLeft(l.text[l.at+skip:], " ")
	size := len(l.text) - len(rest)
	content, ok := Braced(rest)
	if !ok {
		return errors.New("a \\text without its braces")
	}
	if strings.IndexFunc(content, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) < 0 { // \text{:}
		for _, r := range strings.TrimSpace(content) {
			l.add(token{kind: symbol, text: string(r)}, 0)
		}
		l.at = size + len(content) + 2
		return nil
	}
	inner := strings.NewReplacer(`\usd`, "$", `\lbrace`, "", `\rbrace`, "", "{", "", "}", "", "\\", "").Replace(content)
	l.add(token{kind: prose, text: strings.Join(strings.Fields(inner), " ")}, 0)
	l.at = size + len(content) + 2
	return nil
}

// Braced returns what stands between the brace that begins the text and the one that closes it.
func Braced(text string) (string, bool) {
	if !strings.HasPrefix(text, "{") {
		return "", false
	}
	depth := 0
	for i := 0; i < min(len(text), maxText); i++ {
		switch text[i] {
		case '\\': // an escaped brace is no brace
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
