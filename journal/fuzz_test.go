package journal

import (
	"bytes"
	"encoding/binary"
	"maps"
	"testing"

	"github.com/reprise-rl/reprise/replay"
)

// FuzzDamage changes bytes of a journal, each edit being where (4 bytes) and what (1 byte): either something is found, or the content
// is what it was.
func FuzzDamage(f *testing.F) {
	file, _, _ := sample(f, 5)
	_, whole, _ := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	want := facts(f, whole)
	for _, at := range []uint32{8, 16, 4096 + 70, 8192 + 10, 3 * 4096, uint32(whole.totals.Commit) * 4096} {
		f.Add(append(binary.LittleEndian.AppendUint32(nil, at), 1))
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		damaged := bytes.Clone(file)
		for ; len(edits) >= 5; edits = edits[5:] {
			damaged[int(binary.LittleEndian.Uint32(edits))%len(damaged)] ^= edits[4]
		}
		_, c, report := examineBytes(bytes.NewReader(damaged), int64(len(damaged)), true)
		if report.Whole() && !maps.Equal(facts(t, c), want) {
			t.Fatalf("unnoticed: %s", report)
		}
	})
}

// FuzzFile reads whatever it is given, and ends.
func FuzzFile(f *testing.F) {
	o := in(f)
	u := newUser(f, replay.Options{Capacity: 4}, 1)
	j := create(f, o, u.table)
	u.insert()
	must(f, j.Close())
	file := fileOf(f, o.Path)
	f.Add(file)
	f.Add(file[:8192])
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, c, report := examineBytes(bytes.NewReader(file), int64(len(file)), true)
		if c == nil {
			if report.Whole() {
				t.Fatal("what is no journal counts as whole")
			}
			return
		}
		if len(r.lost) > 0 {
			r.adoptOrphans(c)
		}
		if _, err := c.batch(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRecord opens records of every kind.
func FuzzRecord(f *testing.F) {
	u := newUser(f, replay.Options{Capacity: 4}, 1)
	u.table.Durable().Track()
	u.insert()
	entries, err := encodeRollouts(newArena(), u.table.Durable().Cut().Inserted)
	must(f, err)
	for _, en := range entries {
		f.Add(en.key, en.record)
	}
	f.Fuzz(func(t *testing.T, key, record []byte) {
		for _, bucket := range buckets() {
			var c content
			if _, err := c.decode(bucket, element{key: key, value: record}, true); err != nil {
				continue
			}
			if len(c.rollouts) == 1 { // written again it is the same
				again, err := encodeRollouts(newArena(), c.rollouts)
				must(t, err)
				if !bytes.Equal(again[0].key, key) || len(again[0].record) < headerLength {
					t.Fatalf("%x became %x", key, again[0].key)
				}
			}
		}
	})
}
