package design

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Profile is the variance of a rollout's gradient as a function of its staleness. There are two: [PowerLaw] and
// [*Table]. Both find their minima exactly, by the unexported methods.
type Profile interface {
	// Mean returns sbar2(x), the variance averaged over a buffer of staleness horizon x >= 1; NaN beyond Reach.
	Mean(x float64) float64
	// At returns sigma2(s) at staleness s >= 0, NaN where it is unknown.
	At(s float64) float64
	// Reach returns the greatest horizon with a known mean, +Inf for all.
	Reach() float64

	validate() error
	// bestHorizon returns the x in [1, Reach] that minimises Mean(x) (sqrt m + sqrt(rho + 1/x))^2, the smallest of
	// several.
	bestHorizon(m, rho float64) float64
	// turningPoints calls visit with horizons in any order. Among them are all local minima of Mean(x) (b + 1/x) inside
	// a range.
	turningPoints(b float64, visit func(x float64))
}

// PowerLaw is noise that grows as a power of staleness, sigma2(s) = Scale s^(2a). The zero value is flat noise: its
// variance does not depend on staleness.
//
// Mean is the integral of sigma2 from 0 to x over x. At x = 1 that is above 0, where a sum over whole versions would be
// 0. For the same reason a law that grows has no sigma2(0).
type PowerLaw struct {
	Exponent float64 // a: 0 (flat), or 1e-6 to 10
	Scale    float64 // sigma2 at staleness 1, above 0 [1]; it moves no optimum
}

// Mean implements [Profile]: Scale x^(2a)/(2a+1).
func (p PowerLaw) Mean(x float64) float64 {
	if p.Exponent == 0 {
		return p.scale()
	}
	return p.scale() * math.Pow(x, 2*p.Exponent) / (2*p.Exponent + 1)
}

// At implements [Profile]: Scale s^(2a), NaN at 0 unless the noise is flat.
func (p PowerLaw) At(s float64) float64 {
	switch {
	case p.Exponent == 0:
		return p.scale()
	case s == 0:
		return math.NaN()
	}
	return p.scale() * math.Pow(s, 2*p.Exponent)
}

// Reach implements [Profile]: a law has no end.
func (p PowerLaw) Reach() float64 { return math.Inf(1) }

func (p PowerLaw) scale() float64 {
	if p.Scale == 0 {
		return 1
	}
	return p.Scale
}

func (p PowerLaw) validate() error {
	var problems option.Problems
	a := p.Exponent
	problems.Check(a == 0 || a >= 1e-6 && a <= 10, "noise_exponent", a, "1e-06 to 10, or 0 for noise that does not "+
		"grow; the theory has an optimum below 0.5")
	problems.Check(p.scale() > 0 && !math.IsInf(p.scale(), 0), "scale", p.Scale, "a finite number above 0")
	return problems.Err()
}

// bestHorizon is the x in (0, +Inf] at which the derivative of the envelope is 0, at least 1. The form is [ER]'s root
// with a rational numerator: it does not divide by 0 at m = rho or rho = 0, nor lose digits near them.
func (p PowerLaw) bestHorizon(m, rho float64) float64 {
	switch a := p.Exponent; {
	case a == 0:
		return math.Inf(1)
	case a >= 0.5:
		return 1
	default:
		s := math.Sqrt(a*a*m*m + m*rho*(1-2*a))
		return max(1, square(1-2*a)/(2*a*(a*m+rho*(1-2*a)+s)))
	}
}

// turningPoints implements [Profile]. x^(2a) (b + 1/x) falls until (1-2a)/(2 a b) and rises from there.
func (p PowerLaw) turningPoints(b float64, visit func(x float64)) {
	if a := p.Exponent; a > 0 && a < 0.5 {
		visit((1 - 2*a) / (2 * a * b))
	}
}

// mean returns the law's mean over [s, s+1).
func (p PowerLaw) mean(s float64) float64 { return p.scale() * versionMean(s, p.Exponent) }

// versionMean returns the mean of x^(2a) over [s, s+1), ((s+1)^(2a+1) - s^(2a+1))/(2a+1), in a form that keeps its
// digits for large s.
func versionMean(s, a float64) float64 {
	p := 2*a + 1
	if s < 1 {
		return (math.Pow(s+1, p) - math.Pow(s, p)) / p
	}
	return math.Pow(s, p) * math.Expm1(p*math.Log1p(1/s)) / p
}

// Table is noise measured at whole staleness 0, 1, 2, …. Its Mean interpolates the cumulative sum linearly: sigma2 is
// constant within a version, and Mean at a whole horizon is the plain average ([ER] appendix C.2.3). Nothing is known
// of horizons beyond its length; if the last value stood for all of them, ever larger buffers would cost nothing.
type Table struct {
	sigma2 []float64 // by staleness
	sums   []float64 // sums[k] = sigma2[0] + … + sigma2[k-1]
}

