package segments

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
)

// A scrub whose next segment was trimmed meanwhile says so before it yields what the log has now.
func TestAScrubBeginsAnewWhereTheLogWasTrimmed(t *testing.T) {
	d := new(disktest.Simulated)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.MakeFolder("/data"))
	l, err := Create("/data/log", Options{Disk: d, Logger: slog.New(slog.DiscardHandler), LockTimeout: time.Second,
		FullBytes: 100}) // a message each
	must(err)
	write := func(n int) {
		for range n {
			_, err := l.Append([][]byte{make([]byte, 80)}, true)
			must(err)
		}
	}
	write(4)
	must(l.MoveInPlace(nil))

	var said []string
	s := l.NewScrub(func() { said = append(said, "begin") },
		func(list []Message) error { said = append(said, fmt.Sprint(list[0].Position)); return nil },
		func(d Damage) error { said = append(said, d.String()); return nil })
	_, _, err = s.Next()
	must(err)
	must(l.Trim(4))
	must(l.Sync())
	write(1)
	for last := false; !last; {
		_, last, err = s.Next()
		must(err)
	}
	must(s.End())
	if want := []string{"begin", "1", "begin", "4", "6"}; l.Front() != 4 || !slices.Equal(said, want) {
		t.Errorf("the front is %d, the scrub said %v: want %v", l.Front(), said, want) // 5 states that all is synced
	}
	must(l.Close())
}
