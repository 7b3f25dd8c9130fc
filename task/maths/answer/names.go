package answer

import (
	"slices"
	"strings"
)

// synonym returns the one name of commands that mean the same.
func synonym(name string) string {
	switch name {
	case "dfrac", "tfrac", "cfrac":
		return "frac"
	case "dbinom", "tbinom", "choose":
		return "binom"
	case "le", "leqslant":
		return "leq"
	case "ge", "geqslant":
		return "geq"
	case "ne":
		return "neq"
	case "lt":
		return "less"
	case "gt":
		return "greater"
	case "varnothing":
		return "emptyset"
	case "lvert", "rvert", "vert", "mid":
		return "bar"
	case "ast", "star":
		return "times"
	case "degree":
		return "circ"
	case "arccos", "arcsin", "arctan", "cosh", "sinh":
		return name
	case "varphi":
		return "phi"
	case "varepsilon":
		return "epsilon"
	case "bmatrix", "smallmatrix":
		return "pmatrix"
	}
	return name
}

// skipped are commands that change the look alone.
func skipped(name string) bool {
	return slices.Contains(strings.Fields("left right displaystyle textstyle quad qquad big Big bigg Bigg bigl bigr Bigl Bigr "+
		"limits nolimits hspace thinspace enspace space boldsymbol bm phantom hfill middle"), name)
}

// proseCommand are commands whose braces hold words rather than a formula.
func proseCommand(name string) bool {
	return slices.Contains(strings.Fields("text textbf textit textrm textnormal texttt textsf mbox hbox mathrm operatorname emph"), name)
}

func isFunction(name string) bool {
	return slices.Contains(strings.Fields("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan ln log lg exp"), name)
}

// isMany are functions of a list between brackets.
func isMany(name string) bool {
	return slices.Contains([]string{"max", "min", "gcd", "lcm"}, name)
}

func isGreek(name string) bool {
	return slices.Contains(strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau "+
		"upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar aleph"), name)
}

// plainName reports whether letters without a backslash are the name of a command.
func plainName(text string) bool {
	if text != strings.ToLower(text) {
		return false
	}
	return isFunction(text) || slices.Contains(strings.Fields("pi sqrt infty infinity frac theta alpha beta lambda max min gcd lcm"), text)
}

// knownWord reports whether two letters are a word rather than a product.
func knownWord(text string) bool {
	return slices.Contains(strings.Fields("no or on is am pm"), strings.ToLower(text))
}
