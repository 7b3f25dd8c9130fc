package objective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// combinations returns every combination of options under its name.
func combinations() map[string]Objective {
	zero := 0.0
	all := map[string]Objective{
		"asymre default": AsymRE{}, "asymre unshifted": AsymRE{Shift: &zero},
		"sft sequence": SFT{}, "sft token": SFT{Normalisation: PerToken},
	}
	for _, ratio := range []Ratio{TokenRatio, SequenceRatio} {
		for _, norm := range []Normalisation{PerSequence, PerToken, PerConstant} {
			for _, dual := range []float64{0, 1.5} {
				for _, clip := range []float64{0, 0.05} {
					o := GRPO{Ratio: ratio, Normalisation: norm, DualClip: dual, ClipLow: clip, ClipHigh: 2 * clip}
					if norm == PerConstant {
						o.ConstantLength = 7
					}
					all[fmt.Sprintf("grpo %s %s dual=%g clip=%g", ratio, norm, dual, clip)] = o
				}
			}
		}
	}
	for _, norm := range []Normalisation{PerSequence, PerToken, PerConstant} {
		base := GRPO{Normalisation: norm, ClipLow: 0.3, ClipHigh: 0.1}
		if norm == PerConstant {
			base.ConstantLength = 7
			all["dr_grpo"] = Variant{DrGRPO, GRPO{ConstantLength: 7}}
		}
		all[fmt.Sprintf("reinforce++ %s", norm)] = Variant{ReinforcePP, base}
		base.DualClip = 1.5
		all[fmt.Sprintf("ppo %s", norm)] = PPO{Surrogate: base, ValueCoef: 0.5, ValueClip: 0.4}
		for _, prime := range []RPrime{RPrimeOne, RPrimeExact} {
			for _, clip := range []float64{0, 1.1} {
				o := OffPolicyGRPO{Clip: clip, RPrime: prime, Normalisation: norm, ConstantLength: base.ConstantLength}
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g", norm, prime, clip)] = o
				o.KLCoef = 0.3
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g kl", norm, prime, clip)] = o
				o.KLWeighted = true
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g weighted kl", norm, prime, clip)] = o
			}
		}
	}
	return all
}

// randomValues returns a batch in which every kind of entry occurs: masked positions, a row not
// kept, a row without tokens of the policy, weights, ratios on both sides of every clip.
func randomValues(seed uint64) values {
	rng := rand.New(rand.NewPCG(seed, 1))
	grid := func(f func(b, t int) float64) [][]float64 {
		g := make([][]float64, rows)
		for b := range g {
			g[b] = make([]float64, width)
			for t := range g[b] {
				g[b][t] = f(b, t)
			}
		}
		return g
	}
	row := func(f func(b int) float64) []float64 {
		r := make([]float64, rows)
		for b := range r {
			r[b] = f(b)
		}
		return r
	}
	v := values{tokens: make([][]int32, rows), logits: make([][][]float64, rows)}
	for b := range rows {
		v.tokens[b], v.logits[b] = make([]int32, width), make([][]float64, width)
		for t := range width {
			v.tokens[b][t] = rng.Int32N(vocab)
			v.logits[b][t] = []float64{rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()}
		}
	}
	v.mask = grid(func(b, t int) float64 {
		if b != 3 && (t >= 3 || rng.IntN(2) == 0) {
			return 1
		}
		return 0
	})
	v.behaviour = grid(func(b, t int) float64 { return v.logprob(b, t) + 0.4*rng.NormFloat64() })
	v.advantage = grid(func(_, _ int) float64 { return rng.NormFloat64() })
	v.weight = row(func(int) float64 { return 0.5 + rng.Float64() })
	v.keep = row(func(b int) float64 { return map[bool]float64{true: 0, false: 1}[b == 2] })
	v.reward = row(func(int) float64 { return float64(rng.IntN(2)) })
	v.mean = row(func(int) float64 { return rng.Float64() })
	v.nRollouts, v.nToks = 5, 17 // of a batch of which this is a shard
	v.reference = grid(func(b, t int) float64 { return v.logprob(b, t) + 0.8*rng.NormFloat64() })
	v.anchor = grid(func(b, t int) float64 { return v.behaviour[b][t] + 0.8*rng.NormFloat64() })
	v.value = grid(func(_, _ int) float64 { return rng.NormFloat64() })
	v.oldValue = grid(func(b, t int) float64 { return v.value[b][t] + 0.6*rng.NormFloat64() })
	v.returns = grid(func(_, _ int) float64 { return rng.NormFloat64() })
	return v
}

// logprob returns log pi of token t of row b.
func (v values) logprob(b, t int) float64 {
	sum := 0.0
	for _, l := range v.logits[b][t] {
		sum += math.Exp(l)
	}
	return v.logits[b][t][v.tokens[b][t]] - math.Log(sum)
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*(1+math.Abs(b)) }

