package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/internal/faults"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal/segments"
)

// A log holds cuts in pieces, a message each:
//
//	0  messageFormat, a byte
//	1  flags, a byte
//	2  number of the piece in its cut, from 0, uint32
//	6  number of the cut, from 1, uint64
//	14 how many insertions are remembered after the cut, uint32
//	18 what the log had before the message since its beginning: rollouts, removals, uses, insertions, uint64 each
//	50 entries: a kind, a byte; the length of the payload, uint32; the payload
//
// Numbers are little-endian. A message is whole by itself, so that messages may be decoded side by side, and one that
// is lost costs no other. An entry too large for one is alone in several, which flagMore and flagRest join.
//
// Cuts are numbered without gaps. One without its last piece never happened: its writer ended, and the number was given
// again.
const (
	messageFormat = 3
	messageHeader = 50

	// MessageBytes is the size of a log's largest message.
	MessageBytes = segments.MessageBytes
)

const (
	flagLast  byte = 1 << iota // the piece is the cut's last
	flagReset                  // the cut replaces all before it
	flagWhole                  // its insertions and its state replace all before them
	flagMore                   // the entry goes on in the next message
	flagRest                   // the message goes on with the entry of the one before
	flagSaved                  // with flagReset: Salvage wrote the cut, parts may be missing
)

// kind is what an entry holds.
type kind byte

const (
	kindRollout kind = 'r' // see appendStored
	kindApart   kind = 'a' // a rollout whose routed experts are apart, see expertsFolder
	kindUse     kind = 'u' // see appendUse
	kindRemoval kind = 'd' // the id of a rollout, uint64
	kindRequest kind = 'q' // see appendRequest
	kindState   kind = 's' // the length of a key, uint16; the key; its value
)

// The keys of the state.
const (
	definitionKey = "definition" // of the table
	tableKey      = "books"      // replay.State, under the name it has in logs that exist
	blobPrefix    = "blob/"
	requestPrefix = "request/" // replay.Consumed as JSON, by slot; no bytes: forgotten
	labelPrefix   = "label/"   // replay.Labelling as JSON, by number; no bytes: forgotten
)

// Tally counts entries of a log.
type Tally struct{ Rollouts, Removals, Uses, Insertions uint64 }

// fields are in the order in which a message has them.
func (t *Tally) fields() [4]*uint64 {
	return [4]*uint64{&t.Rollouts, &t.Removals, &t.Uses, &t.Insertions}
}

func (t *Tally) count(k kind) {
	switch k {
	case kindRollout, kindApart:
		t.Rollouts++
	case kindRemoval:
		t.Removals++
	case kindUse:
		t.Uses++
	case kindRequest:
		t.Insertions++
	}
}

func (t *Tally) add(o Tally) {
	for i, n := range o.fields() {
		*t.fields()[i] += *n
	}
}

func (t *Tally) sub(o Tally) {
	for i, n := range o.fields() {
		*t.fields()[i] -= *n
	}
}

// head is the header of a message.
type head struct {
	flags  byte
	piece  uint32
	number uint64 // of the cut
	keep   int    // insertions
	before Tally
}

// put writes the header to a message.
func (h *head) put(b []byte) {
	b[0], b[1] = messageFormat, h.flags
	binary.LittleEndian.PutUint32(b[2:], h.piece)
	binary.LittleEndian.PutUint64(b[6:], h.number)
	binary.LittleEndian.PutUint32(b[14:], uint32(h.keep))
	for i, n := range h.before.fields() {
		binary.LittleEndian.PutUint64(b[18+8*i:], *n)
	}
}

func decodeHead(b []byte) (h head, err error) {
	if len(b) < messageHeader {
		return h, fmt.Errorf("it has %d bytes: want at least %d", len(b), messageHeader)
	}
	if b[0] != messageFormat {
		return h, formatError(b[0])
	}
	h = head{flags: b[1], piece: binary.LittleEndian.Uint32(b[2:]), number: binary.LittleEndian.Uint64(b[6:]),
		keep: int(binary.LittleEndian.Uint32(b[14:]))}
	for i, n := range h.before.fields() {
		*n = binary.LittleEndian.Uint64(b[18+8*i:])
	}
	return h, nil
}

