package advantage

import (
	"fmt"
	"math"
)

// OfBatch writes to dst the advantages of a batch's rewards normalised over the batch and returns the
// moments of what was normalised. GroupMeans, one per reward, is the mean reward of each rollout's
// group; only GroupBatch reads it. Equal values give 0 to all and Moments.Zero. Dst may be rewards
// itself. It panics if lengths differ or the kind does not normalise over a batch.
func OfBatch(dst, rewards, groupMeans []float32, kind Kind) Moments {
	sameLength(dst, rewards)
	switch kind {
	case Batch:
		copy(dst, rewards)
	case GroupBatch:
		sameLength(groupMeans, rewards)
		for i, r := range rewards {
			dst[i] = r - groupMeans[i]
		}
	default:
		panic(fmt.Sprintf("advantage: kind %q does not normalise over a batch", string(kind)))
	}
	return Normalize(dst)
}

// Normalize shifts and scales values in place to mean 0 and population variance 1, Epsilon under the
// root, and returns their moments before. Equal values become 0. It is what OfBatch does to rewards,
// open to a caller whose values are already penalised, or per token.
func Normalize(values []float32) Moments {
	m := MomentsOf(values)
	if m.Zero {
		clear(values)
		return m
	}
	scale := 1 / math.Sqrt(m.Var+Epsilon)
	for i, v := range values {
		values[i] = float32((float64(v) - m.Mean) * scale)
	}
	return m
}
