package objective

import (
	"fmt"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// The columns of Output.Rows.
const (
	rowTokens       = iota // tokens that count
	rowAbsAdvantage        // mean over them of |advantage|
	rowRho                 // sum over them of rho = pi/b
	rowRho2                // sum of rho^2
	numRowColumns
)

// Row is what Output.Rows holds of one row of a shard once computed. Only tokens that count are in it: of a row that is
// not kept, or in which the policy produced nothing, all is 0. What an objective was not given is 0 too.
type Row struct {
	Tokens       float64 // their number
	AbsAdvantage float64 // mean of Inputs.Advantage's absolute values
	RatioSum     float64 // sum of rho = pi/b, held within [e^-20, e^20] as in Combine's metrics
	RatioSquares float64 // sum of rho^2
}

// ReadRows copies the values of an Output.Rows node of B rows; a number that is not of whole rows is a mistake of the
// program and panics.
func ReadRows[F float32 | float64](values []F) []Row {
	if len(values)%numRowColumns != 0 {
		panic(fmt.Sprintf("objective: %d values of rows: want a multiple of %d", len(values), numRowColumns))
	}
	rows := make([]Row, len(values)/numRowColumns)
	for i := range rows {
		v := values[i*numRowColumns:]
		rows[i] = Row{
			Tokens: float64(v[rowTokens]), AbsAdvantage: float64(v[rowAbsAdvantage]),
			RatioSum: float64(v[rowRho]), RatioSquares: float64(v[rowRho2]),
		}
	}
	return rows
}

// stack makes Output.Rows of columns [B]; nil was not measured.
func (s shard) stack(columns [numRowColumns]*Node) *Node {
	for i, c := range columns {
		if c == nil {
			columns[i] = ZerosLike(s.length)
		}
		columns[i] = StopGradient(columns[i])
	}
	return Stack(columns[:], -1)
}
