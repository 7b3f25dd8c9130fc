package service

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func flowOf(inserted, drawn, returned uint64, present int) func() replay.Flow {
	return func() replay.Flow {
		return replay.Flow{Inserted: inserted, Drawn: drawn, Returned: returned, Present: present}
	}
}

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
			l := NewLimiter(limits, 8)
			table := flowOf(c.inserted, c.drawn, c.returned, c.present)
			if err := l.Insert(c.insert, table); (err == nil) != c.mayIn {
				t.Errorf("insertion of %d: %v", c.insert, err)
			} else if err != nil && !errors.Is(err, rollout.ErrFull) {
				t.Errorf("%v is not ErrFull", err)
			}
			l = NewLimiter(limits, 8)
			if err := l.Sample(c.sample, table); (err == nil) != c.maySmp {
				t.Errorf("sample of %d: %v", c.sample, err)
			} else if err != nil && !errors.Is(err, rollout.ErrStarved) {
				t.Errorf("%v is not ErrStarved", err)
			}
		})
	}
}

func TestWhatIsUnderWayCountsAgainstItsOwnSideOnly(t *testing.T) {
	l := NewLimiter(wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}, 0)
	table := flowOf(0, 0, 0, 0)
	if err := l.Insert(3, table); err != nil {
		t.Fatal(err)
	}
	if err := l.Insert(2, table); err == nil {
		t.Error("a second insertion was let in beside one under way that leaves room for one")
	}
	if err := l.Sample(4, table); err != nil {
		t.Errorf("a sample that the buffer allows: %v", err)
	}
	if err := l.Sample(1, table); err == nil {
		t.Error("a sample counted on an insertion under way, or not on the sample under way")
	}
	l.Inserted(3)
	l.Sampled(4, false)
	if err := l.Insert(4, table); err != nil {
		t.Errorf("after both ended: %v", err)
	}
}

func TestRequestsThatTheBufferCanNeverServeAreRefusedWithBothNumbers(t *testing.T) {
	l := NewLimiter(wire.Limiter{SamplesPerInsert: 2, ErrorBuffer: 10}, 0)
	table := flowOf(0, 0, 0, 100)
	for what, err := range map[string]error{"insertion": l.Insert(6, table), "sample": l.Sample(11, table)} {
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), "error_buffer") || !strings.Contains(err.Error(), "10") {
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
		problems := CheckLimiter(c.limiter, c.group)
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%+v with groups of %d: %v, want %q", c.limiter, c.group, problems, c.want)
		}
	}
	if problems := CheckLimiter(wire.Limiter{SamplesPerInsert: 4, ErrorBuffer: 32}, 8); len(problems) > 0 {
		t.Error(problems)
	}
}

// A naive table: rollouts come, are drawn and leave unused, at random. The limiter must keep d within its bounds but for what it
// lets in because the table starves, and must never hold both sides back for good.
func TestTheLimiterHoldsItsBoundsAndNeverHoldsBothSidesBack(t *testing.T) {
	for seed := range uint64(200) {
		random := rollout.Stream(seed, "service/limiter_test", 0)
		ratio := []float64{0.25, 0.5, 1, 2, 8}[random.IntN(5)]
		buffer := ratio*8 + float64(random.IntN(30)) + 16
		minSize := random.IntN(20)
		l := NewLimiter(wire.Limiter{SamplesPerInsert: ratio, ErrorBuffer: buffer}, minSize)
		least, most := l.Bounds()
		f := replay.Flow{}
		table := func() replay.Flow { return f }
		d := func() float64 { return float64(f.Inserted)*ratio - float64(f.Drawn-f.Returned) }
		for step := range 2000 {
			insert, sample := 1+random.IntN(8), 1+random.IntN(16)
			errIn := l.Insert(insert, table)
			if errIn == nil {
				hungry := d()+float64(insert)*ratio > most
				few := f.Present+insert <= minSize
				f.Inserted += uint64(insert)
				f.Present += insert
				l.Inserted(insert)
				if hungry && !few && step == 0 {
					t.Fatalf("seed %d: the first insertion exceeds the bound", seed)
				}
			}
			errOut := l.Sample(sample, table)
			if errOut == nil {
				starved := f.Present < minSize || f.Present < 1
				if !starved {
					f.Drawn += uint64(sample)
				}
				l.Sampled(sample, starved)
				if d() < least {
					t.Fatalf("seed %d, step %d: samples brought d to %v, below %v", seed, step, d(), least)
				}
			}
			if errIn != nil && errOut != nil {
				t.Fatalf("seed %d, step %d: both sides are held back at d = %v within %v and %v: %v; %v", seed, step, d(), least, most, errIn, errOut)
			}
			if random.IntN(10) == 0 { // some leave unused, some draws go back
				f.Present -= random.IntN(f.Present + 1)
				f.Returned += min(uint64(random.IntN(3)), f.Drawn-f.Returned)
			}
		}
	}
}

func TestAStarvedTableLetsOneInsertionInPerStarvedSample(t *testing.T) {
	l := NewLimiter(wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}, 0)
	table := flowOf(4, 0, 0, 0) // four came and left unused: d = 4 is the most
	if err := l.Insert(1, table); !errors.Is(err, rollout.ErrFull) {
		t.Fatalf("before any sample: %v", err)
	}
	if err := l.Sample(1, table); err != nil {
		t.Fatal(err)
	}
	l.Sampled(1, true)
	if err := l.Insert(1, table); err != nil {
		t.Errorf("a starved sample lets none in: %v", err)
	}
	l.Inserted(1)
	if err := l.Insert(1, table); !errors.Is(err, rollout.ErrFull) {
		t.Errorf("a second insertion after one starved sample: %v", err)
	}
}
