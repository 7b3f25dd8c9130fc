//go:build unix

package client_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// BenchmarkGlobalDraws draws 512 rollouts of 2,048 tokens from one service and from four, and reports what four cost
// beside one: the CPU time of this process, services and all, per byte.
func BenchmarkGlobalDraws(b *testing.B) {
	const rows, tokens = 512, 2048
	definition := wire.Table{Options: replay.Options{Sampler: replay.Uniform, Capacity: 1024}}
	g := long(1, tokens)
	bytes := rows * g.Rollouts[0].Bytes()
	stream := func(services int) func() {
		_, _, w := inParts(b, services, definition, client.AllOptions{Scope: client.AllParts})
		for range 1024 / 64 {
			var groups []rollout.Group
			for range 64 {
				groups = append(groups, g)
			}
			if _, err := w.Insert(context.Background(), groups...); err != nil {
				b.Fatal(err)
			}
		}
		none := 0 // a batch drawn ahead would be drawn while the other's time is taken
		s, err := w.Stream(context.Background(), wire.SampleRequest{Size: rows, Prefetch: &none})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		s.ReuseMemory()
		return func() {
			if _, err := s.Next(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	one, four := stream(1), stream(4)
	one()
	four()
	var ofOne, ofFour time.Duration
	b.SetBytes(2 * bytes)
	for b.Loop() { // in turns, so that what else the machine does falls on both
		ofOne += cpuOf(b, one)
		ofFour += cpuOf(b, four)
	}
	b.ReportMetric(float64(ofOne.Nanoseconds())/float64(int64(b.N)*bytes), "ns-one/B")
	b.ReportMetric(float64(ofFour.Nanoseconds())/float64(int64(b.N)*bytes), "ns-four/B")
	b.ReportMetric(float64(ofFour)/float64(ofOne), "four/one")
}

// cpuOf returns the processor time of the process in a call.
func cpuOf(b *testing.B, call func()) time.Duration {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	call()
	return used() - before
}
