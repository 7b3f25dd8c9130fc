package replay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// savedTable holds so many rollouts of 1,000 tokens, which lie in the arrays of a few, and remembers the insertions.
func savedTable(b *testing.B, rollouts int) *Table {
	some := groupsOf(4, 1000, 100, rollout.Stream(1, "bench", 0))
	o := Options{Capacity: rollouts, Vocab: 64, MaxStaleness: 10, Seed: 1}
	t, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	for i := range rollouts / benchGroup {
		g := rollout.Group{Size: benchGroup}
		for _, r := range some[i%len(some)].Rollouts {
			own := *r
			g.Rollouts = append(g.Rollouts, &own)
		}
		if _, err := t.Server().InsertOnce(context.Background(), fmt.Sprint("insertion ", i), g); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

// heapOf runs f and returns by how many bytes the heap's objects, garbage included, were more at the worst, and how many were allocated.
func heapOf(f func()) (peak, allocated uint64) {
	runtime.GC()
	read := func() (held, ever uint64) {
		m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(m)
		return m[0].Value.Uint64(), m[1].Value.Uint64()
	}
	held, ever := read()
	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				now, _ := read()
				peak = max(peak, now)
			}
		}
	})
	f()
	close(done)
	all.Wait()
	_, now := read()
	return max(peak, held) - held, now - ever
}

// BenchmarkSnapshot saves a table while nothing else happens: the time for which its locks are held; what is allocated, and by
// how much the heap grows at the worst.
func BenchmarkSnapshot(b *testing.B) {
	for _, rollouts := range []int{20_000, 100_000} {
		b.Run(fmt.Sprintf("N=%d,tokens=1000", rollouts), func(b *testing.B) {
			table := savedTable(b, rollouts)
			var held time.Duration
			var peak, allocated uint64
			n := counted(0)
			for b.Loop() {
				n = 0
				b.StopTimer()
				start := time.Now()
				table.hold()
				held += time.Since(start)
				b.StartTimer()
				p, a := heapOf(func() {
					if err := table.Snapshot(&n); err != nil {
						b.Fatal(err)
					}
				})
				peak, allocated = max(peak, p), allocated+a
			}
			b.ReportMetric(held.Seconds()*1000/float64(b.N), "ms-locked")
			b.ReportMetric(float64(allocated)/float64(b.N)/1e6, "MB-allocated")
			b.ReportMetric(float64(peak)/1e6, "MB-peak")
			b.ReportMetric(float64(n)/1e6, "MB-written")
		})
	}
}

// counted counts what is written.
type counted int64

func (c *counted) Write(b []byte) (int, error) {
	*c += counted(len(b))
	return len(b), nil
}

// BenchmarkRestore reads a table of rollouts of 1,000 tokens back from a file.
func BenchmarkRestore(b *testing.B) {
	const rollouts = 20_000
	path := filepath.Join(b.TempDir(), "table")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := savedTable(b, rollouts).Snapshot(f); err != nil {
		b.Fatal(err)
	}
	var peak, allocated, kept uint64
	for b.Loop() {
		fresh, err := New(Options{Capacity: rollouts, Vocab: 64, MaxStaleness: 10, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		p, a := heapOf(func() {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				b.Fatal(err)
			}
			if err := fresh.Restore(bufio.NewReader(f)); err != nil {
				b.Fatal(err)
			}
		})
		peak, allocated, kept = max(peak, p), allocated+a, uint64(statsOf(fresh).PresentBytes)
	}
	b.ReportMetric(float64(allocated)/float64(b.N)/1e6, "MB-allocated")
	b.ReportMetric(float64(peak)/1e6, "MB-peak")
	b.ReportMetric(float64(kept)/1e6, "MB-payload")
}