// formatError is the format of a journal that another build wrote.
type formatError byte

func (f formatError) Error() string {
	return fmt.Sprintf("it is of format %d, and this build reads format %d: export its table with the build that wrote "+
		"it, move it away, and import the table", f, messageFormat)
}

// message is an encoded message whose header is not written yet.
type message struct {
	from, to int // in the packer's memory, while that grows
	b        []byte
	flags    byte // flagMore, flagRest
	has      Tally
	ids      []rollout.ID // rollouts
}

// packer puts entries into messages.
type packer struct {
	memory []byte // of all messages
	list   []message
	entry  int  // where the last entry begins
	open   bool // the last message takes entries
}

// begin begins an entry: its payload is to be appended to memory, then end called.
func (p *packer) begin(k kind) {
	if !p.open {
		p.beginMessage(0)
	}
	p.entry = len(p.memory)
	p.memory = append(p.memory, byte(k), 0, 0, 0, 0)
}

func (p *packer) beginMessage(flags byte) {
	at := len(p.memory)
	p.memory = append(p.memory, make([]byte, messageHeader)...)
	p.list = append(p.list, message{from: at, flags: flags})
	p.open = flags == 0
}

const entryHeader = 5

// end ends an entry. The id is of a rollout, 0 with other kinds.
func (p *packer) end(id rollout.ID) error {
	n := len(p.memory) - p.entry
	if n-entryHeader > math.MaxInt32 {
		return fmt.Errorf("an entry of %d bytes: want at most %d", n-entryHeader, math.MaxInt32)
	}
	k := kind(p.memory[p.entry])
	binary.LittleEndian.PutUint32(p.memory[p.entry+1:], uint32(n-entryHeader))
	last := &p.list[len(p.list)-1]
	if len(p.memory)-last.from > MessageBytes && p.entry > last.from+messageHeader { // it begins another message
		moved := slices.Clone(p.memory[p.entry:])
		p.memory = p.memory[:p.entry]
		p.beginMessage(0)
		p.memory = append(p.memory, moved...)
		last = &p.list[len(p.list)-1]
	}
	if id != 0 {
		last.ids = append(last.ids, id)
	}
	if len(p.memory)-last.from > MessageBytes {
		last = p.split(slices.Clone(p.memory[last.from+messageHeader:]))
	}
	last.to = len(p.memory)
	last.has.count(k)
	return nil
}

// split spreads the entry of the last message over as many as it takes.
func (p *packer) split(entry []byte) (last *message) {
	const most = MessageBytes - messageHeader
	last = &p.list[len(p.list)-1]
	p.memory, p.open = p.memory[:last.from+messageHeader], false
	for flags := flagMore; ; flags = flagMore | flagRest {
		n := min(len(entry), most)
		p.memory = append(p.memory, entry[:n]...)
		last.to, entry = len(p.memory), entry[n:]
		if last.flags |= flags; len(entry) == 0 {
			last.flags &^= flagMore
			return last
		}
		p.beginMessage(flagRest)
		last = &p.list[len(p.list)-1]
	}
}

// messages returns what was packed. It is valid until the packer is used again.
func (p *packer) messages() []message {
	for i := range p.list {
		m := &p.list[i]
		m.b = p.memory[m.from:m.to:m.to]
	}
	return p.list
}

// arena is the memory of encoded rollouts, a packer for each goroutine that encodes.
type arena struct{ packers []packer }

func newArena() *arena { return &arena{packers: make([]packer, min(runtime.GOMAXPROCS(0), 4))} }

// encodeRollouts encodes rollouts into an arena, with or without routed experts. The messages are valid until the arena
// is used again.
func encodeRollouts(a *arena, all []replay.Stored, experts bool) (list []message, err error) {
	const alone = 512 << 10 // bytes that are not worth another goroutine
	total := 0
	for i := range all {
		total += entryHeader + storedLength + int(all[i].Rollout.Bytes())
	}
	workers := min(len(a.packers), 1+total/alone, max(len(all), 1))
	for i := range workers {
		p := &a.packers[i]
		*p = packer{memory: slices.Grow(p.memory[:0], total/workers+total/8+messageHeader)} // seldom more
	}
	err = sideBySide("encoding rollouts", workers, len(all), func(worker, i int) error {
		return a.packers[worker].addRollout(&all[i], experts)
	})
	for i := range workers {
		list = append(list, a.packers[i].messages()...)
	}
	return list, err
}

