package objective

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// Corrections say what a loss of importance ratios does about rollouts of other policies (METHODS section 8). Per token,
// b is the policy that sampled, p the proximal policy, pi the one being trained, r = pi/p, k = p/b, and A the advantage.
// None of the factors below has a gradient. A dropped token loses its term, with the gradient, and stays in the
// denominators; the penalty of KLCoef and the critic's loss keep it.
//
// The zero value is r = pi/b with nothing corrected. Where r = k = 1 every correction leaves the loss as it is, bit for
// bit.
type Corrections struct {
	Proximal Proximal     // empty: ProximalBehaviour
	Steps    []Correction // at most one of each kind, of masks one of each level; they apply together, in any order
}

// Proximal says which policy r is taken to.
type Proximal string

const (
	// ProximalBehaviour takes p = b: r = pi/b, as in PPO. Corrections that read k read pi/b instead.
	ProximalBehaviour Proximal = "behaviour"
	// ProximalRecompute takes the weights at the start of the batch as p, Inputs.Anchor, and multiplies the terms by k:
	// the decoupled loss of AReaL (arXiv 2505.24298). A [Truncate] bounds that factor.
	ProximalRecompute Proximal = "recompute"
	// ProximalUnweighted takes the same p and leaves k out, as trainers do that recompute the log-probs and correct for
	// nothing else. The loss is biased by what differs between p and b.
	ProximalUnweighted Proximal = "unweighted"
	// ProximalInterpolate is the decoupled loss without a forward pass for p (A-3PO, arXiv 2512.06547): with d the
	// versions between the weights that sampled the token and those that trained first on its batch,
	//
	//	log p = log b + (1 - 1/max(d, 1)) sg(log pi - log b)
	//
	// which is log b at d = 1, one version behind, and nears log pi as d grows.
	ProximalInterpolate Proximal = "interpolate"
)

// Correction is one step. Each kind says which fields it reads.
type Correction struct {
	Kind  CorrectionKind `yaml:"kind" json:"kind"`
	Level Level          `yaml:"level,omitempty" json:"level,omitempty"` // empty: LevelToken
	Low   float64        `yaml:"low,omitempty" json:"low,omitempty"`
	High  float64        `yaml:"high,omitempty" json:"high,omitempty"`
	Limit float64        `yaml:"limit,omitempty" json:"limit,omitempty"`
}

// CorrectionKind names a correction.
type CorrectionKind string

const (
	// Truncate multiplies terms by min(k, High) instead of k, High >= 1 [2] (TIS). It needs ProximalRecompute or
	// ProximalInterpolate.
	Truncate CorrectionKind = "truncate"
	// MaskRatio drops where k is outside [Low, High], 0 <= Low < 1 < High [0.5 and 5 if neither is given]. With one
	// bound it is one-sided. By token this is IcePop; TRL with vLLM has LevelProduct and High 3 by default.
	MaskRatio CorrectionKind = "mask"
	// OPSM drops rollouts with a mean advantage below 0 and a mean of log b - log pi above Limit, in nats, above 0 [0.1]
	// (off-policy sequence masking, DeepSeek-V3.2).
	OPSM CorrectionKind = "opsm"
	// M2PO drops the tokens with the largest m^2, m = log pi - log b, among those whose update leads further from b,
	// until the mean of m^2 over the other tokens of the batch is at most Limit, above 0 [0.04] (arXiv 2510.01161).
	M2PO CorrectionKind = "m2po"
	// DPPO drops tokens with A > 0 and pi - b > High, or A < 0 and b - pi > Low, both in (0, 1] [0.2]: the trust region
	// by total variation of prime-rl (arXiv 2602.04879).
	DPPO CorrectionKind = "dppo"
)

// Level says what k is taken over.
type Level string

const (
	LevelToken    Level = "token"    // the token
	LevelSequence Level = "sequence" // the rollout: the geometric mean over its tokens, as in GSPO (arXiv 2507.18071)
	LevelProduct  Level = "product"  // the rollout: the product over its tokens
)

// WithDefaults returns c with its zero fields replaced by their defaults, in brackets at the kinds.
func (c Correction) WithDefaults() Correction {
	switch c.Kind {
	case Truncate:
		c.Level, c.High = cmp.Or(c.Level, LevelToken), cmp.Or(c.High, 2)
	case MaskRatio:
		c.Level = cmp.Or(c.Level, LevelToken)
		if c.Low == 0 && c.High == 0 {
			c.Low, c.High = 0.5, 5
		}
	case OPSM:
		c.Limit = cmp.Or(c.Limit, 0.1)
	case M2PO:
		c.Limit = cmp.Or(c.Limit, 0.04)
	case DPPO:
		c.Low, c.High = cmp.Or(c.Low, 0.2), cmp.Or(c.High, 0.2)
	}
	return c
}

// Name is what metrics call the correction: its kind, for masks with the level.
func (c Correction) Name() string {
	if c.Kind == MaskRatio {
		return string(c.Kind) + "_" + string(c.WithDefaults().Level)
	}
	return string(c.Kind)
}

