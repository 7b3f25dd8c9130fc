package service

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

func flowOf(inserted, drawn, returned uint64, present int) func() replay.Flow {
	return func() replay.Flow {
		return replay.Flow{Inserted: inserted, Drawn: drawn, Returned: returned, Present: present}
	}
}

func works() error { return nil }

// With d = inserted x ratio - drawn: insertions while d <= ratio x MinSize + buffer after them, samples while
// d >= ratio x MinSize - buffer after them.
func TestTheLimiterKeepsToItsFormula(t *testing.T) {
	limits := wire.Limiter{SamplesPerInsert: 2, ErrorBuffer: 10} // with MinSize 8: d from 6 to 26
	for _, c := range []struct {
		name            string
		inserted, drawn uint64
		returned        uint64
		present         int
		insert, sample  int
		mayIn, maySmp   bool
	}{
		{"at the upper end", 13, 0, 0, 13, 1, 1, false, true}, // d = 26
		{"just below the upper end", 12, 0, 0, 12, 1, 1, true, true},
		{"two at once exceed it", 12, 0, 0, 12, 2, 1, false, true},
		{"at the lower end", 13, 20, 0, 13, 1, 1, true, false}, // d = 6
		{"just above the lower end", 13, 19, 0, 13, 1, 1, true, true},
		{"a batch of two falls below it", 13, 19, 0, 13, 1, 2, true, false},
		{"what went back is not drawn", 13, 20, 1, 13, 1, 1, true, true},
		{"below MinSize all are let in", 100, 0, 0, 3, 5, 1, true, true},
		{"but not beyond it", 100, 0, 0, 4, 5, 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLimiter(limits, 8)
			table := flowOf(c.inserted, c.drawn, c.returned, c.present)
			if err := l.Insert(c.insert, table, works); (err == nil) != c.mayIn {
				t.Errorf("insertion of %d: %v", c.insert, err)
			} else if err != nil && !errors.Is(err, rollout.ErrFull) {
				t.Errorf("%v is not ErrFull", err)
			}
			l = newLimiter(limits, 8)
			if _, err := l.Sample(c.sample, table, works); (err == nil) != c.maySmp {
				t.Errorf("sample of %d: %v", c.sample, err)
			} else if err != nil && !errors.Is(err, rollout.ErrStarved) {
				t.Errorf("%v is not ErrStarved", err)
			}
		})
	}
}

// What fails in the table moves nothing, and holds nobody back.
func TestRefusedRequestsDoNotMoveTheLimiter(t *testing.T) {
	l := newLimiter(wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}, 0)
	table := flowOf(0, 0, 0, 0)
	refused := errors.New("refused")
	fails := func() error { return refused }
	for range 3 {
		if err := l.Insert(4, table, fails); !errors.Is(err, refused) {
			t.Errorf("an insertion: %v", err)
		}
		if starved, err := l.Sample(4, table, fails); !errors.Is(err, refused) || starved {
			t.Errorf("a sample: %v, %v", starved, err)
		}
	}
	if err := l.Insert(4, table, works); err != nil {
		t.Errorf("an insertion after those: %v", err)
	}
	if _, err := l.Sample(4, table, works); err != nil {
		t.Errorf("a sample after those: %v", err)
	}
}

// However many look at once, they move the balance one after another.
func TestInsertionsAndSamplesAtOnceKeepToTheBounds(t *testing.T) {
	var mu sync.Mutex
	f := replay.Flow{}
	table := func() replay.Flow {
		mu.Lock()
		defer mu.Unlock()
		return f
	}
	move := func(change func()) func() error {
		return func() error {
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			change()
			if d := float64(f.Inserted) - float64(f.Drawn); math.Abs(d) > 4 {
				t.Errorf("d is %v, beyond 4", d)
			}
			return nil
		}
	}
	l := newLimiter(wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}, 0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				_ = l.Insert(3, table, move(func() { f.Inserted += 3 })) // refused or not
			}
		})
		wg.Go(func() {
			for range 500 {
				_, _ = l.Sample(3, table, move(func() { f.Drawn += 3 }))
			}
		})
	}
	wg.Wait()
	if f.Inserted == 0 || f.Drawn == 0 {
		t.Errorf("inserted %d, drawn %d", f.Inserted, f.Drawn)
	}
}

