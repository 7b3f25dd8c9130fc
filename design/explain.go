package design

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/reprise-rl/reprise/internal/words"
)

// Line is a named value in words.
type Line struct{ Name, Text string }

func named(name, format string, args ...any) Line { return Line{name, fmt.Sprintf(format, args...)} }

// Parameters lists what the calculation starts from.
func (r *Recommendation) Parameters() []Line {
	return []Line{
		named("rollout cost", "%.4g units of training per rollout generated (mu; train cost m = 1/mu = %.4g); %s",
			r.RolloutCost, r.Theory.TrainCost, r.Origins.RolloutCost),
		named("correlation", "%.4g (rho); %s", r.Correlation, r.Origins.Correlation),
		named("noise", "%s; %s", r.noise(), r.Origins.Noise),
		named("fleet", "%s", r.Fleet),
	}
}

// noise describes the growth of noise.
func (r *Recommendation) noise() string {
	switch p := r.Profile.(type) {
	case PowerLaw:
		if p.Exponent > 0 {
			return fmt.Sprintf("variance grows as staleness^%.4g: exponent %.4g (a)", 2*p.Exponent, p.Exponent)
		}
	case *Table:
		last := len(p.sigma2) - 1
		text := fmt.Sprintf("variance %.4g at staleness 0, %.4g at %d", p.sigma2[0], p.sigma2[last], last)
		if !math.IsNaN(r.Exponent) {
			text += fmt.Sprintf("; nearest power law: exponent %.3g", r.Exponent)
		}
		return text
	}
	return "does not grow with staleness: exponent 0 (a)"
}

// bestLines lists the optimum of the theory, where GPUs and rollouts can be divided at will.
func (r *Recommendation) bestLines() []Line {
	o := r.Optimum
	return []Line{
		named("staleness horizon", "%s (x* = N/R)", versions(o.X)),
		named("replay ratio", "%s uses of each rollout (y* = B/R)", amount(o.Y)),
		named("cost", "J = %.4g, on-policy J(1, 1) = %.4g", o.Objective, r.Theory.OnPolicy()),
		named("expected savings", "%.1f%% against on-policy batches drawn with replacement", 100*o.Savings),
		named("", "%s", r.savingsOnce(o.Objective)),
		named("bound", "mean squared gradient <= %.4g sqrt(F0 L/C) after much compute C", asymptotic(o.Objective)),
	}
}

// PlanLines lists the recommended configuration.
func (r *Recommendation) PlanLines() []Line {
	p := r.Plan
	saved := ""
	if share := 1 - p.ComputeRatio; share >= 0.005 {
		saved = fmt.Sprintf(": if it teaches as much, %s is saved", words.Percent(share, 0))
	}
	lines := []Line{
		named("workers, trainers", "%d, %d", p.Workers, p.Trainers),
		named("capacity", "%d rollouts (N)", p.Capacity),
		named("new per update", "%.4g rollouts (R = B (W/T)/mu)", p.RolloutsPerUpdate),
		named("compute ratio", "an update costs %.3f of one without replay (gamma)%s", p.ComputeRatio, saved),
		named("replay ratio", "%.3f expected uses of each rollout (mu T/W)", p.ReplayRatio),
		named("staleness", "a horizon of %s (N/R); no use is older than about %.3g (N/R + 2D + 1)",
			versions(p.Horizon), p.Staleness),
		named("cost", "J = %.4g", p.Objective),
		named("expected savings", "%.1f%% against on-policy batches drawn with replacement", 100*p.Savings),
		named("", "%s", r.savingsOnce(p.Objective)),
	}
	if b := r.Bound; b != nil {
		lines = append(lines, named("bound",
			"mean squared gradient <= %.4g after %s at a learning rate of %.4g (at most %.4g; theorem 3.4)",
			b.Bound, words.Plural(b.Updates, "update"), b.LearningRate, b.Most))
	}
	return lines
}

