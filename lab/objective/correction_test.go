package objective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/reprise-rl/reprise/internal/tests"
)

// ratios are the inputs of a loss of ratios: log-probs [B, T] under pi, b and p, the advantages, and which tokens count.
type ratios struct {
	logp, behaviour, proximal, advantage, mask [][]float64
	staleness                                  [][]float64
	weight                                     []float64
	rollouts, tokens, moment                   float64
}

// randomRatios returns a batch with log-ratios of all sizes up to 80, rows without a token that counts, advantages of 0,
// and in one batch of ten no token at all.
func randomRatios(rng *rand.Rand, limit float64) ratios {
	rows, width := 1+rng.IntN(4), 1+rng.IntN(5)
	grid := func(f func(b, t int) float64) [][]float64 {
		g := make([][]float64, rows)
		for b := range g {
			for t := range width {
				g[b] = append(g[b], f(b, t))
			}
		}
		return g
	}
	move := func() float64 {
		return rng.NormFloat64() * []float64{0.1, 0.1, 1, 80.0 / 3}[rng.IntN(4)]
	}
	empty := rng.IntN(10) == 0
	v := ratios{rollouts: float64(rows), tokens: float64(rows * width)}
	v.behaviour = grid(func(_, _ int) float64 { return -3 * rng.Float64() })
	v.logp = grid(func(b, t int) float64 { return v.behaviour[b][t] + max(-80, min(80, move())) })
	v.proximal = grid(func(b, t int) float64 { return v.behaviour[b][t] + max(-80, min(80, move())) })
	v.mask = grid(func(b, _ int) float64 {
		if empty || b == 2 || rng.IntN(4) == 0 {
			return 0
		}
		return 1
	})
	v.staleness = grid(func(b, t int) float64 { return float64((3*b + 2*t) % 7) })
	v.advantage = grid(func(_, t int) float64 { return rng.NormFloat64() * float64(rng.IntN(4)) })
	for range rows {
		v.weight = append(v.weight, 0.5+rng.Float64())
	}
	v.moment = v.secondMoment(limit, func(int) bool { return true })
	return v
}

// secondMoment is that of the rows that count.
func (v ratios) secondMoment(limit float64, counts func(row int) bool) float64 {
	var tokens []Moment
	for b := range v.logp {
		for t := range v.logp[b] {
			if m, a := v.logp[b][t]-v.behaviour[b][t], v.advantage[b][t]; v.mask[b][t] != 0 && counts(b) {
				tokens = append(tokens, Moment{m, a})
			}
		}
	}
	return SecondMoment(tokens, limit)
}

