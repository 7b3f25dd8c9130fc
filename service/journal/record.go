package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Every value in the file is a record: a header of headerLength bytes, then the payload.
//
//	0  magic, 2 bytes
//	2  format
//	3  kind
//	4  length of the payload, uint32
//	8  CRC-32C (Castagnoli) of the bucket's name, the key, the 8 bytes before, and the payload
//
// Numbers are little-endian. Keys are big-endian numbers, so that their order is the numbers'.
const (
	magic        = "\xA5j"
	recordFormat = 1
	headerLength = 12
)

// The buckets of the file.
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
	tableKey      = "books" // replay.State
	totalsKey     = "totals"
	logKey        = "log" // position
	blobPrefix    = "blob/"
	requestPrefix = "request/" // replay.Consumed as JSON, by slot; no bytes: forgotten
)

// kind is the content of a record.
type kind byte

const (
	kindRollout kind = 'r'
	kindApart   kind = 'a' // a rollout whose routed experts are apart, see expertsFolder
	kindUse     kind = 'u'
	kindRequest kind = 'q'
	kindState   kind = 's'
)

func checksum(bucket string, key, record []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once by the standard library
	sum := crc32.Update(0, table, []byte(bucket))
	sum = crc32.Update(sum, table, key)
	sum = crc32.Update(sum, table, record[:8])
	return crc32.Update(sum, table, record[headerLength:])
}

// beginRecord appends a header that sealRecord completes.
func beginRecord(b []byte, k kind) []byte {
	b = append(b, magic...)
	b = append(b, recordFormat, byte(k))
	return append(b, make([]byte, headerLength-4)...)
}

// sealRecord writes length and checksum into the header of a record.
func sealRecord(bucket string, key, record []byte) error {
	n := len(record) - headerLength
	if n > math.MaxInt32 {
		return fmt.Errorf("a record of %d bytes: want at most %d", n, math.MaxInt32)
	}
	binary.LittleEndian.PutUint32(record[4:], uint32(n))
	binary.LittleEndian.PutUint32(record[8:], checksum(bucket, key, record))
	return nil
}

// openRecord checks a record and returns its payload.
func openRecord(bucket string, key, record []byte, want kind) ([]byte, error) {
	switch {
	case len(record) < headerLength:
		return nil, fmt.Errorf("its record has %d bytes, a header has %d", len(record), headerLength)
	case string(record[:2]) != magic:
		return nil, fmt.Errorf("its record begins with %x, not %x", record[:2], magic)
	case uint64(binary.LittleEndian.Uint32(record[4:])) != uint64(len(record)-headerLength):
		return nil, fmt.Errorf("its record says %d bytes and has %d", binary.LittleEndian.Uint32(record[4:]),
			len(record)-headerLength)
	}
	if sum, said := checksum(bucket, key, record), binary.LittleEndian.Uint32(record[8:]); sum != said {
		return nil, fmt.Errorf("its checksum is %08x, its record says %08x", sum, said)
	}
	if record[2] != recordFormat || kind(record[3]) != want {
		return nil, fmt.Errorf("its record is of format %d, kind %q; known is format %d, here kind %q", record[2],
			record[3], recordFormat, want)
	}
	return record[headerLength:], nil
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// Bytes of a rollout's use, and of the fields before a rollout's content.
const (
	useLength    = 4 + 4 + 8 + 1
	storedLength = useLength + 8 + 4 + 4 + 4 + 4
)

func appendUse(b []byte, u *replay.Usage) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(u.Uses))
	b = binary.LittleEndian.AppendUint32(b, uint32(u.LastUse))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(u.Base))
	return append(b, byte(u.Marks))
}

func decodeUse(b []byte, u *replay.Usage) {
	u.Uses = int32(binary.LittleEndian.Uint32(b))
	u.LastUse = rollout.Version(binary.LittleEndian.Uint32(b[4:]))
	u.Base = math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))
	u.Marks = replay.Marks(b[16])
}

func appendStored(b []byte, k *replay.Stored) ([]byte, error) {
	b = appendUse(b, &k.Usage)
	b = binary.LittleEndian.AppendUint64(b, k.Group)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.Shard))
	for _, x := range [...]float32{k.Advantage, k.Mean, k.Std} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return k.Rollout.AppendBinary(b)
}

func decodeStored(b []byte, k *replay.Stored) error {
	if len(b) < storedLength {
		return fmt.Errorf("its payload has %d bytes, at least %d are needed", len(b), storedLength)
	}
	decodeUse(b, &k.Usage)
	b = b[useLength:]
	k.Group = binary.LittleEndian.Uint64(b)
	k.Shard = int(binary.LittleEndian.Uint32(b[8:]))
	for i, x := range [...]*float32{&k.Advantage, &k.Mean, &k.Std} {
		*x = math.Float32frombits(binary.LittleEndian.Uint32(b[12+4*i:]))
	}
	k.Rollout = new(rollout.Rollout)
	return k.Rollout.UnmarshalBinary(b[storedLength-useLength:])
}

// hasDigest is a bit of an insertion's count: a digest follows it. Files of before have none.
const hasDigest = 1 << 31