// sideBySide calls do for each i below n, in several goroutines, and returns all errors and panics.
func sideBySide(part string, workers, n int, do func(worker, i int) error) error {
	var next atomic.Int64
	errs := make([]error, workers)
	work := func(worker int) {
		errs[worker] = faults.Recovered(part, func() (err error) {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				err = errors.Join(err, do(worker, i))
			}
			return err
		})
	}
	var wg sync.WaitGroup
	for worker := 1; worker < workers; worker++ {
		wg.Go(func() { work(worker) })
	}
	if workers > 0 {
		work(0)
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (p *packer) addRollout(k *replay.Stored, experts bool) error {
	what := kindRollout
	if !experts && len(k.Rollout.RoutedExperts) > 0 {
		without, r := *k, *k.Rollout
		r.RoutedExperts, without.Rollout = nil, &r
		k, what = &without, kindApart
	}
	p.begin(what)
	p.memory = appendStored(p.memory, k)
	return p.end(k.ID)
}

// add adds an entry of another kind than a rollout.
func (p *packer) add(k kind, payload ...[]byte) error {
	p.begin(k)
	for _, b := range payload {
		p.memory = append(p.memory, b...)
	}
	return p.end(0)
}

func (p *packer) addState(key string, value []byte) error {
	return p.add(kindState, binary.LittleEndian.AppendUint16(nil, uint16(len(key))), []byte(key), value)
}

// Bytes of a rollout's use, and of the fields before a rollout's content.
const (
	useLength    = 8 + 4 + 4 + 8 + 1
	storedLength = useLength + 8 + 4 + 4 + 4 + 4
)

func appendUse(b []byte, u *replay.Usage) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(u.ID))
	b = binary.LittleEndian.AppendUint32(b, uint32(u.Uses))
	b = binary.LittleEndian.AppendUint32(b, uint32(u.LastUse))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(u.Base))
	return append(b, byte(u.Marks))
}

func decodeUse(b []byte, u *replay.Usage) error {
	if len(b) < useLength {
		return fmt.Errorf("its payload has %d bytes: want %d", len(b), useLength)
	}
	u.ID = rollout.ID(binary.LittleEndian.Uint64(b))
	u.Uses = int32(binary.LittleEndian.Uint32(b[8:]))
	u.LastUse = rollout.Version(binary.LittleEndian.Uint32(b[12:]))
	u.Base = math.Float64frombits(binary.LittleEndian.Uint64(b[16:]))
	u.Marks = replay.Marks(b[24])
	return nil
}

func appendStored(b []byte, k *replay.Stored) []byte {
	b = appendUse(b, &k.Usage)
	b = binary.LittleEndian.AppendUint64(b, k.Group)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.Shard))
	for _, x := range [...]float32{k.Advantage, k.Mean, k.Std} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return k.Rollout.AppendCompact(b)
}

func decodeStored(b []byte, k *replay.Stored) error {
	if len(b) < storedLength {
		return fmt.Errorf("its payload has %d bytes: want at least %d", len(b), storedLength)
	}
	if err := decodeUse(b, &k.Usage); err != nil {
		return err
	}
	b = b[useLength:]
	k.Group = binary.LittleEndian.Uint64(b)
	k.Shard = int(binary.LittleEndian.Uint32(b[8:]))
	for i, x := range [...]*float32{&k.Advantage, &k.Mean, &k.Std} {
		*x = math.Float32frombits(binary.LittleEndian.Uint32(b[12+4*i:]))
	}
	k.Rollout = new(rollout.Rollout)
	return k.Rollout.UnmarshalBinary(b[storedLength-useLength:])
}

const requestLength = 8 + 4 + 16 // before the batch id

