package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Log is an ordered log that other machines keep too, in the place of a file. A journal calls it from one goroutine.
type Log interface {
	// Append appends messages of at most MessageBytes in order, and returns the position of the last once it is as safe
	// as the log promises. Positions ascend by one. After an error some of the first may be in the log. An error that
	// wraps [ErrNoSpace] may pass; after any other nothing must be appended any more.
	Append(messages [][]byte) (last uint64, err error)
	// Read yields every message in order, with its position.
	Read(yield func(position uint64, message []byte) error) error
	// Trim removes the messages before a position.
	Trim(before uint64) error
	// String names the log.
	String() string
}

// A log holds cuts in pieces, a message each:
//
//	0  number of the cut, uint64
//	8  number of the piece, from 0, uint32
//	12 flags, a byte
//	13 a part of the cut, as appendBatch writes it
//
// Cuts are numbered without gaps. One without its last piece never happened: its writer lost the log, and the number
// was given again.
//
// The log is trimmed at its front. Rollouts of the front that are still in the table are carried: a later cut has them
// again. So does a cut with flagWhole with all remembered insertions and the rest of the state.
const (
	pieceHeader = 13

	// MessageBytes is the size of a log's largest message.
	MessageBytes = 512 << 10
)

const (
	flagLast  byte = 1 << iota // the piece is the cut's last
	flagReset                  // the cut replaces all before it
	flagWhole                  // its requests and its state replace all before them
)

// slackBytes is how much larger than twice its table a log may be. It is trimmed by an eighth of that at a time, about.
const slackBytes = 64 << 20

// sharedLog writes a journal's batches to a log. One goroutine uses it.
type sharedLog struct {
	log      Log
	slack    int64
	number   uint64       // of the last cut
	sections []section    // of the log, the oldest first
	bytes    int64        // of all sections
	size     atomic.Int64 // bytes, for other goroutines
	whole    uint64       // position of the last cut with flagWhole or flagReset

	experts  *expertsFolder   // nil: routed experts are in the log
	state    map[string]entry // the latest records
	requests []replay.Insertion
}

// section is a part of a log.
type section struct {
	first uint64 // position of its first message
	bytes int64
	ids   []rollout.ID // written in it; some have left the table since, or were carried
}

// carry asks the next cut for the rollouts of the oldest section.
type carry struct {
	ids  []rollout.ID
	upTo uint64 // position of the section after it; 0: nothing is asked
}

// CreateIn begins a journal in an empty log. The table's content so far is in the log when it returns.
func CreateIn(l Log, o Options, t *replay.Table) (*Journal, error) {
	j := newJournal(o.in(l), nil, t)
	j.shared = newSharedLog(l, o)
	t.JournalView().Track()
	b, err := j.cut(nil)
	if err == nil {
		_, err = j.shared.write([]*batch{b})
	}
	if err != nil {
		return nil, fmt.Errorf("beginning the journal in %s: %w", l, err)
	}
	return j, j.start(nil)
}

// OpenIn recovers the table that build makes from a log, and continues its journal. An empty log gives an empty table.
func OpenIn(l Log, o Options, build func() (*replay.Table, error)) (*Journal, *replay.Table, *Recovery, error) {
	began := time.Now()
	failed := func(err error) (*Journal, *replay.Table, *Recovery, error) {
		return nil, nil, nil, fmt.Errorf("opening the journal in %s: %w", l, err)
	}
	table, err := build()
	if err != nil {
		return failed(err)
	}
	s := newSharedLog(l, o)
	c, err := s.read()
	if err != nil {
		return failed(err)
	}
	if c.table == nil { // the log is empty, or its first cut never happened
		j, err := CreateIn(l, o, table)
		return j, table, &Recovery{Path: l.String(), Took: time.Since(began)}, err
	}
	recovered := replay.Recovered{State: c.table, Stored: c.rollouts, Requests: s.requests}
	if recovered.Consumed, err = c.consumed(); err != nil {
		return failed(err)
	}
	done, err := table.JournalView().Rebuild(recovered)
	if err != nil {
		return failed(err)
	}
	j := newJournal(o.in(l), nil, table)
	j.shared, j.lastState = s, c.state[tableKey]
	r := &Recovery{
		Path: l.String(), Rollouts: len(c.rollouts), Bytes: c.bytes, FileBytes: s.bytes, Version: table.Version(),
		Requests: len(s.requests), Returned: done.Returned, Took: time.Since(began), Blobs: c.blobs(),
		WithoutExperts: c.withoutExperts,
	}
	return j, table, r, j.start(nil)
}

// in returns the options of a journal in a log.
func (o Options) in(l Log) Options {
	o.Path, o.Sync = l.String(), Always
	return o.withDefaults()
}

