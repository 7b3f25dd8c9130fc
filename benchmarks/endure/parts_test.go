package main

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestTheTrendIgnoresOutliers(t *testing.T) {
	var x, y []float64
	for i := range 100 {
		x, y = append(x, float64(i)), append(y, 5+0.25*float64(i))
		if i%5 == 0 {
			y[i] = 1e9
		}
	}
	if got := trend(x, y); math.Abs(got-0.25) > 1e-12 {
		t.Errorf("trend is %v, want 0.25", got)
	}
	if got := trend([]float64{1, 1}, []float64{2, 3}); got != 0 {
		t.Errorf("trend of one x is %v, want 0", got)
	}
}

func TestGrowthIsThatOfTheSecondHalf(t *testing.T) {
	var readings []reading
	for i := range 101 {
		r := reading{after: time.Duration(i) * time.Second, heap: 1000}
		if i < 50 {
			r.heap = float64(i) * 20 // warming up
		} else {
			r.heap += 2 * float64(i-50)
		}
		readings = append(readings, r)
	}
	grown, middle := growth(readings, func(r reading) float64 { return r.heap })
	if math.Abs(grown-100) > 1e-9 || middle != 1050 {
		t.Errorf("growth is %v around %v, want 100 around 1050", grown, middle)
	}
}

func TestMemoryThatGrowsIsAViolation(t *testing.T) {
	for _, c := range []struct {
		name string
		each float64 // bytes per second
		want bool
	}{{"flat", 0, true}, {"a leak of 1 MB a second", 1e6, false}} {
		t.Run(c.name, func(t *testing.T) {
			k := &soaker{verdict: &Verdict{}, SoakSettings: SoakSettings{For: 10 * time.Minute}}
			for i := range 600 {
				k.readings = append(k.readings, reading{after: time.Duration(i) * time.Second, live: 100e6 + c.each*float64(i), anonymous: 300e6})
			}
			k.judgeMemory()
			if got := k.verdict.Err() == nil; got != c.want {
				t.Errorf("kept: %v, want %v: %v", got, c.want, k.verdict)
			}
		})
	}
}

