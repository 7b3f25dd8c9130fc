package journal

import (
	"slices"
	"sync/atomic"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal/segments"
)

// Log is an ordered log of messages: files of this machine, or what several machines keep. It gives back what it was
// given, or an error: it has the checksums. Append and Trim are called from one goroutine; Sync may run beside them.
type Log interface {
	// Append appends messages of at most MessageBytes in order, and returns the position of the last. Positions ascend by
	// one. With sync they are as safe as the log can make them when it returns. After an error some of the first may be
	// in the log. An error that wraps [ErrNoSpace] may pass; after any other nothing must be appended any more.
	Append(messages [][]byte, sync bool) (last uint64, err error)
	// Sync makes everything as safe as the log can make it.
	Sync() error
	// Read yields every message in order, some at a time. They are valid until yield returns.
	Read(yield func([]Message) error) error
	// Trim removes the messages before a position, at once or later.
	Trim(before uint64) error
	// String names the log.
	String() string
}

// Message is a message of a [Log] with its position.
type Message = segments.Message

// slackBytes is how much larger than twice its table a log may be. It is trimmed by an eighth of that at a time, about.
const slackBytes = 64 << 20

// streamBytes is how many bytes of rollouts of a whole table are encoded at a time.
const streamBytes = 32 << 20

// ledger is what a log has, as far as its writer must know it.
//
// A log is trimmed at its front, by sections. Rollouts of the first that are still in the table are carried: a later
// cut has them again. A cut with flagWhole has all insertions and the whole state again.
type ledger struct {
	number   uint64 // of the last cut
	tally    Tally  // of all cuts
	sections []section
	bytes    int64             // of all sections
	whole    uint64            // position from which the log has all insertions and the whole state
	state    map[string][]byte // the latest values
	requests []replay.Insertion
	saved    bool // parts may be missing, see flagSaved
}

// section is a part of a log.
type section struct {
	first uint64 // position of its first message
	bytes int64
	ids   []rollout.ID // written in it; some have left the table since, or were carried
}

// cut is a cut in a log, or the part of it that was written or read so far.
type cut struct {
	number   uint64
	flags    byte
	keep     int     // insertions
	next     uint32  // number of its next piece
	tally    Tally   // before that
	pieces   []piece // in the log
	sealed   []piece // to follow them
	after    Tally   // of those
	requests []replay.Insertion
	state    []named
}

// note records a cut that the log has whole, in sections of at least size bytes.
func (l *ledger) note(c *cut, size int64) {
	l.number, l.tally = c.number, c.tally
	if c.flags&flagReset != 0 {
		l.sections, l.bytes, l.saved = nil, 0, c.flags&flagSaved != 0
	}
	if l.state == nil || c.flags&(flagReset|flagWhole) != 0 {
		l.requests, l.state = nil, make(map[string][]byte)
		for i := len(c.pieces) - 1; i >= 0 && (i == len(c.pieces)-1 || c.pieces[i].has.Rollouts == 0); i-- {
			l.whole = c.pieces[i].position // the rollouts come first
		}
	}
	for i := range c.pieces {
		p := &c.pieces[i]
		if n := len(l.sections); n == 0 || l.sections[n-1].bytes >= size && p.flags&flagRest == 0 {
			l.sections = append(l.sections, section{first: p.position})
		}
		s := &l.sections[len(l.sections)-1]
		s.bytes, s.ids, l.bytes = s.bytes+p.bytes, append(s.ids, p.ids...), l.bytes+p.bytes
	}
	for _, en := range c.state {
		if l.state[en.key] = en.value; len(en.value) == 0 { // forgotten
			delete(l.state, en.key)
		}
	}
	l.requests = append(l.requests, c.requests...)
	l.requests = l.requests[max(0, len(l.requests)-c.keep):]
}

// carry asks the next cut for the rollouts of the oldest section.
type carry struct {
	ids  []rollout.ID
	upTo uint64 // position of the section after it; 0: nothing is asked
}

// logWriter writes a journal's batches to its log. One goroutine uses it.
type logWriter struct {
	ledger
	log     Log
	slack   int64
	size    atomic.Int64   // bytes of the log, for other goroutines
	experts *expertsFolder // nil: routed experts are in the log
	arena   *arena         // of whole tables
}

func newLogWriter(l Log, o Options) *logWriter {
	return &logWriter{log: l, slack: o.slack, experts: newExpertsFolder(o), arena: newArena()}
}

// write appends batches, and trims the log up to where its rollouts were carried. It reports whether there was anything
// to write. Batches that an earlier call appended are left out. After an error it may be called again with the same
// ones first.
func (w *logWriter) write(batches []*batch, sync bool) (wrote bool, err error) {
	var group []*batch
	trim := uint64(0)
	for _, b := range batches {
		trim = max(trim, b.carried)
		if b.inLog || b.empty() && w.whole >= b.carried {
			continue
		}
		wrote = true
		if b.rewrite || w.whole < b.carried {
			if err := w.append(group, false); err != nil { // what it completes is known then
				return true, err
			}
			group = nil
			if err := w.complete(b); err != nil {
				return true, err
			}
		}
		group = append(group, b)
	}
	if err := w.append(group, sync); err != nil || trim == 0 {
		return wrote, err
	}
	for len(w.sections) > 0 && w.sections[0].first < trim {
		w.bytes -= w.sections[0].bytes
		w.sections = w.sections[1:]
	}
	w.size.Store(w.bytes)
	return wrote, w.trim(trim)
}

