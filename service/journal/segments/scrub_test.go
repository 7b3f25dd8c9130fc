package segments

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
)

// A scrub reads all of a segment that grows and is followed by another while it is read.
func TestAScrubReadsASegmentThatIsFilledMeanwhile(t *testing.T) {
	const bytes = 400 << 10
	for _, more := range []int{1, 4, 12} { // in the same segment, in a second, in a third
		l := create(t, new(disktest.Simulated), 3<<20, 6, bytes) // more than a block
		var read []uint64
		s := l.NewScrub(func() {}, func(list []Message) error {
			for _, m := range list {
				read = append(read, m.Position)
			}
			return nil
		}, func(d Damage) error { t.Errorf("with %d more: %s", more, d); return nil })
		_, last, err := s.Next()
		must(t, err)
		if last || l.Segments() != 1 {
			t.Fatalf("%d segments, read to the end: %t", l.Segments(), last)
		}
		write(t, l, more, bytes)
		for !last {
			_, last, err = s.Next()
			must(t, err)
		}
		must(t, s.End())
		if n := len(read); n != 6+more || read[n-1] != uint64(n) {
			t.Errorf("with %d more: it read %v", more, read)
		}
		must(t, l.Close())
	}
}

// A segment that is cut short while it is read ends there: nothing is read twice.
func TestASegmentCutShortWhileItIsReadEndsThere(t *testing.T) {
	d := new(disktest.Simulated)
	l := create(t, d, 3<<20, 6, 400<<10)
	r, err := l.begin(l.segments[0], -1)
	must(t, err)
	first := r.next(nil)
	path, size := l.path(l.segments[0]), int64(blockBytes+100)
	d.SetContent(path, d.Content(path)[:size])
	second := r.next(first.memory)
	must(t, second.err)
	if len(first.frames) != 5 || len(second.frames) != 0 || !second.last || second.size != size ||
		int64(len(second.memory)) != size-first.frames[4].end() {
		t.Errorf("%d frames, then %d of a block of %d bytes; the last: %t, of %d bytes", len(first.frames),
			len(second.frames), len(second.memory), second.last, second.size)
	}
	must(t, l.Close())
}

// A scrub whose next segment was trimmed meanwhile says so before it yields what the log has now.
func TestAScrubBeginsAnewWhereTheLogWasTrimmed(t *testing.T) {
	l := create(t, new(disktest.Simulated), 100, 4, 80) // a message each
	var said []string
	s := l.NewScrub(func() { said = append(said, "begin") },
		func(list []Message) error { said = append(said, fmt.Sprint(list[0].Position)); return nil },
		func(d Damage) error { said = append(said, d.String()); return nil })
	_, _, err := s.Next()
	must(t, err)
	must(t, l.Trim(4))
	must(t, l.Sync())
	write(t, l, 1, 80)
	for last := false; !last; {
		_, last, err = s.Next()
		must(t, err)
	}
	must(t, s.End())
	if want := []string{"begin", "1", "begin", "4", "6"}; l.Front() != 4 || !slices.Equal(said, want) {
		t.Errorf("the front is %d, the scrub said %v: want %v", l.Front(), said, want) // 5 states that all is synced
	}
	must(t, l.Close())
}