func sameGradient(t *testing.T, got, want [][][]float64, scale, tolerance float64) {
	t.Helper()
	for b := range want {
		for i := range want[b] {
			for k := range want[b][i] {
				if !near(got[b][i][k], scale*want[b][i][k], tolerance) {
					t.Fatalf("gradient at [%d %d %d] is %g, want %g", b, i, k, got[b][i][k], scale*want[b][i][k])
				}
			}
		}
	}
}

// Central differences with step 1e-6 in float64 have an error of about 1e-10. The kinks of the clips
// are a null set that these seeds do not hit: a hit would show as a failure.
func TestGradientsAgreeWithFiniteDifferences(t *testing.T) {
	const h = 1e-6
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for seed := range uint64(2) {
				v := randomValues(seed)
				r := p.run(v)
				difference := func(x *float64) float64 {
					x0 := *x
					*x = x0 + h
					up := p.run(v).loss
					*x = x0 - h
					down := p.run(v).loss
					*x = x0
					return (up - down) / (2 * h)
				}
				largest, critic := 0.0, 0.0
				for b := range rows {
					for i := range width {
						for k := range vocab {
							got := r.gradient[b][i][k]
							if want := difference(&v.logits[b][i][k]); !near(got, want, 1e-8) {
								t.Errorf("seed %d: d loss / d logit[%d %d %d] = %g, finite difference %g", seed, b, i, k, got, want)
							}
							largest = max(largest, math.Abs(got))
						}
						if !o.Needs().Critic {
							continue
						}
						if want := difference(&v.value[b][i]); !near(r.critic[b][i], want, 1e-8) {
							t.Errorf("seed %d: d loss / d value[%d %d] = %g, finite difference %g", seed, b, i, r.critic[b][i], want)
						}
						critic = max(critic, math.Abs(r.critic[b][i]))
					}
				}
				if largest < 1e-3 || o.Needs().Critic && critic < 1e-3 {
					t.Errorf("seed %d: the largest gradients are %g and %g: nothing was tested", seed, largest, critic)
				}
			}
		})
	}
}

func TestLossesAgreeWithTheFormulaWrittenAsLoops(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for seed := range uint64(20) {
				v := randomValues(seed)
				r := p.run(v)
				want, clipped := naive(o, v)
				if !near(r.loss, want, 1e-12) || r.sums[sumLoss] != r.loss {
					t.Errorf("seed %d: loss %g, want %g", seed, r.loss, want)
				}
				if r.sums[sumClipped] != float64(clipped) {
					t.Errorf("seed %d: %g tokens clipped, want %d", seed, r.sums[sumClipped], clipped)
				}
			}
		})
	}
}

// At b = pi the gradient of every clipped surrogate is the policy gradient
// -1/N sum_i 1/|y_i| sum_t A_t d log pi, with d log pi / d logit_k = [k = token] - pi_k.
func TestAtRatioOneTheGradientIsThePolicyGradient(t *testing.T) {
	p := compile(t, GRPO{DualClip: 3})
	for seed := range uint64(5) {
		v := randomValues(seed)
		want := make([][][]float64, rows)
		for b := range rows {
			n := 0.0
			for i := range width {
				v.behaviour[b][i] = v.logprob(b, i)
				n += v.mask[b][i]
			}
			want[b] = make([][]float64, width)
			for i := range width {
				want[b][i] = make([]float64, vocab)
				if v.mask[b][i] == 0 || v.keep[b] == 0 {
					continue
				}
				for k := range vocab {
					pi := math.Exp(v.logits[b][i][k] - v.logits[b][i][v.tokens[b][i]] + v.logprob(b, i))
					d := -pi
					if k == int(v.tokens[b][i]) {
						d++
					}
					want[b][i][k] = -v.weight[b] * v.advantage[b][i] * d / (n * v.nRollouts)
				}
			}
		}
		r := p.run(v)
		sameGradient(t, r.gradient, want, 1, 1e-12)
		for key, value := range map[string]float64{"clip_fraction": 0, "mean_ratio": 1, "max_ratio": 1, "ess": 1, "ess_rollout": 1,
			"chi_square": 0, "chi_square_rollout": 0, "d2": 0, "d2_rollout": 0, "kl_k1": 0, "kl_k3": 0} {
			if !near(r.metrics[key], value, 1e-12) {
				t.Errorf("%s is %g at ratio 1, want %g", key, r.metrics[key], value)
			}
		}
	}
}

func TestAWeightMultipliesItsRollout(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			v := randomValues(3)
			loss := func(weights ...float64) float64 {
				v.weight = weights
				return p.run(v).loss
			}
			a, b := loss(1, 0, 0, 0), loss(0, 1, 0, 0)
			if got, want := loss(2, 0.25, 9, 9), 2*a+0.25*b; !near(got, want, 1e-12) || a == 0 || b == 0 {
				t.Errorf("loss %g, want 2*%g + 0.25*%g = %g", got, a, b, want)
			}
		})
	}
}