func newSharedLog(l Log, o Options) *sharedLog {
	s := &sharedLog{log: l, slack: cmp.Or(o.slack, slackBytes), state: make(map[string]entry)}
	if o.Experts != "" {
		s.experts = &expertsFolder{path: o.Experts, largest: s.slack / 8, log: o.withDefaults().Logger}
	}
	return s
}

// read folds the cuts of the log into the table as of the last.
func (s *sharedLog) read() (*content, error) {
	stored, apart := make(map[rollout.ID]replay.Stored), make(map[rollout.ID]uint64)
	var cut sharedCut
	err := s.log.Read(func(position uint64, message []byte) error {
		whole, err := cut.add(position, message)
		if err != nil || !whole {
			return err
		}
		if cut.number <= s.number { // it was appended twice
			return nil
		}
		if s.number != 0 && cut.number > s.number+1 {
			return fmt.Errorf("%s: cut %d comes after cut %d: want the ones between", s.log, cut.number, s.number)
		}
		if cut.flags&flagReset != 0 {
			clear(stored)
			clear(apart)
		}
		s.note(&cut)
		return cut.fold(stored, apart)
	})
	if err != nil {
		return nil, err
	}
	if s.experts != nil {
		s.experts.restore(stored, apart)
	}
	c := &content{rollouts: slices.Collect(maps.Values(stored)), state: make(map[string][]byte), bytes: s.bytes,
		withoutExperts: len(apart)}
	for key, en := range s.state {
		if c.state[key], err = openRecord(stateBucket, en.key, en.record, kindState); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if payload := c.state[tableKey]; payload != nil {
		c.table = new(replay.State)
		err = c.table.UnmarshalBinary(payload)
	}
	return c, err
}

// sharedCut is a cut in a log.
type sharedCut struct {
	batch  *batch
	flags  byte
	first  uint64 // position of its first message
	bytes  int64
	number uint64
	pieces uint32
	parts  []byte // of a cut that is being read
}

// add adds the next message of the log, and reports whether it ends a cut.
func (c *sharedCut) add(position uint64, message []byte) (whole bool, err error) {
	if len(message) < pieceHeader {
		return false, fmt.Errorf("message %d has %d bytes: want at least %d", position, len(message), pieceHeader)
	}
	number, piece := binary.LittleEndian.Uint64(message), binary.LittleEndian.Uint32(message[8:])
	switch {
	case piece == 0: // what came of the cut before never happened, unless it was whole
		*c = sharedCut{first: position, number: number, parts: c.parts[:0]}
	case number != c.number || piece != c.pieces:
		return false, fmt.Errorf("message %d is piece %d of cut %d: want piece %d of cut %d", position, piece, number,
			c.pieces, c.number)
	}
	c.flags |= message[12]
	c.pieces++
	c.bytes += int64(len(message))
	c.parts = append(c.parts, message[pieceHeader:]...)
	if c.flags&flagLast == 0 {
		return false, nil
	}
	c.batch = new(batch)
	if !c.batch.decode(c.parts) || c.batch.position.number != number {
		return false, fmt.Errorf("messages %d to %d are no cut %d", c.first, position, number)
	}
	return true, nil
}

// messages returns the cut in pieces.
func (c *sharedCut) messages() [][]byte {
	payload := appendBatch(nil, c.batch)
	var list [][]byte
	for piece, rest := uint32(0), payload; piece == 0 || len(rest) > 0; piece++ {
		n := min(len(rest), MessageBytes-pieceHeader)
		flags := c.flags
		if n == len(rest) {
			flags |= flagLast
		}
		m := make([]byte, 0, pieceHeader+n)
		m = binary.LittleEndian.AppendUint64(m, c.number)
		m = binary.LittleEndian.AppendUint32(m, piece)
		m = append(append(m, flags), rest[:n]...)
		list, rest = append(list, m), rest[n:]
		c.bytes += int64(len(m))
	}
	return list
}

// fold applies what a cut says of rollouts. Apart gets the number of the cut for those whose routed experts are apart.
func (c *sharedCut) fold(stored map[rollout.ID]replay.Stored, apart map[rollout.ID]uint64) error {
	b := c.batch
	for _, id := range b.removed {
		delete(stored, id)
		delete(apart, id)
	}
	for _, en := range b.rollouts {
		what := kindRollout
		if len(en.record) >= headerLength && kind(en.record[3]) == kindApart {
			what = kindApart
			apart[en.id()] = c.number
		}
		payload, err := openRecord(rolloutsBucket, en.key, en.record, what)
		if err != nil {
			return fmt.Errorf("rollout %x: %w", en.key, err)
		}
		k := replay.Stored{Usage: replay.Usage{ID: en.id()}}
		if err := decodeStored(payload, &k); err != nil {
			return fmt.Errorf("rollout %d: %w", k.ID, err)
		}
		stored[k.ID] = k
	}
	for _, en := range b.uses {
		payload, err := openRecord(usesBucket, en.key, en.record, kindUse)
		if err != nil || len(payload) != useLength {
			return errors.Join(fmt.Errorf("the use of rollout %x has %d bytes", en.key, len(payload)), err)
		}
		if k, held := stored[en.id()]; held { // otherwise a later cut carries it
			decodeUse(payload, &k.Usage)
			stored[k.ID] = k
		}
	}
	return nil
}

// note records what a cut in the log has changed.
func (s *sharedLog) note(c *sharedCut) {
	b := c.batch
	s.number = c.number
	if c.flags&flagReset != 0 {
		s.sections, s.bytes = nil, 0
	}
	if c.flags&(flagReset|flagWhole) != 0 {
		s.whole, s.requests = c.first, nil
		clear(s.state)
	}
	if n := len(s.sections); n == 0 || s.sections[n-1].bytes >= s.slack/8 {
		s.sections = append(s.sections, section{first: c.first})
	}
	last := &s.sections[len(s.sections)-1]
	last.bytes += c.bytes
	s.bytes += c.bytes
	s.size.Store(s.bytes)
	for _, en := range b.rollouts {
		last.ids = append(last.ids, en.id())
	}
	for _, en := range b.state {
		s.state[string(en.key)] = entry{slices.Clone(en.key), slices.Clone(en.record)}
	}
	s.requests = append(s.requests, b.requests...)
	s.requests = s.requests[max(0, len(s.requests)-b.keep):]
}

// write appends batches, and trims the log up to where its rollouts were carried. It reports whether there was anything
// to write. Batches that an earlier call appended are left out.
func (s *sharedLog) write(batches []*batch) (wrote bool, err error) {
	var cuts []*sharedCut
	trim := uint64(0)
	for _, b := range batches {
		trim = max(trim, b.carried)
		if b.position.number != 0 || b.empty() && s.whole >= b.carried {
			continue
		}
		c := &sharedCut{batch: b, number: s.number + uint64(len(cuts)) + 1}
		if b.rewrite {
			c.flags = flagReset
			if b.rollouts, err = encodeRollouts(newArena(), b.all, s.experts == nil); err != nil {
				return wrote, err
			}
		} else if s.whole < b.carried {
			if err := s.append(cuts); err != nil { // what it completes is known then
				return true, err
			}
			wrote, cuts, c.flags = true, nil, flagWhole
			s.complete(b)
		}
		cuts = append(cuts, c)
	}
	if len(cuts) > 0 {
		wrote, err = true, s.append(cuts)
	}
	if trim == 0 || err != nil {
		return wrote, err
	}
	for len(s.sections) > 0 && s.sections[0].first < trim {
		s.bytes -= s.sections[0].bytes
		s.sections = s.sections[1:]
	}
	s.size.Store(s.bytes)
	return wrote, s.trim(trim)
}

// trim removes what the log has before a position.
func (s *sharedLog) trim(before uint64) error {
	if s.experts != nil {
		s.experts.trim(before)
	}
	return s.log.Trim(before)
}

// append appends cuts to the log.
func (s *sharedLog) append(cuts []*sharedCut) error {
	var messages [][]byte
	for _, c := range cuts {
		c.batch.position.number = c.number
		c.first = uint64(len(messages))
		messages = append(messages, c.messages()...)
	}
	if len(messages) == 0 {
		return nil
	}
	last, err := s.log.Append(messages)
	for _, c := range cuts {
		if err != nil {
			c.batch.position.number = 0
			continue
		}
		c.first += last - uint64(len(messages)) + 1
		s.note(c)
		if s.experts != nil {
			s.experts.put(c.first, c.number, c.batch.apart)
		}
		if c.flags&flagReset != 0 {
			err = s.trim(c.first)
		}
	}
	return err
}

// complete adds to a batch what the log has besides its rollouts.
func (s *sharedLog) complete(b *batch) {
	requests := append(slices.Clone(s.requests), b.requests...)
	b.requests = requests[max(0, len(requests)-b.keep):]
	state := maps.Clone(s.state)
	for _, en := range b.state {
		state[string(en.key)] = en
	}
	b.state = slices.Collect(maps.Values(state))
}

// next returns what the next cut is to carry: the log is trimmed while it is much larger than what the table holds.
func (s *sharedLog) next(present int64) carry {
	total := s.bytes
	if s.experts != nil {
		total += s.experts.bytes
	}
	if len(s.sections) < 2 || total <= 2*present+s.slack {
		return carry{}
	}
	return carry{ids: s.sections[0].ids, upTo: s.sections[1].first}
}
