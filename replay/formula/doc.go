// Package formula evaluates small expressions over what a table knows of a rollout.
//
// A [Formula] is parsed once, by [Condition] if it is true or false and by [Score] if it is a number, and evaluated for
// many rollouts ([Formula.Holds], [Formula.Number]): reward >= 1 && age < 8, or abs(advantage) * 0.9 ** age. A
// [Schedule] is a number at each version of a table ([Formula.At]): max(0.1, 0.5 - version / 1000). The grammar is that
// of github.com/expr-lang/expr, of which only the parser is used. It has numbers, true and false, the columns of
// [Columns] and meta.NAME, arithmetic, comparisons, and, or, not, ?: and a few functions. It has no strings, lists,
// loops, variables or calls of anything else, so an evaluation visits each node once at most, and there are at most
// [MaxNodes].
//
// A number that is not known is NaN: comparisons with it are false, but for !=, and known(x) tells.
//
// Formulas are immutable and may be evaluated concurrently, without an allocation. What the package leaves to others:
// the values of the columns ([Row]).
package formula
