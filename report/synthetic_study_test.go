package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/reprise-rl/reprise/results"
)

// saturating returns a curve that rises to a level, with noise and, where asked for, a spread.
func saturating(name string, colour int, level, rate float64, points int, spread float64, rng *rand.Rand) results.Curve {
	c := results.Curve{Name: name, Colour: colour}
	for i := range points {
		x := float64(i) * 8000
		y := level - (level-0.34)*math.Exp(-rate*float64(i)/float64(points)*4) + 0.008*rng.NormFloat64()
		p := results.Point{X: x, Y: results.Num(y)}
		if spread > 0 {
			p.Low, p.High = results.Num(y-spread*(0.6+rng.Float64())), results.Num(y+spread*(0.6+rng.Float64()))
		}
		c.At = append(c.At, p)
	}
	return c
}

// sectionOfCurves has a large figure and two small ones.
func sectionOfCurves(rng *rand.Rand) results.Section {
	large := results.Figure{Title: "Accuracy against compute", Note: "Median over 4 seeds; the band lies between the quartiles.",
		X: results.Axis{Title: "compute: rollouts through one trainer"}, Y: results.Axis{Title: "held-out pass@1, greedy"}}
	for i, name := range []string{"no replay", "N = 512, W/T = (6,2)", "N = 2048, W/T = (6,2)"} {
		large.Curves = append(large.Curves, saturating(name, i, 0.72+0.04*float64(i), 1+0.4*float64(i), 26, 0.02, rng))
		for range 4 {
			seed := saturating(name, i, 0.70+0.04*float64(i)+0.02*rng.NormFloat64(), 1+0.4*float64(i), 26, 0, rng)
			seed.Thin = true
			large.Curves = append(large.Curves, seed)
		}
	}
	large.Curves[0].At[12].Y, large.Curves[0].At[12].Low = results.Number{}, results.Number{}
	large.Guides = []results.Guide{{Name: "target 0.65", Y: results.Num(0.65)}, {Name: "on-policy’s budget", X: results.Num(120_000)}}
	large.Marks = []results.MarkedAt{{Name: "first reached", X: 80_000, Y: 0.65}}
	theory := results.Figure{Title: "Objective against staleness horizon", Note: "J relative to its least value.",
		X: results.Axis{Title: "x = N/R", Log: true}, Y: results.Axis{Title: "J/J*", Low: results.Num(1), High: results.Num(2)}}
	for i, mu := range []float64{1, 2.5, 5.28, 10} {
		c := results.Curve{Name: fmt.Sprintf("μ = %g", mu), Colour: i, Dashed: true}
		for x := 1.0; x <= 200; x *= 1.1 {
			c.At = append(c.At, results.Point{X: x, Y: results.Num(1 + 0.4*math.Pow(math.Log(x/(3*mu)), 2)/mu)})
		}
		theory.Curves = append(theory.Curves, c)
	}
	measured := results.Curve{Name: "measured", Colour: 7, Points: true}
	for _, x := range []float64{2, 4, 8, 16, 32, 64} {
		y := 1 + 0.1*math.Pow(math.Log(x/15), 2)
		measured.At = append(measured.At, results.Point{X: x, Y: results.Num(y), Low: results.Num(y - 0.06), High: results.Num(y + 0.08)})
	}
	theory.Curves = append(theory.Curves, measured)
	theory.Marks = []results.MarkedAt{{Name: "recommended", X: 14, Y: 1.02}}
	variance := results.Figure{Title: "Noise against staleness", X: results.Axis{Title: "staleness, versions", Log: true}, Y: results.Axis{Title: "σ² of a rollout's gradient", Log: true}}
	fit, data := results.Curve{Name: "fitted power law", Colour: 1, Dashed: true}, results.Curve{Name: "run", Colour: 1, Points: true}
	for s := 1.0; s <= 64; s *= 2 {
		y := 3e-4 * math.Pow(s, 0.4)
		fit.At = append(fit.At, results.Point{X: s, Y: results.Num(y)})
		data.At = append(data.At, results.Point{X: s, Y: results.Num(y * math.Exp(0.15*rng.NormFloat64()))})
	}
	variance.Curves = []results.Curve{fit, data}
	return results.Section{Title: "Accuracy", Text: []string{"What each arm came to on the held-out problems, at equal compute."}, Figures: []results.Figure{large, theory, variance}}
}