func TestRequestsAboveTheErrorBufferAreInvalid(t *testing.T) {
	l := newLimiter(wire.Limiter{SamplesPerInsert: 2, ErrorBuffer: 10}, 0)
	table := flowOf(0, 0, 0, 100)
	_, sampling := l.Sample(11, table, works)
	for what, err := range map[string]error{"insertion": l.Insert(6, table, works), "sample": sampling} {
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), "error_buffer") ||
			!strings.Contains(err.Error(), "10") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestALimiterWithoutRoomForOneInsertionIsRefused(t *testing.T) {
	for _, c := range []struct {
		limiter wire.Limiter
		group   int
		want    string
	}{
		{wire.Limiter{SamplesPerInsert: 4, ErrorBuffer: 3}, 0, "at least 4"},
		{wire.Limiter{SamplesPerInsert: 4, ErrorBuffer: 31}, 8, "at least 32"},
		{wire.Limiter{SamplesPerInsert: 0.1, ErrorBuffer: 0.5}, 0, "at least 1"},
		{wire.Limiter{SamplesPerInsert: 0, ErrorBuffer: 5}, 0, "samples_per_insert"},
		{wire.Limiter{SamplesPerInsert: math.NaN(), ErrorBuffer: 5}, 0, "samples_per_insert"},
		{wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: math.Inf(1)}, 0, "error_buffer"},
	} {
		var problems option.Problems
		checkLimiter(&problems, c.limiter, c.group)
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%+v with groups of %d: %v, want %q", c.limiter, c.group, problems, c.want)
		}
	}
	var problems option.Problems
	if checkLimiter(&problems, wire.Limiter{SamplesPerInsert: 4, ErrorBuffer: 32}, 8); len(problems) > 0 {
		t.Error(problems)
	}
}

// A naive table: rollouts come, are drawn and leave unused, at random. The limiter must keep d within its bounds but
// for what it lets in because the table starves, and must never hold both sides back for good.
func TestTheLimiterKeepsItsBoundsAndNeverBlocksBothSides(t *testing.T) {
	for seed := range uint64(200) {
		random := rollout.Stream(seed, "service/limiter_test", 0)
		ratio := []float64{0.25, 0.5, 1, 2, 8}[random.IntN(5)]
		buffer := ratio*8 + float64(random.IntN(30)) + 16
		minSize := random.IntN(20)
		l := newLimiter(wire.Limiter{SamplesPerInsert: ratio, ErrorBuffer: buffer}, minSize)
		least, most := l.bounds()
		f := replay.Flow{}
		table := func() replay.Flow { return f }
		d := func() float64 { return float64(f.Inserted)*ratio - float64(f.Drawn-f.Returned) }
		for step := range 2000 {
			insert, sample := 1+random.IntN(8), 1+random.IntN(16)
			errIn := l.Insert(insert, table, func() error {
				starved := d()+float64(insert)*ratio > most
				few := f.Present+insert <= minSize
				f.Inserted += uint64(insert)
				f.Present += insert
				if starved && !few && step == 0 {
					t.Fatalf("seed %d: the first insertion exceeds the bound", seed)
				}
				return nil
			})
			let := false
			_, errOut := l.Sample(sample, table, func() error {
				let = true
				if f.Present < minSize || f.Present < 1 {
					return rollout.ErrStarved
				}
				f.Drawn += uint64(sample)
				return nil
			})
			if let {
				errOut = nil
			}
			if errOut == nil && d() < least {
				t.Fatalf("seed %d, step %d: samples brought d to %v, below %v", seed, step, d(), least)
			}
			if errIn != nil && errOut != nil {
				t.Fatalf("seed %d, step %d: both sides are held back at d = %v within %v and %v: %v; %v", seed, step,
					d(), least, most, errIn, errOut)
			}
			if random.IntN(10) == 0 { // some leave unused, some draws go back
				f.Present -= random.IntN(f.Present + 1)
				f.Returned += min(uint64(random.IntN(3)), f.Drawn-f.Returned)
			}
		}
	}
}

func TestAStarvedTableLetsOneInsertionInPerStarvedSample(t *testing.T) {
	l := newLimiter(wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}, 0)
	table := flowOf(4, 0, 0, 0) // four came and left unused: d = 4 is the most
	if err := l.Insert(1, table, works); !errors.Is(err, rollout.ErrFull) {
		t.Fatalf("before any sample: %v", err)
	}
	starve := func() error { return rollout.ErrStarved }
	for range 2 {
		if starved, err := l.Sample(1, table, starve); !starved || !errors.Is(err, rollout.ErrStarved) {
			t.Fatalf("a starved sample: %v, %v", starved, err)
		}
	}
	if err := l.Insert(1, table, func() error { return rollout.ErrInvalid }); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("an insertion that the table refuses: %v", err)
	}
	if err := l.Insert(1, table, works); err != nil {
		t.Errorf("a starved sample lets none in: %v", err)
	}
	if err := l.Insert(1, table, works); !errors.Is(err, rollout.ErrFull) {
		t.Errorf("a second insertion after one starved sample: %v", err)
	}
}
