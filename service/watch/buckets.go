package watch

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// mostBars is how many bars a histogram has at most.
const mostBars = 20

// bucket is values [from, to] of a histogram; to is -1 in the last one where it takes in everything from there on.
type bucket struct {
	from, to int64
	n        uint64
}

func (b bucket) label() string {
	switch b.to {
	case b.from:
		return amount(float64(b.from))
	case -1:
		return amount(float64(b.from)) + "+"
	}
	return amount(float64(b.from))
}

// about says what values the bucket has.
func (b bucket) about() string {
	switch b.to {
	case b.from:
		return count(b.from)
	case -1:
		return count(b.from) + " and more"
	}
	return count(b.from) + " to " + count(b.to)
}

// bucketsOf divides a histogram into equal ranges whose width is 1, 2 or 5 times a power of ten. The ranges go up to the value
// below which 99% lie, so that a few far values do not flatten all others; the last bucket has these.
func bucketsOf(h *rollout.Histogram) []bucket {
	if h.Count() == 0 {
		return nil
	}
	last := h.Quantile(0.99)
	if h.Max() < mostBars {
		last = h.Max()
	}
	step := stepTo(last)
	list := make([]bucket, last/step+1)
	for i := range list {
		list[i] = bucket{from: int64(i) * step, to: int64(i+1)*step - 1}
	}
	end := int64(len(list)) * step
	for _, b := range h.Bins() {
		if b.Value < end {
			list[b.Value/step].n += b.Count
			continue
		}
		if list[len(list)-1].to >= 0 {
			list = append(list, bucket{from: end, to: -1})
		}
		list[len(list)-1].n += b.Count
	}
	return list
}

// stepTo is the width of the ranges that divide [0, last] into few enough bars.
func stepTo(last int64) int64 {
	step := int64(1)
	for i := 0; last/step >= mostBars-1; i++ {
		step = []int64{2, 5, 10}[i%3] * int64(math.Pow(10, float64(i/3)))
	}
	return step
}

// histogramBars are a histogram's buckets as bars, of values in a unit and things counted.
func histogramBars(h *rollout.Histogram, unit, things string) []bar {
	var list []bar
	for _, b := range bucketsOf(h) {
		list = append(list, bar{
			label: b.label(), value: float64(b.n), open: b.to == -1,
			about: fmt.Sprintf("%s %s: %s %s, %s", b.about(), unit, count(b.n), things, percent(float64(b.n)/float64(h.Count()))),
		})
	}
	return list
}

// highest is how much the highest bar has.
func highest(list []bar) float64 {
	var most float64
	for _, b := range list {
		most = max(most, b.value)
	}
	return most
}
