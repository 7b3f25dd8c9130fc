package replay

import (
	"github.com/reprise-rl/reprise/replay/formula"
)

// score is a number for each rollout of a shard, by an expression.
type score struct {
	formula      *formula.Formula
	row          row
	byAge, byUse bool // see changes
}

// newScore returns the score by an expression that Validate has parsed.
func newScore(s *shard, text string) *score {
	x := &score{row: row{shard: s}}
	x.formula, _ = formula.Score(text)
	x.byAge, x.byUse = changes(x.formula)
	return x
}

// of returns the score of a rollout, NaN if it is not known.
func (x *score) of(slot int32) float64 {
	x.row.slot, x.row.measured = slot, false
	return x.formula.Number(&x.row)
}

// changes reports whether formulas, nil ones left out, read columns that change with the table's version, and columns
// that change with a rollout's uses.
func changes(formulas ...*formula.Formula) (byAge, byUse bool) {
	for _, f := range formulas {
		if f != nil {
			byAge = byAge || f.Reads(formula.Age, formula.SinceUse)
			byUse = byUse || f.Reads(formula.Uses, formula.SinceUse)
		}
	}
	return byAge, byUse
}