// sectionOfMaps has a small map beside a plot, and a broad one below.
func sectionOfMaps() results.Section {
	small := results.HeatMap{Columns: []string{"256", "512", "1024", "2048", "4096"}, Rows: []string{"(6,2)", "(5,3)", "(4,4)"}, Digits: 3, Unit: "best accuracy"}
	for i := range small.Rows {
		var row []results.Number
		for j := range small.Columns {
			row = append(row, results.Num(0.82-0.03*math.Pow(float64(j)-2.4+float64(i)/2, 2)-0.04*float64(i)))
		}
		small.Values = append(small.Values, row)
	}
	small.Values[2][4] = results.Number{}
	broad := results.HeatMap{Digits: 2, Unit: "compute over on-policy", Less: true}
	for j := range 14 {
		broad.Columns = append(broad.Columns, fmt.Sprint(256<<(j/2)+64*(j%2)))
	}
	for i := range 7 {
		broad.Rows = append(broad.Rows, fmt.Sprintf("(%d,%d)", 7-i, 1+i))
		var row []results.Number
		for j := range broad.Columns {
			row = append(row, results.Num(0.6+0.01*math.Pow(float64(j-5), 2)+0.05*math.Pow(float64(i-2), 2)))
		}
		broad.Values = append(broad.Values, row)
	}
	fine := results.HeatMap{Digits: 2, Unit: "savings"}
	for j := range 60 {
		fine.Columns = append(fine.Columns, fmt.Sprint(j+1))
	}
	for i := range 24 {
		fine.Rows = append(fine.Rows, fmt.Sprintf("%.1f", 0.5+0.25*float64(i)))
		var row []results.Number
		for j := range fine.Columns {
			row = append(row, results.Num(math.Sin(float64(j)/12)*math.Cos(float64(i)/9)))
		}
		fine.Values = append(fine.Values, row)
	}
	x, y := results.Axis{Title: "buffer capacity N, rollouts"}, results.Axis{Title: "inference and training GPUs (W,T)"}
	return results.Section{Title: "Buffer and split", Figures: []results.Figure{
		{Title: "Best accuracy by buffer and split", X: x, Y: y, Map: &small, Note: "Median over 4 seeds.",
			Marks: []results.MarkedAt{{Name: "best of all", X: 2, Y: 0}, {Name: "recommended by the theory", X: 2, Y: 0}, {Name: "default", X: 1, Y: 1}}},
		{Title: "Nothing came of this", X: x, Y: y, Curves: []results.Curve{{Name: "diverged", At: []results.Point{{X: 1}}}}},
		{Title: "What if: compute by split and capacity", X: x, Y: y, Map: &broad, Marks: []results.MarkedAt{{Name: "recommended", X: 5, Y: 2}}},
		{Title: "Savings over the whole plane", X: results.Axis{Title: "x"}, Y: results.Axis{Title: "y"}, Map: &fine, Marks: []results.MarkedAt{{Name: "optimum", X: 20, Y: 4}}},
	}}
}

// sectionOfArms has as many curves as colours and shapes can tell apart, and a threesome of small figures.
func sectionOfArms(arms int, rng *rand.Rand) results.Section {
	pareto := results.Figure{Title: "Optimality curves", X: results.Axis{Title: "compute", Log: true}, Y: results.Axis{Title: "best median accuracy so far"}}
	for i := range arms {
		c := saturating(fmt.Sprintf("rate %de-4, N = %d", 2+2*(i%5), 256<<(i/5)), i, 0.6+0.2*rng.Float64(), 1, 26, 0, rng)
		c.At = c.At[1:]
		pareto.Curves = append(pareto.Curves, c)
		for range 3 {
			seed := saturating("", i, 0.6+0.2*rng.Float64(), 1, 26, 0, rng)
			seed.At, seed.Thin = seed.At[1:], true
			pareto.Curves = append(pareto.Curves, seed)
		}
	}
	section := results.Section{Title: "Every configuration", Figures: []results.Figure{pareto}}
	return section
}