// loss is METHODS sections 5 and 8 as loops: the loss, its gradient by the log-probs, and the share of tokens that each
// correction touched. A ratio's exponent is held within +-20, and beyond there is no gradient.
func (v ratios) loss(o GRPO) (loss float64, gradient [][]float64, touched map[string]float64) {
	o = o.WithDefaults()
	exp := func(x float64) float64 { return math.Exp(max(-maxLogRatio, min(maxLogRatio, x))) }
	touched = make(map[string]float64)
	var tokens float64
	for b := range v.logp {
		gradient = append(gradient, make([]float64, len(v.logp[b])))
		var at []int
		for t, counts := range v.mask[b] {
			if counts != 0 {
				at = append(at, t)
			}
		}
		n := float64(len(at))
		tokens += n
		mean := func(f func(t int) float64) float64 {
			sum := 0.0
			for _, t := range at {
				sum += f(t)
			}
			return sum / n
		}
		logR := func(t int) float64 { return v.logp[b][t] - v.behaviour[b][t] }
		logK := logR
		switch o.Corrections.Proximal {
		case ProximalInterpolate:
			logK = func(t int) float64 { return (1 - 1/max(v.staleness[b][t], 1)) * (v.logp[b][t] - v.behaviour[b][t]) }
			logR = func(t int) float64 { return v.logp[b][t] - v.behaviour[b][t] - logK(t) }
		case ProximalRecompute, ProximalUnweighted:
			logR = func(t int) float64 { return v.logp[b][t] - v.proximal[b][t] }
			logK = func(t int) float64 { return v.proximal[b][t] - v.behaviour[b][t] }
		}
		scale := v.weight[b] / v.tokens
		switch o.Normalisation {
		case PerSequence:
			scale = v.weight[b] / n / v.rollouts
		case PerConstant:
			scale = v.weight[b] / float64(o.ConstantLength) / v.rollouts
		}
		for _, t := range at {
			a := v.advantage[b][t]
			factor := 1.0
			if p := o.Corrections.Proximal; p == ProximalRecompute || p == ProximalInterpolate {
				factor = exp(logK(t))
			}
			for _, c := range o.Corrections.Steps {
				c = c.WithDefaults()
				level := logK(t)
				switch c.Level {
				case LevelSequence:
					level = mean(logK)
				case LevelProduct:
					level = n * mean(logK)
				}
				hit := false
				moved := v.logp[b][t] - v.behaviour[b][t]
				switch c.Kind {
				case Truncate:
					hit = exp(level) > c.High
					factor = min(exp(level), c.High)
				case MaskRatio:
					hit = exp(level) < c.Low || c.High > 0 && exp(level) > c.High
				case OPSM:
					hit = mean(func(t int) float64 { return v.advantage[b][t] }) < 0 &&
						mean(func(t int) float64 { return v.behaviour[b][t] - v.logp[b][t] }) > c.Limit
				case M2PO:
					hit = (a > 0 && moved > 0 || a < 0 && moved < 0) && moved*moved > v.moment
				case DPPO:
					by := math.Exp(v.logp[b][t]) - math.Exp(v.behaviour[b][t])
					hit = a > 0 && by > c.High || a < 0 && -by > c.Low
				}
				if hit {
					touched[c.Name()]++
				}
				if hit && c.Kind != Truncate {
					factor = 0
				}
			}
			x := logR(t)
			if o.Ratio == SequenceRatio {
				x = mean(logR)
			}
			r := exp(x)
			held := max(1-o.ClipLow, min(1+o.ClipHigh, r))
			term, slope := r*a, r*a // slope by x
			if o.Method == CISPO {
				term, slope = held*a*v.logp[b][t], 0
				gradient[b][t] -= scale * factor * held * a
			} else if held*a < r*a {
				term, slope = held*a, 0
			}
			if math.Abs(x) > maxLogRatio {
				slope = 0
			}
			if o.DualClip > 0 && a < 0 && term < o.DualClip*a {
				term, slope = o.DualClip*a, 0
			}
			loss -= scale * factor * term
			if o.Ratio == SequenceRatio {
				for _, other := range at {
					gradient[b][other] -= scale * factor * slope / n
				}
			} else {
				gradient[b][t] -= scale * factor * slope
			}
		}
	}
	for name := range touched {
		touched[name] /= tokens
	}
	return loss, gradient, touched
}

// run computes the same with the graph.
func (v ratios) run(t *testing.T, exec *Exec) (loss float64, gradient [][]float64, metrics map[string]float64) {
	t.Helper()
	out, err := exec.Call(v.logp, v.behaviour, v.proximal, v.advantage, v.mask, v.weight, v.rollouts, v.tokens, v.moment,
		v.staleness)
	if err != nil {
		t.Fatal(err)
	}
	metrics = Combine([]Sums{ReadSums(out[2].Value().([]float64))})
	return metrics["loss"], out[1].Value().([][]float64), metrics
}

func compileRatios(t *testing.T, o Objective) *Exec {
	t.Helper()
	return MustNewExec(newBackend(t), func(in []*Node) []*Node {
		out := o.Loss(Inputs{Logprobs: in[0], Behaviour: in[1], Anchor: in[2], Advantage: in[3], Mask: in[4],
			Weight: in[5], Rollouts: in[6], Tokens: in[7], SecondMoment: in[8], Values: in[1], OldValues: in[2],
			Returns: in[3], Staleness: in[9]})
		return []*Node{out.Loss, Gradient(out.Loss, in[0])[0], out.Sums}
	})
}

// correctionsOf returns every correction by itself and all together, with either proximal policy where it may be.
func correctionsOf() map[string]Corrections {
	all := map[string]Corrections{"none": {}, "decoupled": {Proximal: ProximalRecompute},
		"unweighted": {Proximal: ProximalUnweighted}, "interpolated": {Proximal: ProximalInterpolate}}
	steps := map[string]Correction{
		"truncate": {Kind: Truncate}, "truncate sequence": {Kind: Truncate, Level: LevelSequence, High: 1.1},
		"truncate product": {Kind: Truncate, Level: LevelProduct, High: 5},
		"mask":             {Kind: MaskRatio}, "mask above": {Kind: MaskRatio, High: 1.5}, "mask below": {Kind: MaskRatio, Low: 0.7},
		"mask sequence": {Kind: MaskRatio, Level: LevelSequence, Low: 0.9, High: 1.1},
		"mask product":  {Kind: MaskRatio, Level: LevelProduct, High: 3},
		"opsm":          {Kind: OPSM}, "m2po": {Kind: M2PO}, "dppo": {Kind: DPPO, High: 0.1},
	}
	for name, step := range steps {
		if step.Kind != Truncate {
			all[name] = Corrections{Steps: []Correction{step}}
			all[name+" unweighted"] = Corrections{ProximalUnweighted, []Correction{step}}
		}
		all[name+" interpolated"] = Corrections{ProximalInterpolate, []Correction{step}}
		all[name+" decoupled"] = Corrections{ProximalRecompute, []Correction{step}}
	}
	all["together"] = Corrections{ProximalRecompute, []Correction{steps["truncate"], steps["mask"],
		steps["mask sequence"], steps["opsm"], steps["m2po"], steps["dppo"]}}
	return all
}

