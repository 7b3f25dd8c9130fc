package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// maxBins is the most points of a histogram. More values share bins of equal width.
const maxBins = 48

// counted is a histogram of a run.
type counted struct {
	title string
	axis  string
	unit  string // of the y axis
	none  string // what to say if nothing was counted
	of    func(*results.Summary) results.Histogram
	more  func(*arm) string // a sentence that completes the note; nil: none
	dots  bool              // few of the values can occur: unconnected points, without those that did not
}

// histograms returns the histograms of how rollouts were used.
func histograms() []counted {
	return []counted{
		{"Staleness at use", "versions behind the trainer", "% of uses", "No rollout was used.",
			func(s *results.Summary) results.Histogram { return s.Staleness }, youngerTokens, false},
		{"Uses at eviction", "times used", "% of evicted rollouts", "No rollout was evicted.",
			func(s *results.Summary) results.Histogram { return s.Uses }, stillPresent, false},
		{"Time since last use", "updates; 0 is a repeat within a batch", "% of repeated uses",
			"No rollout was used twice.",
			func(s *results.Summary) results.Histogram { return s.SinceLastUse }, nil, false},
	}
}

// promptHistograms returns the histograms of prompt replay.
func promptHistograms() []counted {
	return []counted{
		{"Replays of a prompt", "times replayed", "% of prompts replayed", "No prompt was replayed.",
			func(s *results.Summary) results.Histogram { return s.PromptReplay.Reuse }, nil, false},
		{"Pass rates of prompts held", "% of responses correct, at the end", "% of prompts held", "No prompt was held.",
			func(s *results.Summary) results.Histogram { return s.PromptReplay.PassRates }, nil, true},
	}
}

// youngerTokens describes the staleness by token if rollouts have tokens of several versions.
func youngerTokens(side *arm) string {
	byToken := side.histogram(func(s *results.Summary) results.Histogram { return s.TokenStaleness })
	if byToken.Count() == 0 || slices.Equal(byToken,
		side.histogram(func(s *results.Summary) results.Histogram { return s.Staleness })) {
		return ""
	}
	return fmt.Sprintf(" That is of the oldest token; the mean over a rollout’s tokens is %s on average.",
		number(byToken.Mean()))
}

// stillPresent describes the uses of rollouts still in the table, which the histogram at eviction leaves out.
func stillPresent(side *arm) string {
	h := side.histogram(func(s *results.Summary) results.Histogram { return s.UsesPresent })
	if h.Count() == 0 {
		return ""
	}
	return fmt.Sprintf(" The %s in the table at the end: mean %s.", words.Thousands(h.Count()), number(h.Mean()))
}

// figure draws a histogram, a curve for each arm, over all seeds of the arm.
func (c counted) figure(arms []*arm) results.Figure {
	f := results.Figure{Title: c.title, X: results.Axis{Title: c.axis},
		Y: results.Axis{Title: c.unit, Low: results.Num(0)}}
	var notes []string
	highest := uint64(0)
	for _, side := range arms {
		highest = max(highest, side.histogram(c.of).Max())
	}
	for _, side := range arms {
		h := side.histogram(c.of)
		if h.Count() == 0 {
			if len(arms) > 1 && anyEnded([]*arm{side}) {
				notes = append(notes, side.label+": "+strings.ToLower(c.none[:1])+c.none[1:])
			}
			continue
		}
		curve := results.Curve{Name: side.label, Colour: side.colour, Points: c.dots}
		for _, p := range h.Shares(highest/maxBins+1, highest) {
			if y := p.Y.Float(); y > 0 || !c.dots {
				curve.At = append(curve.At, results.Point{X: p.X, Y: results.Num(100 * y)})
			}
		}
		f.Curves = append(f.Curves, curve)
		note := fmt.Sprintf("Mean %s, largest %d; %s counted.", number(h.Mean()), h.Max(), words.Thousands(h.Count()))
		if len(arms) > 1 {
			note = side.label + ": m" + note[1:]
		}
		if c.more != nil {
			note += c.more(side)
		}
		notes = append(notes, note)
	}
	f.Note = strings.Join(notes, " ")
	return f
}

// histogramRow draws histograms side by side.
func histogramRow(size rowSize, arms []*arm, list []counted) figureRow {
	var figures []results.Figure
	for _, c := range list {
		figures = append(figures, c.figure(arms))
	}
	row := size.drawPlain("Known when the run has ended.", figures)
	for i, c := range list {
		if row.Figures[i].Empty != "" && anyEnded(arms) {
			row.Figures[i].Empty = c.none
		}
	}
	return row
}

