package answer

import "strings"

// plain returns the text with the characters of Unicode written as LaTeX commands, and without what only changes how it
// looks: sizes, spacing, styles and the signs that open and close formulas.
func plain(text string) string {
	text = unicodeCommands().Replace(text)
	text = strings.NewReplacer(`\\`, `\newline `, `\$`, "\x00", `\%`, "%", `\!`, "\x01", `\{`, `\lbrace `, `\}`, `\rbrace `, `\(`, " ", `\)`, " ",
		`\[`, " ", `\]`, " ", "$", "").Replace(text)
	text = strings.ReplaceAll(text, "\x00", `\usd `)
	for _, gap := range []string{"\x01 ", "\x01"} { // 10,\!000 is ten thousand even between brackets
		text = strings.ReplaceAll(text, ","+gap, "{,}")
		text = strings.ReplaceAll(text, gap, "")
	}
	text = strings.ReplaceAll(text, `\,`, thinSpace)
	text = spacing().Replace(text)
	text = strings.TrimRight(strings.TrimSpace(text), ",;: \n\t")
	if strings.HasSuffix(text, "..") { // 0.333... is no 0.333
		return text
	}
	return strings.TrimRight(text, ".,;: \n\t")
}

// thinSpace stands for LaTeX's \, until the tokens know whether it separates thousands.
const thinSpace = "\u2009"

func spacing() *strings.Replacer {
	return strings.NewReplacer(`\;`, " ", `\:`, " ", `\ `, " ", "~", " ", `\/`, "", `\&`, " and ", "\u00a0", " ", "\u202f", thinSpace)
}

func unicodeCommands() *strings.Replacer {
	return strings.NewReplacer(
		"−", "-", "–", "-", "×", `\times `, "·", `\cdot `, "⋅", `\cdot `, "÷", `\div `, "π", `\pi `, "∞", `\infty `,
		"°", `^\circ `, "≤", `\le `, "≥", `\ge `, "≠", `\ne `, "≈", `\approx `, "∪", `\cup `, "∩", `\cap `, "∈", `\in `, "∖", `\setminus `,
		"±", `\pm `, "∓", `\mp `, "²", "^{2}", "³", "^{3}", "½", `\frac{1}{2}`, "⅓", `\frac{1}{3}`, "⅔", `\frac{2}{3}`, "¼", `\frac{1}{4}`,
		"¾", `\frac{3}{4}`, "∅", `\emptyset `, "ℝ", `\mathbb{R}`, "ℤ", `\mathbb{Z}`, "ℚ", `\mathbb{Q}`, "ℂ", `\mathbb{C}`, "ℕ", `\mathbb{N}`,
		"θ", `\theta `, "α", `\alpha `, "β", `\beta `, "λ", `\lambda `, "√", `\surd `, "⟨", `\langle `, "⟩", `\rangle `,
		"“", "", "”", "", "’", "'", "**", "", "\u200b", "", "（", "(", "）", ")", "，", ",", "\t", " ")
}
