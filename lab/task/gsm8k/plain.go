package gsm8k

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Marks that plain writes for LaTeX that has no plain character of its own.
const (
	thin     = '\u2009' // a space that may separate thousands: \, \; \: ~ and non-breaking spaces
	fracMark = '\ue000' // \frac, \dfrac, \tfrac, \cfrac; its two arguments follow
	opaque   = '√'      // \sqrt, \pi and any command not known to be harmless: next to it nothing is a plain number
)

// plain rewrites LaTeX and typographic variants as the plain characters that the scanner knows. It takes linear time
// and never fails: anything unknown becomes opaque. The result is valid UTF-8 without control characters.
func plain(s string) string {
	w := writer{out: make([]byte, 0, len(s)+8)}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\':
			i = w.command(s, i+1)
			continue
		case strings.HasPrefix(s[i:], "{,}"): // LaTeX for a comma without a space after it
			w.rune(',')
			n = len("{,}")
		case r == '{':
			w.open(false)
		case r == '}':
			w.close()
		case (r == '!' || r == '<' || r == '>') && strings.HasPrefix(s[i+1:], "="):
			w.rune('≠') // or <= or >=: the number after any of them is a bound, not an answer
			n = 2
		case r == '…':
			w.out = append(w.out, "..."...)
		case vulgar(r) != "":
			w.vulgar(r, s[i+n:])
		default:
			w.rune(typographic(r))
		}
		i += n
	}
	return string(w.out)
}

// typographic maps variants of a character to the one that the scanner knows.
func typographic(r rune) rune {
	switch r {
	case '~', '\u00a0', '\u2009', '\u202f':
		return thin
	case '−', '－', '﹣':
		return '-'
	case '⁄':
		return '/'
	case '∙', '⋅':
		return '·'
	case fracMark, '\\':
		return ' '
	case '\u200b', '\u200c', '\u200d', '\u2060', '\ufeff':
		return opaque // invisible: what a reader sees as one number must not be read as two
	}
	if unicode.IsSpace(r) || unicode.IsControl(r) {
		return ' '
	}
	return r
}

// writer collects plain text and remembers which open braces were left out.
type writer struct {
	out     []byte
	dropped []bool // for every open brace
}

func (w *writer) rune(r rune) { w.out = utf8.AppendRune(w.out, r) }

func (w *writer) open(drop bool) {
	w.dropped = append(w.dropped, drop)
	if !drop {
		w.rune('{')
	}
}

func (w *writer) close() {
	drop := false
	if last := len(w.dropped) - 1; last >= 0 {
		drop, w.dropped = w.dropped[last], w.dropped[:last]
	}
	if !drop {
		w.rune('}')
	}
}

// vulgar writes a character such as ½ as 1/2; after a digit it is the fraction of a mixed number. rest follows it.
func (w *writer) vulgar(r rune, rest string) {
	last, _ := utf8.DecodeLastRune(w.out)
	next, _ := utf8.DecodeRuneInString(rest)
	if last == '/' || last == '.' || last == ',' || next == '/' || unicode.IsNumber(next) {
		w.rune(opaque)
		return
	}
	if isDigit(last) {
		w.rune(' ')
	}
	w.out = append(w.out, vulgar(r)...)
}

// command writes the command whose name starts at s[i] and returns where the text continues.
func (w *writer) command(s string, i int) int {
	end := i
	for end < len(s) && isLetter(rune(s[end])) {
		end++
	}
	if end == i { // a command of one character that is not a letter
		r, n := utf8.DecodeRuneInString(s[i:])
		if n == 0 {
			r = ' '
		}
		w.out = append(w.out, symbol(r)...)
		return i + n
	}
	text, wraps := word(s[i:end])
	w.out = append(w.out, text...)
	if wraps {
		if open := end + len(s[end:]) - len(strings.TrimLeft(s[end:], " ")); open < len(s) && s[open] == '{' {
			w.open(true)
			return open + 1
		}
	}
	return end
}

// symbol returns what the command \r means.
func symbol(r rune) string {
	switch r {
	case '!':
		return ""
	case ',', ';', ':', ' ', '>':
		return string(thin)
	case '$', '%', '&', '#', '_':
		return string(r)
	case '\\': // the end of a line
		return " | "
	case '{', '}', '(', ')', '[', ']', '"', '\'':
		return " "
	}
	return string(opaque)
}

// word returns what the command \name means, and whether its argument belongs to the text.
func word(name string) (text string, wraps bool) {
	switch name {
	case "text", "textbf", "textit", "textrm", "textnormal", "mbox", "hbox", "mathrm", "mathbf", "mathit",
		"mathsf", "bf", "rm", "bm", "boldsymbol", "operatorname", "underline", "emph", "boxed", "fbox":
		return "", true
	case "left", "right", "displaystyle", "textstyle", "big", "Big", "bigl", "bigr", "Bigl", "Bigr":
		return "", false
	case "quad", "qquad", "to", "rightarrow", "Rightarrow", "implies", "therefore", "newline", "n":
		return " ", false
	case "frac", "dfrac", "tfrac", "cfrac":
		return string(fracMark), false
	case "times":
		return "×", false
	case "cdot":
		return "·", false
	case "div":
		return "÷", false
	case "approx", "simeq":
		return "≈", false
	case "le", "leq", "leqslant", "ge", "geq", "geqslant", "lt", "gt", "ne", "neq":
		return "≠", false
	case "circ", "degree":
		return "°", false
	case "pounds":
		return "£", false
	case "euro":
		return "€", false
	case "textdollar":
		return "$", false
	}
	return string(opaque), false
}

// vulgar returns the fraction that a single character means, "" for other characters.
func vulgar(r rune) string {
	if r < utf8.RuneSelf {
		return ""
	}
	return vulgarFractions[r]
}

var vulgarFractions = map[rune]string{
	'½': "1/2", '⅓': "1/3", '⅔': "2/3", '¼': "1/4", '¾': "3/4", '⅕': "1/5", '⅖': "2/5", '⅗': "3/5", '⅘': "4/5",
	'⅙': "1/6", '⅚': "5/6", '⅛': "1/8", '⅜': "3/8", '⅝': "5/8", '⅞': "7/8",
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isLetter reports whether r is an ASCII letter.
func isLetter(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' }
