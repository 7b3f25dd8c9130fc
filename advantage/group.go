package advantage

import (
	"fmt"
	"math"
)

// OfGroup writes to dst the group-relative advantages of a group's rewards and returns the rewards'
// moments. Equal rewards, as those of a group of one, give 0 to all and Moments.Zero. Dst may be
// rewards itself. It panics if the lengths differ or the kind is not group-relative.
func OfGroup(dst, rewards []float32, kind Kind) Moments {
	sameLength(dst, rewards)
	if !kind.GroupRelative() {
		panic(fmt.Sprintf("advantage: kind %q is not group-relative", string(kind)))
	}
	m := MomentsOf(rewards)
	if m.Zero {
		clear(dst)
		return m
	}
	scale := 1.0
	switch kind {
	case Group:
		scale = 1 / math.Sqrt(m.Var+Epsilon)
	case LeaveOneOut:
		// r - (sum - r)/(n - 1) = n/(n - 1) (r - mean)
		n := float64(len(rewards))
		scale = n / (n - 1)
	}
	for i, r := range rewards {
		dst[i] = float32((float64(r) - m.Mean) * scale)
	}
	return m
}

func sameLength(dst, src []float32) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("advantage: %d numbers in, room for %d out", len(src), len(dst)))
	}
}
