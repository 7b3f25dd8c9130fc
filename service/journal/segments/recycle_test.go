package segments

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/rollout"
)

// content is what message i has in these tests, in as many bytes as it is long.
func content(i uint64, bytes int) []byte {
	b := make([]byte, bytes)
	random := rollout.Stream(i, "segments", 0)
	for k := range b {
		b[k] = byte(random.Uint32())
	}
	return b
}

// recycled returns a log whose last segment is written over a trimmed one, with more of that behind its end. Messages
// have content.
func recycled(t *testing.T, d *disktest.Simulated) *Log {
	t.Helper()
	must(t, d.MakeFolder("/data"))
	l, err := Create("/data/log", options(d, 1000))
	must(t, err)
	add(t, l, 45, true)
	must(t, l.MoveInPlace(nil))
	for old := int64(0); old < 200; {
		must(t, l.Trim(l.last-9))
		must(t, l.Sync())
		add(t, l, 4, true)
		old = int64(len(d.Content(l.path(l.segments[len(l.segments)-1])))) - l.segments[len(l.segments)-1].bytes
	}
	return l
}

// add appends n messages, one at a time.
func add(t *testing.T, l *Log, n int, sync bool) {
	t.Helper()
	for range n {
		_, err := l.Append([][]byte{content(l.last+1, 60+int(l.last%7))}, sync)
		must(t, err)
	}
}

// read opens what a process that ended has left, checks the messages, and returns their positions and the damage.
func read(t *testing.T, d *disktest.Simulated) (l *Log, positions []uint64, damage []Damage) {
	t.Helper()
	l, err := Open("/data/log", options(d, 1000), false)
	must(t, err)
	must(t, l.Walk(func(list []Message) error {
		for _, m := range list {
			if !bytes.Equal(m.Data, content(m.Position, len(m.Data))) {
				t.Errorf("message %d is not what was written", m.Position)
			}
			positions = append(positions, m.Position)
		}
		return nil
	}, func(d Damage) error { damage = append(damage, d); return nil }))
	return l, positions, damage
}

// A log whose segments are written over trimmed ones takes no more files than it has segments, and one to spare. It
// ends where it was written to, and goes on there, although its file goes on with old messages.
func TestSegmentsAreWrittenOverTrimmedOnes(t *testing.T) {
	d := new(disktest.Simulated)
	l := recycled(t, d)
	most := 0
	for range 100 {
		must(t, l.Trim(l.last-30))
		must(t, l.Sync())
		add(t, l, 10, true)
		names, err := d.List("/data/log")
		must(t, err)
		most = max(most, len(names))
	}
	if most > 8 {
		t.Errorf("there were %d files", most)
	}
	last, front := l.message, l.front
	killed := d.Clone()
	must(t, l.Close())
	for range 3 {
		l, positions, damage := read(t, killed)
		if torn, left := l.Torn(); len(damage) > 0 || torn > 0 || left > 0 || positions[len(positions)-1] != last ||
			positions[0] > front {
			t.Fatalf("of messages %d to %d it read %v, with %d bytes and %d messages torn: %v", front, last, positions, torn,
				left, damage)
		}
		must(t, l.Resume())
		add(t, l, 3, true)
		last = l.message
		must(t, l.Close())
	}
}

// Of a write over old messages of which only a part has arrived, in whichever order of sectors, the whole frames before
// the first that is missing are read, and nothing older in place of the rest.
func TestATornWriteOverOldMessagesIsTheEnd(t *testing.T) {
	for seed := range uint64(2000) {
		random := rollout.Stream(seed, "torn", 0)
		d := new(disktest.Simulated)
		l := recycled(t, d)
		synced := l.last
		add(t, l, 1+random.IntN(8), false) // may begin another segment
		written := l.last
		d.LosePower(0)
		_ = l.Close() // the power is gone
		d.Restore(random)
		l, positions, damage := read(t, d)
		last := positions[len(positions)-1]
		if len(damage) > 0 || last < synced || last > written || !slices.IsSorted(positions) {
			t.Fatalf("seed %d: of %d messages, %d on disk, it read %v: %v", seed, written, synced, positions, damage)
		}
		must(t, l.Resume())
		add(t, l, 8, true) // over what the loss has left
		last += 8
		must(t, l.Close())
		_, positions, damage = read(t, d)
		if len(damage) > 0 || positions[len(positions)-1] != last {
			t.Fatalf("seed %d: of %d messages it read %v: %v", seed, last, positions, damage)
		}
	}
}

// A byte that changes in a segment written over another costs the message that has it, and the report names the place.
// What the file had before does not count.
func TestDamageOverOldMessagesCostsThatMessage(t *testing.T) {
	d := new(disktest.Simulated)
	l := recycled(t, d)
	must(t, l.Sync()) // states that all is on disk
	must(t, l.Close())
	_, whole, _ := read(t, d.Clone())
	newest := l.segments[len(l.segments)-1]
	harmless := 0
	for at := range d.Content(l.path(newest)) {
		d := d.Clone()
		d.Content(l.path(newest))[at] ^= 1 << (at % 8)
		_, positions, damage := read(t, d)
		switch {
		case len(damage) == 0 && slices.Equal(positions, whole):
			harmless++
		case len(damage) == 1 && damage[0].Segment == l.name(newest) && damage[0].Offset <= int64(at) &&
			len(positions) >= len(whole)-1:
		default:
			t.Fatalf("byte %d of %d costs %d messages: %v", at, newest.bytes, len(whole)-len(positions), damage)
		}
	}
	if old := len(d.Content(l.path(newest))) - int(newest.bytes); old < 100 || harmless > old+frameHeader {
		t.Errorf("%d changes cost nothing, of %d bytes of old content", harmless, old)
	}
}

