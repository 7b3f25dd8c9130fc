package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

// promptFigures draws prompt replay, nothing if no arm uses it.
func promptFigures(arms []*arm) ([]figure, error) {
	figures, _, err := trainingFigures(arms, promptMetrics())
	if err != nil {
		return nil, err
	}
	for _, side := range arms {
		side = side.replayingPrompts()
		if len(side.runs) == 0 {
			continue
		}
		ofArm, err := figuresOf(side, promptHistograms())
		if err != nil {
			return nil, err
		}
		for _, f := range ofArm {
			if len(arms) > 1 {
				f.Title += ", " + side.label
			}
			figures = append(figures, f)
		}
	}
	return figures, nil
}

// maxBins is the most bars of a histogram. More values share bars of equal width.
const maxBins = 48

// counted is a histogram of a run.
type counted struct {
	title string
	axis  string
	unit  string // of the y axis
	none  string // what to say if nothing was counted
	of    func(*results.Summary) results.Histogram
	more  func(*arm) string // a sentence that completes the note; nil: none
}

// histograms returns the histograms of how rollouts were used.
func histograms() []counted {
	return []counted{
		{"Staleness at use", "versions behind the trainer", "% of uses", "No rollout was used.",
			func(s *results.Summary) results.Histogram { return s.Staleness }, youngerTokens},
		{"Uses at eviction", "times used", "% of evicted rollouts", "No rollout was evicted.",
			func(s *results.Summary) results.Histogram { return s.Uses }, stillPresent},
		{"Time since last use", "updates; 0 is a repeat within a batch", "% of repeated uses", "No rollout was used twice.",
			func(s *results.Summary) results.Histogram { return s.SinceLastUse }, nil},
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
		words.Amount(round(byToken.Mean().Float())))
}

// stillPresent describes the uses of rollouts still in the table, which the histogram at eviction leaves out.
func stillPresent(side *arm) string {
	h := side.histogram(func(s *results.Summary) results.Histogram { return s.UsesPresent })
	if h.Count() == 0 {
		return ""
	}
	return fmt.Sprintf(" The %s in the table at the end: mean %s.", words.Whole(float64(h.Count())),
		words.Amount(round(h.Mean().Float())))
}