// Ranges of a table: more values than the age of any rollout worth keeping, and variances that can be added up and
// divided.
const (
	maxTable    = 1_000_000
	maxVariance = 1e300
	minVariance = 1 / maxVariance // at staleness 0
)

// NewTable returns the profile with the given sigma2 at staleness 0, 1, 2, …. The values need not ascend.
func NewTable(sigma2 []float64) (*Table, error) {
	return newTable(sigma2, func(s int) string { return fmt.Sprintf("staleness %d", s) })
}

// newTable reports up to ten problems by the place of their value.
func newTable(sigma2 []float64, place func(s int) string) (*Table, error) {
	switch n := len(sigma2); {
	case n == 0:
		return nil, &option.Error{Key: "profile", Value: "no numbers", Want: "the variance at staleness 0, 1, 2, …"}
	case n > maxTable:
		return nil, &option.Error{Key: "profile", Value: fmt.Sprintf("%d numbers", n), Want: fmt.Sprintf("at most %d",
			maxTable)}
	}
	t := &Table{slices.Clone(sigma2), make([]float64, len(sigma2)+1)}
	var problems option.Problems
	for s, v := range sigma2 {
		t.sums[s+1] = t.sums[s] + v
		switch {
		case !(v >= 0 && v <= maxVariance):
			problems.Check(false, place(s), v, "a variance, 0 to %v", maxVariance)
		case s == 0 && v < minVariance:
			problems.Check(false, place(s), v, "at least %v at staleness 0: fresh rollouts have noise too", minVariance)
		}
		if len(problems) == 10 {
			break
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return t, nil
}

// ParseTable reads variances at staleness 0, 1, 2, …: a JSON array of numbers, or one number a line. Empty lines and
// text after # are skipped.
func ParseTable(text []byte) (*Table, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		var list []*float64 // null is no number
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%w: want a JSON array of numbers, [1, 1.2, 1.3]", err)
		}
		sigma2 := make([]float64, len(list))
		for s, v := range list {
			if v == nil {
				return nil, &option.Error{Key: fmt.Sprintf("staleness %d", s), Value: "null", Want: "a variance"}
			}
			sigma2[s] = *v
		}
		return NewTable(sigma2)
	}
	var sigma2 []float64
	var lines []int
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		v, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %.40q: want one number on each line, or a JSON array", i+1, line)
		}
		sigma2, lines = append(sigma2, v), append(lines, i+1)
	}
	return newTable(sigma2, func(s int) string { return fmt.Sprintf("line %d, staleness %d", lines[s], s) })
}

// Values returns sigma2 at staleness 0, 1, 2, …, a copy.
func (t *Table) Values() []float64 { return slices.Clone(t.sigma2) }

// Mean implements [Profile], for x in [1, Reach].
func (t *Table) Mean(x float64) float64 {
	if !(x >= 1 && x <= t.Reach()) {
		return math.NaN()
	}
	k := int(x)
	if k == len(t.sigma2) {
		return t.sums[k] / x
	}
	return (t.sums[k] + (x-float64(k))*t.sigma2[k]) / x
}

// At implements [Profile]: constant within a version.
func (t *Table) At(s float64) float64 {
	if !(s >= 0 && s < t.Reach()) {
		return math.NaN()
	}
	return t.sigma2[int(s)]
}

// Reach implements [Profile]: the number of values.
func (t *Table) Reach() float64 { return float64(len(t.sigma2)) }

func (t *Table) validate() error {
	if t == nil || len(t.sigma2) == 0 {
		return &option.Error{Key: "profile", Value: "an empty table", Want: "one made by NewTable"}
	}
	return nil
}

// A table's least J is at a whole horizon. Between whole horizons k and k+1, sbar2 is A + C u with u = 1/x, A =
// sigma2(k) and C the sum of sigma2 - A below k. Both J at a given y and the envelope are that times a factor g(u) that
// rises with u. If C >= 0, the product rises with u and is least at the right end. If C < 0, it rises and then falls,
// and is least at an end: the sign of its derivative is that of 2C v^2 + C q v + A - C rho for the envelope (v =
// sqrt(rho + u), q = sqrt m) and that of 2C u + A + C b for b + u, and both fall. So every local minimum is a whole
// number, and comparing those finds the global one, whatever the table looks like.

// bestHorizon compares every whole horizon.
func (t *Table) bestHorizon(m, rho float64) float64 {
	theory := Theory{TrainCost: m, Correlation: rho, Profile: t}
	best, least := 1.0, theory.Envelope(1)
	for k := 2; k <= len(t.sigma2); k++ {
		if j := theory.Envelope(float64(k)); j < least {
			best, least = float64(k), j
		}
	}
	return best
}

// turningPoints visits every whole horizon between the ends.
func (t *Table) turningPoints(_ float64, visit func(x float64)) {
	for k := 2; k < len(t.sigma2); k++ {
		visit(float64(k))
	}
}
