package report

import (
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

func TestBusyTimeIsTheShareOverAllSeeds(t *testing.T) {
	run := func(g results.GPU, idle float64) *results.Run {
		return &results.Run{Summary: &results.Summary{WorkerTimes: []results.GPU{g, {}},
			TrainerTimes: []results.GPU{{Busy: 1, Stalled: 1, Idle: idle}}}}
	}
	side := &arm{runs: []*results.Run{run(results.GPU{Busy: 3, Stalled: 1}, 0),
		run(results.GPU{Busy: 9, Stalled: 1, Idle: 2}, 4), {}}}
	rows := gpuRows(side)
	want := []gpuRow{{"worker 1", 0.75, 0.125}, {"trainer 1", 0.25, 0.25}} // worker 2 never lived
	if len(rows) != 2 || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if !idles(side) || idles(&arm{runs: side.runs[2:]}) ||
		idles(&arm{runs: []*results.Run{run(results.GPU{Busy: 1, Stalled: 1}, 0)}}) {
		t.Error("idle is not told from stalled")
	}
}

func TestNotesTellWhatAHistogramLeavesOut(t *testing.T) {
	s := &results.Summary{Staleness: results.Histogram{{1, 1}, {2, 1}}, TokenStaleness: results.Histogram{{1, 1}, {2, 1}}}
	side := &arm{runs: []*results.Run{{Summary: s}}}
	if a, b := youngerTokens(side), stillPresent(side); a+b != "" {
		t.Errorf("nothing is left out, but the notes say %q and %q", a, b)
	}
	s.TokenStaleness, s.UsesPresent = results.Histogram{{0, 1}, {1, 1}}, results.Histogram{{0, 3}, {2, 1}}
	if note := youngerTokens(side); !strings.Contains(note, "is 0.5 on average") {
		t.Errorf("staleness of younger tokens: %q", note)
	}
	if note := stillPresent(side); !strings.Contains(note, "The 4 in the table at the end: mean 0.5.") {
		t.Errorf("uses of what is present: %q", note)
	}
}