// savingsOnce describes what a cost of j saves against training that uses each rollout once.
func (r *Recommendation) savingsOnce(j float64) string {
	_, share, atMost := r.once(j)
	const against = "on-policy training that uses each rollout once"
	if share < 0 {
		return fmt.Sprintf("none against %s: it costs %s%.1f%% more", against, onlyIf(atMost, "at least "), -100*share)
	}
	return fmt.Sprintf("%s%.1f%% against %s", onlyIf(atMost, "at most "), 100*share, against)
}

func onlyIf(ok bool, text string) string {
	if !ok {
		return ""
	}
	return text
}

// versions writes a horizon.
func versions(x float64) string {
	if x == 1 {
		return "1 version"
	}
	return amount(x) + " versions"
}

// amount writes a number that may be infinite.
func amount(x float64) string {
	if math.IsInf(x, 1) {
		return "infinitely many"
	}
	return fmt.Sprintf("%.4g", x)
}

// Summary is the result in two paragraphs.
func (r *Recommendation) Summary() []string {
	o, p := r.Optimum, r.Plan
	return []string{
		fmt.Sprintf("The replay configuration with the least cost for %s, by the theory of [ER] theorem 3.5. If GPUs "+
			"and rollouts could be divided at will, the best would be a staleness horizon of %s and %s uses of each "+
			"rollout.",
			r.Fleet, versions(o.X), amount(o.Y)),
		fmt.Sprintf("It saves %.1f%% of the compute of on-policy batches drawn with replacement; %s.", 100*p.Savings,
			r.savingsOnce(p.Objective)),
	}
}

// Why explains the recommendation, one paragraph for each of its numbers.
func (r *Recommendation) Why() []string {
	why := []string{r.whyReplay(), r.whyHorizon(), r.whySavings()}
	if r.NoPlan == nil {
		why = append(why, r.whyConfiguration())
	}
	return why
}

func (r *Recommendation) whyReplay() string {
	m, o := r.Theory.TrainCost, r.Optimum
	generation := func(y float64) string { return words.Percent(1/(1+m*y), 0) } // its share of the compute, R/(R + m B)
	text := fmt.Sprintf("Generating a rollout costs %.4g times as much as training on it, so on-policy training "+
		"spends %s of its compute on generation.", r.RolloutCost, generation(1))
	if math.IsInf(o.Y, 1) {
		return text + " Draws share no noise here and old rollouts are as good as new ones. Nothing speaks against " +
			"using each rollout for ever, so the replay ratio has no optimum."
	}
	shared := ""
	if r.Correlation > 0 {
		shared = fmt.Sprintf(", and the noise they share (correlation %.3g) does not average out", r.Correlation)
	}
	return text + fmt.Sprintf(" With %.3g uses of each rollout the share is %s. Fewer uses would spend too much on "+
		"generation; more would fill batches with repeats of too few rollouts%s. The optimum is y* = 1/sqrt(m (rho + "+
		"1/x*)), with m = %.4g.",
		o.Y, generation(o.Y), shared, m)
}

func (r *Recommendation) whyHorizon() string {
	o := r.Optimum
	switch o.Where {
	case AtInfinity:
		return "Noise does not grow with staleness, so a larger buffer is always better: its draws are more diverse " +
			"and no worse. Memory is the limit, not the theory."
	case AtOne:
		text := "Noise grows so fast with staleness that no rollout is worth keeping beyond the version that " +
			"generated it: x* = 1."
		if o.Y > 1 {
			text += " What remains is to use a fresh rollout more than once before it goes."
		}
		return text
	case AtEnd:
		return fmt.Sprintf("The cost still falls where the noise profile ends, at %s: the best horizon is there or "+
			"beyond.", versions(o.X))
	}
	growth := " of stale rollouts outweighs that, by the profile"
	if law, ok := r.Profile.(PowerLaw); ok {
		growth = fmt.Sprintf(" of stale rollouts, whose variance grows as staleness^%.3g, outweighs that",
			2*law.Exponent)
	}
	return fmt.Sprintf("A longer buffer makes the draws of a batch more diverse, but older. Up to %s diversity is "+
		"worth more; beyond that the noise%s.", versions(o.X), growth)
}

