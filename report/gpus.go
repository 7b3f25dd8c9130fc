package report

import (
	"fmt"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/results"
)

// gpuRow is what one worker or trainer did, mean over the seeds.
type gpuRow struct {
	name string
	busy float64 // share, in [0, 1]
}

// gpuRows returns the workers and then the trainers of an arm.
func gpuRows(side *arm) []gpuRow {
	var rows []gpuRow
	add := func(name string, of func(*results.Summary) []results.GPU) {
		var busy, all []float64
		for _, s := range side.summaries() {
			for i, g := range of(s) {
				if i == len(busy) {
					busy, all = append(busy, 0), append(all, 0)
				}
				busy[i] += g.Busy
				all[i] += g.Busy + g.Idle
			}
		}
		for i := range busy {
			if all[i] > 0 {
				rows = append(rows, gpuRow{fmt.Sprintf("%s %d", name, i+1), busy[i] / all[i]})
			}
		}
	}
	add("worker", func(s *results.Summary) []results.GPU { return s.WorkerTimes })
	add("trainer", func(s *results.Summary) []results.GPU { return s.TrainerTimes })
	return rows
}

// gpuFigure draws busy and idle time as one bar per GPU.
func gpuFigure(side *arm) (figure, error) {
	f := figure{Title: "Busy and idle time, " + side.label}
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
		edge := left + (width-left-right)*vg.Length(row.busy)
		fill(c, side.role, left, edge, top-step*0.86, top)
		fill(c, idleColor, edge, width-right, top-step*0.86, top)
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
