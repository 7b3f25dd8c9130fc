package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// Adam is the optimizer: Adam with decoupled weight decay (AdamW) and clipping by the global gradient norm.
type Adam struct {
	LearningRate float64 `yaml:"learning_rate"` // of AdamW, above 0
	Warmup       int     `yaml:"warmup"`        // updates over which the rate rises linearly; 0: none
	Beta1        float64 `yaml:"beta1"`         // decay of the mean, in [0, 1) [0.9]
	Beta2        float64 `yaml:"beta2"`         // decay of the variance, in [0, 1) [0.95]
	Epsilon      float64 `yaml:"epsilon"`       // added to the root of the variance [1e-08]
	WeightDecay  float64 `yaml:"weight_decay"`  // per unit of learning rate, on matrices only; 0: none
	ClipNorm     float64 `yaml:"clip_norm"`     // scale gradients down to this global norm; negative: never [1]
}

func (a Adam) withDefaults() Adam {
	a.Beta1 = cmp.Or(a.Beta1, 0.9)
	a.Beta2 = cmp.Or(a.Beta2, 0.95)
	a.Epsilon = cmp.Or(a.Epsilon, 1e-8)
	a.ClipNorm = cmp.Or(a.ClipNorm, 1)
	return a
}

// Validate reports every field that is out of range, as [option.Error]s.
func (a Adam) Validate() error {
	a = a.withDefaults()
	var p option.Problems
	check := func(key string, v float64, ok bool, want string) {
		p.Check(ok && !math.IsInf(v, 0), key, v, "%s", want)
	}
	check("learning_rate", a.LearningRate, a.LearningRate > 0, "more than 0, for example 0.0001")
	p.Check(a.Warmup >= 0, "warmup", a.Warmup, "0 or more updates")
	check("beta1", a.Beta1, a.Beta1 > 0 && a.Beta1 < 1, "a value in (0, 1), or 0 for 0.9")
	check("beta2", a.Beta2, a.Beta2 > 0 && a.Beta2 < 1, "a value in (0, 1), or 0 for 0.95")
	check("epsilon", a.Epsilon, a.Epsilon > 0, "more than 0, or 0 for 1e-8")
	check("weight_decay", a.WeightDecay, a.WeightDecay >= 0, "0 or more")
	check("clip_norm", a.ClipNorm, !math.IsNaN(a.ClipNorm), "a norm, 0 for 1, or -1 for no clipping")
	return p.Err()
}

// rate returns the learning rate of an update, counted from 1.
func (a Adam) rate(step int) float64 {
	if step < a.Warmup {
		return a.LearningRate * float64(step) / float64(a.Warmup)
	}
	return a.LearningRate
}

// updateGraph: parameters, first moments, second moments, the gradients of each shard, rate and step -> new parameters,
// moments, and the norm of the gradient before clipping. Shards are added in order.
func (a Adam) updateGraph(in []*Node, params int) []*Node {
	weights, first, second := in[:params], in[params:2*params], in[2*params:3*params]
	rate, step := in[len(in)-2], in[len(in)-1]
	grads := slices.Clone(in[3*params : 4*params])
	for from := 4 * params; from < len(in)-2; from += params {
		for i := range grads {
			grads[i] = Add(grads[i], in[from+i])
		}
	}
	square := ReduceAllSum(Square(grads[0]))
	for _, g := range grads[1:] {
		square = Add(square, ReduceAllSum(Square(g)))
	}
	norm := Sqrt(square)
	scale := ScalarOne(norm.Graph(), dtypes.Float32)
	if a.ClipNorm > 0 {
		scale = Div(Scalar(norm.Graph(), dtypes.Float32, a.ClipNorm), MaxScalar(norm, a.ClipNorm))
	}
	correction := func(beta float64) *Node { return OneMinus(Exp(MulScalar(step, math.Log(beta)))) } // 1 - beta^step
	rate1, scale2 := Div(rate, correction(a.Beta1)), Reciprocal(correction(a.Beta2))
	out := make([]*Node, 3*params+1)
	for i, w := range weights {
		g := Mul(grads[i], scale)
		m := Add(MulScalar(first[i], a.Beta1), MulScalar(g, 1-a.Beta1))
		v := Add(MulScalar(second[i], a.Beta2), MulScalar(Square(g), 1-a.Beta2))
		change := Mul(rate1, Div(m, AddScalar(Sqrt(Mul(v, scale2)), a.Epsilon)))
		if a.WeightDecay > 0 && w.Rank() > 1 {
			change = Add(change, MulScalar(Mul(rate, w), a.WeightDecay))
		}
		out[i], out[params+i], out[2*params+i] = Sub(w, change), m, v
	}
	out[3*params] = norm
	return out
}
