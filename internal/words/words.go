// Package words writes numbers and paragraphs the way messages and pages show them.
package words

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Plural writes a count with its noun: "1 table", "2 tables". The plural is the noun with an s, or the one given.
func Plural[T int | int64 | uint64](n T, noun string, plural ...string) string {
	many := noun + "s"
	if len(plural) > 0 {
		many = plural[0]
	}
	if n == 1 {
		many = noun
	}
	return strconv.FormatInt(int64(n), 10) + " " + many
}

// Percent writes a share with so many decimals: Percent(0.285, 1) is "28.5%". NaN is a dash, infinity a sign.
func Percent(share float64, decimals int) string {
	switch {
	case math.IsNaN(share):
		return "–"
	case math.IsInf(share, 1):
		return "∞"
	case math.IsInf(share, -1):
		return "−∞"
	}
	return strconv.FormatFloat(100*share, 'f', decimals, 64) + "%"
}

// lineWidth is the width of wrapped text.
const lineWidth = 110

// Wrap breaks a paragraph into lines, the first after a mark and the others indented below its first word.
func Wrap(mark, text string) string {
	var wrapped strings.Builder
	line, indent := mark, strings.Repeat(" ", len(mark))
	for i, word := range strings.Fields(text) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineWidth {
			wrapped.WriteString(line + "\n")
			line = indent
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	return wrapped.String() + line + "\n"
}

// Thousands writes a whole number with a comma after each thousand.
func Thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