// part returns rows from to to of v, with the denominators of all.
func (v values) part(from, to int) values {
	v.logits, v.tokens = v.logits[from:to], v.tokens[from:to]
	v.behaviour, v.mask, v.advantage = v.behaviour[from:to], v.mask[from:to], v.advantage[from:to]
	v.weight, v.keep, v.reward, v.mean = v.weight[from:to], v.keep[from:to], v.reward[from:to], v.mean[from:to]
	v.reference, v.anchor, v.returns = v.reference[from:to], v.anchor[from:to], v.returns[from:to]
	v.value, v.oldValue = v.value[from:to], v.oldValue[from:to]
	return v
}

func TestShardsAddUpToTheBatch(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			v := randomValues(4)
			whole, a, b := p.run(v), p.run(v.part(0, 1)), p.run(v.part(1, rows))
			if !near(a.loss+b.loss, whole.loss, 1e-12) {
				t.Errorf("losses %g + %g, of the batch %g", a.loss, b.loss, whole.loss)
			}
			sameGradient(t, append(slices.Clone(a.gradient), b.gradient...), whole.gradient, 1, 1e-12)
			sameGradient(t, [][][]float64{append(slices.Clone(a.critic), b.critic...)}, [][][]float64{whole.critic}, 1, 1e-12)
			for key, value := range Combine([]Sums{a.sums, b.sums}) {
				if !near(value, whole.metrics[key], 1e-12) {
					t.Errorf("%s: shards give %g, the batch %g", key, value, whole.metrics[key])
				}
			}
		})
	}
}

func TestWhatDoesNotCountIsNeverSeen(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for _, poison := range []float64{1e300, math.Inf(-1), math.Inf(1), math.NaN()} {
				v := randomValues(5)
				want := p.run(v)
				for b := range rows {
					counts := false
					for i := range width {
						if v.mask[b][i] != 0 && v.keep[b] != 0 {
							counts = true
							continue
						}
						v.behaviour[b][i], v.advantage[b][i] = poison, poison
						v.reference[b][i], v.anchor[b][i], v.returns[b][i] = poison, poison, poison
						v.value[b][i], v.oldValue[b][i] = poison, poison
					}
					if !counts {
						v.weight[b], v.reward[b], v.mean[b] = poison, poison, poison
					}
				}
				got := p.run(v)
				if got.loss != want.loss || got.sums != want.sums {
					t.Errorf("poison %g: loss %g, want %g; sums %v, want %v", poison, got.loss, want.loss, got.sums, want.sums)
				}
				if !slices.Equal(got.rows, want.rows) {
					t.Errorf("poison %g: rows %v, want %v", poison, got.rows, want.rows)
				}
				sameGradient(t, got.gradient, want.gradient, 1, 0)
				sameGradient(t, [][][]float64{got.critic}, [][][]float64{want.critic}, 1, 0)
			}
		})
	}
}

func TestABatchOfWhichNothingIsKeptHasNoGradient(t *testing.T) {
	for name, o := range combinations() {
		p := compile(t, o)
		v := randomValues(6)
		v.keep = make([]float64, rows)
		v.nRollouts, v.nToks = 0, 0
		r := p.run(v)
		sameGradient(t, r.gradient, r.gradient, 0, 0)
		if r.loss != 0 || len(r.metrics) != 2 || r.metrics["tokens"] != 0 {
			t.Errorf("%s: loss %g, metrics %v", name, r.loss, r.metrics)
		}
	}
}

func TestRatiosBeyondTheBoundAreHeldAndCounted(t *testing.T) {
	for _, ratio := range []Ratio{TokenRatio, SequenceRatio} {
		p := compile(t, GRPO{Ratio: ratio})
		v := randomValues(7)
		tokens := 0.0
		for b := range rows {
			for i := range width {
				v.behaviour[b][i], v.advantage[b][i] = -1000, -1
				if v.keep[b] != 0 {
					tokens += v.mask[b][i]
				}
			}
		}
		r := p.run(v)
		if r.metrics["ratio_clamped"] != tokens || !near(r.metrics["max_ratio"], math.Exp(20), 1e-12) {
			t.Errorf("%s: %g of %g tokens held, largest ratio %g", ratio, r.metrics["ratio_clamped"], tokens, r.metrics["max_ratio"])
		}
		sameGradient(t, r.gradient, r.gradient, 0, 0)
		if math.IsInf(r.loss, 0) || r.loss < 1e6 {
			t.Errorf("%s: loss %g, want large and finite", ratio, r.loss)
		}
	}
}