// complete makes a batch one with all insertions and the whole state. The rollouts of a whole table are appended, some
// at a time; if that fails the next call goes on where it ended.
func (w *logWriter) complete(b *batch) error {
	if b.flags&flagWhole != 0 { // by an earlier call
		return nil
	}
	if !b.rewrite {
		b.flags |= flagWhole
		b.requests = append(slices.Clone(w.requests), b.requests...)
		b.requests = b.requests[max(0, len(b.requests)-b.keep):]
		for key, value := range w.state {
			if !slices.ContainsFunc(b.state, func(en named) bool { return en.key == key }) {
				b.state = append(b.state, named{key, value})
			}
		}
		return nil
	}
	b.flags |= flagReset
	if b.begun == nil {
		b.begun = &cut{number: w.number + 1, flags: b.flags, keep: b.keep, tally: w.tally}
		if err := w.repeatDefinition(b); err != nil {
			return err
		}
	}
	for len(b.all) > 0 {
		n, bytes := 0, int64(0)
		for n < len(b.all) && bytes < streamBytes {
			bytes += b.all[n].Rollout.Bytes()
			n++
		}
		messages, err := encodeRollouts(w.arena, b.all[:n], w.experts == nil)
		if err != nil {
			return err
		}
		if err := w.stream(b.begun, messages); err != nil {
			return err
		}
		b.all = b.all[n:]
	}
	return nil
}

// repeatDefinition appends the table's definition alone. It comes again with the rest of the state: a journal of which
// the only one is lost could not be salvaged.
func (w *logWriter) repeatDefinition(b *batch) error {
	i := slices.IndexFunc(b.state, func(en named) bool { return en.key == definitionKey })
	if i < 0 {
		return nil
	}
	var p packer
	if err := p.addState(definitionKey, b.state[i].value); err != nil {
		return err
	}
	return w.stream(b.begun, p.messages())
}

// stream appends pieces of a cut that is not whole yet.
func (w *logWriter) stream(c *cut, messages []message) error {
	last, err := w.log.Append(c.seal(messages, false), false)
	if err == nil {
		c.add(last)
	}
	return err
}

// seal writes the headers of the next messages of a cut, in the place of those that could not be appended.
func (c *cut) seal(messages []message, end bool) (data [][]byte) {
	c.sealed, c.after = nil, c.tally
	for i, m := range messages {
		h := head{flags: c.flags | m.flags, piece: c.next + uint32(i), number: c.number, keep: c.keep, before: c.after}
		if end && i == len(messages)-1 {
			h.flags |= flagLast
		}
		h.put(m.b)
		c.after.add(m.has)
		c.sealed = append(c.sealed, piece{head: h, bytes: int64(len(m.b)), has: m.has, ids: m.ids})
		data = append(data, m.b)
	}
	return data
}

// add notes that the log has what was sealed, up to a position.
func (c *cut) add(last uint64) {
	n := len(c.sealed)
	for i := range c.sealed {
		c.sealed[i].position = last - uint64(n-1-i)
	}
	c.next, c.pieces, c.tally = c.next+uint32(n), append(c.pieces, c.sealed...), c.after
}

// append appends batches, each a cut or the rest of one.
func (w *logWriter) append(batches []*batch, sync bool) error {
	var cuts []*cut
	var all [][]byte
	before := w.tally
	for i, b := range batches {
		c := b.begun
		if c == nil {
			c = &cut{number: w.number + uint64(i) + 1, flags: b.flags, keep: b.keep, tally: before}
		}
		rest, err := b.rest()
		if err != nil {
			return err
		}
		all = append(all, c.seal(slices.Concat(b.messages, rest), true)...)
		c.requests, c.state, before = b.requests, b.state, c.after
		cuts = append(cuts, c)
	}
	if len(all) == 0 {
		return nil
	}
	last, err := w.log.Append(all, sync)
	if err != nil {
		return err
	}
	at := last - uint64(len(all))
	for i, c := range cuts {
		at += uint64(len(c.sealed))
		c.add(at)
		w.note(c, w.slack/8)
		batches[i].inLog = true
		if w.experts != nil {
			w.experts.put(c.pieces[0].position, c.number, batches[i].apart)
		}
		if c.flags&flagReset != 0 {
			err = w.trim(c.pieces[0].position)
		}
	}
	w.size.Store(w.bytes)
	return err
}

// trim removes what the log has before a position.
func (w *logWriter) trim(before uint64) error {
	if w.experts != nil {
		w.experts.trim(before)
	}
	return w.log.Trim(before)
}

// next returns what the next cut is to carry: the log is trimmed while it is much larger than what the table holds.
func (w *logWriter) next(present int64) carry {
	total := w.bytes
	if w.experts != nil {
		total += w.experts.bytes
	}
	if len(w.sections) < 2 || total <= 2*present+w.slack {
		return carry{}
	}
	return carry{ids: w.sections[0].ids, upTo: w.sections[1].first}
}
