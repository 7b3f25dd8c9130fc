// Package words writes numbers and paragraphs the way messages and pages show them, and compares what users type.
package words

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Plural writes a count with its noun: "1 table", "2,000 tables". The plural is the noun with an s, or the one given.
func Plural[T int | int32 | int64 | uint64](n T, noun string, plural ...string) string {
	many := noun + "s"
	if len(plural) > 0 {
		many = plural[0]
	}
	if n == 1 {
		many = noun
	}
	return Thousands(n) + " " + many
}

// Percent writes a share with the given decimals: Percent(0.285, 1) is "28.5%". NaN is a dash, infinity a sign. A
// negative share has a hyphen, for terminals; pages put it through Minus.
func Percent(share float64, decimals int) string {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return Fixed(share, 0)
	}
	return strconv.FormatFloat(100*share, 'f', decimals, 64) + "%"
}

// Printable returns a text that another program gave, for a terminal or a log: line breaks and tabs are spaces, and
// what else cannot be printed, such as an escape code, is "\ufffd".
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return utf8.RuneError
	}, text)
}

// Columns is the width for which text is wrapped: that of a terminal.
const Columns = 80

// Wrap breaks a paragraph into lines, the first after a mark and the others indented below its first word.
func Wrap(mark, text string) string { return WrapAt(Columns, mark, text) }

// WrapAt is Wrap at another width.
func WrapAt(width int, mark, text string) string {
	var wrapped strings.Builder
	line, indent := mark, strings.Repeat(" ", len(mark))
	for i, word := range strings.Fields(text) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			wrapped.WriteString(line + "\n")
			line = indent
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	return wrapped.String() + line + "\n"
}

// Thousands writes a whole number with a comma after each thousand and a minus sign.
func Thousands[T int | int32 | int64 | uint64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return Minus(digits)
}

// Whole writes a number rounded to an integer, as Thousands does. NaN and infinity are a dash.
func Whole(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return Thousands(int64(math.RoundToEven(v)))
}

// Fixed writes a number with the given decimals. NaN is a dash, infinity a sign.
func Fixed(v float64, decimals int) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "−∞"
	}
	return Minus(strconv.FormatFloat(v, 'f', decimals, 64))
}

// Signed is Fixed with the sign of a positive number. 0 has no sign and no decimals.
func Signed(v float64, decimals int) string {
	switch text := Fixed(v, decimals); {
	case v == 0:
		return "0"
	case v > 0:
		return "+" + text
	default:
		return text
	}
}

// Minus replaces the hyphen before a number by a minus sign. A number that was rounded to 0 has none.
func Minus(number string) string {
	if !strings.HasPrefix(number, "-") {
		return number
	}
	if strings.Trim(number[1:], "0.%") == "" {
		return number[1:]
	}
	return "−" + number[1:]
}

// Amount writes a number with three significant digits: 0.42, 7.1, 1650, 12.4k, 3.1M.
func Amount(v float64) string { return Tick(v, 0) }

// Tick writes a number with the decimals that a step between ticks needs, thousands as k and millions as M from 10k up.
// A step of 0 means three significant digits.
func Tick(v, step float64) string {
	switch {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return Fixed(v, 0)
	case v < 0:
		return "−" + Tick(-v, step)
	case v >= 1e12 || v < 1e-4:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	unit, suffix := 1.0, ""
	switch rounded := v * 1.0005; { // 999,999 is 1M
	case rounded >= 1e9:
		unit, suffix = 1e9, "G"
	case rounded >= 1e6:
		unit, suffix = 1e6, "M"
	case v >= 1e4:
		unit, suffix = 1e3, "k"
	}
	trim := unit > 1 || step == 0
	v /= unit
	if step == 0 {
		step = math.Pow(10, math.Floor(math.Log10(v*1.0005))-2) * unit
	}
	text := strconv.FormatFloat(v, 'f', max(0, int(math.Ceil(-math.Log10(step/unit)-1e-9))), 64)
	if trim && strings.Contains(text, ".") { // 1.50M and 2.00M would be noise
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + suffix
}

// Span writes a longer duration in its two largest units.
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// Bytes writes a number of bytes in decimal units: 512 B, 33.3 MB.
func Bytes(n float64) string {
	for _, u := range []struct {
		per  float64
		unit string
	}{{1e12, " TB"}, {1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}} {
		if n >= u.per*0.9995 {
			return Amount(n/u.per) + u.unit
		}
	}
	return Whole(n) + " B"
}

// OneTypoApart reports whether two words differ by at most one letter: missing, added, replaced, or two neighbours
// swapped.
func OneTypoApart(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	a, b = a[i:], b[i:]
	switch {
	case len(a) < len(b):
		return a == b[1:]
	case a == "":
		return true
	case len(a) > 1 && a[0] == b[1] && a[1] == b[0] && a[2:] == b[2:]:
		return true
	}
	return a[1:] == b[1:]
}