func TestCorrectionsAgreeWithTheFormulaWrittenAsLoops(t *testing.T) {
	batches := tests.Rounds(1000, 100, 20)
	surrogates := map[string]GRPO{
		"grpo": {}, "sequence": {Ratio: SequenceRatio, ClipHigh: 0.3}, "token mean": {Normalisation: PerToken, DualClip: 2},
		"cispo": {Method: CISPO}, "constant": {Normalisation: PerConstant, ConstantLength: 9},
	}
	for name, c := range correctionsOf() {
		for surrogate, o := range surrogates {
			if surrogate != "grpo" && surrogate != "cispo" && name != "together" && name != "decoupled" &&
				name != "interpolated" {
				continue
			}
			t.Run(surrogate+" "+name, func(t *testing.T) {
				o.Corrections = c
				exec := compileRatios(t, o)
				hits := make(map[string]float64)
				for seed := range uint64(batches) {
					v := randomRatios(rand.New(rand.NewPCG(seed, 8)), 0.04)
					loss, gradient, touched := v.loss(o)
					gotLoss, gotGradient, metrics := v.run(t, exec)
					if !near(gotLoss, loss, 1e-9) {
						t.Fatalf("seed %d: loss %g, want %g", seed, gotLoss, loss)
					}
					for b := range gradient {
						for i := range gradient[b] {
							if !near(gotGradient[b][i], gradient[b][i], 1e-9) {
								t.Fatalf("seed %d: gradient at [%d %d] is %g, want %g", seed, b, i, gotGradient[b][i],
									gradient[b][i])
							}
						}
					}
					for _, step := range c.Steps {
						if got := metrics["corrected_"+step.Name()]; !near(got, touched[step.Name()], 1e-12) {
							t.Fatalf("seed %d: %s touched %g of the tokens, want %g", seed, step.Name(), got,
								touched[step.Name()])
						}
						hits[step.Name()] += touched[step.Name()]
					}
				}
				for _, step := range c.Steps {
					if hits[step.Name()] == 0 {
						t.Errorf("%s touched no token of any batch", step.Name())
					}
				}
			})
		}
	}
}

// Corrections do to the other objectives with a ratio what they do to grpo: with r' = 1 grpo_off is grpo, and ppo is grpo
// with the critic's loss beside it.
func TestCorrectionsOfOtherObjectivesAreThoseOfGRPO(t *testing.T) {
	clip := GRPO{ClipLow: 0.3, ClipHigh: 0.3}
	plain, critic := compileRatios(t, clip), compileRatios(t, PPO{Surrogate: clip})
	for name, c := range correctionsOf() {
		corrected := clip
		corrected.Corrections = c
		same := map[string]*Exec{"grpo": compileRatios(t, corrected), "ppo": compileRatios(t, PPO{Surrogate: corrected})}
		if off := (OffPolicyGRPO{Clip: 0.3, Corrections: c}); off.Validate() == nil {
			same["grpo_off"] = compileRatios(t, off)
		}
		for seed := range uint64(tests.Count(50, 5)) {
			v := randomRatios(rand.New(rand.NewPCG(seed, 10)), 0.04)
			without, _, _ := v.run(t, plain)
			with, _, _ := v.run(t, critic)
			want, wantGradient, _ := v.run(t, same["grpo"])
			for objective, exec := range same {
				got, gradient, _ := v.run(t, exec)
				digits := 1e-9
				if objective == "ppo" { // of the critic's loss
					got, digits = got-(with-without), digits*(1+math.Abs(with))
				}
				if !near(got, want, digits) || fmt.Sprint(gradient) != fmt.Sprint(wantGradient) {
					t.Fatalf("%s with %s, seed %d: loss %v, want %v; gradient %v, want %v", objective, name, seed, got, want,
						gradient, wantGradient)
				}
			}
		}
	}
}

