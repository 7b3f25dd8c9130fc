package replay

// deck holds the slots that a sampler may draw, in three zones of one array: held, drawn already in the
// batch being drawn; ready, drawn from now; rest, drawn from later. Every operation is a constant
// number of swaps, so nothing is shuffled or copied however many there are.
type deck struct {
	slots []int32
	pos   []int32 // by slot, its place in slots; none: not in the deck
	held  int     // slots[:held]
	ready int     // slots[held:ready]; slots[ready:] rest
}

func (d *deck) len() int { return len(d.slots) }

func (d *deck) has(s int32) bool { return int(s) < len(d.pos) && d.pos[s] != none }

// addRest puts a new slot into the rest zone.
func (d *deck) addRest(s int32) {
	for int(s) >= len(d.pos) {
		d.pos = append(d.pos, none)
	}
	d.pos[s] = int32(len(d.slots))
	d.slots = append(d.slots, s)
}

// addReady puts a new slot into the ready zone.
func (d *deck) addReady(s int32) {
	d.addRest(s)
	d.restToReady(s)
}

// remove takes a slot out; one that is not there is left alone.
func (d *deck) remove(s int32) {
	if !d.has(s) {
		return
	}
	if int(d.pos[s]) < d.held {
		d.heldToReady(s)
	}
	if int(d.pos[s]) < d.ready {
		d.readyToRest(s)
	}
	last := len(d.slots) - 1
	d.swap(int(d.pos[s]), last)
	d.slots = d.slots[:last]
	d.pos[s] = none
}

func (d *deck) inRest(s int32) bool { return int(d.pos[s]) >= d.ready }

func (d *deck) readyToHeld(s int32) {
	d.swap(int(d.pos[s]), d.held)
	d.held++
}

func (d *deck) heldToReady(s int32) {
	d.held--
	d.swap(int(d.pos[s]), d.held)
}

func (d *deck) readyToRest(s int32) {
	d.ready--
	d.swap(int(d.pos[s]), d.ready)
}

func (d *deck) restToReady(s int32) {
	d.swap(int(d.pos[s]), d.ready)
	d.ready++
}

func (d *deck) swap(i, j int) {
	if i == j {
		return
	}
	a, b := d.slots[i], d.slots[j]
	d.slots[i], d.slots[j] = b, a
	d.pos[b], d.pos[a] = int32(i), int32(j)
}
