package answer

import (
	"math/big"
	"strconv"
	"strings"
)

// number reads digits with their thousands separators, decimal places, repeating places and exponent.
func (l *lexer) number() error {
	rest := l.rest()
	whole, size := l.whole(rest)
	places := ""
	point := size < len(rest) && rest[size] == '.' && (isDigit(rest, size+1) || strings.HasPrefix(rest[size+1:], `\overline`))
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
	if size < len(rest) && (rest[size] == '.' && isDigit(rest, size+1) || strings.HasPrefix(rest[size:], "..") || strings.HasPrefix(rest[size:], "…")) {
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
		for strings.HasPrefix(rest[at:], separator) && len(digits(strings.TrimLeft(rest[at+len(separator):], " "))) == 3 {
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

// thousands reports whether a bare comma may separate thousands here: not between brackets, where it separates
// coordinates, unless those are separated by a comma and a space.
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
