package design

// Why the least is exact: between whole horizons k and k+1 a table's sbar2 is A + C u with u = 1/x, A = sigma2(k) and C the sum of
// sigma2 - A below k. Both J at a given y and the envelope are that times a factor g(u) that rises with u. Where C >= 0 the product rises
// with u, and is least at the right end. Where C < 0 it rises and then falls (the sign of its derivative is that of 2C v^2 + C q v + A - C rho for the
// envelope, v = sqrt(rho + u) and q = sqrt m, and that of 2C u + A + C b for b + u: both fall), and is least at an end. So every local
// minimum over all horizons is a whole number, and comparing those finds the global one, whatever the table looks like.

// horizon implements [Profile] by comparing every whole horizon.
func (t *Table) horizon(m, rho float64) float64 {
	theory := Theory{TrainCost: m, Correlation: rho, Profile: t}
	best, least := 1.0, theory.Envelope(1)
	for k := 2; k <= len(t.sigma2); k++ {
		if j := theory.Envelope(float64(k)); j < least {
			best, least = float64(k), j
		}
	}
	return best
}

// turns implements [Profile]: every whole horizon between the ends may be one.
func (t *Table) turns(_ float64, visit func(x float64)) {
	for k := 2; k < len(t.sigma2); k++ {
		visit(float64(k))
	}
}