// If the power is lost before the new name of a file is on disk, its old name has what was written: nothing of it is
// needed.
func TestASegmentWhoseNewNameIsLostIsNotNeeded(t *testing.T) {
	d := new(disktest.Simulated)
	l := recycled(t, d)
	must(t, l.Trim(l.last-3))
	must(t, l.Sync())
	last, old := l.last, segment{number: l.segments[0].number - 1, id: 5}
	before := d.Clone()
	must(t, before.Rename(l.sparePath(), l.path(old)))
	must(t, l.Close())
	for name, harm := range map[string]func(b []byte){
		"whole": func([]byte) {}, "in part": func(b []byte) { copy(b[len(b)/3:], content(1, len(b)/3)) },
	} {
		d := before.Clone()
		names, err := d.List("/data/log")
		must(t, err)
		harm(d.Content("/data/log/" + names[0]))
		l, positions, damage := read(t, d)
		if len(damage) > 0 || positions[len(positions)-1] < last-1 {
			t.Errorf("%s: it read %v: %v", name, positions, damage)
		}
		must(t, l.Resume())
		must(t, l.Sync())
		must(t, l.Close())
	}
}

// pagedDisk checks that what is written within a file covers whole pages, or ends with the file.
type pagedDisk struct {
	*disktest.Simulated
	t      *testing.T
	within int
}

type pagedFile struct {
	disk.File
	of *pagedDisk
}

func (d *pagedDisk) Open(path string, flags int) (disk.File, error) {
	f, err := d.Simulated.Open(path, flags)
	return pagedFile{f, d}, err
}

func (f pagedFile) WriteAt(b []byte, at int64) (int, error) {
	size, err := f.Size()
	must(f.of.t, err)
	if end := at + int64(len(b)); end < size {
		if f.of.within++; end%64 != 0 {
			f.of.t.Errorf("%d bytes are written at %d of %d", len(b), at, size)
		}
	}
	return f.File.WriteAt(b, at)
}

// A page of a file that is written over is never read, as all of it is written.
func TestWholePagesAreWrittenOver(t *testing.T) {
	d := &pagedDisk{Simulated: new(disktest.Simulated), t: t}
	must(t, d.MakeFolder("/data"))
	o := options(d, 1000)
	o.PageBytes = 64
	l, err := Create("/data/log", o)
	must(t, err)
	add(t, l, 40, true)
	must(t, l.MoveInPlace(nil))
	for range 20 {
		must(t, l.Trim(l.last-5))
		must(t, l.Sync())
		add(t, l, 10, true)
	}
	must(t, l.Close())
	if d.within < 50 {
		t.Errorf("%d writes were over another segment", d.within)
	}
}

// A full disk gets back the file that waits to be written over.
func TestAFullDiskGetsTheSpareFile(t *testing.T) {
	d := new(disktest.Simulated)
	l := recycled(t, d)
	must(t, l.Trim(l.last))
	must(t, l.Sync())
	if d.Content(l.sparePath()) == nil {
		t.Fatal("there is no spare file")
	}
	d.Fill(true)
	_, err := l.Append([][]byte{content(1, 5000)}, true)
	if names, _ := d.List("/data/log"); !errors.Is(err, ErrNoSpace) || slices.Contains(names, spareName) {
		t.Errorf("%v; there are %v", err, names)
	}
	d.Fill(false)
	add(t, l, 1, true)
	must(t, l.Close())
}

// A scrub goes on where the log begins when the file that it reads becomes another segment's.
func TestAScrubLeavesASegmentThatIsWrittenOver(t *testing.T) {
	d := new(disktest.Simulated)
	l := create(t, d, 3<<20, 15, 400<<10) // two segments, of more than a block
	read, begun := []uint64(nil), 0
	s := l.NewScrub(func() { begun++ }, func(list []Message) error {
		for _, m := range list {
			read = append(read, m.Position)
		}
		return nil
	}, func(d Damage) error { t.Errorf("%s", d); return nil })
	_, _, err := s.Next()
	must(t, err)
	must(t, l.Trim(l.segments[1].first))
	must(t, l.Sync())
	write(t, l, 8, 400<<10) // over the first
	if last := l.segments[len(l.segments)-1]; last.number != 3 || l.room == 0 {
		t.Fatalf("segment %d is written over a file of %d bytes", last.number, l.room)
	}
	for last := false; !last; {
		_, last, err = s.Next()
		must(t, err)
	}
	must(t, s.End())
	if begun != 2 || read[len(read)-1] != l.message {
		t.Errorf("it began %d times, and read %v of %d", begun, read, l.message)
	}
	must(t, l.Close())
}
