package segments

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/disk/disktest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func options(d disk.Files, full int64) Options {
	return Options{Disk: d, Logger: slog.New(slog.DiscardHandler), FullBytes: full, PageBytes: 16}
}

// create returns a log in its place with n messages of some bytes.
func create(t *testing.T, d *disktest.Simulated, full int64, n, bytes int) *Log {
	t.Helper()
	must(t, d.MakeFolder("/data"))
	l, err := Create("/data/log", options(d, full))
	must(t, err)
	write(t, l, n, bytes)
	must(t, l.MoveInPlace(nil))
	return l
}

// write appends n messages of some bytes.
func write(t *testing.T, l *Log, n, bytes int) {
	t.Helper()
	for range n {
		_, err := l.Append([][]byte{make([]byte, bytes)}, true)
		must(t, err)
	}
}

// lostFile is a disk that cannot open a file in a folder.
type lostFile struct {
	*disktest.Simulated
	folder string
}

func (d *lostFile) Open(path string, flags int) (disk.File, error) {
	if filepath.Dir(path) == d.folder {
		return nil, syscall.EIO
	}
	return d.Simulated.Open(path, flags)
}

// Nothing is left of a log that could not be moved in place, and it can be made again.
func TestALogThatIsNotMovedInPlaceIsGone(t *testing.T) {
	for name, fail := range map[string]func(*lostFile){
		"its name is not synced":           func(d *lostFile) { d.Fail(1) },
		"its end cannot be opened":         func(d *lostFile) { d.folder = "/data/log" },
		"it was not written":               func(*lostFile) {},
		"nor is it synced that it is gone": func(d *lostFile) { d.Fail(2) },
	} {
		t.Run(name, func(t *testing.T) {
			d := &lostFile{Simulated: new(disktest.Simulated)}
			must(t, d.MakeFolder("/data"))
			l, err := Create("/data/log", options(d, 100))
			must(t, err)
			write(t, l, 2, 80)
			var written error
			if fail(d); name == "it was not written" {
				written = syscall.EIO
			}
			if err := l.MoveInPlace(written); !errors.Is(err, syscall.EIO) {
				t.Errorf("it gave %v", err)
			}
			d.folder = ""
			if names, err := d.List("/data"); err != nil || len(names) > 0 {
				t.Errorf("left is %v, %v", names, err)
			}
			l, err = Create("/data/log", options(d, 100))
			must(t, err)
			write(t, l, 1, 80)
			must(t, errors.Join(l.MoveInPlace(nil), l.Close()))
			l, err = Open("/data/log", options(d, 100), false)
			must(t, err)
			must(t, l.Close())
		})
	}
}

// A restart on a full disk removes the segments that a crash has left, as what is on disk already says that they are
// not needed.
func TestAFullDiskKeepsNoSegmentThatACrashLeft(t *testing.T) {
	d := new(disktest.Simulated)
	l := create(t, d, 100, 4, 80) // a message each
	first := l.path(l.segments[0])
	content := slices.Clone(d.Content(first))
	must(t, l.Trim(4))
	must(t, l.Sync())
	must(t, l.Close())
	d.SetContent(first, content)

	l, err := Open("/data/log", options(d, 100), false)
	must(t, err)
	must(t, l.Read(func([]Message) error { return nil }))
	must(t, l.Resume())
	d.Fill(true)
	if must(t, l.Sync()); l.Segments() != 1 {
		t.Errorf("there are %d segments", l.Segments())
	}
	must(t, l.Close())
}

// FuzzSegment reads arbitrary segments: what is read is what appendFrame writes.
func FuzzSegment(f *testing.F) {
	const id = 7
	l := &Log{segments: []segment{{id: id}}, synced: 1}
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
			frames, end := parseFrames(b[min(segmentHeader, len(b)):], int64(segmentHeader), id)
			for _, r := range frames {
				if r.offset < at || r.end() > int64(len(b)) {
					t.Fatalf("a frame at %d of %d bytes, after %d", r.offset, len(b), at)
				}
				at = r.end()
				w := &Log{segments: l.segments, frontier: frontier{last: r.position - 1}, synced: r.synced, front: r.front}
				if again := w.appendFrame(nil, r.message); !bytes.Equal(again, b[r.offset:at]) {
					t.Fatalf("%x became %x", b[r.offset:at], again)
				}
			}
			if end < at || end > int64(len(b)) && len(frames) > 0 {
				t.Fatalf("the last of %d frames ends at %d, or what was to become one at %d of %d", len(frames), at, end, len(b))
			}
		}
	})
}