// figuresOf draws histograms of an arm over all its seeds.
func figuresOf(side *arm, list []counted) ([]figure, error) {
	var figures []figure
	for _, c := range list {
		h := side.histogram(c.of)
		f := figure{Title: c.title}
		switch {
		case len(side.summaries()) == 0:
			f.Empty = "Known when the run has ended."
		case h.Count() == 0:
			f.Empty = c.none
		default:
			svg, err := c.chart(side, h).svg()
			if err != nil {
				return nil, err
			}
			f.SVG = []markup{svg}
			f.Note = fmt.Sprintf("Mean %s, largest %d; %s counted.", words.Amount(round(h.Mean().Float())), h.Max(),
				words.Whole(float64(h.Count())))
			if c.more != nil {
				f.Note += c.more(side)
			}
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// round rounds to two decimals.
func round(v float64) float64 { return math.Round(v*100) / 100 }

func (c counted) chart(side *arm, h results.Histogram) *chart {
	width := (h.Max() + maxBins) / maxBins // values per bar
	bars := bars{role: side.role}
	highest := 0.0
	total := float64(h.Count())
	for _, bin := range h {
		i := bin[0] / width
		if n := len(bars.bars); n == 0 || bars.bars[n-1].index != i {
			bars.bars = append(bars.bars, bar{index: i})
		}
		last := &bars.bars[len(bars.bars)-1]
		last.share += 100 * float64(bin[1]) / total
		highest = max(highest, last.share)
	}
	bars.width = float64(width)
	ch := &chart{title: c.title + ", " + side.label, class: "third", width: 290, height: 178, left: 36, right: 8,
		layers: []plot.Plotter{bars}}
	ch.x = axis{title: c.axis, low: -0.5, high: float64((h.Max()/width+1)*width) - 0.5,
		ticks: ticks{about: 6, integer: true}, gridless: true}
	if h.Max() < 3 { // a bar that fills the plot would say nothing
		ch.x.high = 3.5
	}
	ch.y = axis{title: c.unit, low: 0, high: highest * 1.05, ticks: ticks{about: 4}}
	return ch
}

// promptHistograms returns the histograms of prompt replay.
func promptHistograms() []counted {
	return []counted{
		{"Replays of a prompt", "times replayed", "% of prompts replayed", "No prompt was replayed.",
			func(s *results.Summary) results.Histogram { return s.PromptReplay.Reuse }, nil},
		{"Pass rates of prompts held", "% of responses correct, at the end", "% of prompts held", "No prompt was held.",
			func(s *results.Summary) results.Histogram { return s.PromptReplay.PassRates }, nil},
	}
}

// gpuRow is the time of one worker or trainer, averaged over the seeds.
type gpuRow struct {
	name string

	busy, stalled float64 // shares, in [0, 1]; it is idle for the rest
}

// gpuRows returns the workers and then the trainers of an arm.
func gpuRows(side *arm) []gpuRow {
	var rows []gpuRow
	add := func(name string, of func(*results.Summary) []results.GPU) {
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
		for i, g := range sums {
			if all := g.Busy + g.Stalled + g.Idle; all > 0 {
				rows = append(rows, gpuRow{fmt.Sprintf("%s %d", name, i+1), g.Busy / all, g.Stalled / all})
			}
		}
	}
	add("worker", func(s *results.Summary) []results.GPU { return s.WorkerTimes })
	add("trainer", func(s *results.Summary) []results.GPU { return s.TrainerTimes })
	return rows
}

// idles reports whether any GPU of an arm was idle, as in synchronous mode.
func idles(side *arm) bool {
	return slices.ContainsFunc(side.summaries(), func(s *results.Summary) bool {
		return slices.ContainsFunc(slices.Concat(s.WorkerTimes, s.TrainerTimes),
			func(g results.GPU) bool { return g.Idle > 0 })
	})
}

// gpuFigure draws busy, stalled and idle time as one bar per GPU.
func gpuFigure(side *arm) (figure, error) {
	f := figure{Title: "Use of time, " + side.label}
	rows := gpuRows(side)
	if len(rows) == 0 {
		f.Empty = "Known when the run has ended."
		return f, nil
	}
	const width, left, right = vg.Length(380), vg.Length(52), vg.Length(72)
	step := vg.Length(17)
	if len(rows) > 24 { // without room for text
		step = 6
	}
	height := step*vg.Length(len(rows)) + 2
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	for i, row := range rows {
		top := height - 1 - step*vg.Length(i)
		busy := left + (width-left-right)*vg.Length(row.busy)
		stalled := busy + (width-left-right)*vg.Length(row.stalled)
		fill(c, side.role, left, busy, top-step*0.86, top)
		fill(c, stalledColor, busy, stalled, top-step*0.86, top)
		fill(c, idleColor, stalled, width-right, top-step*0.86, top)
		if step < 12 {
			continue
		}
		name := style(mutedColor, textSize)
		name.YAlign = draw.YCenter
		middle := top - step*0.43
		c.FillText(name, vg.Point{X: 1, Y: middle}, row.name)
		c.FillText(name, vg.Point{X: width - right + 6, Y: middle}, fmt.Sprintf("%.1f%% busy", 100*row.busy))
	}
	svg, err := inline(canvas, width, height, "half", f.Title)
	f.SVG = []markup{svg}
	return f, err
}

// fill paints a rectangle.
func fill(c draw.Canvas, r role, left, right, bottom, top vg.Length) {
	c.FillPolygon(r.color(), []vg.Point{{X: left, Y: bottom}, {X: left, Y: top}, {X: right, Y: top},
		{X: right, Y: bottom}})
}
