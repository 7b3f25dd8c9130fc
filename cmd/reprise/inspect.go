package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// inspectCommand shows the table of a run.
type inspectCommand struct {
	Dir  string `arg:"" name:"run" help:"Folder of a run. Reads its last checkpoint, also while it trains; a table of a service is read there."`
	Rows int    `default:"5" help:"Number of rollouts to show of the most and of the least likely to be drawn."`
	JSON bool   `name:"json" help:"Print everything as JSON."`
}

// Run prints the inspection.
func (c *inspectCommand) Run() error {
	in, err := run.Inspect(c.Dir, c.Rows)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(in)
	}
	showInspection(in)
	return nil
}

func showInspection(in *run.Inspection) {
	fmt.Printf("%s: %s, seed %d, at version %d\n", in.Run, in.Task, in.Seed, in.Version)
	if in.Service != "" {
		fmt.Printf("  table       %s, as it is now\n", in.Service)
	}
	fmt.Printf("  draws       %s\n", in.Sampling)
	fmt.Printf("  holds       %d of %d rollouts, %s\n", in.Present, in.Capacity, size(in.Bytes))
	fmt.Printf("  inserted    %d; evicted %s\n", in.Inserted, causes(in.Evicted))
	fmt.Printf("  used        %d times, %.2f per rollout; %d draws on lease, %d updates of evicted rollouts\n",
		in.Used, float64(in.Used)/float64(max(in.Inserted, 1)), in.OnLease, in.Ignored)
	if in.HalfLife.Known() {
		fmt.Printf("  age decay   %.4g versions: effective half-life %.0f\n", in.AgeDecay.Float(), in.HalfLife.Float())
	}
	var rewards []string
	for i, r := range in.Rewards {
		if i == 8 {
			rewards = append(rewards, fmt.Sprintf("and %d more", len(in.Rewards)-i))
			break
		}
		rewards = append(rewards, fmt.Sprintf("%g: %d", r.Reward, r.Count))
	}
	fmt.Printf("  rewards     %s\n\n", strings.Join(rewards, ", "))
	showHistogram("age, in versions", in.Ages)
	showHistogram("uses", in.Uses)
	showHistogram("staleness at use, in versions", in.Staleness)
	showAges(in)
	showRows("first by "+in.Order, in.Top)
	showRows("last by "+in.Order, in.Bottom)
}

// causes lists the numbers of evicted rollouts by cause.
func causes(evicted map[string]uint64) string {
	if len(evicted) == 0 {
		return "none"
	}
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(evicted)) {
		parts = append(parts, fmt.Sprintf("%d by %s", evicted[cause], cause))
	}
	return strings.Join(parts, ", ")
}

// showHistogram draws a histogram in at most ten lines.
func showHistogram(title string, h results.Histogram) {
	if h.Count() == 0 {
		return
	}
	const lines, width = 10, 40
	step := (h.Max() + lines) / lines
	var counts []uint64
	for _, bin := range h {
		for uint64(len(counts)) <= bin[0]/step {
			counts = append(counts, 0)
		}
		counts[bin[0]/step] += bin[1]
	}
	most := slices.Max(counts)
	fmt.Printf("  %s: mean %.1f, largest %d\n", title, h.Mean().Float(), h.Max())
	for i, n := range counts {
		from := uint64(i) * step
		label := fmt.Sprint(from)
		if step > 1 {
			label = fmt.Sprintf("%d-%d", from, from+step-1)
		}
		fmt.Printf("  %10s %8d %s\n", label, n, strings.Repeat("#", int((n*width+most-1)/most)))
	}
	fmt.Println()
}

// showAges prints priorities and ESS by age in at most twelve lines.
func showAges(in *run.Inspection) {
	if len(in.ByAge) == 0 {
		return
	}
	fmt.Println("  priority against age")
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "age\tunits\tmean base\tprobability\tESS/n\t")
	step := (len(in.ByAge) + 11) / 12
	for i := 0; i < len(in.ByAge); i += step {
		a := in.ByAge[i]
		ess := "-"
		for _, e := range in.ESSByAge {
			if e.Age <= a.Age && a.Age <= e.Last {
				ess = fmt.Sprintf("%.3f", e.ESS)
			}
		}
		fmt.Fprintf(w, "%d\t%d\t%.4g\t%.4g\t%s\t\n", a.Age, a.Count, a.Base, a.Probability, ess)
	}
	w.Flush()
	if step > 1 {
		fmt.Printf("  (1 in %d of %d ages)\n", step, len(in.ByAge))
	}
	fmt.Println()
}

// showRows prints rollouts with the reason for their place.
func showRows(title string, rows []run.InspectRow) {
	if len(rows) == 0 {
		return
	}
	fmt.Printf("  %s\n", title)
	for _, r := range rows {
		fmt.Printf("  %8d  P %-9s reward %-4g %s %q\n            %s\n", r.ID, number(r.Probability, "%.3g"), r.Reward,
			r.Prompt, clipped(r.Text), r.Reason)
	}
	fmt.Println()
}

// clipped shortens a text to fit a line.
func clipped(text string) string {
	letters := []rune(text)
	if len(letters) > 40 {
		return string(letters[:40]) + "…"
	}
	return text
}