func appendRequest(b []byte, q *replay.Insertion) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(q.First))
	b = binary.LittleEndian.AppendUint32(b, uint32(q.Count))
	b = binary.LittleEndian.AppendUint64(b, q.Digest.Hi)
	b = binary.LittleEndian.AppendUint64(b, q.Digest.Lo)
	return append(b, q.BatchID...)
}

func decodeRequest(b []byte) (q replay.Insertion, err error) {
	if len(b) < requestLength {
		return q, fmt.Errorf("an insertion of %d bytes: want at least %d", len(b), requestLength)
	}
	return replay.Insertion{First: rollout.ID(binary.LittleEndian.Uint64(b)),
		Count: int(binary.LittleEndian.Uint32(b[8:])), BatchID: string(b[requestLength:]),
		Digest: replay.Digest{Hi: binary.LittleEndian.Uint64(b[12:]), Lo: binary.LittleEndian.Uint64(b[20:])}}, nil
}

// named is a value of the state.
type named struct {
	key   string
	value []byte
}

// piece is a message of a cut that was written or read.
type piece struct {
	head
	position uint64
	bytes    int64
	has      Tally
	ids      []rollout.ID // of rollouts
	part     []byte       // of an entry in several messages; it belongs to the log

	// Only of a message that was read.
	stored   []replay.Stored
	apart    []rollout.ID // of stored
	uses     []replay.Usage
	removals []rollout.ID
	requests []replay.Insertion
	state    []named
}

// decodePiece decodes a message. With keep it has the rollouts' content.
func decodePiece(m Message, keep bool) (p piece, err error) {
	if p.head, err = decodeHead(m.Data); err != nil {
		return p, err
	}
	p.position, p.bytes = m.Position, int64(len(m.Data))
	if p.flags&(flagMore|flagRest) != 0 {
		p.part = m.Data[messageHeader:]
		return p, nil
	}
	return p, p.decode(m.Data[messageHeader:], keep)
}

// decode decodes entries.
func (p *piece) decode(b []byte, keep bool) error {
	for len(b) > 0 {
		if len(b) < entryHeader || uint64(binary.LittleEndian.Uint32(b[1:])) > uint64(len(b)-entryHeader) {
			return fmt.Errorf("its last %d bytes are no entry", len(b))
		}
		end := entryHeader + int(binary.LittleEndian.Uint32(b[1:]))
		k := kind(b[0])
		if err := p.decodeEntry(k, b[entryHeader:end:end], keep); err != nil {
			return fmt.Errorf("entry %q: %w", byte(k), err)
		}
		p.has.count(k)
		b = b[end:]
	}
	return nil
}

func (p *piece) decodeEntry(k kind, b []byte, keep bool) (err error) {
	switch k {
	case kindRollout, kindApart:
		var r replay.Stored
		if err := decodeStored(b, &r); err != nil {
			return fmt.Errorf("rollout %d: %w", r.ID, err)
		}
		if !keep {
			r.Rollout = nil
		}
		p.stored, p.ids = append(p.stored, r), append(p.ids, r.ID)
		if k == kindApart {
			p.apart = append(p.apart, r.ID)
		}
	case kindUse:
		var u replay.Usage
		err = decodeUse(b, &u)
		p.uses = append(p.uses, u)
	case kindRemoval:
		if len(b) != 8 {
			return fmt.Errorf("its payload has %d bytes: want 8", len(b))
		}
		p.removals = append(p.removals, rollout.ID(binary.LittleEndian.Uint64(b)))
	case kindRequest:
		var q replay.Insertion
		q, err = decodeRequest(b)
		p.requests = append(p.requests, q)
	case kindState:
		if len(b) < 2 || int(binary.LittleEndian.Uint16(b)) > len(b)-2 {
			return fmt.Errorf("its payload has %d bytes: its key is longer", len(b))
		}
		n := 2 + int(binary.LittleEndian.Uint16(b))
		p.state = append(p.state, named{string(b[2:n]), slices.Clone(b[n:])})
	default:
		return errors.New("it is of no kind that is known")
	}
	return err
}
