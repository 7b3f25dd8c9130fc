package main

import (
	"fmt"
	"strings"
	"testing"
)

// lines is what a package's benchmarks print.
func lines(times map[string]float64) []byte {
	var b strings.Builder
	b.WriteString("goos: linux\npkg: github.com/reprise-rl/reprise/replay\n")
	for name, ns := range times {
		fmt.Fprintf(&b, "Benchmark%s-2 \t 1000\t %g ns/op\t 12.5 MB/s\t 3 allocs/op\n", name, ns)
	}
	return []byte(b.String() + "BenchmarkBroken\nPASS\n")
}

func TestOnlyASlowerBenchmarkFails(t *testing.T) {
	times := make(timings)
	for round := range 10 {
		noise := 1 + 0.3*float64(round%3) // what disturbs both sides of a round
		times.add(0, "github.com/reprise-rl/reprise/replay", lines(map[string]float64{"Same": 100 * noise,
			"Slow": 100 * noise, "Noisy": 100, "Gone": 5}))
		times.add(1, "github.com/reprise-rl/reprise/replay", lines(map[string]float64{
			"Same": 101 * noise, "Slow": 110 * noise, "Noisy": map[bool]float64{true: 90,
				false: 120}[round%2 == 0], "Fresh": 7,
		}))
	}
	rows := times.compare(1.05)
	want := map[string]bool{"replay.Same-2": false, "replay.Slow-2": true, "replay.Noisy-2": false,
		"replay.Gone-2": false, "replay.Fresh-2": false}
	if len(rows) != len(want) {
		t.Fatalf("%d rows: want %d: %+v", len(rows), len(want), rows)
	}
	for _, r := range rows {
		if slower, known := want[r.name]; !known || r.slower != slower {
			t.Errorf("%+v: want slower %v", r, slower)
		}
	}
	var page strings.Builder
	if err := report(&page, rows, 1.05); err == nil || err.Error() != "1 benchmark is slower by more than 5%" {
		t.Errorf("the error is %v", err)
	}
	for _, want := range []string{"SLOWER", "only old", "only new", "1.100"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing in\n%s", want, page.String())
		}
	}
}
