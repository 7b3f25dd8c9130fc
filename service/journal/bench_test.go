package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// BenchmarkCommit has 16 clients insert groups of 16 rollouts, each waiting for its commit. It reports rollouts/s,
// payload bytes/s, and the ratio to sequential writes of 4 MB with an fsync each in the same run.
func BenchmarkCommit(b *testing.B) {
	for _, sync := range []Sync{Always, Interval, Off} {
		for _, tokens := range []int{1000, 32768} {
			b.Run(fmt.Sprintf("sync=%s/tokens=%d", sync, tokens),
				func(b *testing.B) { benchmarkCommit(b, sync, tokens) })
		}
	}
}

const benchGroup = 16

func benchmarkCommit(b *testing.B, mode Sync, tokens int) {
	random := rollout.Stream(1, "bench", 0)
	groups := make([]rollout.Group, 16) // one for each client, shared by its insertions
	for i := range groups {
		groups[i] = aGroup(random, benchGroup, tokens, 0)
	}
	size := groups[0].Rollouts[0].Bytes()
	capacity := int(min(20_000, (512<<20)/size/benchGroup*benchGroup))
	o := Options{Path: filepath.Join(b.TempDir(), "j"), Sync: mode}
	table := newTable(b, replay.Options{Capacity: capacity})
	j := create(b, o, table)
	insert := func(rounds int) {
		var wg sync.WaitGroup
		for _, g := range groups {
			wg.Go(func() {
				for range rounds {
					if _, err := table.Insert(ctx, g); err != nil {
						panic(err)
					}
					if err := j.Commit(ctx); err != nil {
						panic(err)
					}
				}
			})
		}
		wg.Wait()
	}
	raw := 0.0
	if mode == Always {
		raw = rawBytesPerSecond(b) / 2
	}
	insert(1 + capacity/benchGroup/len(groups)) // full: from now on each insertion removes as much
	before := j.Stats()
	var inserted int64
	var took time.Duration
	for b.Loop() {
		began := time.Now()
		insert(1)
		took += time.Since(began)
		inserted += int64(len(groups)) * benchGroup
	}
	after := j.Stats()
	must(b, j.Close())
	rate := float64(inserted) / took.Seconds()
	b.ReportMetric(rate, "rollouts/s")
	b.ReportMetric(rate*float64(size)/1e6, "MB/s")
	b.ReportMetric(float64(inserted)/float64(after.Commits-before.Commits), "rollouts/commit")
	if mode == Always {
		raw += rawBytesPerSecond(b) / 2 // before and after, as disks have moods
		b.ReportMetric(raw/1e6, "disk-MB/s")
		b.ReportMetric(rate*float64(size)/raw, "of-disk")
	}
}

// rawBytesPerSecond measures the disk: 1 GB in sequence over an existing file of 512 MB, with an fsync every 4 MB.
func rawBytesPerSecond(b *testing.B) float64 {
	b.Helper()
	const piece, file, total = 4 << 20, 512 << 20, 1 << 30
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	must(b, err)
	defer f.Close()
	block := make([]byte, piece)
	for i := range block {
		block[i] = byte(i * 7)
	}
	write := func(bytes int64) {
		for at := int64(0); at < bytes; at += piece {
			_, err := f.WriteAt(block, at%file)
			must(b, err)
			must(b, f.Sync())
		}
	}
	write(file)
	began := time.Now()
	write(total)
	return total / time.Since(began).Seconds()
}

// BenchmarkDurable commits 64 rollouts of 512 tokens, inserted in groups of 8, one commit after another, with each
// promise and without a journal. Beside always it writes the bytes of the rollouts, which a log has fewer of, to a file
// and syncs it: of-raw is the ratio of the rates.
func BenchmarkDurable(b *testing.B) {
	for _, mode := range []Sync{Always, Interval, Off, ""} {
		b.Run("sync="+string(mode), func(b *testing.B) { benchmarkDurable(b, mode) })
	}
}

func benchmarkDurable(b *testing.B, mode Sync) {
	const each, tokens = 64, 512
	random := rollout.Stream(1, "bench", 0)
	var groups []rollout.Group
	bytes := 0
	for range each / 8 {
		g := aGroup(random, 8, tokens, 0)
		for _, r := range g.Rollouts {
			r.RoutedExperts = nil
			bytes += int(r.Bytes())
		}
		groups = append(groups, g)
	}
	table := newTable(b, replay.Options{Capacity: 8192})
	commit, end := func() error { return nil }, func() error { return nil }
	if mode != "" {
		j := create(b, Options{Path: filepath.Join(b.TempDir(), "j"), Sync: mode}, table)
		commit, end = func() error { return j.Commit(ctx) }, j.Close
	}
	raw, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	must(b, err)
	defer raw.Close()
	block, times := make([]byte, bytes), 0
	var took, beside time.Duration
	for b.Loop() {
		began := time.Now()
		for _, g := range groups {
			_, err := table.Insert(ctx, g)
			must(b, err)
		}
		must(b, commit())
		took += time.Since(began)
		if times++; mode == Always { // in turns, as disks have moods
			began = time.Now()
			_, err := raw.WriteAt(block, int64(times%2000*bytes))
			must(b, err)
			must(b, raw.Sync())
			beside += time.Since(began)
		}
	}
	must(b, end())
	b.ReportMetric(float64(each*times)/took.Seconds(), "rollouts/s")
	b.ReportMetric(float64(bytes*times)/took.Seconds()/1e6, "MB/s")
	if mode == Always {
		b.ReportMetric(float64(bytes*times)/beside.Seconds()/1e6, "raw-MB/s")
		b.ReportMetric(beside.Seconds()/took.Seconds(), "of-raw")
	}
}

// BenchmarkOpen reads 100,000 rollouts of 1,000 tokens back.
func BenchmarkOpen(b *testing.B) {
	const n = 100_000
	o := Options{Path: filepath.Join(b.TempDir(), "j"), Sync: Off}
	kind := replay.Options{Capacity: n}
	table := newTable(b, kind)
	random := rollout.Stream(1, "bench", 0)
	for range n / benchGroup {
		_, err := table.Insert(ctx, aGroup(random, benchGroup, 1000, 0))
		must(b, err)
	}
	must(b, create(b, o, table).Close())
	table = nil
	var took time.Duration
	times := 0
	for b.Loop() {
		j, _, recovery, err := Open(o, builder(kind, nil))
		must(b, err)
		took += recovery.Took
		times++
		must(b, j.Close())
	}
	b.ReportMetric(took.Seconds()/float64(times), "s/open")
}
