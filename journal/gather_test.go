package journal

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/replay"
)

func TestATransactionWaitsForThoseOfTheLastOneAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Path: filepath.Join(t.TempDir(), "j")}.withDefaults()
		j := newJournal(o, nil, newTable(t, replay.Options{Capacity: 16}))
		waited := func(waiting, company int64, meanwhile func()) time.Duration {
			j.counters.waiting.Store(waiting)
			began := time.Now()
			if meanwhile != nil {
				go meanwhile()
			}
			j.gather(company, longestGathering)
			return time.Since(began)
		}
		if d := waited(1, 1, nil); d != 0 {
			t.Errorf("who is alone waited %v", d)
		}
		if d := waited(1, 2, nil); d != longestGathering {
			t.Errorf("for one who never came it waited %v: want %v", d, longestGathering)
		}
		back := func() {
			time.Sleep(longestGathering / 4)
			j.counters.waiting.Add(1)
			j.arrived <- struct{}{}
		}
		if d := waited(1, 2, back); d != longestGathering/4 {
			t.Errorf("for one who came back it waited %v: want %v", d, longestGathering/4)
		}
		close(j.stop)
		if d := waited(0, 2, nil); d != 0 {
			t.Errorf("of a journal that is being closed it waited %v", d)
		}
	})
}
