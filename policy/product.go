package policy

import (
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// The products of attention, with gradients of their own. The backend's matrix products want what is summed over as the last
// axis of their left operand, and transposes operands that have it elsewhere, element by element. In the gradients with respect to
// keys and values, which sum over the queries, the graph library's rule has it transpose the [S, K] matrices of attention, which
// took longer than the products themselves; these transpose matrices of HeadDim columns in their place.

// compare returns the scores [B, N, S, K] of queries [B, N, S, D] with keys [B, N, K, D].
func compare(queries, keys *Node) *Node {
	return rightBy(keys,
		func(keys *Node) *Node { return DotGeneral(queries, []int{3}, []int{0, 1}, keys, []int{3}, []int{0, 1}) },
		func(v *Node) *Node { return overQueries(v, queries) })
}

// mix returns the sums [B, N, S, D] of values [B, N, K, D] by weights [B, N, S, K].
func mix(weights, values *Node) *Node {
	return rightBy(values,
		func(values *Node) *Node {
			return DotGeneral(weights, []int{3}, []int{0, 1}, values, []int{2}, []int{0, 1})
		},
		func(v *Node) *Node { return overQueries(weights, v) })
}

// rightBy returns a product whose gradient with respect to its right operand is made of that with respect to the product. The gradient
// of the product is taken, and noted, before that of what went into it.
func rightBy(right *Node, product, gradient func(*Node) *Node) *Node {
	var noted *Node
	right = IdentityWithCustomGradient(right, func(_, _ *Node) *Node { return gradient(noted) })
	return IdentityWithCustomGradient(product(right), func(_, v *Node) *Node {
		noted = v
		return v
	})
}

// overQueries returns the sums over queries [B, N, K, D] of the products of x [B, N, S, K] and y [B, N, S, D].
func overQueries(x, y *Node) *Node {
	sums := DotGeneral(TransposeAllDims(y, 0, 1, 3, 2), []int{3}, []int{0, 1}, x, []int{2}, []int{0, 1}) // [B, N, D, K]
	return TransposeAllDims(sums, 0, 1, 3, 2)
}
