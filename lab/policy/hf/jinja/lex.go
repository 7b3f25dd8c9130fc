package jinja

import (
	"strconv"
	"strings"
	"unicode"
)

// kind is a kind of token.
type kind int

const (
	endOfText  kind = iota
	data            // text between tags
	beginBlock      // {%
	endBlock        // %}
	beginPrint      // {{
	endPrint        // }}
	name
	text // a string literal, decoded
	integer
	float
	operator
)

// token is a piece of a template.
type token struct {
	kind kind
	text string
	line int
}

// lexer divides a template into tokens. Of the white space around tags it leaves what Jinja leaves with trim_blocks and
// lstrip_blocks.
type lexer struct {
	source string
	at     int
	line   int
	fresh  bool // at the beginning of a line
	tokens []token
}

func lex(source string) []token {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, fresh: true}
	for l.at < len(l.source) {
		l.next()
	}
	l.emit(endOfText, "")
	return l.tokens
}

func (l *lexer) emit(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

// advance consumes n bytes.
func (l *lexer) advance(n int) {
	passed := l.source[l.at : l.at+n]
	l.line += strings.Count(passed, "\n")
	l.at += n
	if n > 0 {
		l.fresh = passed[n-1] == '\n'
	}
}

// next reads text up to a tag, and the tag.
func (l *lexer) next() {
	rest := l.source[l.at:]
	end := tagIn(rest)
	before, freshBefore := rest[:end], l.fresh
	if end == len(rest) {
		l.emit(data, before)
		l.advance(end)
		return
	}
	tag := rest[end+1]
	sign := byte(0)
	if s := rest[end+2:]; s != "" && (s[0] == '-' || s[0] == '+') {
		sign = s[0]
	}
	shown := before
	switch {
	case sign == '-':
		shown = strings.TrimRightFunc(before, unicode.IsSpace)
	case sign == 0 && tag != '{':
		start := strings.LastIndexByte(before, '\n') + 1
		if (start > 0 || freshBefore) && strings.TrimSpace(before[start:]) == "" {
			shown = before[:start]
		}
	}
	if shown != "" {
		l.emit(data, shown)
	}
	l.advance(end + 2)
	if sign != 0 {
		l.advance(1)
	}
	switch tag {
	case '#':
		l.comment()
	case '%':
		l.emit(beginBlock, "")
		l.inside("%}", endBlock)
	default:
		l.emit(beginPrint, "")
		l.inside("}}", endPrint)
	}
}

// tagIn returns where the first tag of a text begins, its length if there is none.
func tagIn(s string) int {
	for at := 0; ; at++ {
		i := strings.IndexByte(s[at:], '{')
		if i < 0 {
			return len(s)
		}
		if at += i; at+1 < len(s) && strings.IndexByte("{%#", s[at+1]) >= 0 {
			return at
		}
	}
}

// comment skips a comment.
func (l *lexer) comment() {
	end := strings.Index(l.source[l.at:], "#}")
	if end < 0 {
		fail("line %d: a comment has no #}", l.line)
	}
	sign := byte(0)
	if end > 0 {
		sign = l.source[l.at+end-1]
	}
	l.advance(end + 2)
	l.skipAfter(sign, true)
}

// skipAfter skips the white space after a tag: all after a minus, a newline after a block without a plus.
func (l *lexer) skipAfter(sign byte, block bool) {
	rest := l.source[l.at:]
	switch {
	case sign == '-':
		l.advance(len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace)))
	case block && sign != '+' && strings.HasPrefix(rest, "\n"):
		l.advance(1)
	}
}

// inside reads the tokens of a tag up to its end. Brackets hide an end: }} also ends two dictionaries.
func (l *lexer) inside(end string, last kind) {
	open := 0
	for l.at < len(l.source) {
		rest := l.source[l.at:]
		sign := rest[0]
		if sign == '-' || sign == '+' && last == endBlock {
			rest = rest[1:]
		} else {
			sign = 0
		}
		if open == 0 && strings.HasPrefix(rest, end) {
			l.emit(last, "")
			l.advance(len(l.source) - l.at - len(rest) + len(end))
			l.skipAfter(sign, last == endBlock)
			return
		}
		open += l.token()
	}
	fail("line %d: a tag has no %s", l.line, end)
}

// operators are those of expressions, longer ones first.
func operators() []string {
	return []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
		">", "<", "=", ".", ":", "|", ","}
}

// token reads one token of an expression, or white space. It returns 1 for an opening bracket, -1 for a closing one.
func (l *lexer) token() int {
	rest := l.source[l.at:]
	c := rest[0]
	switch {
	case strings.IndexByte(" \t\n\f\v", c) >= 0:
		l.advance(1)
		return 0
	case c == '\'' || c == '"':
		l.literal(rest)
		return 0
	case c >= '0' && c <= '9':
		l.number(rest)
		return 0
	case wordByte(c):
		n := prefix(rest, wordByte)
		l.emit(name, rest[:n])
		l.advance(n)
		return 0
	}
	for _, op := range operators() {
		if strings.HasPrefix(rest, op) {
			l.emit(operator, op)
			l.advance(len(op))
			switch op {
			case "(", "[", "{":
				return 1
			case ")", "]", "}":
				return -1
			}
			return 0
		}
	}
	fail("line %d: %q is no part of an expression", l.line, firstRune(rest))
	return 0
}

func wordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// prefix returns the length of the longest prefix whose bytes are of a kind.
func prefix(s string, of func(byte) bool) int {
	n := 0
	for n < len(s) && of(s[n]) {
		n++
	}
	return n
}

func firstRune(s string) string { return string([]rune(s[:min(4, len(s))])[:1]) }

// number reads digits, with a fraction if there is one.
func (l *lexer) number(rest string) {
	n, k := prefix(rest, digit), integer
	if n+1 < len(rest) && rest[n] == '.' && digit(rest[n+1]) {
		n, k = n+1+prefix(rest[n+1:], digit), float
	}
	l.emit(k, rest[:n])
	l.advance(n)
}

// literal reads a string.
func (l *lexer) literal(rest string) {
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; c {
		case rest[0]:
			l.emit(text, b.String())
			l.advance(i + 1)
			return
		case '\\':
			if i+1 < len(rest) {
				i += unescape(&b, rest[i+1:])
			}
		default:
			b.WriteByte(c)
		}
	}
	fail("line %d: a string has no end", l.line)
}

// unescape writes the character of an escape sequence, given what follows the backslash. It returns the bytes read. As
// in Python an unknown sequence stands for itself.
func unescape(b *strings.Builder, s string) int {
	const letters, meanings = "abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\""
	if i := strings.IndexByte(letters, s[0]); i >= 0 {
		b.WriteByte(meanings[i])
		return 1
	}
	if s[0] == '\n' { // a line that goes on
		return 1
	}
	if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]; digits > 0 && len(s) > digits {
		if code, err := strconv.ParseUint(s[1:1+digits], 16, 32); err == nil && code <= unicode.MaxRune {
			b.WriteRune(rune(code))
			return 1 + digits
		}
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1
}