// correctionNames are the names of all corrections, in the order of their sums.
func correctionNames() []string {
	return []string{string(Truncate), "mask_token", "mask_sequence", "mask_product", string(OPSM), string(M2PO),
		string(DPPO)}
}

// numCorrections is their number.
const numCorrections = 7

// decouples reports whether p is another policy than b, recomputes whether it is Inputs.Anchor, interpolates whether it
// is taken from Inputs.Staleness, and weighs whether the terms are multiplied by k.
func (c Corrections) decouples() bool    { return c.weighs() || c.Proximal == ProximalUnweighted }
func (c Corrections) recomputes() bool   { return c.decouples() && !c.interpolates() }
func (c Corrections) interpolates() bool { return c.Proximal == ProximalInterpolate }
func (c Corrections) weighs() bool       { return c.Proximal == ProximalRecompute || c.interpolates() }

func (c Corrections) find(kind CorrectionKind) (Correction, bool) {
	i := slices.IndexFunc(c.Steps, func(s Correction) bool { return s.Kind == kind })
	if i < 0 {
		return Correction{}, false
	}
	return c.Steps[i].WithDefaults(), true
}

// needs returns the inputs that the corrections read.
func (c Corrections) needs() Needs {
	limit, _ := c.find(M2PO)
	return Needs{Anchor: c.recomputes(), Staleness: c.interpolates(), SecondMoment: limit.Limit}
}

// inputs returns the names of these inputs.
func (c Corrections) inputs() (names []string) {
	if c.recomputes() {
		names = append(names, "Anchor")
	}
	if c.interpolates() {
		names = append(names, "Staleness")
	}
	if _, ok := c.find(M2PO); ok {
		names = append(names, "SecondMoment")
	}
	return names
}

// Validate reports every field out of its range.
func (c Corrections) Validate() error {
	var p option.Problems
	p.Check(c.Proximal == "" || c.Proximal == ProximalBehaviour || c.decouples(), "proximal", c.Proximal,
		"%s, %s, %s or %s", ProximalBehaviour, ProximalRecompute, ProximalUnweighted, ProximalInterpolate)
	seen := make(map[string]bool)
	for i, given := range c.Steps {
		s, at := given.WithDefaults(), fmt.Sprintf("correction[%d].", i)
		if !slices.Contains([]CorrectionKind{Truncate, MaskRatio, OPSM, M2PO, DPPO}, s.Kind) {
			p.Check(false, at+"kind", s.Kind, "%s, %s, %s, %s or %s", Truncate, MaskRatio, OPSM, M2PO, DPPO)
			continue
		}
		p.Check(!seen[s.Name()], at+"kind", s.Name(), "each at most once")
		seen[s.Name()] = true
		s.check(&p, at)
		p.Check(s.Kind != Truncate || c.weighs(), at+"kind", s.Kind, "proximal: %s or %s with it: otherwise there is "+
			"no factor k", ProximalRecompute, ProximalInterpolate)
	}
	return p.Err()
}

// check reports the fields of a known kind that are out of their ranges or that it does not read.
func (c Correction) check(p *option.Problems, at string) {
	level, low, high, limit := false, false, false, false // what the kind reads
	switch c.Kind {
	case Truncate:
		level, high = true, true
		p.Check(c.High >= 1 && finite(c.High), at+"high", c.High, "a finite number of 1 or more")
	case MaskRatio:
		level, low, high = true, true, true
		p.Check(c.Low >= 0 && c.Low < 1, at+"low", c.Low, "a number in [0, 1)")
		p.Check(c.High > 1 && finite(c.High) || c.High == 0 && c.Low > 0, at+"high", c.High, "a finite number above 1")
	case OPSM, M2PO:
		limit = true
		p.Check(c.Limit > 0 && finite(c.Limit), at+"limit", c.Limit, "a finite number above 0")
	case DPPO:
		low, high = true, true
		p.Check(c.Low > 0 && c.Low <= 1, at+"low", c.Low, "a probability in (0, 1]")
		p.Check(c.High > 0 && c.High <= 1, at+"high", c.High, "a probability in (0, 1]")
	}
	levels := []Level{LevelToken, LevelSequence, LevelProduct}
	p.Check(!level || slices.Contains(levels, c.Level), at+"level", c.Level, "%s, %s or %s", levels[0], levels[1],
		levels[2])
	p.Check(level || c.Level == "", at+"level", c.Level, "nothing: %s does not read it", c.Kind)
	p.Check(low || c.Low == 0, at+"low", c.Low, "nothing: %s does not read it", c.Kind)
	p.Check(high || c.High == 0, at+"high", c.High, "nothing: %s does not read it", c.Kind)
	p.Check(limit || c.Limit == 0, at+"limit", c.Limit, "nothing: %s does not read it", c.Kind)
}

// corrected is what corrections make of a shard. All nodes are [B, T].
type corrected struct {
	logRatio *Node                 // log r, 0 where the token does not count
	factor   *Node                 // of the terms; nil: 1
	dropped  *Node                 // bool; nil: none
	touched  [numCorrections]*Node // bool: the correction changed the token's term; nil: it is not used
}

