package main

import (
	"slices"
)

// trend returns the slope of y over x by Theil and Sen, the median of the slopes of all pairs: a few outliers do not move it. It
// is 0 with fewer than two different x.
func trend(x, y []float64) float64 {
	var slopes []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	return median(slopes)
}

// median returns the middle of numbers, 0 of none.
func median(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// growth returns by how much what was read grew over the second half of the time, as its trend says, and its median there.
func growth(readings []reading, of func(reading) float64) (grown, middle float64) {
	if len(readings) == 0 {
		return 0, 0
	}
	last := readings[len(readings)-1].after
	var x, y []float64
	for _, r := range readings {
		if r.after >= last/2 {
			x, y = append(x, r.after.Seconds()), append(y, of(r))
		}
	}
	return trend(x, y) * (last / 2).Seconds(), median(y)
}
