package replay

// list is slots in order of arrival, oldest at the head, linked through item.Prev and item.Next. A
// slot is in one list at most. Fields are exported for encoding/gob.
type list struct {
	Head, Tail int32
	Len        int
	Bytes      int64 // of payload
}

func newList() list { return list{Head: none, Tail: none} }

// push appends a slot.
func (l *list) push(st *store, s int32) { l.insertAfter(st, s, l.Tail) }

// insertByID puts a slot where its age belongs, looking from the head or from the tail.
func (l *list) insertByID(st *store, s int32, fromTail bool) {
	id, before := st.items[s].ID, none
	if fromTail {
		for before = l.Tail; before != none && st.items[before].ID > id; before = st.items[before].Prev {
		}
	} else {
		for after := l.Head; after != none && st.items[after].ID < id; after = st.items[after].Next {
			before = after
		}
	}
	l.insertAfter(st, s, before)
}

// insertAfter links s behind before; none: at the head.
func (l *list) insertAfter(st *store, s, before int32) {
	it := &st.items[s]
	it.Prev, it.Next = before, l.Head
	if before != none {
		it.Next = st.items[before].Next
		st.items[before].Next = s
	} else {
		l.Head = s
	}
	if it.Next != none {
		st.items[it.Next].Prev = s
	} else {
		l.Tail = s
	}
	l.Len++
	l.Bytes += it.Bytes
}

// remove unlinks a slot of this list.
func (l *list) remove(st *store, s int32) {
	it := &st.items[s]
	if it.Prev != none {
		st.items[it.Prev].Next = it.Next
	} else {
		l.Head = it.Next
	}
	if it.Next != none {
		st.items[it.Next].Prev = it.Prev
	} else {
		l.Tail = it.Prev
	}
	it.Prev, it.Next = none, none
	l.Len--
	l.Bytes -= it.Bytes
}
