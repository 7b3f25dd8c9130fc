package replay

import (
	"math"
	"runtime"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// addedBytes is the memory that a prioritized sampler needs besides the rollouts' slots.
func addedBytes(p *prioritized) int {
	bytes := p.tree.Bytes() + 8*cap(p.bases) + 4*cap(p.drawn) + 8*cap(p.chance) + 8*cap(p.buffer)
	if p.least != nil {
		bytes += p.least.Bytes()
	}
	return bytes
}

// The sum of capacities is held against what the runtime measures, so that nothing is left out of it.
func TestPrioritizedSamplerNeedsAtMost40BytesPerRollout(t *testing.T) {
	for _, normalisation := range []Norm{ByBatch, ByTable} {
		for _, n := range []int{50_000, 200_001} {
			o := prioritizedOptions()
			o.ImportanceNorm = normalisation
			st := &store{}
			for range n {
				st.put(&item{}, nil)
			}
			before := heap()
			p := newPrioritized(&o, st, unitsOf(UnitRollout))
			for s := range int32(n) {
				p.enter(s, 1)
				p.add(s)
			}
			p.begin(rollout.Stream(1, "memory", 0), prioritizedBatch)
			measured := float64(heap()-before) / float64(n)
			counted := float64(addedBytes(p)) / float64(n)
			if measured > 40 || !(math.Abs(measured-counted) < 1) {
				t.Errorf("normalised by %s, %d rollouts: %.1f bytes each, %.1f counted", normalisation, n, measured, counted)
			}
			t.Logf("normalised by %s, %d rollouts: %.1f bytes each", normalisation, n, measured)
			runtime.KeepAlive(st)
			runtime.KeepAlive(p)
		}
	}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first left to be swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
