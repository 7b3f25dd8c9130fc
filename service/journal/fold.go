package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// fold folds the cuts of a log into the table as of the last.
type fold struct {
	ledger
	keep   bool  // the rollouts; otherwise it only checks
	sizes  int64 // of the ledger's sections
	stored map[rollout.ID]replay.Stored
	apart  map[rollout.ID]uint64 // number of the cut of rollouts whose routed experts are apart
	ids    idSet                 // of the rollouts
	table  *replay.State         // set by finish

	cut   *cut   // under way
	begun bool   // a message was read
	part  []byte // of an entry under way; nil: none is
	end   uint64 // position of the last message of a whole cut
	torn  bool   // set by finish: after that come messages of one that is not whole

	// damaged is told of messages that do not fit, which are left out; nil: they are errors.
	damaged func(position uint64, err error)
	missing bool  // messages are missing before the next, or at the end
	lost    Tally // entries that were missing
}

func newFold(keep bool) *fold {
	return &fold{keep: keep, sizes: slackBytes / 8, stored: make(map[rollout.ID]replay.Stored),
		apart: make(map[rollout.ID]uint64), ids: make(idSet)}
}

// add goes on with the next messages.
func (f *fold) add(messages []Message) error {
	pieces, errs := make([]piece, len(messages)), make([]error, len(messages))
	err := sideBySide("decoding messages", min(runtime.GOMAXPROCS(0), len(messages)), len(messages), func(_, i int) error {
		pieces[i], errs[i] = decodePiece(messages[i], f.keep)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range pieces {
		err := errs[i]
		if err == nil {
			err = f.piece(pieces[i])
		}
		if err != nil {
			var other formatError
			if errors.As(err, &other) {
				return other
			}
			if f.damaged == nil {
				return fmt.Errorf("message %d: %w", messages[i].Position, err)
			}
			f.damaged(messages[i].Position, err)
			f.gap()
		}
	}
	return nil
}

// gap says that messages are missing before the next.
func (f *fold) gap() { f.missing, f.part = true, nil }

// had returns the tally so far.
func (f *fold) had() Tally {
	if f.cut != nil {
		return f.cut.tally
	}
	return f.tally
}

// piece goes on with a message.
func (f *fold) piece(p piece) error {
	switch c := f.cut; {
	case c != nil && p.number == c.number && p.piece == c.next:
	case c != nil && p.number == c.number && p.piece > c.next && f.missing:
	case p.piece == 0 || f.missing || !f.begun: // the log may begin within a cut
		if f.missing && c != nil { // it was whole, but for what is missing
			f.apply()
		}
		if p.number > f.number+1 && f.number != 0 && !f.missing {
			return fmt.Errorf("it is of cut %d: want cut %d", p.number, f.number+1)
		}
		f.cut = &cut{number: p.number, tally: f.tally}
	default:
		return fmt.Errorf("it is piece %d of cut %d: want the next of cut %d", p.piece, p.number, f.number+1)
	}
	if err := f.balance(&p); err != nil {
		return err
	}
	if err := f.join(&p); err != nil {
		return err
	}
	c := f.cut
	c.next, c.flags, c.keep = p.piece+1, c.flags|p.flags&^(flagMore|flagRest), p.keep
	c.pieces, c.requests, c.state = append(c.pieces, p), append(c.requests, p.requests...), append(c.state, p.state...)
	c.tally.add(p.has)
	if p.flags&flagLast != 0 {
		f.end = p.position
		f.apply()
	}
	return nil
}

// balance checks that the log had before a message what the message says.
func (f *fold) balance(p *piece) error {
	begun, missing := f.begun, f.missing
	f.begun, f.missing = true, false
	had := &f.cut.tally
	if p.before == *had || p.number <= f.number { // or it was appended twice
		return nil
	}
	if begun && !missing {
		return fmt.Errorf("before it there were %+v: it says %+v", *had, p.before)
	}
	if begun {
		gone := p.before
		gone.sub(*had)
		f.lost.add(gone)
	}
	*had = p.before
	return nil
}

// join joins the parts of an entry that is in several messages.
func (f *fold) join(p *piece) error {
	begins, ends := p.flags&flagRest == 0, p.flags&flagMore == 0
	if begins && ends {
		f.part = nil
		return nil
	}
	if begins {
		f.part = make([]byte, 0, 2*len(p.part))
	}
	if f.part == nil { // the next message tells what is lost
		f.missing = ends
		if f.damaged == nil {
			return errors.New("it goes on with an entry that did not begin")
		}
		return nil
	}
	f.part = append(f.part, p.part...)
	p.part = nil
	if !ends {
		return nil
	}
	whole := f.part
	f.part = nil
	return p.decode(whole, f.keep)
}

// apply applies the cut under way.
func (f *fold) apply() {
	c := f.cut
	f.cut = nil
	if c.number <= f.number { // it was appended twice
		return
	}
	if c.flags&flagReset != 0 {
		clear(f.stored)
		clear(f.apart)
		clear(f.ids)
	}
	for i := range c.pieces {
		p := &c.pieces[i]
		f.take(p, c.number)
		p.stored, p.removals, p.uses, p.requests, p.state = nil, nil, nil, nil, nil
	}
	f.note(c, f.sizes)
}

// take applies a piece. The lists of one cut have no rollout in common.
func (f *fold) take(p *piece, number uint64) {
	for _, id := range p.removals {
		f.ids.remove(id)
		delete(f.stored, id)
		delete(f.apart, id)
	}
	if !f.keep {
		p.ids = nil
	}
	for _, k := range p.stored {
		f.ids.add(k.ID)
		delete(f.apart, k.ID)
		if f.keep {
			f.stored[k.ID] = k
		}
	}
	for _, id := range p.apart {
		f.apart[id] = number
	}
	for _, u := range p.uses {
		if k, held := f.stored[u.ID]; held { // otherwise a later cut carries it
			k.Usage = u
			f.stored[u.ID] = k
		}
	}
}

// finish decodes the table's state, and returns what does not fit together (invariant 11).
func (f *fold) finish() (problems []string) {
	// Of a cut whose last messages are damaged the others are kept: all of a cut is written before any of it is known to
	// be on disk. Only a restore writes its cut bit by bit. While the log has a cut before it, it may not have ended.
	if c := f.cut; c != nil && f.missing && (c.flags&flagReset == 0 || f.number == 0) {
		f.apply()
	}
	f.torn, f.cut = f.cut != nil, nil
	value := f.state[tableKey]
	if value == nil {
		return []string{"the table's state is missing"}
	}
	state := new(replay.State)
	if err := state.UnmarshalBinary(value); err != nil {
		return []string{err.Error()}
	}
	f.table = state
	if f.saved {
		return nil
	}
	if n := f.ids.count(); n != state.Present() {
		problems = append(problems, fmt.Sprintf("there are %d rollouts: the table's state says %d", n, state.Present()))
	}
	if n := len(f.requests); n != state.Requests {
		problems = append(problems, fmt.Sprintf("%d insertions are remembered: the table's state says %d", n,
			state.Requests))
	}
	return problems
}

// recovered returns what a table is made of.
func (f *fold) recovered() (replay.Recovered, error) {
	r := replay.Recovered{State: f.table, Stored: slices.Collect(maps.Values(f.stored)), Requests: f.requests,
		Repair: f.saved}
	for key, value := range f.state {
		var err error
		switch {
		case strings.HasPrefix(key, requestPrefix):
			r.Consumed, err = appendJSON(r.Consumed, value)
		case strings.HasPrefix(key, labelPrefix):
			r.Labelled, err = appendJSON(r.Labelled, value)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", key, err)
		}
	}
	return r, nil
}

// appendJSON appends a value that is JSON.
func appendJSON[T any](list []T, text []byte) ([]T, error) {
	var x T
	err := json.Unmarshal(text, &x)
	return append(list, x), err
}

// blobs returns what was attached.
func (f *fold) blobs() map[string][]byte {
	blobs := make(map[string][]byte)
	for key, value := range f.state {
		if name, ok := strings.CutPrefix(key, blobPrefix); ok {
			blobs[name] = value
		}
	}
	return blobs
}

// idSet is a set of ids, which mostly follow one another: a bit each.
type idSet map[uint64]uint64

func (s idSet) add(id rollout.ID)    { s[uint64(id)/64] |= 1 << (id % 64) }
func (s idSet) remove(id rollout.ID) { s[uint64(id)/64] &^= 1 << (id % 64) }

func (s idSet) count() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}