func (r *Recommendation) whySavings() string {
	o := r.Optimum
	saves := fmt.Sprintf("saves at most %.1f%%", 100*o.Savings)
	if o.Savings < 0 {
		saves = fmt.Sprintf("costs at least %.1f%% more", -100*o.Savings)
	}
	return fmt.Sprintf("The compute to bring the gradient down to a given size is proportional to J. At the optimum "+
		"J is %.4g, on-policy J(1, 1) = %.4g, so replay %s. After much compute C, in rollouts generated, theorem "+
		"3.4 at "+
		"its best learning rate bounds the mean squared gradient by 8 sqrt(6 J F0 L/C) = %.4g sqrt(F0 L/C), where F0 "+
		"is how far the objective has to fall and L its smoothness.",
		o.Objective, r.Theory.OnPolicy(), saves, asymptotic(o.Objective))
}

func (r *Recommendation) whyConfiguration() string {
	p, f := r.Plan, r.Fleet
	text := fmt.Sprintf("%s and %s fix the replay ratio at mu T/W = %.3g, and a buffer of %d fixes the horizon at "+
		"N/R = %s.",
		words.Plural(p.Workers, "worker"), words.Plural(p.Trainers, "trainer"), p.ReplayRatio, p.Capacity,
		versions(p.Horizon))
	if ways := f.GPUs - 1; ways > 1 {
		text += fmt.Sprintf(" Of the %d ways to divide %d GPUs, %d can run: trainers take equal parts of a "+
			"batch of %d.",
			ways, f.GPUs, len(divisors(f.Batch, ways)), f.Batch)
	}
	if lost := r.Optimum.Savings - p.Savings; lost >= 0.0005 && !math.IsInf(r.Optimum.X, 1) {
		text += fmt.Sprintf(" Whole GPUs and whole batches cost %.1f points of the savings at the optimum.", 100*lost)
	}
	return text
}

