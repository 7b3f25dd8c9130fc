package answer

// maxMatrices limits the matrices of an expression that is computed, since products of many have large entries.
const maxMatrices = 4

// reduced computes sums, products and multiples of matrices, and returns any other node as it is.
func reduced(n *node) *node {
	matrices := 0
	n.any(func(m *node) bool {
		if m.op == opMatrix {
			matrices++
		}
		return false
	})
	if n.op == opMatrix || matrices == 0 || matrices > maxMatrices {
		return n
	}
	if m, ok := matrixOf(n); ok {
		return m
	}
	return n
}

// matrixOf computes a matrix, whose entries may be expressions.
func matrixOf(n *node) (*node, bool) {
	switch n.op {
	case opMatrix:
		for _, row := range n.args {
			if len(row.args) != len(n.args[0].args) {
				return nil, false
			}
		}
		return n, true
	case opMinus:
		m, ok := matrixOf(n.args[0])
		if !ok {
			return nil, false
		}
		return scaled(m, func(entry *node) *node { return newNode(opMinus, "", entry) }), true
	case opQuotient:
		m, ok := matrixOf(n.args[0])
		if !ok || hasMatrix(n.args[1]) {
			return nil, false
		}
		return scaled(m, func(entry *node) *node { return newNode(opQuotient, "", entry, n.args[1]) }), true
	case opSum:
		return combinedMatrices(n.args, plusMatrix)
	case opProduct:
		var factors, matrices []*node
		for _, a := range n.args {
			if hasMatrix(a) {
				matrices = append(matrices, a)
			} else {
				factors = append(factors, a)
			}
		}
		m, ok := combinedMatrices(matrices, timesMatrix)
		if !ok || len(factors) == 0 {
			return m, ok
		}
		return scaled(m, func(entry *node) *node { return newNode(opProduct, "", product(factors), entry) }), true
	}
	return nil, false
}

func hasMatrix(n *node) bool { return n.any(func(m *node) bool { return m.op == opMatrix }) }

// scaled applies a function to every entry.
func scaled(m *node, f func(*node) *node) *node {
	result := &node{op: opMatrix}
	for _, row := range m.args {
		line := &node{op: opList}
		for _, entry := range row.args {
			line.args = append(line.args, f(entry))
		}
		result.args = append(result.args, line)
	}
	return result
}

// combinedMatrices folds matrices from the left.
func combinedMatrices(list []*node, combine func(a, b *node) (*node, bool)) (*node, bool) {
	var result *node
	for _, n := range list {
		m, ok := matrixOf(n)
		if ok && result != nil {
			m, ok = combine(result, m)
		}
		if !ok {
			return nil, false
		}
		result = m
	}
	return result, result != nil
}

func plusMatrix(a, b *node) (*node, bool) {
	if len(a.args) != len(b.args) || len(a.args[0].args) != len(b.args[0].args) {
		return nil, false
	}
	result := &node{op: opMatrix}
	for i, row := range a.args {
		line := &node{op: opList}
		for j, entry := range row.args {
			line.args = append(line.args, newNode(opSum, "", entry, b.args[i].args[j]))
		}
		result.args = append(result.args, line)
	}
	return result, true
}

func timesMatrix(a, b *node) (*node, bool) {
	const maxInner = 10
	if len(a.args[0].args) != len(b.args) || len(b.args) > maxInner {
		return nil, false
	}
	result := &node{op: opMatrix}
	for _, row := range a.args {
		line := &node{op: opList}
		for j := range b.args[0].args {
			entry := &node{op: opSum}
			for k, left := range row.args {
				entry.args = append(entry.args, newNode(opProduct, "", left, b.args[k].args[j]))
			}
			line.args = append(line.args, entry)
		}
		result.args = append(result.args, line)
	}
	return result, true
}
