package board

// Bound lets the list have n rows at most.
func (b *Board) Bound(n int) { b.most = n }