// sectionOfThree has three figures of a size, and tables.
func sectionOfThree(rng *rand.Rand) results.Section {
	section := results.Section{Title: "Dynamics", Text: []string{"Distributions over all uses of a run, by arm."}}
	for _, title := range []string{"Staleness at use", "Uses at eviction", "Time since last use"} {
		f := results.Figure{Title: title, X: results.Axis{Title: "versions"}, Y: results.Axis{Title: "% of uses"}}
		for i, name := range []string{"queue", "buffer"} {
			c := results.Curve{Name: name, Colour: i}
			for x := range 30 {
				c.At = append(c.At, results.Point{X: float64(x), Y: results.Num(10 * math.Exp(-float64(x)/(3+9*float64(i))) * (1 + 0.1*rng.NormFloat64()))})
			}
			f.Curves = append(f.Curves, c)
		}
		section.Figures = append(section.Figures, f)
	}
	section.Grids = []results.Grid{
		{Title: "Arm by arm", Note: "Medians over seeds with their quartiles.", Columns: []string{"Arm", "Best accuracy", "Compute to 98%", "Savings", "Why"}, Rows: [][]string{
			{"no replay", "0.712 (0.701–0.723)", "161,280", "–", "The queue gives each rollout once, so that nothing is saved by definition."},
			{"N = 512 & <more>", "0.755 (0.741–0.760)", "98,304", "39% (31–44%)", "Reuse pays for the noise that it brings."},
			{"N = 2048", "0.761 (0.752–0.771)", "not reached", "−4% (−12–3%)", "Old rollouts cost more than they bring."},
		}},
		{Title: "Without rows", Columns: []string{"Seed", "Compute"}},
	}
	return section
}

// madeStudy returns a study with everything in it.
func madeStudy(arms int) *results.Study {
	rng := rand.New(rand.NewPCG(11, 6))
	s := &results.Study{
		Format: results.Format, Name: "buffer-size", Seeds: 4, Machine: results.Machine{System: "linux/amd64", CPU: "An Eight-Core Processor", Cores: 2},
		Build: results.Build{Go: "go1.27.1", GoMLX: "v0.28.16", Revision: "0123456789abcdef"}, AtOnce: 2, Seconds: 2712,
		Began: time.Date(2026, 11, 20, 9, 15, 0, 0, time.UTC), Ended: time.Date(2026, 11, 20, 9, 39, 0, 0, time.UTC),
	}
	for i := range arms {
		a := results.StudyArm{Name: fmt.Sprintf("N = %d", 256<<i)}
		for seed := range 4 {
			a.Folders = append(a.Folders, fmt.Sprintf("../runs/%016x", 0xabc0*i+seed))
		}
		if i > 0 {
			a.Differs = []string{fmt.Sprintf("replay.capacity: %d", 256<<i), "replay.sampler: distinct", "pipeline.workers: 6"}
		}
		s.Arms = append(s.Arms, a)
	}
	s.Arms[1].Failed = []string{"seed 3: the loss is not finite at update 121"}
	s.Sheet = results.Sheet{
		Kind: "Study", Title: "How large a buffer?", Lead: []string{
			"[ER] asks how accuracy depends on the capacity of the buffer and on how GPUs are split between generating and training.",
			"Each arm trains the same model on the same task from the same warm start; capacity and split alone differ.",
		},
		Findings: []results.Finding{
			{Source: "[ER] fig. 3, left", Claim: "A small buffer reaches the accuracy of on-policy training with less compute.", Found: "The median ratio of compute to 0.65 is 0.61 (IQR 0.56–0.66) at N = 512, over 4 seeds.", Verdict: results.Holds, Why: "holds if the 95% bootstrap interval of the median ratio lies below 1."},
			{Source: "[ER] fig. 3, right", Claim: "pass@k for large k gains most, because replay keeps rare solutions.", Found: "pass@16 is 0.912 with replay and 0.915 without: a difference of −0.003 (95% interval −0.011 to 0.004).", Verdict: results.DoesNotHold, Why: "holds if the interval of the difference lies above 0; does not hold if it lies below 0.005."},
			{Source: "[ER] fig. 13", Claim: "Very large buffers collapse late.", Found: "One of four seeds collapsed at N = 4096; none did elsewhere.", Verdict: results.CannotTell, Why: "cannot tell below two collapses in one arm; holds if the largest buffer has more than all others together."},
		},
		Sections: []results.Section{sectionOfCurves(rng), sectionOfMaps(), sectionOfThree(rng), sectionOfArms(12, rng)},
		Facts:    []results.Fact{{Name: "Machine", Text: "An Eight-Core Processor, linux/amd64, 2 cores"}, {Name: "Command", Text: "reprise study buffer-size --seeds 4"}, {Name: "Commit of the runs", Text: "0123456789ab"}},
	}
	return s
}
