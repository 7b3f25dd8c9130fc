package policy

import (
	"math/rand/v2"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

// The products of attention and their gradients are those of the graph library's own product, whatever the sizes.
func TestAttentionProductsHaveTheGradientsOfPlainProducts(t *testing.T) {
	backend, err := openBackend(benchmarkModel())
	if err != nil {
		t.Fatal(err)
	}
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
		random := func(dims ...int) *tensors.Tensor {
			flat := make([]float32, dims[0]*dims[1]*dims[2]*dims[3])
			for i := range flat {
				flat[i] = float32(r.NormFloat64())
			}
			return tensors.FromFlatDataAndDimensions(flat, dims...)
		}
		queries, keys := random(size.b, size.n, size.s, size.d), random(size.b, size.n, size.k, size.d)
		values, weights := random(size.b, size.n, size.k, size.d), random(size.b, size.n, size.s, size.d)
		run := func(graph func([]*Node) []*Node) [][]float32 {
			exec, err := NewExec(backend, graph)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.Call(queries, keys, values, weights)
			if err != nil {
				t.Fatal(err)
			}
			flat, err := copyAll(out)
			if err != nil {
				t.Fatal(err)
			}
			return flat
		}
		got, want := run(attend(queryKeyScores, weightedValues)), run(plain)
		for i, name := range []string{"scores", "mixed", "gradient of queries", "gradient of keys",
			"gradient of values"} {
			largest := 0.0
			for _, x := range want[i] {
				largest = max(largest, float64(x), -float64(x))
			}
			if len(got[i]) != len(want[i]) {
				t.Fatalf("%v: %s has %d elements, want %d", size, name, len(got[i]), len(want[i]))
			}
			for j, x := range got[i] {
				near(t, name, float32(float64(x)/largest), float64(want[i][j])/largest, 1e-5)
			}
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
