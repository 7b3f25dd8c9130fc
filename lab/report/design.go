package report

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/sim"
)

// Designed is what the page of a recommendation shows.
type Designed struct {
	*design.Recommendation
	Schedule *sim.Comparison // nil: none was run
	Began    time.Time
	Took     time.Duration
	Call     string // of the program
}

// Design writes the page of a recommendation.
func Design(w io.Writer, d Designed) error { return Sheet(w, d.sheet()) }

func (d Designed) sheet() *results.Sheet {
	s := &results.Sheet{
		Kind:     "Design",
		Title:    d.title(),
		Lead:     d.Summary(),
		Sections: d.advice(),
		Facts:    d.facts(),
	}
	s.Sections = append(s.Sections, results.Section{Title: "Caveats", Text: d.Caveats()},
		results.Section{Title: "A buffer by the theory of [ER]", Text: d.Why(), Grids: d.buffer()})
	if d.NoPlan == nil {
		s.Sections = append(s.Sections, d.whatIf())
	}
	s.Sections = append(s.Sections,
		[]results.Section{
			{Title: "Over the rollout cost", Figures: d.optimaOverCost()},
			{Title: "Over the staleness horizon", Figures: []results.Figure{d.costOverHorizon()}},
			{Title: "Prompts whose rewards are all alike", Text: []string{zeroVarianceText},
				Figures: []results.Figure{rewardWeights(d.Fleet.Group), silentGroups(d.Fleet.Group)}},
		}...)
	s.Sections = append(s.Sections, d.noiseProfile()...)
	if d.Schedule != nil {
		s.Sections = append(s.Sections, scheduleSection(d.Schedule))
	}
	return s
}

// title is the advice in a few words.
func (d Designed) title() string {
	switch {
	case len(d.Unreliable) > 0:
		return "No recommendation"
	case d.Keep:
		return "Keep what the run does"
	}
	return "Recommended: " + d.Best.String()
}

// advice compares the ways to use rollouts, and says how to run the recommended one.
func (d Designed) advice() (sections []results.Section) {
	if len(d.Ways) > 0 {
		sections = append(sections, results.Section{Title: "The ways to use rollouts", Grids: []results.Grid{{
			Title:   "Cost for the same progress",
			Note:    "Cost and best learning rate over those of the run, or else of the queue.",
			Columns: design.WayColumns(), Rows: d.WayRows()}}})
	}
	if d.Command == "" {
		return sections
	}
	run := results.Section{Title: "Run it", Command: strings.ReplaceAll(d.Command, " --set ", " \\\n  --set ")}
	for _, c := range d.Changes {
		if c.Why != "" {
			run.Text = append(run.Text, c.Assignment+": "+c.Why+".")
		}
	}
	return append(sections, run)
}

// buffer lists the buffer that [ER]'s theory puts first, if the fleet can run one.
func (d Designed) buffer() []results.Grid {
	if d.NoPlan != nil {
		return nil
	}
	g := results.Grid{Title: "The buffer that it puts first", Columns: []string{"", "value"}}
	for _, l := range d.PlanLines() {
		g.Rows = append(g.Rows, []string{l.Name, l.Text})
	}
	return []results.Grid{g}
}

// maxMapRows is how many splits of the GPUs the map of savings shows.
const maxMapRows = 24