// correct works out what the corrections do.
func (c Corrections) correct(s shard) corrected {
	behaviour := StopGradient(s.logRatio()) // log pi - log b
	out, logK := corrected{logRatio: s.logRatio()}, behaviour
	if c.recomputes() {
		proximal := s.masked(s.in.Anchor)
		out.logRatio, logK = Sub(s.logp, proximal), Sub(proximal, s.masked(s.in.Behaviour))
	}
	if c.interpolates() {
		logK = Mul(OneMinus(Inverse(MaxScalar(s.masked(s.in.Staleness), 1))), behaviour)
		out.logRatio = Sub(s.logRatio(), logK)
	}
	if c.weighs() {
		out.factor = boundedExp(logK)
	}
	advantage := s.masked(s.in.Advantage)
	up, down := above(advantage, 0), below(advantage, 0)
	for _, step := range c.Steps {
		step = step.WithDefaults()
		var touched *Node
		switch step.Kind {
		case Truncate:
			k := boundedExp(s.over(step.Level, logK))
			touched = above(k, step.High)
			out.factor = MinScalar(k, step.High)
		case MaskRatio:
			k := boundedExp(s.over(step.Level, logK))
			touched = below(k, step.Low)
			if step.High > 0 {
				touched = LogicalOr(touched, above(k, step.High))
			}
		case OPSM:
			negative := s.spread(s.rowMean(advantage))
			away := Neg(s.spread(s.rowMean(behaviour)))
			touched = LogicalAnd(below(negative, 0), above(away, step.Limit))
		case M2PO:
			square := Square(behaviour)
			further := LogicalOr(LogicalAnd(up, above(behaviour, 0)), LogicalAnd(down, below(behaviour, 0)))
			touched = LogicalAnd(further, GreaterThan(square, BroadcastToShape(s.in.SecondMoment, square.Shape())))
		case DPPO:
			moved := Sub(Exp(StopGradient(s.logp)), Exp(s.masked(s.in.Behaviour)))
			touched = LogicalOr(LogicalAnd(up, above(moved, step.High)), LogicalAnd(down, below(moved, -step.Low)))
		}
		touched = LogicalAnd(s.counts, touched)
		out.touched[slices.Index(correctionNames(), step.Name())] = touched
		if step.Kind == Truncate {
			continue
		}
		if out.dropped == nil {
			out.dropped = touched
		} else {
			out.dropped = LogicalOr(out.dropped, touched)
		}
	}
	return out
}

// of returns the corrected terms [B, T].
func (c corrected) of(terms *Node) *Node {
	if c.factor != nil {
		terms = Mul(StopGradient(c.factor), terms)
	}
	if c.dropped != nil {
		terms = Where(c.dropped, ZerosLike(terms), terms)
	}
	return terms
}

// over returns log-ratios [B, T] taken over what a level says.
func (s shard) over(level Level, logRatio *Node) *Node {
	switch level {
	case LevelSequence:
		return s.spread(s.rowMean(logRatio))
	case LevelProduct:
		return s.spread(ReduceSum(logRatio, 1))
	}
	return logRatio
}

// above and below compare x with a bound.
func above(x *Node, bound float64) *Node { return GreaterThan(x, ConstAs(x, bound)) }
func below(x *Node, bound float64) *Node { return LessThan(x, ConstAs(x, bound)) }

// spread returns x [B] for each token [B, T].
func (s shard) spread(x *Node) *Node { return BroadcastToShape(ExpandAxes(x, -1), s.mask.Shape()) }

// Moment is a token as [M2PO] sees it.
type Moment struct{ LogRatio, Advantage float64 } // m = log pi - log b, and A

// further reports whether the update leads further from b.
func (m Moment) further() bool { return m.LogRatio*m.Advantage > 0 }

// SecondMoment returns Inputs.SecondMoment for the tokens of a batch: [M2PO] drops those whose update leads further from
// b and whose m^2 is above it, as few as bring the mean of m^2 over the others to the limit or below, or all if that is
// not enough. Equal m^2 go together.
func SecondMoment(tokens []Moment, limit float64) float64 {
	sum, n := 0.0, len(tokens)
	var squares []float64 // of those that may be dropped
	for _, t := range tokens {
		square := t.LogRatio * t.LogRatio
		if sum += square; t.further() {
			squares = append(squares, square)
		}
	}
	slices.Sort(squares)
	for i := len(squares); ; {
		if i == 0 || sum <= limit*float64(n) {
			return between(squares, i)
		}
		for last := squares[i-1]; i > 0 && squares[i-1] == last; i-- {
			sum, n = sum-last, n-1
		}
	}
}

// between returns a number between the first i of ascending squares and the rest: programs that compute m twice may
// differ in its last digits.
func between(squares []float64, i int) float64 {
	switch {
	case i == len(squares):
		return math.MaxFloat32
	case i == 0:
		return squares[0] / 2
	}
	return (squares[i-1] + squares[i]) / 2
}
