// Package words writes numbers the way messages and pages show them.
package words

import (
	"math"
	"strconv"
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