// whatIf maps the savings by split and capacity, and lists the neighbours.
func (d Designed) whatIf() results.Section {
	g, highest := d.WhatIf(maxMapRows)
	m := &results.HeatMap{Digits: 1, Unit: "savings, %"}
	for _, n := range g.Capacities {
		m.Columns = append(m.Columns, fmt.Sprint(n))
	}
	var marks []results.MarkedAt
	for i, s := range g.Splits {
		m.Rows = append(m.Rows, fmt.Sprintf("(%d, %d)", s.Workers, s.Trainers))
		row := make([]results.Number, len(g.Savings[i]))
		for k, v := range g.Savings[i] {
			row[k] = results.Num(100 * v)
			if v == highest {
				marks = append(marks, results.MarkedAt{
					Name: "highest", X: float64(k), Y: float64(i),
				})
			}
		}
		m.Values = append(m.Values, row)
	}
	return results.Section{
		Title: "What if",
		Text: []string{"With more trainers per worker each rollout is used more often. A larger buffer is more " +
			"diverse and older. Cells are empty where the buffer is too small for its batch or its groups, or larger " +
			"than the noise profile reaches."},
		Figures: []results.Figure{{
			Title: "Savings by split of the GPUs and capacity",
			Note:  "Expected savings in percent against on-policy batches drawn with replacement, 1 - J(x, y)/J(1, 1).",
			X:     results.Axis{Title: "capacity N, rollouts"}, Y: results.Axis{Title: "(workers, trainers)"},
			Map: m, Marks: marks,
		}},
		Grids: []results.Grid{{
			Title: "Neighbours", Note: "One step from the configuration in GPUs or in capacity.",
			Columns: design.NeighbourColumns(), Rows: d.NeighbourRows(),
		}},
	}
}

// variant is a theory to compare with the given one.
type variant struct {
	name   string
	theory design.Theory
}

func newVariant(t design.Theory, note string) variant {
	if law, ok := t.Profile.(design.PowerLaw); ok {
		return variant{fmt.Sprintf("a %.3g, rho %.3g%s", law.Exponent, t.Correlation, note), t}
	}
	return variant{fmt.Sprintf("profile, rho %.3g%s", t.Correlation, note), t}
}

// variants returns the given theory, then those with other exponents of the power law and with other correlations.
func (d Designed) variants(exponents, correlations []float64) []variant {
	list := []variant{newVariant(d.Theory, " (as given)")}
	add := func(t design.Theory) {
		if t != d.Theory {
			list = append(list, newVariant(t, ""))
		}
	}
	law, _ := d.Profile.(design.PowerLaw)
	for _, a := range exponents {
		t := d.Theory
		t.Profile = design.PowerLaw{Exponent: a, Scale: law.Scale}
		add(t)
	}
	for _, rho := range correlations {
		t := d.Theory
		t.Correlation = rho
		add(t)
	}
	return list
}

// neighbouringVariants have less and more noise and correlation.
func (d Designed) neighbouringVariants() []variant {
	var exponents []float64
	if law, ok := d.Profile.(design.PowerLaw); ok {
		if exponents = []float64{law.Exponent / 2, min(2*law.Exponent, 0.45)}; law.Exponent == 0 {
			exponents = []float64{0.05, 0.2}
		}
	}
	return d.variants(exponents, []float64{d.Correlation / 4, min(1, max(0.1, 4*d.Correlation))})
}

// geometric returns n numbers from low to high at equal ratios.
func geometric(low, high float64, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = low * math.Pow(high/low, float64(i)/float64(n-1))
	}
	return list
}

// curve draws a function. It breaks where the function has no finite value.
func curve(name string, colour int, xs []float64, f func(x float64) float64) results.Curve {
	c := results.Curve{Name: name, Colour: colour}
	for _, x := range xs {
		c.At = append(c.At, results.Point{X: x, Y: results.Num(f(x))})
	}
	return c
}

// optimaOverCost draws x* and y* over the rollout cost ([ER] figure 4).
func (d Designed) optimaOverCost() []results.Figure {
	costs := geometric(max(0.02, d.RolloutCost/50), d.RolloutCost*50, 141)
	figure := func(title, symbol, axis string, pick func(design.Optimum) float64) results.Figure {
		f := results.Figure{
			Title: title,
			Note: "[ER] figure 4 for these parameters: the dearer generation is, the longer it pays to keep rollouts " +
				"and the more often to use them; noise and correlation work against that. There is no line where the " +
				"optimum is infinite.",
			X:      results.Axis{Title: "rollout cost mu", Log: true},
			Y:      results.Axis{Title: axis, Log: true},
			Guides: []results.Guide{{Name: fmt.Sprintf("mu %.4g", d.RolloutCost), X: results.Num(d.RolloutCost)}},
		}
		for i, v := range d.neighbouringVariants() {
			f.Curves = append(f.Curves, curve(v.name, i, costs, func(mu float64) float64 {
				t := v.theory
				t.TrainCost = 1 / mu
				return pick(t.Optimum())
			}))
		}
		if at := pick(d.Optimum); !math.IsInf(at, 1) {
			f.Marks = []results.MarkedAt{{Name: fmt.Sprintf("%s %.4g", symbol, at), X: d.RolloutCost, Y: at}}
		}
		return f
	}
	return []results.Figure{
		figure("Optimal staleness horizon over the rollout cost", "x*", "x* = N/R, versions",
			func(o design.Optimum) float64 { return o.X }),
		figure("Optimal replay ratio over the rollout cost", "y*", "y* = B/R, uses of each rollout",
			func(o design.Optimum) float64 { return o.Y }),
	}
}

