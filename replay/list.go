package replay

// list is slots in order of arrival, oldest at the head, linked through links.Prev and links.Next. A
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
		for before = l.Tail; before != none && st.items[before].ID > id; before = st.links[before].Prev {
		}
	} else {
		for after := l.Head; after != none && st.items[after].ID < id; after = st.links[after].Next {
			before = after
		}
	}
	l.insertAfter(st, s, before)
}

// insertAfter links s behind before; none: at the head.
func (l *list) insertAfter(st *store, s, before int32) {
	at := &st.links[s]
	at.Prev, at.Next = before, l.Head
	if before != none {
		at.Next = st.links[before].Next
		st.links[before].Next = s
	} else {
		l.Head = s
	}
	if at.Next != none {
		st.links[at.Next].Prev = s
	} else {
		l.Tail = s
	}
	l.Len++
	l.Bytes += st.items[s].Bytes
}

// remove unlinks a slot of this list.
func (l *list) remove(st *store, s int32) {
	at := &st.links[s]
	if at.Prev != none {
		st.links[at.Prev].Next = at.Next
	} else {
		l.Head = at.Next
	}
	if at.Next != none {
		st.links[at.Next].Prev = at.Prev
	} else {
		l.Tail = at.Prev
	}
	at.Prev, at.Next = none, none
	l.Len--
	l.Bytes -= st.items[s].Bytes
}