func appendRequest(b []byte, q *replay.Insertion) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(q.First))
	if q.Digest == 0 {
		b = binary.LittleEndian.AppendUint32(b, uint32(q.Count))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(q.Count)|hasDigest)
		b = binary.LittleEndian.AppendUint64(b, q.Digest)
	}
	return append(b, q.BatchID...)
}

func decodeRequest(b []byte, q *replay.Insertion) error {
	if len(b) < 12 {
		return fmt.Errorf("its payload has %d bytes, at least 12 are needed", len(b))
	}
	count := binary.LittleEndian.Uint32(b[8:])
	*q = replay.Insertion{First: rollout.ID(binary.LittleEndian.Uint64(b)), Count: int(count &^ hasDigest)}
	b = b[12:]
	if count&hasDigest != 0 {
		if len(b) < 8 {
			return fmt.Errorf("its payload has %d bytes, at least 20 are needed", 12+len(b))
		}
		q.Digest = binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
	q.BatchID = string(b)
	return nil
}

// totals is the number of records in each bucket. It reveals a page that hides some.
type totals struct {
	Commit   uint64 // transactions so far
	Rollouts uint64
	Uses     uint64
	Requests uint64
	Salvaged bool // some records may be missing
}

const totalsLength = 4*8 + 1

func (t *totals) append(b []byte) []byte {
	for _, n := range [...]uint64{t.Commit, t.Rollouts, t.Uses, t.Requests} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	if t.Salvaged {
		return append(b, 1)
	}
	return append(b, 0)
}

func (t *totals) decode(b []byte) error {
	if len(b) != totalsLength || b[totalsLength-1] > 1 {
		return fmt.Errorf("its payload has %d bytes, the last %x; %d are needed, the last 0 or 1", len(b),
			b[max(0, len(b)-1):], totalsLength)
	}
	for i, n := range [...]*uint64{&t.Commit, &t.Rollouts, &t.Uses, &t.Requests} {
		*n = binary.LittleEndian.Uint64(b[8*i:])
	}
	t.Salvaged = b[totalsLength-1] == 1
	return nil
}

// entry is a record with its key.
type entry struct {
	key    []byte
	record []byte
}

// id returns the rollout of a record of the buckets "rollouts" and "uses".
func (en entry) id() rollout.ID { return rollout.ID(binary.BigEndian.Uint64(en.key)) }

// arena is the memory of encoded rollouts, a part for each goroutine that encodes.
type arena struct{ parts [][]byte }

func newArena() *arena { return &arena{parts: make([][]byte, min(runtime.GOMAXPROCS(0), 4))} }

// encodeRollouts encodes rollouts into an arena, with or without routed experts. The records are valid until the arena is
// used again.
func encodeRollouts(a *arena, all []replay.Stored, experts bool) ([]entry, error) {
	type place struct{ part, from, to int } // in the arena, which still grows
	places := make([]place, len(all))
	errs := make([]error, len(a.parts))
	workers := min(len(a.parts), 1+len(all)/4)
	total := 0
	for i := range all {
		total += headerLength + storedLength + int(all[i].Rollout.Bytes())
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func(part int) {
		b := slices.Grow(a.parts[part][:0], total/workers+total/8) // seldom more
		defer func() { a.parts[part] = b }()
		for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
			from := len(b)
			b, errs[part] = encodeRollout(b, &all[i], experts)
			if errs[part] != nil {
				return
			}
			places[i] = place{part, from, len(b)}
		}
	}
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

func encodeRollout(b []byte, k *replay.Stored, experts bool) ([]byte, error) {
	from, what := len(b), kindRollout
	if !experts && len(k.Rollout.RoutedExperts) > 0 {
		without, r := *k, *k.Rollout
		r.RoutedExperts, without.Rollout = nil, &r
		k, what = &without, kindApart
	}
	b = beginRecord(b, what)
	b, err := appendStored(b, k)
	if err == nil {
		err = sealRecord(rolloutsBucket, numberKey(uint64(k.ID)), b[from:])
	}
	return b, err
}

// encodeUses encodes the changes of rollouts that are in the file.
func encodeUses(all []replay.Usage) ([]entry, error) {
	const size = headerLength + useLength
	memory := make([]byte, 0, len(all)*size)
	entries := make([]entry, len(all))
	for i := range all {
		memory = appendUse(beginRecord(memory, kindUse), &all[i])
		entries[i] = entry{numberKey(uint64(all[i].ID)), memory[i*size : i*size+size : i*size+size]}
		if err := sealRecord(usesBucket, entries[i].key, entries[i].record); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func encodeState(key string, payload []byte) (entry, error) {
	record := append(beginRecord(make([]byte, 0, headerLength+len(payload)), kindState), payload...)
	en := entry{[]byte(key), record}
	return en, sealRecord(stateBucket, en.key, record)
}

// encodeRequest encodes a remembered insertion under its number.
func encodeRequest(number uint64, q *replay.Insertion) (entry, error) {
	record := appendRequest(beginRecord(nil, kindRequest), q)
	en := entry{numberKey(number), record}
	return en, sealRecord(requestsBucket, en.key, record)
}
