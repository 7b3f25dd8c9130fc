package replay

// freshQueue holds the units that were not handed out as fresh yet, the oldest first: what [FP] calls the fresh batch.
// It holds their first rollouts' slots. Fields are exported for encoding/gob.
type freshQueue struct{ Waiting list }

// push takes in a unit that has just been added.
func (q *freshQueue) push(st *store, s int32) {
	st.items[s].set(fresh)
	q.Waiting.push(st, s)
}

// pop hands out the oldest; there is one.
func (q *freshQueue) pop(st *store) int32 {
	s := q.Waiting.Head
	q.forget(st, s)
	return s
}

// forget takes a slot out, if it is in.
func (q *freshQueue) forget(st *store, s int32) {
	it := &st.items[s]
	if it.is(fresh) {
		it.clear(fresh)
		q.Waiting.remove(st, s)
	}
	it.clear(shelved)
}

// shelve takes a slot out, if it is in, until restore brings it back.
func (q *freshQueue) shelve(st *store, s int32) {
	if st.items[s].is(fresh) {
		q.forget(st, s)
		st.items[s].set(shelved)
	}
}

// restore brings a slot back whose draw as fresh was not acknowledged, or that was shelved. It stood near the head.
func (q *freshQueue) restore(st *store, s int32) {
	it := &st.items[s]
	if it.is(fresh) {
		return
	}
	it.clear(shelved)
	it.set(fresh)
	q.Waiting.insertByID(st, s, false)
}