// maxCost is where the curves of the cost end, in units of on-policy training.
const maxCost = 2

// costOverHorizon draws the cost over the horizon with the best replay ratio for each ([ER] figure 5).
func (d Designed) costOverHorizon() results.Figure {
	far := 100.0
	if !math.IsInf(d.Optimum.X, 1) {
		far = max(far, 10*d.Optimum.X)
	}
	once := "on-policy, each used once"
	j, exact := d.Theory.OnPolicyOnce()
	if !exact {
		once += ", at most"
	}
	f := results.Figure{
		Title: "Cost over the staleness horizon",
		Note: "[ER] figure 5 for these parameters, each horizon with its best replay ratio, J(x, y*(x))/J(1, 1): " +
			"below 1 replay saves. [ER] draws the root of J. Points are the optima. Lines end where replay costs " +
			"twice as much as on-policy training.",
		X: results.Axis{Title: "staleness horizon x = N/R, versions", Log: true},
		Y: results.Axis{Title: "J(x, y*(x)) / J(1, 1)", Low: results.Num(0), High: results.Num(maxCost)},
		Guides: []results.Guide{
			{Name: "on-policy, drawn with replacement", Y: results.Num(1)},
			{Name: once, Y: results.Num(j / d.Theory.OnPolicy())},
		},
	}
	optima := results.Curve{Name: "optimum x*", Points: true}
	for i, v := range d.variants([]float64{0, 0.05, 0.1, 0.2, 0.3, 0.5}, nil) {
		horizons := geometric(1, min(far, v.theory.Profile.Reach()), 121)
		f.Curves = append(f.Curves, curve(v.name, i, horizons, func(x float64) float64 {
			if j := v.theory.Envelope(x) / v.theory.OnPolicy(); j <= maxCost {
				return j
			}
			return math.NaN()
		}))
		if o := v.theory.Optimum(); !math.IsInf(o.X, 1) && o.X <= far {
			optima.At = append(optima.At, results.Point{X: o.X, Y: results.Num(o.Objective / v.theory.OnPolicy())})
		}
	}
	optima.Colour = len(f.Curves)
	f.Curves = append(f.Curves, optima)
	return f
}

// figureEpsilon is the epsilon under the root of a group's deviation that puts the ends of [OG] figure 1 at 9, where
// they are printed.
const figureEpsilon = 0.01

const zeroVarianceText = "[OG] theorem 1 weighs a step away from the behaviour policy by (1 - sigma)/sigma " +
	"against the improvement that it promises. The weight is large where nearly all or nearly none of a group's " +
	"rollouts are right. learner.mask_zero_variance leaves groups whose rewards are all alike out of the loss; how " +
	"many there are depends on the size of a group."

// successRates are the abscissas of figures over the success rate.
func successRates() []float64 {
	rates := make([]float64, 201)
	for i := range rates {
		rates[i] = float64(i) / 200
	}
	return rates
}

// rewardWeights draws the weight of a step over a prompt's success rate ([OG] figure 1), with the rates that a group
// can show.
func rewardWeights(group int) results.Figure {
	weight := func(p float64) float64 { return design.NormalisedRewardWeight(p, figureEpsilon) }
	f := results.Figure{
		Title: "The weight against a step",
		Note: fmt.Sprintf("[OG] figure 1: (1 - sigma)/sigma with sigma = sqrt(p (1 - p) + epsilon). An epsilon of %g "+
			"puts the ends at 9, as in the paper; smaller ones send them to infinity.", figureEpsilon),
		X: results.Axis{Title: "success rate p of a prompt"}, Y: results.Axis{Title: "(1 - sigma)/sigma"},
		Curves: []results.Curve{curve("any success rate", 0, successRates(), weight)},
	}
	if group <= 64 {
		shown := results.Curve{Name: fmt.Sprintf("success rates that a group of %d can show", group), Colour: 1,
			Points: true}
		for k := range group + 1 {
			p := float64(k) / float64(group)
			shown.At = append(shown.At, results.Point{X: p, Y: results.Num(weight(p))})
		}
		f.Curves = append(f.Curves, shown)
	}
	return f
}

