package answer

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// unit reads the words after a value: its unit, a scale ("million"), degrees or percent.
func (p *parser) unit(n *node) *node {
	var written []string
	for {
		t := p.peek()
		if t.kind != prose && t.kind != word || p.joint() != "" {
			break
		}
		if factor := scale(t.text); factor != nil && len(written) == 0 {
			p.at++
			n = newNode(opProduct, "", n, &node{op: opNumber, value: factor})
			continue
		}
		p.at++
		written = append(written, t.text)
		if p.symbol("^") {
			p.at++
			exponent := p.exponent()
			if exponent.op != opNumber {
				panic(errAmbiguous)
			}
			written = append(written, "^"+exponent.value.RatString())
		}
		if p.symbol("/") && (p.ahead(1).kind == prose || p.ahead(1).kind == word) {
			p.at++
			written = append(written, "per")
		}
	}
	switch name := unitName(strings.Join(written, " ")); name {
	case "":
		return n
	case "degree":
		return newNode(opDegree, "", n)
	case "percent":
		return newNode(opPercent, "", n)
	default:
		return newNode(opUnit, name, n)
	}
}

// scale returns the number that a word of scale means, nil for other words.
func scale(text string) *big.Rat {
	exponent, ok := map[string]int{"hundred": 2, "thousand": 3, "million": 6, "billion": 9,
		"trillion": 12}[strings.ToLower(strings.Trim(text, " ."))]
	if !ok {
		return nil
	}
	return new(big.Rat).SetInt(power(10, exponent))
}

// measures are units, each with its names; the first stands for all.
func measures() [][]string {
	return [][]string{
		{"cm", "centimeter", "centimetre"}, {"m", "meter", "metre"}, {"km", "kilometer", "kilometre"}, {"mm",
			"millimeter", "millimetre"},
		{"in", "inch", "inche"}, {"ft", "foot", "feet"}, {"yd", "yard"}, {"mi", "mile"}, {"acre"}, {"mph"}, {"unit"},
		{"s", "sec", "second"}, {"min", "minute"}, {"h", "hr", "hour"}, {"day"}, {"week"}, {"month"}, {"year",
			"yr"}, {"am"}, {"pm"},
		{"g", "gram"}, {"kg", "kilogram"}, {"lb", "pound"}, {"oz", "ounce"}, {"ton"}, {"l", "liter", "litre"}, {"ml",
			"milliliter"}, {"gal", "gallon"},
		{"dollar", "usd", "$"}, {"cent"}, {"euro", "eur"}, {"degree", "deg"}, {"radian", "rad"}, {"percent", "pct",
			"percentage"}, {"per"},
	}
}

// measure returns the first name of a unit, and whether it is known.
func measure(word string) (string, bool) {
	word = strings.ToLower(word)
	for _, names := range measures() {
		if slices.Contains(names, word) || len(word) > 3 && slices.Contains(names, strings.TrimSuffix(word, "s")) {
			return names[0], true
		}
	}
	return word, false
}

func isMeasure(word string) bool {
	_, known := measure(word)
	return known && !slices.Contains([]string{"m", "s", "h", "g", "l"}, word)
}

// unitName writes a unit in the form in which units are compared: "square centimeters" and "cm ^2" are "cm^2".
func unitName(text string) string {
	text = strings.NewReplacer(".", "", "/", " per ", "^", " ^").Replace(text)
	var parts []string
	raise := ""
	for _, w := range strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) ||
			strings.ContainsRune(",()-~", r)
	}) {
		switch lower := strings.ToLower(w); lower {
		case "square", "sq":
			raise = "^2"
		case "cubic", "cu":
			raise = "^3"
		case "of", "the", "a", "an", "each", "long", "total":
		default:
			if strings.HasPrefix(w, "^") && len(parts) > 0 {
				parts[len(parts)-1] += w
				continue
			}
			name, known := measure(lower)
			if !known && len(name) > 3 {
				name = strings.TrimSuffix(name, "s")
			}
			parts = append(parts, name+raise)
			raise = ""
		}
	}
	if raise != "" {
		parts = append(parts, "unit"+raise)
	}
	if name := strings.Join(parts, " "); name != "mi per h" {
		return name
	}
	return "mph"
}

// sameUnit reports whether two units are compatible: one may be left out, except the halves of a day, and what is
// counted may be described in more words.
func sameUnit(a, b string) bool {
	if a == b {
		return true
	}
	for _, half := range []string{"am", "pm"} {
		if a == half || b == half {
			return false
		}
	}
	if a == "" || b == "" {
		return true
	}
	one, other := strings.Fields(a), strings.Fields(b)
	if len(one) > len(other) {
		one, other = other, one
	}
	known := func(w string) bool {
		base, _, _ := strings.Cut(w, "^")
		_, is := measure(base)
		return is
	}
	if slices.ContainsFunc(one, known) || slices.ContainsFunc(other, known) {
		return false
	}
	for _, w := range one {
		if !slices.Contains(other, w) {
			return false
		}
	}
	return true
}
