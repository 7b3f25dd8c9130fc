package journal

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// The buckets of the file. Their names are part of each record's checksum.
const (
	rolloutsBucket = "rollouts"
	usesBucket     = "uses"
	requestsBucket = "requests"
	stateBucket    = "state"
)

func buckets() []string { return []string{requestsBucket, rolloutsBucket, stateBucket, usesBucket} }

// The keys of the state bucket.
const (
	definitionKey = "definition"
	booksKey      = "books"
	totalsKey     = "totals"
	blobPrefix    = "blob/"
)

// entry is one record with its key.
type entry struct {
	key    []byte
	record []byte
}

// batch is a cut, encoded.
type batch struct {
	round *round // who waits for it; nil: nobody
	sync  bool   // whatever Options.Sync says

	anew     []replay.Stored // of a cut that voids all before: encoded when it is written, as it may be the whole table
	isAnew   bool
	rollouts []entry
	uses     []entry
	removed  []rollout.ID
	requests []replay.Insertion
	keep     int     // requests to keep, the latest so many
	state    []entry // books and blobs, where they changed

	bytes int64 // of records
	arena *arena
}

func (b *batch) empty() bool {
	return !b.isAnew && len(b.rollouts)+len(b.uses)+len(b.removed)+len(b.requests)+len(b.state) == 0
}

// arena is the memory that the records of a batch stand in, one part for each who encodes.
type arena struct{ parts [][]byte }

// encoder turns rollouts into records, with as many goroutines as can work.
type encoder struct {
	sums   sums
	arenas sync.Pool // of *arena
}

func newEncoder() *encoder {
	e := &encoder{sums: newSums()}
	e.arenas.New = func() any { return &arena{parts: make([][]byte, encoders())} }
	return e
}

func encoders() int { return min(runtime.GOMAXPROCS(0), 4) }

// place is where a record stands in an arena that still grows.
type place struct{ part, from, to int }

// rollouts encodes rollouts into an arena, whose records are valid until it is encoded into again.
func (e *encoder) rollouts(a *arena, all []replay.Stored) ([]entry, error) {
	places := make([]place, len(all))
	errs := make([]error, len(a.parts))
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func(part int) {
		b := a.parts[part][:0]
		defer func() { a.parts[part] = b }()
		for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
			from := len(b)
			b, errs[part] = e.rollout(b, &all[i])
			if errs[part] != nil {
				return
			}
			places[i] = place{part, from, len(b)}
		}
	}
	workers := min(len(a.parts), 1+len(all)/4)
	for part := 1; part < workers; part++ {
		wg.Go(func() { work(part) })
	}
	work(0)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	keys := make([]byte, 0, 8*len(all))
	entries := make([]entry, len(all))
	for i, p := range places {
		keys = append(keys, numberKey(uint64(all[i].ID))...)
		entries[i] = entry{keys[8*i : 8*i+8 : 8*i+8], a.parts[p.part][p.from:p.to:p.to]}
	}
	return entries, nil
}

// rollout appends one record.
func (e *encoder) rollout(b []byte, k *replay.Stored) ([]byte, error) {
	from := len(b)
	b = beginRecord(b, kindRollout)
	b, err := appendKept(b, k)
	if err == nil {
		err = e.sums.seal(rolloutsBucket, numberKey(uint64(k.ID)), b[from:])
	}
	return b, err
}

// uses encodes what changed of rollouts that are in the file.
func (e *encoder) uses(all []replay.Usage) ([]entry, error) {
	const size = headerLength + useLength
	memory := make([]byte, 0, len(all)*size)
	entries := make([]entry, len(all))
	for i := range all {
		memory = appendUse(beginRecord(memory, kindUse), &all[i])
		entries[i] = entry{numberKey(uint64(all[i].ID)), memory[i*size : i*size+size : i*size+size]}
		if err := e.sums.seal(usesBucket, entries[i].key, entries[i].record); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// state encodes one record of the state bucket.
func (e *encoder) state(key string, payload []byte) (entry, error) {
	record := append(beginRecord(make([]byte, 0, headerLength+len(payload)), kindState), payload...)
	en := entry{[]byte(key), record}
	return en, e.sums.seal(stateBucket, en.key, record)
}

// request encodes an insertion under the number it is remembered by.
func (e *encoder) request(number uint64, q *replay.Insertion) (entry, error) {
	record := appendRequest(beginRecord(nil, kindRequest), q)
	en := entry{numberKey(number), record}
	return en, e.sums.seal(requestsBucket, en.key, record)
}
