// Package answer reads the answers of mathematical problems, as they are written in LaTeX or in plain letters, and decides
// whether two of them say the same.
//
// [Parse] turns a text into an [Answer], a tree of expressions with lists, sets, tuples, intervals, matrices, equations,
// inequalities, units and words. [Equal] compares two: rational numbers exactly, other expressions by their values to 1e-13
// (1e-9 where a decimal stands for a number that has none), with variables at a dozen points. Expressions whose values cannot
// be told apart reliably (e^{100} and e^{100}+1) are not equal unless they are written alike.
//
// Its first law is to say equal of nothing that is not: what can be read in two ways is not read at all and equals only its own
// writing. Sizes are bounded (text, digits, depth, bits), so that no answer costs much time or memory: 10^{10^{10}} is not computed.
package answer
