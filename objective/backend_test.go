package objective

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

// Dimensions of the batches in these tests.
const (
	rows, width, vocab = 4, 5, 3
)

// values are the inputs of one shard as plain numbers, in float64 so that finite differences are
// sharp. A nil slice is an input not given. The current policy is a softmax over logits, one per
// position.
type values struct {
	logits           [][][]float64 // [B, T, V]
	tokens           [][]int32     // [B, T]
	behaviour, mask  [][]float64   // [B, T]
	advantage        [][]float64   // [B, T]
	weight, keep     []float64     // [B]
	reward, mean     []float64     // [B]
	reference        [][]float64   // [B, T]
	anchor           [][]float64   // [B, T]
	value, oldValue  [][]float64   // [B, T]
	returns          [][]float64   // [B, T]
	nRollouts, nToks float64
}

// result is what an objective computed of values.
type result struct {
	loss     float64
	gradient [][][]float64 // of the loss with respect to the logits
	critic   [][]float64   // of the loss with respect to the critic's values
	metrics  map[string]float64
	sums     Sums
	rows     []Row
}

func newBackend(t testing.TB) compute.Backend {
	t.Helper()
	// One goroutine: the tests differ in shape, and the configuration for many workers prints.
	b, err := gobackend.New("ops_sequential,num_executors=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Finalize)
	return b
}

// program is an objective compiled for the policy of these tests.
type program struct {
	t    testing.TB
	exec *Exec
}

func compile(t testing.TB, o Objective) program {
	t.Helper()
	return program{t, MustNewExec(newBackend(t), func(in []*Node) []*Node {
		logits, tokens := in[0], in[1]
		all := LogSoftmax(logits)
		chosen := ReduceSum(Mul(all, OneHot(tokens, logits.Shape().Dim(2), logits.DType())), 2)
		inputs := Inputs{
			Logprobs: chosen, Behaviour: in[2], Mask: in[3], Advantage: in[4], Weight: in[5], Keep: in[6],
			Reward: in[7], GroupMean: in[8], Rollouts: in[9], Tokens: in[10],
			Reference: in[11], Anchor: in[12], Values: in[13], OldValues: in[14], Returns: in[15],
			Entropy: Neg(ReduceSum(Mul(Exp(all), all), 2)),
		}
		out := o.Loss(inputs)
		gradients := Gradient(out.Loss, logits, in[13])
		return []*Node{out.Loss, gradients[0], out.Sums, out.Rows, gradients[1]}
	})}
}

func (p program) run(v values) result {
	p.t.Helper()
	out, err := p.exec.Call(v.logits, v.tokens, v.behaviour, v.mask, v.advantage, v.weight, v.keep, v.reward, v.mean,
		v.nRollouts, v.nToks, v.reference, v.anchor, v.value, v.oldValue, v.returns)
	if err != nil {
		p.t.Fatal(err)
	}
	r := result{
		loss:     tensors.ToScalar[float64](out[0]),
		gradient: out[1].Value().([][][]float64),
		critic:   out[4].Value().([][]float64),
		sums:     ReadSums(out[2].Value().([]float64)),
		rows:     ReadRows(tensors.MustCopyFlatData[float64](out[3])),
	}
	r.metrics = Combine([]Sums{r.sums})
	return r
}