// silentGroups draws the share of groups without an advantage over a prompt's success rate.
func silentGroups(group int) results.Figure {
	f := results.Figure{
		Title: "Groups that teach nothing",
		Note: "The share of groups whose rewards are all alike, p^G + (1 - p)^G: they have no advantage, and masking " +
			"leaves them out.",
		X: results.Axis{Title: "success rate p of a prompt"},
		Y: results.Axis{Title: "share of groups", Low: results.Num(0), High: results.Num(1)},
	}
	for i, size := range []int{group, 4, 16, 64} {
		if i > 0 && size == group {
			continue
		}
		alike := func(p float64) float64 { return math.Pow(p, float64(size)) + math.Pow(1-p, float64(size)) }
		f.Curves = append(f.Curves, curve(fmt.Sprintf("groups of %d", size), len(f.Curves), successRates(), alike))
	}
	return f
}

// maxProfilePoints is about how many points of a profile are drawn.
const maxProfilePoints = 200

// noiseProfile returns the section of the noise profile, none for a given power law.
func (d Designed) noiseProfile() []results.Section {
	table, isTable := d.Profile.(*design.Table)
	if !isTable && len(d.Noise) == 0 {
		return nil
	}
	f := results.Figure{
		Title: "Variance of a rollout's gradient by staleness",
		Note: "As the calculation uses it: sigma2(s), and sbar2(s + 1), its mean over a buffer that reaches back " +
			"that far.",
		X: results.Axis{Title: "staleness s, versions"}, Y: results.Axis{Title: "variance", Low: results.Num(0)},
	}
	if isTable {
		at, mean := results.Curve{Name: "at this staleness", Dashed: true},
			results.Curve{Name: "mean up to it", Colour: 1}
		reach := int(table.Reach())
		for s := 0; s < reach; s += max(1, reach/maxProfilePoints) {
			at.At = append(at.At, results.Point{X: float64(s), Y: results.Num(table.At(float64(s)))})
			mean.At = append(mean.At, results.Point{X: float64(s), Y: results.Num(table.Mean(float64(s + 1)))})
		}
		f.Curves = []results.Curve{at, mean}
	} else {
		f.Title = "n/ESS of importance ratios by age, in place of the variance of gradients"
		f.Note = "The nearest power law, each version at its middle."
		f.X.Title, f.Y.Title = "age s, versions", "n/ESS"
		law := results.Curve{Name: "power law", Dashed: true}
		for i := range maxProfilePoints + 1 { // to a little beyond the last measurement
			s := (design.LastStaleness(d.Noise) + 1) * float64(i) / maxProfilePoints
			mean := d.Profile.At(s + 0.5) // about that over the version
			law.At = append(law.At, results.Point{X: s, Y: results.Num(mean)})
		}
		f.Curves = []results.Curve{law}
	}
	if len(d.Noise) > 0 {
		measured := results.Curve{Name: fmt.Sprintf("measured, %d points", len(d.Noise)), Colour: len(f.Curves),
			Points: true}
		for _, n := range d.Noise {
			p := results.Point{X: n.Staleness, Y: results.Num(n.Variance)}
			if n.Error > 0 {
				p.Low, p.High = results.Num(max(0, n.Variance-n.Error)), results.Num(n.Variance+n.Error)
			}
			measured.At = append(measured.At, p)
		}
		f.Curves = append(f.Curves, measured)
		f.Note += " Points are measured, with standard errors where known; fresh rollouts are 1."
	}
	return []results.Section{{Title: "The noise profile", Text: d.HowMeasured, Figures: []results.Figure{f}}}
}

