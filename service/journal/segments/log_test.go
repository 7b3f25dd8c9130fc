package segments

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzSegment reads arbitrary segments: what is read is what appendFrame writes.
func FuzzSegment(f *testing.F) {
	const id = 7
	l := &Log{id: id, synced: 1}
	b := binary.LittleEndian.AppendUint64([]byte(segmentMagic), id)
	b = l.appendFrame(l.appendFrame(l.appendFrame(b, []byte("one")), nil), []byte("three"))
	f.Add(b)
	f.Add(b[:60])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, sealed := range []bool{false, true} { // once with the right checksum and id
			if n := segmentHeader + frameHeader; sealed && len(b) >= n {
				frame := b[segmentHeader:]
				binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
				binary.LittleEndian.PutUint64(frame[8:], id)
				binary.LittleEndian.PutUint32(frame[4:], frameSum(frame))
			}
			at := int64(0)
			for _, r := range parseFrames(b[min(segmentHeader, len(b)):], int64(segmentHeader), id) {
				if r.offset < at || r.end() > int64(len(b)) {
					t.Fatalf("a frame at %d of %d bytes, after %d", r.offset, len(b), at)
				}
				at = r.end()
				w := &Log{id: id, frontier: frontier{last: r.position - 1}, synced: r.synced, front: r.front}
				if again := w.appendFrame(nil, r.message); !bytes.Equal(again, b[r.offset:at]) {
					t.Fatalf("%x became %x", b[r.offset:at], again)
				}
			}
		}
	})
}
