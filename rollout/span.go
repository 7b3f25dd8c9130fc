package rollout

import "math"

// Span sums up the versions of the tokens of a rollout that the policy produced.
type Span struct {
	Least, Greatest Version // NoVersion if there are no such tokens
	Sum             int64   // of the versions
	Tokens          int     // that the policy produced
}

// Span returns the span of the rollout's versions.
func (r *Rollout) Span() Span {
	s := Span{Least: math.MaxInt32, Greatest: NoVersion}
	versions := r.Versions[:len(r.Mask)]
	for i, m := range r.Mask {
		if m == 1 {
			v := versions[i]
			s.Least = min(s.Least, v)
			s.Greatest = max(s.Greatest, v)
			s.Sum += int64(v)
			s.Tokens++
		}
	}
	if s.Tokens == 0 {
		s.Least = NoVersion
	}
	return s
}

// Mean returns the mean version, NoVersion if there are no tokens.
func (s Span) Mean() float64 {
	if s.Tokens == 0 {
		return float64(NoVersion)
	}
	return float64(s.Sum) / float64(s.Tokens)
}

// MeanCeil returns the mean version rounded up: at table version v the mean staleness over the
// tokens, rounded down to a version, is v minus it. Versions must be >= 0.
func (s Span) MeanCeil() Version {
	if s.Tokens == 0 {
		return NoVersion
	}
	return Version((s.Sum + int64(s.Tokens) - 1) / int64(s.Tokens))
}

// MeanStaleness returns the staleness at version v averaged over the tokens, 0 if there are none.
func (s Span) MeanStaleness(v Version) float64 {
	if s.Tokens == 0 {
		return 0
	}
	return float64(v) - s.Mean()
}
