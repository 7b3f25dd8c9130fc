package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/reprise-rl/reprise/design"
)

// lineWidth is where words are broken.
const lineWidth = 110

// mostSplits is how many rows the what-if table shows in text.
const mostSplits = 9

// write prints everything in words and tables.
func (found *calculation) write(w io.Writer) {
	found.writeGiven(w)
	found.writeOptimum(w)
	fmt.Fprint(w, "\nwhy\n")
	for _, paragraph := range found.why() {
		writeParagraph(w, "  ", paragraph)
	}
	found.writePlan(w)
	found.writeNeighbours(w)
	found.writeWhatIf(w)
	fmt.Fprint(w, "\nmind\n")
	for _, warning := range found.warnings {
		writeParagraph(w, "  - ", warning)
	}
	fmt.Fprintf(w, "\nto train so\n  %s\n", strings.ReplaceAll(found.command(), " --set ", " \\\n    --set "))
}

// writeParagraph breaks a paragraph into lines under its first word.
func writeParagraph(w io.Writer, mark, text string) {
	indent, line := strings.Repeat(" ", len(mark)), mark
	for i, word := range strings.Fields(text) {
		if i > 0 && len([]rune(line))+1+len([]rune(word)) > lineWidth {
			fmt.Fprintln(w, line)
			line = indent
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(w, line)
}

// writeLine prints a named number.
func writeLine(w io.Writer, name, format string, args ...any) {
	fmt.Fprintf(w, "  %-18s %s\n", name, fmt.Sprintf(format, args...))
}

func (found *calculation) writeGiven(w io.Writer) {
	fmt.Fprint(w, "what is known\n")
	writeLine(w, "rollout cost", "%.4g units of training per rollout generated (mu; train cost m = 1/mu = %.4g); %s", found.cost, found.theory.TrainCost, found.costFrom)
	writeLine(w, "correlation", "%.4g (rho); %s", found.theory.Correlation, found.correlationFrom)
	writeLine(w, "noise", "%s; %s", found.noiseText(), found.noiseFrom)
	writeLine(w, "fleet", "%s", found.fleetText())
	for _, sentence := range found.measured {
		writeParagraph(w, "  - ", sentence)
	}
}

// noiseText says how noise grows.
func (found *calculation) noiseText() string {
	switch p := found.theory.Profile.(type) {
	case design.PowerLaw:
		if p.Exponent == 0 {
			return "does not grow with staleness: exponent 0 (a)"
		}
		return fmt.Sprintf("variance grows as staleness^%.4g: exponent %.4g (a)", 2*p.Exponent, p.Exponent)
	case *design.Table:
		values := p.Values()
		text := fmt.Sprintf("variance %.4g at staleness 0, %.4g at %d", values[0], values[len(values)-1], len(values)-1)
		if !math.IsNaN(found.exponent) {
			text += fmt.Sprintf("; nearest power law: exponent %.3g", found.exponent)
		}
		return text
	}
	return "a profile"
}

func (found *calculation) writeOptimum(w io.Writer) {
	o := found.best
	fmt.Fprint(w, "\nwhat the theory says ([ER] theorem 3.5)\n")
	writeLine(w, "staleness horizon", "%s (x* = N/R)", inVersions(o.X))
	writeLine(w, "replay ratio", "%s uses of each rollout (y* = B/R)", amount(o.Y))
	writeLine(w, "cost", "J = %.4g, on-policy J(1, 1) = %.4g", o.Objective, found.theory.OnPolicy())
	writeLine(w, "expected savings", "%.1f%% against on-policy batches drawn with replacement", 100*o.Savings)
	writeLine(w, "", "%s", found.onceText(o.Objective))
	writeLine(w, "bound", "mean squared gradient <= %.4g sqrt(F0 L/C) after much compute C", asymptotic(o.Objective))
}

// onceText says what a cost saves against training that uses each rollout once.
func (found *calculation) onceText(j float64) string {
	share := found.savedOnce(j)
	const against = "on-policy training that uses each rollout once"
	atMost, atLeast := "", ""
	if found.grows() {
		atMost, atLeast = "at most ", "at least "
	}
	if share < 0 {
		return fmt.Sprintf("none against %s: it costs %s%.1f%% more", against, atLeast, -100*share)
	}
	return fmt.Sprintf("%s%.1f%% against %s", atMost, 100*share, against)
}

func (found *calculation) writePlan(w io.Writer) {
	p := found.plan
	fmt.Fprintf(w, "\nconfiguration for %s\n", found.fleetText())
	writeLine(w, "workers, trainers", "%d, %d", p.Workers, p.Trainers)
	writeLine(w, "capacity", "%d rollouts (N)", p.Capacity)
	writeLine(w, "new per update", "%.4g rollouts (R = B (W/T)/mu)", p.RolloutsPerUpdate)
	writeLine(w, "compute ratio", "an update costs %.3f of one without replay (gamma)%s", p.ComputeRatio, found.asMuch())
	writeLine(w, "replay ratio", "%.3f uses of each rollout expected (mu T/W)", p.ReplayRatio)
	writeLine(w, "staleness", "a horizon of %s (N/R); no use is older than about %.3g (N/R + 2D + 1)", inVersions(p.Horizon), p.Staleness)
	writeLine(w, "cost", "J = %.4g", p.Objective)
	writeLine(w, "expected savings", "%.1f%% against on-policy batches drawn with replacement", 100*p.Savings)
	writeLine(w, "", "%s", found.onceText(p.Objective))
	if b := found.bound; b != nil {
		writeLine(w, "bound", "mean squared gradient <= %.4g after %d updates at a learning rate of %.4g (at most %.4g; theorem 3.4)", b.Bound, b.Updates, b.LearningRate, b.Most)
	}
}

// asMuch says what is saved if updates teach as much as those without replay.
func (found *calculation) asMuch() string {
	saved := 1 - found.plan.ComputeRatio
	if saved < 0.005 {
		return ""
	}
	return fmt.Sprintf(": where it teaches as much, %s is saved", percent(saved))
}

func (found *calculation) writeNeighbours(w io.Writer) {
	fmt.Fprint(w, "\nits neighbours\n")
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  \tW\tT\tN\tJ\tbeside it\tsavings\t")
	for _, row := range found.neighbourRows() {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	t.Flush()
	for line := range strings.Lines(text.String()) { // the writer fills up cells that are empty at the end, too
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// neighbourRows returns the configuration and what lies around it as cells.
func (found *calculation) neighbourRows() [][]string {
	row := func(name string, c design.Configuration, note string) []string {
		if math.IsNaN(c.Objective) || math.IsInf(c.Objective, 0) {
			return []string{name, fmt.Sprint(c.Workers), fmt.Sprint(c.Trainers), fmt.Sprint(c.Capacity), "-", "-", "-", note}
		}
		return []string{name, fmt.Sprint(c.Workers), fmt.Sprint(c.Trainers), fmt.Sprint(c.Capacity), fmt.Sprintf("%.4g", c.Objective),
			fmt.Sprintf("%+.1f%%", 100*(c.Objective/found.plan.Objective-1)), fmt.Sprintf("%.1f%%", 100*c.Savings), note}
	}
	rows := [][]string{row("recommended", found.plan.Configuration, "")}
	for _, n := range found.plan.Neighbours {
		note := n.Refused
		if note != "" {
			note = "does not run: " + note
		}
		rows = append(rows, row(n.Change, n.Configuration, note))
	}
	return rows
}

func (found *calculation) writeWhatIf(w io.Writer) {
	fmt.Fprint(w, "\nwhat if: savings by (W, T) and N, the highest marked *\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	g := found.nearest(mostSplits)
	fmt.Fprint(t, "  \t")
	for _, n := range g.Capacities {
		fmt.Fprintf(t, "%d\t", n)
	}
	fmt.Fprintln(t)
	high := highest(g.Savings)
	for i, s := range g.Splits {
		fmt.Fprintf(t, "  (%d, %d)\t", s.Workers, s.Trainers)
		for _, v := range g.Savings[i] {
			fmt.Fprint(t, cell(v, v == high), "\t")
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func cell(share float64, mark bool) string {
	switch {
	case math.IsNaN(share):
		return "-"
	case mark:
		return fmt.Sprintf("*%.1f%%", 100*share)
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// highest returns the greatest number of a grid, NaN if it has none.
func highest(rows [][]float64) float64 {
	high := math.NaN()
	for _, row := range rows {
		for _, v := range row {
			if !math.IsNaN(v) && !(v <= high) {
				high = v
			}
		}
	}
	return high
}

// nearest returns the rows of the what-if grid that are nearest to the plan, at most so many.
func (found *calculation) nearest(most int) design.Grid {
	g := found.plan.Grid
	at := 0
	for i, s := range g.Splits {
		if s.Trainers == found.plan.Trainers {
			at = i
		}
	}
	first := max(0, min(at-most/2, len(g.Splits)-most))
	last := min(len(g.Splits), first+most)
	g.Splits, g.Objective, g.Savings = g.Splits[first:last], g.Objective[first:last], g.Savings[first:last]
	return g
}
