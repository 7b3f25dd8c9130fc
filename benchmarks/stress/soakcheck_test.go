package main

import (
	"math"
	"testing"
	"time"
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
		r := reading{after: time.Duration(i) * time.Second, live: 1000}
		if i < 50 {
			r.live = float64(i) * 20 // warming up
		} else {
			r.live += 2 * float64(i-50)
		}
		readings = append(readings, r)
	}
	grown, middle := growth(readings, func(r reading) float64 { return r.live })
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
			s := &soaker{verdict: &Verdict{}, SoakSettings: SoakSettings{For: 10 * time.Minute}}
			for i := range 600 {
				s.readings = append(s.readings, reading{after: time.Duration(i) * time.Second,
					live: 100e6 + c.each*float64(i), anonymous: 300e6})
			}
			s.checkMemory()
			if got := s.verdict.Err() == nil; got != c.want {
				t.Errorf("kept: %v, want %v: %v", got, c.want, s.verdict)
			}
		})
	}
}