// scheduleSection shows a comparison of schedules.
func scheduleSection(x *sim.Comparison) results.Section {
	s := results.Section{
		Title: "A schedule without a model",
		Text:  append(append(x.Setting(), x.Words...), x.Warnings...),
		Grids: []results.Grid{{
			Title: "Queues and buffer side by side", Columns: x.Columns(), Rows: x.Rows(),
			Note: "One clock and one seed for all. Waits before an update are in durations of an update, B/T. [ER] " +
				"app. D.",
		}},
	}
	for _, f := range []struct {
		title, unit, note string
		of                func(sim.ComparisonArm) sim.Counts
	}{
		{"Staleness", "versions", "Share of the draws, by the age of the rollout ([ER] fig. 2).",
			func(a sim.ComparisonArm) sim.Counts { return a.Staleness }},
		{"Uses", "uses", "Share of the rollouts that left, by their uses. A queue gives each once.",
			func(a sim.ComparisonArm) sim.Counts { return a.Uses }},
		{"Time since last use", "updates",
			"Share of the draws that were not a rollout's first, by the updates since its last use; 0 is a repeat in " +
				"a batch.",
			func(a sim.ComparisonArm) sim.Counts { return a.SinceLastUse }},
	} {
		s.Figures = append(s.Figures, armHistograms(x.Arms, f.title, f.unit, f.note, f.of))
	}
	return s
}

// Histograms of a schedule show this share of the counts: the last thousandth is a tail as long as the rest together. A
// curve has at most maxCurveBins points; more values share bins of equal width.
const (
	histogramShare = 0.999
	maxCurveBins   = 120
)

// armHistograms draws a histogram of each arm that has counts.
func armHistograms(
	arms []sim.ComparisonArm, title, unit, note string, of func(sim.ComparisonArm) sim.Counts,
) results.Figure {
	f := results.Figure{Title: title, X: results.Axis{Title: unit},
		Y: results.Axis{Title: "share", Low: results.Num(0)}}
	last := int64(0)
	for _, a := range arms {
		c := of(a)
		last = max(last, c.Histogram.Quantile(histogramShare))
	}
	width := last/maxCurveBins + 1
	for i, a := range arms {
		c := of(a)
		if c.Count == 0 {
			continue
		}
		var h results.Histogram
		for _, b := range c.Histogram.Bins() {
			h = append(h, [2]uint64{uint64(b.Value), b.Count})
		}
		line := results.Curve{Name: a.Name, Colour: i, At: h.Shares(uint64(width), uint64(last))}
		f.Curves = append(f.Curves, line)
	}
	if width > 1 {
		note += fmt.Sprintf(" Each point is the sum of %d values.", width)
	}
	f.Note = note + " The last thousandth is cut off."
	return f
}

// facts are the provenance of the page.
func (d Designed) facts() []results.Fact {
	var facts []results.Fact
	for _, l := range d.Parameters() {
		facts = append(facts, results.Fact{Name: l.Name, Text: l.Text})
	}
	seeds := "none: formulas draw nothing"
	if len(d.HowMeasured) > 0 {
		seeds = "those of the runs measured"
		if len(d.Noise) == 0 { // otherwise the section of the noise profile has these sentences
			for _, sentence := range d.HowMeasured {
				facts = append(facts, results.Fact{Name: "measured", Text: sentence})
			}
		}
	}
	if d.Schedule != nil {
		seeds += fmt.Sprintf("; of the schedule without a model: %d", d.Schedule.Seed)
	}
	build := results.ThisBuild()
	commit := build.Revision
	if commit == "" {
		commit = "unknown"
	} else if build.Modified {
		commit += ", modified"
	}
	began := d.Began.UTC().Format(time.DateTime + " MST")
	return append(facts,
		results.Fact{Name: "seeds", Text: seeds},
		results.Fact{Name: "commit", Text: commit},
		results.Fact{Name: "machine", Text: fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH,
			runtime.NumCPU())},
		results.Fact{Name: "time", Text: fmt.Sprintf("%s, %.3g s", began, d.Took.Seconds())},
		results.Fact{Name: results.CommandFact, Text: d.Call})
}
