package pipeline

// heap is a binary heap of values with the least on top, by an order that no two values share.
// Push and pop cost O(log n). The zero value is empty and ready to use.
type heap[T interface{ Compare(T) int }] struct {
	items []T
}

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	child := len(h.items) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if h.items[parent].Compare(item) <= 0 {
			break
		}
		h.items[child] = h.items[parent]
		child = parent
	}
	h.items[child] = item
}

// pop removes the least item; the heap must not be empty.
func (h *heap[T]) pop() T {
	least, last := h.items[0], len(h.items)-1
	item := h.items[last]
	var none T
	h.items[last] = none // lets go of what it refers to
	h.items = h.items[:last]
	if last == 0 {
		return least
	}
	parent := 0
	for {
		child := 2*parent + 1
		if child >= last {
			break
		}
		if right := child + 1; right < last && h.items[right].Compare(h.items[child]) < 0 {
			child = right
		}
		if item.Compare(h.items[child]) <= 0 {
			break
		}
		h.items[parent] = h.items[child]
		parent = child
	}
	h.items[parent] = item
	return least
}