// reuseSection shows how rollouts were used.
func reuseSection(arms []*arm) section {
	return section{ID: "reuse", Title: "Staleness and reuse", Legend: armKeys(arms),
		Rows: []figureRow{histogramRow(thirds(), arms, histograms())}}
}

// promptSection shows prompt replay, nothing if no arm uses it.
func promptSection(arms []*arm) (s section, ok bool) {
	figures, _ := trainingFigures(arms, promptMetrics())
	if len(figures) == 0 {
		return s, false
	}
	s = section{ID: "prompts", Title: "Prompt replay", Legend: armKeys(arms)}
	s.Rows = []figureRow{halves().drawPlain("", figures)}
	var replaying []*arm
	for _, side := range arms {
		if side = side.replayingPrompts(); len(side.runs) > 0 {
			replaying = append(replaying, side)
		}
	}
	if len(replaying) > 0 {
		s.Rows = append(s.Rows, histogramRow(halves(), replaying, promptHistograms()))
	}
	return s, true
}

// gpuSection shows how the workers and the trainers spent their time.
func gpuSection(arms []*arm) section {
	s := section{ID: "gpus", Title: "GPUs"}
	g := results.Grid{
		Note: "Shares of the time: the mean over GPUs and seeds, and the range of the GPUs. Workers stall by a full " +
			"table, trainers by one with too little. GPUs are idle while others have their turn, in synchronous mode.",
		Columns: []string{"GPUs", "busy", "stalled", "idle"},
	}
	for _, side := range arms {
		for _, kind := range []struct {
			name string
			of   func(*results.Summary) []results.GPU
		}{
			{"workers", func(s *results.Summary) []results.GPU { return s.WorkerTimes }},
			{"trainers", func(s *results.Summary) []results.GPU { return s.TrainerTimes }},
		} {
			times := meanTimes(side, kind.of)
			if len(times) == 0 {
				continue
			}
			row := []string{side.label + ": " + kind.name}
			for _, part := range []func(results.GPU) float64{
				func(g results.GPU) float64 { return g.Busy },
				func(g results.GPU) float64 { return g.Stalled },
				func(g results.GPU) float64 { return g.Idle },
			} {
				var shares []float64
				sum := 0.0
				for _, g := range times {
					shares = append(shares, part(g))
					sum += part(g)
				}
				text := words.Percent(sum/float64(len(times)), 1)
				low, high := words.Percent(slices.Min(shares), 1), words.Percent(slices.Max(shares), 1)
				if low != high {
					text += " (" + low + "–" + high + ")"
				}
				row = append(row, text)
			}
			g.Rows = append(g.Rows, row)
		}
	}
	if len(g.Rows) == 0 {
		s.Text = []string{"Known when the run has ended."}
		return s
	}
	s.Grids = gridTables(g)
	return s
}

// liveSection shows what runs on the real clock measured, nothing if there are none.
func liveSection(arms []*arm) (s section, ok bool) {
	s = section{ID: "live", Title: "On the real clock"}
	for _, side := range arms {
		for _, sum := range side.summaries() {
			if l := sum.Live; l != nil {
				s.Text = append(append(s.Text, l.Costs()), l.Troubles()...)
				s.Grids = append(s.Grids, gridTables(results.Grid{Title: side.label, Columns: l.Columns(), Rows: l.Rows(),
					Note: "Predicted by simulating the schedule, as reprise design --sim does, without the gate. An engine " +
						"is idle when it has nothing to generate; the trainer's time is without checkpoints and evaluations."})...)
			}
		}
	}
	return s, len(s.Grids) > 0
}

// meanTimes returns the shares of the time of each GPU, over all seeds of an arm.
func meanTimes(side *arm, of func(*results.Summary) []results.GPU) []results.GPU {
	var sums []results.GPU
	for _, s := range side.summaries() {
		for i, g := range of(s) {
			if i == len(sums) {
				sums = append(sums, results.GPU{})
			}
			sums[i].Busy += g.Busy
			sums[i].Stalled += g.Stalled
			sums[i].Idle += g.Idle
		}
	}
	shares := sums[:0]
	for _, g := range sums {
		if all := g.Busy + g.Stalled + g.Idle; all > 0 {
			shares = append(shares, results.GPU{Busy: g.Busy / all, Stalled: g.Stalled / all, Idle: g.Idle / all})
		}
	}
	return shares
}