func TestCorrectionsLeaveAnOnPolicyLossBitForBit(t *testing.T) {
	for _, method := range []string{"", CISPO} {
		plain := compileRatios(t, GRPO{Method: method})
		for name, c := range correctionsOf() {
			exec := compileRatios(t, GRPO{Method: method, Corrections: c})
			for seed := range uint64(tests.Count(20, 3)) {
				v := randomRatios(rand.New(rand.NewPCG(seed, 9)), 0.04)
				v.behaviour, v.proximal = v.logp, v.logp
				want, wantGradient, _ := v.run(t, plain)
				got, gradient, metrics := v.run(t, exec)
				if got != want || fmt.Sprint(gradient) != fmt.Sprint(wantGradient) {
					t.Errorf("%s%s, seed %d: loss %v, want %v; gradient %v, want %v", method, name, seed, got, want,
						gradient, wantGradient)
				}
				for key, share := range metrics {
					if strings.HasPrefix(key, "corrected_") && share != 0 {
						t.Errorf("%s%s, seed %d: %s is %g, want 0", method, name, seed, key, share)
					}
				}
			}
		}
	}
}

// Dropping token by token from the largest square must come to the same tokens.
func TestSecondMomentDropsAsFewAsBringTheMeanToTheLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for range 2000 {
		tokens := make([]Moment, rng.IntN(12))
		for i := range tokens {
			tokens[i] = Moment{LogRatio: float64(rng.IntN(9)-4) / 10, Advantage: float64(rng.IntN(3) - 1)}
		}
		limit := 0.01 + 0.1*rng.Float64()
		mean := func(kept []Moment) (mean float64) {
			for _, k := range kept {
				mean += k.LogRatio * k.LogRatio / float64(len(kept))
			}
			return mean
		}
		want := slices.Clone(tokens)
		for mean(want) > limit+1e-12 {
			most := 0.0
			for _, k := range want {
				if k.LogRatio*k.Advantage > 0 {
					most = max(most, k.LogRatio*k.LogRatio)
				}
			}
			if most == 0 {
				break
			}
			want = slices.DeleteFunc(want, func(k Moment) bool { return k.LogRatio*k.Advantage > 0 && k.LogRatio*k.LogRatio == most })
		}
		bound := SecondMoment(tokens, limit)
		got := slices.DeleteFunc(slices.Clone(tokens), func(k Moment) bool {
			return k.LogRatio*k.Advantage > 0 && k.LogRatio*k.LogRatio > bound
		})
		if !slices.Equal(got, want) {
			t.Fatalf("of %v at limit %g the bound %g keeps %v, want %v", tokens, limit, bound, got, want)
		}
	}
}

func TestCorrectionsOutOfRangeAreAllNamed(t *testing.T) {
	for want, c := range map[string]Corrections{
		"proximal: then: want behaviour, recompute, unweighted": {Proximal: "then"},
		"correction[0].kind: tis: want truncate, mask, opsm":    {Steps: []Correction{{Kind: "tis"}}},
		"correction[0].kind: truncate: want proximal":           {Steps: []Correction{{Kind: Truncate}}},
		"correction[1].kind: mask_token: want each at most":     {Steps: []Correction{{Kind: MaskRatio}, {Kind: MaskRatio}}},
		"correction[0].low: 1: want a number in [0, 1)":         {Steps: []Correction{{Kind: MaskRatio, Low: 1, High: 2}}},
		"correction[0].high: 0.5: want a finite number above ":  {Steps: []Correction{{Kind: MaskRatio, High: 0.5}}},
		"correction[0].high: 0.9: want a finite number of 1":    {ProximalRecompute, []Correction{{Kind: Truncate, High: 0.9}}},
		"correction[0].level: row: want token, sequence or pro": {Steps: []Correction{{Kind: MaskRatio, Level: "row"}}},
		"correction[0].kind: truncate: want proximal: recomput": {ProximalUnweighted, []Correction{{Kind: Truncate}}},
		"correction[0].limit: -1: want a finite number above":   {Steps: []Correction{{Kind: OPSM, Limit: -1}}},
		"correction[0].limit: NaN: want":                        {Steps: []Correction{{Kind: M2PO, Limit: math.NaN()}}},
		"correction[0].level: token: want nothing: opsm":        {Steps: []Correction{{Kind: OPSM, Level: LevelToken}}},
		"correction[0].low: 0.1: want nothing: m2po":            {Steps: []Correction{{Kind: M2PO, Low: 0.1}}},
		"correction[0].high: 1.5: want a probability":           {Steps: []Correction{{Kind: DPPO, High: 1.5}}},
	} {
		for _, o := range []Objective{GRPO{Corrections: c}, PPO{Surrogate: GRPO{Corrections: c}}, OffPolicyGRPO{Corrections: c}} {
			if _, truncates := c.find(Truncate); truncates && o.Name() == (OffPolicyGRPO{}).Name() {
				want = "correction: truncate: want none of that kind with objective grpo_off"
			}
			if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", o.Name(), err, want)
			}
		}
	}
	if err := (OffPolicyGRPO{Corrections: Corrections{Proximal: ProximalRecompute}}).Validate(); err == nil {
		t.Error("grpo_off takes another proximal policy than its own")
	}
}
