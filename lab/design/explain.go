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
		named("noise scale", "%s (S); %s", amountKnown(r.NoiseScale), r.Origins.NoiseScale),
		named("coherence", "%.4g (psi): how much of a rollout's noise a full step leaves; %s", r.Coherence,
			r.Origins.Coherence),
		named("fleet", "%s", r.Fleet),
	}
}

func amountKnown(rollouts float64) string {
	if rollouts == 0 {
		return "none"
	}
	return fmt.Sprintf("noise equals signal in the mean gradient of %.4g rollouts", rollouts)
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

// PlanLines lists the buffer that [ER]'s theory puts first.
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
		lines = append(lines, boundLine(b))
	}
	return lines
}

func boundLine(b *Bound) Line {
	return named("bound", "mean squared gradient <= %.4g after %s at a learning rate of %.4g (at most %.4g; theorem 3.4)",
		b.Bound, words.Plural(b.Updates, "update"), b.LearningRate, b.Most)
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

// Headline is the result in a sentence.
func (r *Recommendation) Headline() string {
	if len(r.Unreliable) > 0 {
		return "not reliable: " + strings.Join(r.Unreliable, "; ")
	}
	if r.Keep {
		return "keep what the run does: nothing is sure to cost a tenth less"
	}
	text := "recommended: " + r.Best.String()
	if r.Run != nil {
		text += fmt.Sprintf(", at %.2f (%.2f to %.2f) of the run's compute by the theory", r.Best.Relative, r.Best.Least,
			r.Best.Most)
	}
	return text
}

// String says in words how rollouts are used.
func (u Use) String() string {
	switch u.Way {
	case Queue:
		return fmt.Sprintf("use each rollout once, in batches of %d", u.Batch)
	case Reuse:
		return fmt.Sprintf("make %d updates on each batch of %d", u.Updates, u.Batch)
	}
	return fmt.Sprintf("draw batches of %d from the newest %d rollouts", u.Batch, u.Capacity)
}

// Summary is the result and what it rests on, a paragraph each.
func (r *Recommendation) Summary() []string {
	coherence := fmt.Sprintf("an assumed coherence of %g to %g", minCoherence, maxCoherence)
	if r.Origins.Coherence == Measured {
		coherence = fmt.Sprintf("the logarithm of a measured coherence off by %d", coherenceFactor)
	}
	return []string{
		r.Headline() + ".",
		fmt.Sprintf("It compares queue, reuse and buffer by (R + m B)(1 + S V), the compute for the progress of an update "+
			"without noise: S is the noise scale, V the noise of an update that lasts (docs/METHODS.md, section 6). Ranges "+
			"are over a measured S off by a factor of %d, and %s.", scaleFactor, coherence),
	}
}

// WayColumns are the names of the cells of [Recommendation.WayRows].
func WayColumns() []string {
	return []string{"", "batch", "updates", "W + T", "capacity", "learning rate", "cost", "range"}
}

// WayRows returns the run and the cheapest use of each way as cells.
func (r *Recommendation) WayRows() (rows [][]string) {
	row := func(name string, p Priced) {
		rows = append(rows, []string{name, fmt.Sprint(p.Batch), fmt.Sprint(p.Updates),
			fmt.Sprintf("%d + %d", p.Workers, p.Trainers), fmt.Sprint(p.Capacity), "× " + decimals(p.Rate),
			decimals(p.Relative), decimals(p.Least) + " to " + decimals(p.Most)})
	}
	if r.Run != nil {
		row("the run", *r.Run)
	}
	for _, p := range r.Ways {
		row(string(p.Way), p)
	}
	return rows
}

func decimals(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
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
	o := r.Optimum
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
		"bears out.")
	add(math.IsInf(o.Y, 1), "y* is infinite too: without correlation [ER]'s theory would use each rollout for ever.")
	add(o.Where == AtEnd, "The profile ends after %s and the cost still falls there: give a longer one, or measure a "+
		"run with a larger buffer.", versions(o.X))
	measured := LastStaleness(r.Noise)
	add(isLaw && measured > 0 && o.X > measured+1, "The power law was fitted up to staleness %.3g and is a guess at "+
		"a horizon of %s: measure a run with a larger buffer.", measured, versions(o.X))
	if u := r.Best; u != nil && len(r.Unreliable) == 0 {
		generation := float64(r.Fleet.Group) * r.RolloutCost * float64(u.Trainers) / float64(u.Batch) // D
		add(generation > 1, "A worker takes %.3g updates for a group, so rollouts are up to twice as many versions old "+
			"when they arrive, which the cost does not count: smaller groups or larger batches make them fresher.", generation)
		add(u.Way == Queue, "The split stalls least when each rollout is used once; with uneven lengths workers and "+
			"trainers wait for each other, which the cost does not count (--sim shows how long).")
	}
	if s := r.Fleet.Source; s != nil {
		add(s.OnlyBatch != "", "Only the batch was chosen: %s, which the theory does not know.", s.OnlyBatch)
	}
	add(r.Refused != nil, "The laboratory refuses this configuration: %v.", r.Refused)
	add(true, "The theory is of plain SGD at its best learning rate and a noise scale that stays. It knows nothing of "+
		"Adam beyond the rate, of clipping, waits, and right answers kept for longer. It ranks configurations; its costs "+
		"are no forecast.")
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
	rows := [][]string{row("first", r.Plan.Configuration, "")}
	for _, n := range r.Plan.Neighbours {
		remark := ""
		if n.Refused != "" {
			remark = "cannot run: " + n.Refused
		}
		rows = append(rows, row(n.Change, n.Configuration, remark))
	}
	return rows
}

// WhatIf returns the rows of the grid nearest to the plan, at most a number of them, and the highest savings in them.
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

// Text returns the recommendation as text.
func (r *Recommendation) Text() string {
	var w strings.Builder
	heading := func(format string, args ...any) {
		w.WriteString("\n" + words.Wrap("", fmt.Sprintf(format, args...)))
	}
	lines := func(lines []Line) {
		for _, l := range lines {
			w.WriteString(words.Wrap(fmt.Sprintf("  %-18s ", l.Name), l.Text))
		}
	}
	list := func(mark string, paragraphs []string) {
		for _, p := range paragraphs {
			w.WriteString(words.Wrap(mark, p))
		}
	}
	w.WriteString(words.Wrap("", r.Headline()))
	if len(r.Ways) > 0 {
		unit := "the queue's"
		if r.Run != nil {
			unit = "the run's"
		}
		heading("cost for the same progress, and learning rate to take, over %s", unit)
		r.writeWays(&w)
	}
	if r.Command != "" {
		heading("run it")
		fmt.Fprintf(&w, "  %s\n", strings.ReplaceAll(r.Command, " --set ", " \\\n    --set "))
		for _, c := range r.Changes {
			if c.Why != "" {
				list("  - ", []string{c.Assignment + ": " + c.Why})
			}
		}
	}
	heading("parameters")
	lines(r.Parameters())
	list("  - ", r.HowMeasured)
	heading("[ER] theorem 3.5, for comparison: a buffer in the limit of much compute")
	lines(r.bestLines())
	if b := r.Bound; b != nil {
		lines([]Line{boundLine(b)})
	}
	heading("caveats")
	list("  - ", r.Caveats())
	return w.String()
}

func (r *Recommendation) writeWays(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range append([][]string{WayColumns()}, r.WayRows()...) {
		fmt.Fprintln(t, fmt.Sprintf("%-7s", row[0])+"\t"+strings.Join(row[1:], "\t")+"\t")
	}
	t.Flush()
}
