package replay

// A slot is in one list of each kind at most.
const (
	arrivalList = iota // what retention keeps, or a queue holds
	freshList          // what was not handed out as fresh
	lists
)

// list is slots in order of arrival, oldest at the head, linked through links.Of[Kind]. Fields are exported for encoding/gob.
type list struct {
	Kind       int
	Head, Tail int32
	Len        int
	Bytes      int64 // of payload
}

func newList(kind int) list { return list{Kind: kind, Head: none, Tail: none} }

// push appends a slot.
func (l *list) push(st *store, s int32) { l.insertAfter(st, s, l.Tail) }

// insertByID puts a slot where its age belongs, looking from the head or from the tail.
func (l *list) insertByID(st *store, s int32, fromTail bool) {
	id, before := st.items[s].ID, none
	if fromTail {
		for before = l.Tail; before != none && st.items[before].ID > id; before = st.links[before].Of[l.Kind].Prev {
		}
	} else {
		for after := l.Head; after != none && st.items[after].ID < id; after = st.links[after].Of[l.Kind].Next {
			before = after
		}
	}
	l.insertAfter(st, s, before)
}

// insertAfter links s behind before; none: at the head.
func (l *list) insertAfter(st *store, s, before int32) {
	at := &st.links[s].Of[l.Kind]
	at.Prev, at.Next = before, l.Head
	if before != none {
		at.Next = st.links[before].Of[l.Kind].Next
		st.links[before].Of[l.Kind].Next = s
	} else {
		l.Head = s
	}
	if at.Next != none {
		st.links[at.Next].Of[l.Kind].Prev = s
	} else {
		l.Tail = s
	}
	l.Len++
	l.Bytes += st.items[s].Bytes
}

// remove unlinks a slot of this list.
func (l *list) remove(st *store, s int32) {
	at := &st.links[s].Of[l.Kind]
	if at.Prev != none {
		st.links[at.Prev].Of[l.Kind].Next = at.Next
	} else {
		l.Head = at.Next
	}
	if at.Next != none {
		st.links[at.Next].Of[l.Kind].Prev = at.Prev
	} else {
		l.Tail = at.Prev
	}
	at.Prev, at.Next = none, none
	l.Len--
	l.Bytes -= st.items[s].Bytes
}
