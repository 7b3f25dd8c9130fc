package watch

import "github.com/reprise-rl/reprise/service"

// quantile is the time, in seconds, within which a share q of what was measured was done, taken to lie evenly within a
// class; the greatest bound where it took longer than that. It is 0 if nothing was measured.
func quantile(l *service.Latency, q float64) float64 {
	rank := q * float64(l.Count)
	below, low := 0.0, 0.0
	for i, high := range l.Bounds {
		n := float64(l.Counts[i])
		if n > 0 && below+n >= rank {
			return low + (high-low)*clamp((rank-below)/n, 0, 1)
		}
		below, low = below+n, high
	}
	if l.Count == 0 {
		return 0
	}
	return low
}

// within writes how long half and 99% of it took at most.
func within(l *service.Latency) string {
	if l.Count == 0 {
		return "–"
	}
	return seconds(quantile(l, 0.5)) + " · " + seconds(quantile(l, 0.99))
}
