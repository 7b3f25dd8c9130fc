package report

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/results"
)

// gpuRow is what one worker or trainer did, mean over the seeds.
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

// idles reports whether some GPU of an arm was ever idle, as in synchronous mode.
func idles(side *arm) bool {
	return slices.ContainsFunc(side.summaries(), func(s *results.Summary) bool {
		return slices.ContainsFunc(slices.Concat(s.WorkerTimes, s.TrainerTimes), func(g results.GPU) bool { return g.Idle > 0 })
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
	c.FillPolygon(r.color(), []vg.Point{{X: left, Y: bottom}, {X: left, Y: top}, {X: right, Y: top}, {X: right, Y: bottom}})
}
