package policy

import (
	"math/rand/v2"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/lab/backend"
)

// The products of attention and their gradients are those of the graph library's own product, whatever the sizes.
func TestAttentionProductsHaveTheGradientsOfPlainProducts(t *testing.T) {
	batch := []int{0, 1}
	attend := func(compare, mix func(a, b *Node) *Node) func([]*Node) []*Node {
		return func(in []*Node) []*Node {
			scores := compare(in[0], in[1])
			mixed := mix(Mul(scores, scores), in[2])
			loss := ReduceAllSum(Mul(Mul(mixed, mixed), in[3]))
			return append([]*Node{scores, mixed}, Gradient(loss, in[0], in[1], in[2])...)
		}
	}
	plain := attend(
		func(q, k *Node) *Node { return DotGeneral(q, []int{3}, batch, k, []int{3}, batch) },
		func(w, v *Node) *Node { return DotGeneral(w, []int{3}, batch, v, []int{2}, batch) })
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []struct{ b, n, s, k, d int }{{2, 3, 5, 7, 4}, {1, 1, 1, 1, 2}, {3, 2, 1, 6, 2},
		{1, 2, 6, 1, 8}, {2, 4, 33, 40, 6}} {
		random := func(dims ...int) *tensors.Tensor { return randomTensor(r, dims...) }
		queries, keys := random(size.b, size.n, size.s, size.d), random(size.b, size.n, size.k, size.d)
		values, weights := random(size.b, size.n, size.k, size.d), random(size.b, size.n, size.s, size.d)
		d := &decoder{products: make(map[*Node]product)}
		compareGraphs(t, attend(d.queryKeyScores, d.weightedValues), plain,
			[]*tensors.Tensor{queries, keys, values, weights},
			"scores", "mixed", "gradient of queries", "gradient of keys", "gradient of values")
	}
}

// A product with a weight has the gradients of the graph library's own product, whichever side is the wider.
func TestProductsWithWeightsHaveTheGradientsOfPlainProducts(t *testing.T) {
	ours := func(in []*Node) []*Node {
		d := &decoder{products: make(map[*Node]product)}
		y := d.matmul(in[0], in[1])
		grads, _ := d.gradient(ReduceAllSum(Mul(Mul(y, y), in[2])), in[:2], y)
		return append([]*Node{y}, grads...)
	}
	plain := func(in []*Node) []*Node {
		y := DotGeneral(in[0], []int{2}, nil, in[1], []int{1}, nil)
		return append([]*Node{y}, Gradient(ReduceAllSum(Mul(Mul(y, y), in[2])), in[:2]...)...)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ b, s, in, out int }{{1, 1, 3, 2}, {2, 5, 3, 7}, {2, 5, 7, 3}, {3, 4, 6, 6},
		{130, 10, 64, 80}, {130, 10, 80, 64}} {
		inputs := []*tensors.Tensor{randomTensor(r, c.b, c.s, c.in), randomTensor(r, c.out, c.in),
			randomTensor(r, c.b, c.s, c.out)}
		compareGraphs(t, ours, plain, inputs, "product", "gradient of rows", "gradient of the weight")
	}
}

func randomTensor(r *rand.Rand, dims ...int) *tensors.Tensor {
	flat := make([]float32, size(dims))
	for i := range flat {
		flat[i] = float32(r.NormFloat64())
	}
	return tensors.FromFlatDataAndDimensions(flat, dims...)
}

// compareGraphs compares the outputs of two graphs on the same inputs, in units of the largest element of each.
func compareGraphs(t *testing.T, got, want func([]*Node) []*Node, inputs []*tensors.Tensor, names ...string) {
	t.Helper()
	opened, err := backend.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	run := func(graph func([]*Node) []*Node) [][]float32 {
		exec, err := NewExec(opened, graph)
		if err != nil {
			t.Fatal(err)
		}
		var args []any
		for _, in := range inputs {
			args = append(args, in)
		}
		out, err := exec.Call(args...)
		if err != nil {
			t.Fatal(err)
		}
		flat, err := copyAll(out)
		if err != nil {
			t.Fatal(err)
		}
		return flat
	}
	a, b := run(got), run(want)
	for i, name := range names {
		largest := 0.0
		for _, x := range b[i] {
			largest = max(largest, float64(x), -float64(x))
		}
		if len(a[i]) != len(b[i]) {
			t.Fatalf("%s of %v has %d elements, want %d", name, inputs[0].Shape(), len(a[i]), len(b[i]))
		}
		for j, x := range a[i] {
			near(t, name, float32(float64(x)/largest), float64(b[i][j])/largest, 1e-5)
		}
	}
}

// Long rollouts are learned from in passes of few rows, as many as their attention has room for.
func TestPassesAreSizedByTheirAttention(t *testing.T) {
	m := newOwnModel(t, architectures()["llama"])
	m.config.MaxPositionEmbeddings, m.config.NumAttentionHeads = 4096, 4
	l := &Learner{model: m, options: Learning{PassElements: 1 << 24}}
	for _, c := range []struct{ length, draws, rows int }{{256, 64, 16}, {250, 128, 16}, {256, 9, 9}, {200, 128, 16},
		{16, 128, 128}, {2048, 4, 1}, {100, 90, 64}} {
		if rows, _, err := l.passSize(c.draws, c.length); err != nil || rows != c.rows {
			t.Errorf("%d rollouts of %d tokens: passes of %d rows, want %d (%v)", c.draws, c.length, rows, c.rows, err)
		}
	}
}