func TestQuantilesAreWithinAnEighth(t *testing.T) {
	var l latency
	for i := 1; i <= 10_000; i++ {
		l.add(time.Duration(i) * time.Microsecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 5 * time.Millisecond, 0.99: 9900 * time.Microsecond, 1: 10 * time.Millisecond} {
		if got := l.quantile(share); got < want || float64(got) > 1.13*float64(want) {
			t.Errorf("quantile %v is %v, want %v", share, got, want)
		}
	}
}

func TestClassesAreInOrderAndHoldTheirDurations(t *testing.T) {
	last := -1
	for d := time.Duration(8); d < time.Hour; d += d/16 + 1 {
		c := classOf(d)
		if c < last || d >= upper(c) {
			t.Fatalf("%v is of class %d, which ends at %v; the one before is %d", d, c, upper(c), last)
		}
		last = c
	}
}

func TestARolloutIsCheckedBitForBit(t *testing.T) {
	k := key{3, 17, 2}
	if got, err := check(k.rollout(256, 5), 256); err != nil || got != k {
		t.Fatalf("check of a good one: %v, %v", got, err)
	}
	for name, spoil := range map[string]func(*rollout.Rollout){
		"token":    func(r *rollout.Rollout) { r.Tokens[3] ^= 1 },
		"log-prob": func(r *rollout.Rollout) { r.Logprobs[len(r.Logprobs)-1] /= 2 },
		"mask":     func(r *rollout.Rollout) { r.Mask[0] = 1 },
		"version":  func(r *rollout.Rollout) { r.Versions[len(r.Versions)-1]++ },
		"reward":   func(r *rollout.Rollout) { r.Reward++ },
		"length":   func(r *rollout.Rollout) { r.Tokens = r.Tokens[1:] },
		"text":     func(r *rollout.Rollout) { r.Text = "p3-b17-r3" },
		"no key":   func(r *rollout.Rollout) { r.Text = "p3-b17" },
	} {
		r := k.rollout(256, 5)
		spoil(r)
		if _, err := check(r, 256); err == nil {
			t.Errorf("%s: a changed rollout passed", name)
		}
	}
}

func TestAnIDThatIsGivenTwiceIsFound(t *testing.T) {
	var l ledger
	if err := errors.Join(l.acknowledged([]uint64{1, 2, 300}), l.acknowledged([]uint64{3, 64, 65})); err != nil {
		t.Fatal(err)
	}
	if err := l.acknowledged([]uint64{4, 300}); err == nil {
		t.Error("id 300 was given twice, and nobody said so")
	}
}

func TestTheLedgerAgreesWithinWhatIsUnknown(t *testing.T) {
	var l ledger
	if err := l.acknowledged([]uint64{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	l.lost(4)
	for inserted, want := range map[uint64]bool{3: false, 4: true, 8: true, 9: false} {
		if got := l.agrees(inserted) == nil; got != want {
			t.Errorf("inserted %d agrees: %v, want %v", inserted, got, want)
		}
	}
}

func TestFatesFindWhatIsLostTwiceOrBack(t *testing.T) {
	a, b, c := key{1, 1, 0}, key{1, 1, 1}, key{1, 2, 0}
	var f fates
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s passed", name)
		}
	}
	must(f.acknowledged(a, 1))
	must(f.acknowledged(b, 2))
	must(f.acknowledged(c, 3))
	if got := len(f.missing()); got != 3 {
		t.Errorf("%d are missing, want 3", got)
	}
	must(f.delivered(a, 1))
	must(f.delivered(a, 1)) // its batch was never acknowledged
	f.consumed([]key{a})
	refuse("a consumed rollout that comes again", f.delivered(a, 1))
	refuse("a consumed rollout that is there", f.found(a, 1))
	must(f.found(b, 2))
	refuse("a rollout that is there twice", f.found(b, 2))
	refuse("a rollout with two ids", f.found(c, 4))
	if got := f.count(isAcknowledged); got != 3 {
		t.Errorf("%d were acknowledged, want 3", got)
	}
}

func TestBooksThatDoNotBalanceAreFound(t *testing.T) {
	balanced := func() *wire.TableStatistics {
		s := &wire.TableStatistics{Inserted: 5, Evicted: map[rollout.Cause]uint64{rollout.EvictedByUses: 3}, Drawn: 7, Acknowledged: 4, Returned: 2, OnLease: 1}
		s.Present = 2
		for _, uses := range []int64{0, 1} {
			s.UsesPresent.Add(uses)
		}
		for _, uses := range []int64{1, 1, 1} {
			s.UsesAtEviction.Add(uses)
		}
		return s
	}
	if err := balance(balanced()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*wire.TableStatistics){
		"inserted": func(s *wire.TableStatistics) { s.Inserted++ },
		"drawn":    func(s *wire.TableStatistics) { s.OnLease-- },
		"uses":     func(s *wire.TableStatistics) { s.Acknowledged++; s.Returned-- },
		"present":  func(s *wire.TableStatistics) { s.UsesPresent.Add(0) },
	} {
		s := balanced()
		spoil(s)
		if balance(s) == nil {
			t.Errorf("%s: books that do not balance passed", name)
		}
	}
}

func TestMetricsAndMemoryAreRead(t *testing.T) {
	metrics := parseMetrics([]byte("# HELP go_goroutines x\ngo_goroutines 17\nreprise_x{table=\"a b\"} 3\ngo_memstats_heap_inuse_bytes 1.5e+06\n"))
	if metrics["go_goroutines"] != 17 || metrics["go_memstats_heap_inuse_bytes"] != 1.5e6 || len(metrics) != 2 {
		t.Errorf("metrics are %v", metrics)
	}
	got, err := memoryOf([]byte("VmRSS:\t  20 kB\nRssAnon:\t     12 kB\n"), "RssAnon:")
	if err != nil || got != 12*1024 {
		t.Errorf("RssAnon is %v, %v", got, err)
	}
	if got, err := ticksOf("17 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"); err != nil || got != 2*time.Second {
		t.Errorf("processor time is %v, %v, want 2s", got, err)
	}
	if _, err := memoryOf([]byte("VmRSS:\t  20 kB\n"), "RssAnon:"); err == nil {
		t.Error("a line that is not there was read")
	}
}
