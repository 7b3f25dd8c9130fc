package objective

import (
	"math"
	"testing"
)

func sameRow(t *testing.T, got, want Row, tolerance float64) {
	t.Helper()
	if !near(got.Tokens, want.Tokens, 0) || !near(got.AbsAdvantage, want.AbsAdvantage, tolerance) ||
		!near(got.RatioSum, want.RatioSum, tolerance) || !near(got.RatioSquares, want.RatioSquares, tolerance) {
		t.Errorf("row %+v, want %+v", got, want)
	}
}

// naiveRow is row b of v by the definition of Row, as a loop.
func naiveRow(v values, b int) Row {
	var r Row
	for i := range width {
		if v.mask[b][i] == 0 || v.keep[b] == 0 {
			continue
		}
		rho := math.Exp(min(max(v.logprob(b, i)-v.behaviour[b][i], -20), 20))
		r.Tokens++
		r.AbsAdvantage += math.Abs(v.advantage[b][i])
		r.RatioSum += rho
		r.RatioSquares += rho * rho
	}
	r.AbsAdvantage /= max(r.Tokens, 1)
	return r
}

func TestRowsAgreeWithTheirDefinitionAndAddUpToTheSums(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for seed := range uint64(10) {
				v := randomValues(seed)
				v.behaviour[0][4], v.behaviour[1][4] = -100, 100 // both are held
				r := p.run(v)
				if len(r.rows) != rows {
					t.Fatalf("%d rows, want %d", len(r.rows), rows)
				}
				var total Row
				for b, got := range r.rows {
					sameRow(t, got, naiveRow(v, b), 1e-12)
					total.Tokens += got.Tokens
					total.AbsAdvantage += got.AbsAdvantage
					total.RatioSum += got.RatioSum
					total.RatioSquares += got.RatioSquares
				}
				sameRow(t, total, Row{r.sums[sumTokens], r.sums[sumRowAbsAdv], r.sums[sumRho], r.sums[sumRho2]}, 1e-12)
			}
		})
	}
}

func TestOnlyWholeRowsAreRead(t *testing.T) {
	if none := ReadRows([]float32{}); len(none) != 0 {
		t.Errorf("no values are %d rows", len(none))
	}
	defer func() {
		if recover() == nil {
			t.Error("five values were read as rows")
		}
	}()
	ReadRows(make([]float32, numRowColumns+1))
}
