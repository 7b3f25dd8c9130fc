package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

func TestBusyTimeIsTheShareOverAllSeeds(t *testing.T) {
	run := func(g results.GPU, idle float64) *results.Run {
		return &results.Run{Summary: &results.Summary{WorkerTimes: []results.GPU{g, {}},
			TrainerTimes: []results.GPU{{Busy: 1, Stalled: 1, Idle: idle}}}}
	}
	side := &arm{label: "a", runs: []*results.Run{run(results.GPU{Busy: 3, Stalled: 1}, 0),
		run(results.GPU{Busy: 9, Stalled: 1, Idle: 2}, 4), {}}}
	workers := meanTimes(side, func(s *results.Summary) []results.GPU { return s.WorkerTimes })
	if want := []results.GPU{{Busy: 0.75, Stalled: 0.125, Idle: 0.125}}; !slices.Equal(workers, want) {
		t.Errorf("workers %v, want %v: the other never lived", workers, want)
	}
	rows := gpuSection([]*arm{side}).Grids[0].Rows
	if got := fmt.Sprint(rows[1]); len(rows) != 2 || got != "[{a: trainers  word} {25.0%  } {25.0%  } {50.0%  }]" {
		t.Errorf("%d rows, the second %s", len(rows), got)
	}
	if s := gpuSection([]*arm{{runs: side.runs[2:]}}); s.Grids != nil || len(s.Text) != 1 {
		t.Errorf("without a finished run: %+v", s)
	}
}

func TestARangeOfGPUsIsShownBesideTheirMean(t *testing.T) {
	s := &results.Summary{WorkerTimes: []results.GPU{{Busy: 3, Stalled: 1}, {Busy: 1, Stalled: 3}}}
	row := gpuSection([]*arm{{runs: []*results.Run{{Summary: s}}}}).Grids[0].Rows[0]
	if row[1].Text != "50.0%" || row[1].Spread != "(25.0%–75.0%)" || row[3].Spread != "" {
		t.Errorf("row %+v", row)
	}
}

func TestNotesTellWhatAHistogramLeavesOut(t *testing.T) {
	s := &results.Summary{Staleness: results.Histogram{{1, 1}, {2, 1}},
		TokenStaleness: results.Histogram{{1, 1}, {2, 1}}}
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
