package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

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
// Numbers are little-endian; keys are big-endian numbers, so that their order is the numbers'.
const (
	magic        = "\xA5j"
	recordFormat = 1
	headerLength = 12
)

// kind is what a record holds.
type kind byte

const (
	kindRollout kind = 'r'
	kindUse     kind = 'u'
	kindRequest kind = 'q'
	kindState   kind = 's'
)

// castagnoli is looked up once per file: the table itself is the standard library's.
type sums struct{ table *crc32.Table }

func newSums() sums { return sums{crc32.MakeTable(crc32.Castagnoli)} }

func (s sums) of(bucket string, key, record []byte) uint32 {
	sum := crc32.Update(0, s.table, []byte(bucket))
	sum = crc32.Update(sum, s.table, key)
	sum = crc32.Update(sum, s.table, record[:8])
	return crc32.Update(sum, s.table, record[headerLength:])
}

// beginRecord appends a header that seal fills in.
func beginRecord(b []byte, k kind) []byte {
	b = append(b, magic...)
	b = append(b, recordFormat, byte(k))
	return append(b, make([]byte, headerLength-4)...)
}

// seal completes a record that begins with a header.
func (s sums) seal(bucket string, key, record []byte) error {
	n := len(record) - headerLength
	if n > math.MaxInt32 {
		return fmt.Errorf("a record of %d bytes: want at most %d", n, math.MaxInt32)
	}
	binary.LittleEndian.PutUint32(record[4:], uint32(n))
	binary.LittleEndian.PutUint32(record[8:], s.of(bucket, key, record))
	return nil
}

// open returns a record's payload, or what is wrong with it.
func (s sums) open(bucket string, key, record []byte, want kind) ([]byte, error) {
	switch {
	case len(record) < headerLength:
		return nil, fmt.Errorf("its record has %d bytes, a header has %d", len(record), headerLength)
	case string(record[:2]) != magic:
		return nil, fmt.Errorf("its record begins with %x, not %x", record[:2], magic)
	case uint64(binary.LittleEndian.Uint32(record[4:])) != uint64(len(record)-headerLength):
		return nil, fmt.Errorf("its record says %d bytes and has %d", binary.LittleEndian.Uint32(record[4:]), len(record)-headerLength)
	}
	if sum, said := s.of(bucket, key, record), binary.LittleEndian.Uint32(record[8:]); sum != said {
		return nil, fmt.Errorf("its checksum is %08x, its record says %08x", sum, said)
	}
	if record[2] != recordFormat || kind(record[3]) != want {
		return nil, fmt.Errorf("its record is of format %d, kind %q; known is format %d, here kind %q", record[2], record[3], recordFormat, want)
	}
	return record[headerLength:], nil
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// useLength is the bytes of a rollout's use, keptLength of what stands before its content.
const (
	useLength  = 4 + 4 + 8 + 1
	keptLength = useLength + 8 + 4 + 4 + 4 + 4
)

func appendUse(b []byte, u *replay.Usage) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(u.Uses))
	b = binary.LittleEndian.AppendUint32(b, uint32(u.LastUse))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(u.Base))
	return append(b, byte(u.Marks))
}

func readUse(b []byte, u *replay.Usage) {
	u.Uses = int32(binary.LittleEndian.Uint32(b))
	u.LastUse = rollout.Version(binary.LittleEndian.Uint32(b[4:]))
	u.Base = math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))
	u.Marks = replay.Marks(b[16])
}

func appendKept(b []byte, k *replay.Stored) ([]byte, error) {
	b = appendUse(b, &k.Usage)
	b = binary.LittleEndian.AppendUint64(b, k.Group)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.Shard))
	for _, x := range [...]float32{k.Advantage, k.Mean, k.Std} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return k.Rollout.AppendBinary(b)
}

func readKept(b []byte, k *replay.Stored) error {
	if len(b) < keptLength {
		return fmt.Errorf("its payload has %d bytes, at least %d are needed", len(b), keptLength)
	}
	readUse(b, &k.Usage)
	b = b[useLength:]
	k.Group = binary.LittleEndian.Uint64(b)
	k.Shard = int(binary.LittleEndian.Uint32(b[8:]))
	for i, x := range [...]*float32{&k.Advantage, &k.Mean, &k.Std} {
		*x = math.Float32frombits(binary.LittleEndian.Uint32(b[12+4*i:]))
	}
	k.Rollout = new(rollout.Rollout)
	return k.Rollout.UnmarshalBinary(b[keptLength-useLength:])
}

func appendRequest(b []byte, q *replay.Insertion) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(q.First))
	b = binary.LittleEndian.AppendUint32(b, uint32(q.Count))
	return append(b, q.BatchID...)
}

func readRequest(b []byte, q *replay.Insertion) error {
	if len(b) < 12 {
		return fmt.Errorf("its payload has %d bytes, at least 12 are needed", len(b))
	}
	*q = replay.Insertion{
		First: rollout.ID(binary.LittleEndian.Uint64(b)), Count: int(binary.LittleEndian.Uint32(b[8:])), BatchID: string(b[12:]),
	}
	return nil
}