// Caveats are sentences about what makes the recommendation doubtful: the measurement, the reach of the theory, the
// comparison, the laboratory.
func (r *Recommendation) Caveats() []string {
	list := append(slices.Clone(r.Warnings), r.Doubts.All()...)
	add := func(when bool, text string, args ...any) {
		if when {
			list = append(list, fmt.Sprintf(text, args...))
		}
	}
	o, p := r.Optimum, r.Plan
	law, isLaw := r.Profile.(PowerLaw)
	add(strings.HasPrefix(r.Origins.RolloutCost, Assumed) || r.Origins.Correlation == Assumed ||
		r.Origins.Noise == Assumed,
		"Nobody measured the values marked as assumed: --from RUN measures them in a run.")
	steep := isLaw && law.Exponent >= 0.5
	add(o.Where == AtOne && steep, "The theory has an optimum only for noise exponents below 0.5. At %.4g its best "+
		"is x = 1 and y = 1/sqrt(m (rho + 1)).", law.Exponent)
	add(o.Where == AtOne && !steep, "The cost is least at a horizon below one version, which the theory does not "+
		"cover: x = 1 and y = 1/sqrt(m (rho + 1)) are taken instead.")
	add(o.Where == AtInfinity, "x* is infinite because the noise does not grow with staleness, which no long run "+
		"bears out. The capacity is what --most-capacity allows.")
	add(math.IsInf(o.Y, 1), "y* is infinite too: without correlation the theory would use each rollout for ever. "+
		"That alone is why there are as few workers as the batch allows.")
	add(o.Where == AtEnd, "The profile ends after %s and the cost still falls there: give a longer one, or measure a "+
		"run with a larger buffer.", versions(o.X))
	if r.NoPlan != nil {
		return list
	}
	capped := p.AtLimit && p.Capacity+p.Trainers > r.Fleet.MostCapacity
	add(capped, "The capacity of %d is at its limit, and a larger buffer would cost still less: raise "+
		"--most-capacity (%d) if memory allows.", p.Capacity, r.Fleet.MostCapacity)
	add(p.AtLimit && !capped && o.Where != AtEnd, "With these GPUs the profile ends, after %s, before the cost "+
		"rises: give a longer one, or measure a run with a larger buffer.", versions(r.Profile.Reach()))
	measured, used := LastStaleness(r.Noise), max(o.X, p.Horizon)
	add(isLaw && measured > 0 && used > measured+1, "The power law was fitted up to staleness %.3g and is a guess at "+
		"a horizon of %s: measure a run with a larger buffer.", measured, versions(used))
	late := p.Staleness - p.Horizon - 1 // 2D
	add(late > p.Horizon, "A worker takes %.3g updates for a group, so rollouts are up to twice as many versions old "+
		"when they arrive. The horizon of %.3g does not count that: smaller groups or larger batches make them "+
		"fresher.",
		late/2, p.Horizon)
	add(p.ReplayRatio < 1, "At a replay ratio of %.3g more rollouts are generated than trained on, and some are "+
		"never used: fewer workers and training that uses each once (replay.sampler=lifo) would cost less.",
		p.ReplayRatio)
	_, once, atMost := r.once(p.Objective)
	add(p.Savings <= 0, "Nothing is saved even against on-policy batches drawn with replacement: on-policy training "+
		"with W/T near mu is the better choice.")
	add(p.Savings > 0 && once < 0, "The savings of %.1f%% are against on-policy batches drawn with replacement, J(1, "+
		"1), as in [ER]. Training that uses each rollout exactly once, as reprise train does without replay, draws "+
		"nothing twice: by the theory this configuration costs %s%.1f%% more than that.",
		100*p.Savings, onlyIf(atMost, "at least "), -100*once)
	if better, ok := r.betterBatch(); ok {
		add(true, "%d trainers cannot share a batch of %d: with --batch %d, %s and %s would save %.1f%% instead of "+
			"%.1f%%.",
			better.Trainers, r.Fleet.Batch, better.Batch, words.Plural(better.Workers, "worker"),
			words.Plural(better.Trainers, "trainer"), 100*better.Savings, 100*p.Savings)
	}
	add(r.Refused != nil, "The laboratory refuses this configuration: %v.", r.Refused)
	add(true, "The theory is of plain SGD near the end of long training and ranks configurations. The laboratory "+
		"trains with Adam, so the savings are no forecast.")
	return list
}

// LastStaleness returns the greatest staleness measured, 0 if there is none.
func LastStaleness(noise []Noise) float64 {
	last := 0.0
	for _, n := range noise {
		last = max(last, n.Staleness)
	}
	return last
}

// betterBatch returns the plan with another batch whose split is nearer to the optimum, if that saves a point more.
func (r *Recommendation) betterBatch() (Plan, bool) {
	f, y := r.Fleet, r.Optimum.Y
	if math.IsInf(y, 1) {
		return Plan{}, false
	}
	ideal := int(float64(f.GPUs) * y / (r.RolloutCost + y))
	for trainers := max(1, ideal); trainers <= min(ideal+1, f.GPUs-1); trainers++ {
		batch := max(1, int(math.Round(float64(f.Batch)/float64(trainers)))) * trainers
		if f.Batch%trainers == 0 || batch < f.Group {
			continue
		}
		other := f
		other.Batch, other.MostCapacity = batch, max(f.MostCapacity, batch)
		better, err := r.Theory.Configure(other)
		if err == nil && better.Trainers == trainers && better.Savings > r.Plan.Savings+0.01 {
			return better, true
		}
	}
	return Plan{}, false
}

// NeighbourColumns are the names of the cells of [Recommendation.NeighbourRows].
func NeighbourColumns() []string {
	return []string{"", "W", "T", "N", "J", "difference", "savings", ""}
}

