package gsm8k

import (
	"math/big"
	"strconv"
	"strings"
)

// Bounds of what is read as a number, so that a hostile response costs neither memory nor time.
const (
	maxDigits   = 300 // written digits
	maxExponent = 300 // of a power of ten, either sign
)

// number is how a number was written: whole, plus num/den where there is a fraction, times 10^exponent.
type number struct {
	neg      bool
	whole    string // "1,234.5", ".5" or "1.5e3"; "" for a fraction alone
	num, den string // integers; "" without a fraction
	exponent int    // of "x 10^3" and "million"
}

// value returns the exact value. It is false when the writing is not that of one number ("1,2",
// "1.2.3", "1/0") or goes beyond the bounds.
func (n number) value() (*big.Rat, bool) {
	v := new(big.Rat)
	if n.whole != "" {
		whole, ok := decimal(n.whole)
		if !ok {
			return nil, false
		}
		v = whole
	}
	if n.den != "" {
		f, ok := fraction(n.num, n.den)
		// A mixed number is an integer and a positive fraction below one.
		if !ok || n.whole != "" && (!v.IsInt() || strings.ContainsAny(n.whole, ".eE") || f.Sign() < 0 || f.Cmp(big.NewRat(1, 1)) >= 0) {
			return nil, false
		}
		v.Add(v, f)
	}
	if !scale(v, n.exponent) {
		return nil, false
	}
	if n.neg {
		v.Neg(v)
	}
	return v, true
}

// fraction reads num/den; num may have a sign.
func fraction(num, den string) (*big.Rat, bool) {
	neg := strings.HasPrefix(num, "-")
	a, ok := integer(strings.TrimPrefix(num, "-"))
	b, okay := integer(den)
	if !ok || !okay || b.Sign() == 0 {
		return nil, false
	}
	if neg {
		a.Neg(a)
	}
	return new(big.Rat).SetFrac(a, b), true
}

// decimal reads "1,234.50", ".5", "42" or "1.5e-3".
func decimal(s string) (*big.Rat, bool) {
	exponent := 0
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		if strings.ContainsRune(s, ',') || len(s)-e > len("e-300") {
			return nil, false
		}
		var err error
		if exponent, err = strconv.Atoi(s[e+1:]); err != nil {
			return nil, false
		}
		s = s[:e]
	}
	whole, places, point := strings.Cut(s, ".")
	if point && (places == "" || !digits(places)) {
		return nil, false
	}
	v := new(big.Rat)
	if whole != "" || !point {
		n, ok := integer(whole)
		if !ok {
			return nil, false
		}
		v.SetInt(n)
	}
	if point {
		n, _ := new(big.Int).SetString(places, 10)
		v.Add(v, new(big.Rat).SetFrac(n, power(len(places))))
	}
	return v, scale(v, exponent)
}

// integer reads digits, whole or in groups of three separated by commas or thin spaces.
func integer(s string) (*big.Int, bool) {
	for _, separator := range []string{",", string(thin)} {
		if !strings.Contains(s, separator) {
			continue
		}
		groups := strings.Split(s, separator)
		if len(groups[0]) > 3 || strings.HasPrefix(s, "0") {
			return nil, false
		}
		for _, g := range groups[1:] {
			if len(g) != 3 {
				return nil, false
			}
		}
		s = strings.Join(groups, "")
		break
	}
	if !digits(s) {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

// digits reports whether s is one to maxDigits digits.
func digits(s string) bool {
	for i := range len(s) {
		if !isDigit(rune(s[i])) {
			return false
		}
	}
	return 0 < len(s) && len(s) <= maxDigits
}

// scale multiplies v by 10^exponent, unless that is out of bounds.
func scale(v *big.Rat, exponent int) bool {
	switch {
	case exponent > maxExponent || exponent < -maxExponent:
		return false
	case exponent > 0:
		v.Mul(v, new(big.Rat).SetInt(power(exponent)))
	case exponent < 0:
		v.Quo(v, new(big.Rat).SetInt(power(-exponent)))
	}
	return true
}

func power(exponent int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exponent)), nil)
}

// canonical writes a value the one way that Extracted and Prompt.Answer use: an integer or a
// decimal where that is exact, else a fraction in lowest terms.
func canonical(v *big.Rat) string {
	if v.IsInt() {
		return v.Num().String()
	}
	if places, exact := v.FloatPrec(); exact {
		return v.FloatString(places)
	}
	return v.String()
}