// NeighbourRows returns the configuration and its neighbours as cells.
func (r *Recommendation) NeighbourRows() [][]string {
	row := func(name string, c Configuration, remark string) []string {
		return []string{name, fmt.Sprint(c.Workers), fmt.Sprint(c.Trainers), fmt.Sprint(c.Capacity), fmt.Sprintf("%.4g",
			c.Objective),
			fmt.Sprintf("%+.1f%%", 100*(c.Objective/r.Plan.Objective-1)), words.Percent(c.Savings, 1), remark}
	}
	rows := [][]string{row("recommended", r.Plan.Configuration, "")}
	for _, n := range r.Plan.Neighbours {
		remark := ""
		if n.Refused != "" {
			remark = "cannot run: " + n.Refused
		}
		rows = append(rows, row(n.Change, n.Configuration, remark))
	}
	return rows
}

// WhatIf returns the rows of the grid nearest to the plan, at most so many, and the highest savings in them.
func (r *Recommendation) WhatIf(most int) (g Grid, highest float64) {
	g = r.Plan.Grid
	at := slices.IndexFunc(g.Splits, func(s Split) bool { return s.Trainers == r.Plan.Trainers })
	first := max(0, min(at-most/2, len(g.Splits)-most))
	last := min(len(g.Splits), first+most)
	g.Splits, g.Objective, g.Savings = g.Splits[first:last], g.Objective[first:last], g.Savings[first:last]
	highest = math.Inf(-1)
	for _, row := range g.Savings {
		for _, v := range row {
			if v > highest { // not NaN
				highest = v
			}
		}
	}
	return g, highest
}

// mostSplits is how many rows of the grid the text shows.
const mostSplits = 9

// Text returns the recommendation as text, without a plan the theory alone.
func (r *Recommendation) Text() string {
	var w strings.Builder
	heading := func(format string, args ...any) { fmt.Fprintf(&w, "\n"+format+"\n", args...) }
	lines := func(lines []Line) {
		for _, l := range lines {
			fmt.Fprintf(&w, "  %-18s %s\n", l.Name, l.Text)
		}
	}
	list := func(mark string, paragraphs []string) {
		for _, p := range paragraphs {
			w.WriteString(words.Wrap(mark, p))
		}
	}
	w.WriteString("parameters\n")
	lines(r.Parameters())
	list("  - ", r.HowMeasured)
	heading("optimum of the theory ([ER] theorem 3.5)")
	lines(r.bestLines())
	heading("why")
	list("  ", r.Why())
	if r.NoPlan != nil {
		heading("caveats")
		list("  - ", r.Caveats())
		return w.String()
	}
	heading("configuration for %s", r.Fleet)
	lines(r.PlanLines())
	heading("neighbours")
	r.writeNeighbours(&w)
	heading("what if: savings by (W, T) and N, the highest marked *")
	r.writeWhatIf(&w)
	heading("caveats")
	list("  - ", r.Caveats())
	if r.Command != "" {
		heading("run it\n  %s", strings.ReplaceAll(r.Command, " --set ", " \\\n    --set "))
	}
	return w.String()
}

func (r *Recommendation) writeNeighbours(w io.Writer) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{NeighbourColumns()}, r.NeighbourRows()...) {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	t.Flush()
	for line := range strings.Lines(text.String()) { // the tabwriter pads cells at the end too
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func (r *Recommendation) writeWhatIf(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	g, highest := r.WhatIf(mostSplits)
	fmt.Fprint(t, "  \t")
	for _, n := range g.Capacities {
		fmt.Fprintf(t, "%d\t", n)
	}
	for i, s := range g.Splits {
		fmt.Fprintf(t, "\n  (%d, %d)\t", s.Workers, s.Trainers)
		for _, v := range g.Savings[i] {
			fmt.Fprint(t, onlyIf(v == highest, "*"), words.Percent(v, 1), "\t")
		}
	}
	fmt.Fprintln(t)
	t.Flush()
}
