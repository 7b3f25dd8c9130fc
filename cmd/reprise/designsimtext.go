package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/sim"
)

// write prints words and the table.
func (s *simulated) write(w io.Writer) error {
	fmt.Fprint(w, "\na schedule without a model\n")
	for _, paragraph := range s.setting() {
		writeParagraph(w, "  ", paragraph)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	rows := s.rows()
	widest := 0
	for _, row := range rows {
		widest = max(widest, len([]rune(row[0])))
	}
	for _, row := range append([][]string{s.columns()}, rows...) {
		name := "  " + row[0] + strings.Repeat(" ", widest-len([]rune(row[0]))) // to the left in a table set to the right
		fmt.Fprintf(t, "%s\t%s\t\n", name, strings.Join(row[1:], "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, paragraph := range s.Words {
		writeParagraph(w, "  ", paragraph)
	}
	for _, warning := range s.Warnings {
		writeParagraph(w, "  - ", warning)
	}
	_, err := fmt.Fprintf(w, "  simulated in %.1f s\n", s.Seconds)
	return err
}

// setting says what was run.
func (s *simulated) setting() []string {
	l := s.Lengths
	how := "continuous batching: the next group takes the places that short responses leave free, and a group enters the buffer when its longest has ended"
	if s.Batching == string(sim.Static) {
		how = "static batching: a group holds its worker until its longest response has ended"
	}
	first := fmt.Sprintf("%s workers and %s trainers, mu %.4g, batches of %s in groups of %d. Responses of %.4g tokens in the median, lognormal with sigma %.4g, at most %s, %.4g in the mean; %s.",
		grouped(s.Workers), grouped(s.Trainers), s.RolloutCost, grouped(s.Batch), s.Group, l.Median, l.Sigma, grouped(l.Max), l.Mean, how)
	var parts []string
	if s.Stragglers.Share > 0 && s.Stragglers.Factor > 1 {
		parts = append(parts, fmt.Sprintf("%.3g%% of the workers take %.4g times as long", 100*s.Stragglers.Share, s.Stragglers.Factor))
	}
	if s.RewardLatency.Mean > 0 {
		spread := "always"
		if s.RewardLatency.Sigma > 0 {
			spread = fmt.Sprintf("in the mean, lognormal with sigma %.4g", s.RewardLatency.Sigma)
		}
		parts = append(parts, fmt.Sprintf("rewards take %.4g %s", s.RewardLatency.Mean, spread))
	}
	if s.WeightTransfer > 0 {
		parts = append(parts, fmt.Sprintf("weights travel %.4g", s.WeightTransfer))
	}
	if s.InFlight > 0 {
		parts = append(parts, fmt.Sprintf("at most %d updates are in flight", s.InFlight))
	}
	if s.WeightSync == string(pipeline.ByToken) {
		parts = append(parts, "weights are taken up 16 times within a group")
	}
	parts = append(parts, fmt.Sprintf("an update takes %.4g, a group %.4g of its worker's time and %.4g until it may enter, in the mean and in units of training on one rollout",
		s.updateTime(), s.groupTime(), s.Delay))
	second := strings.Join(parts, "; ") + "."
	third := fmt.Sprintf("%s rollouts with each queue and with the buffer, of which the first %s are not measured.", grouped(s.Rollouts), grouped(s.Skipped))
	return []string{first, strings.ToUpper(second[:1]) + second[1:] + " " + third}
}

// updateTime is B/T, groupTime the mean over groups of the time that their workers take.
func (s *simulated) updateTime() float64 { return float64(s.Batch) / float64(s.Trainers) }
func (s *simulated) groupTime() float64  { return float64(s.Group) * s.RolloutCost / s.Pace }

func (s *simulated) columns() []string {
	columns := []string{""}
	for _, a := range s.Arms {
		columns = append(columns, a.Name)
	}
	return columns
}

// rows is the table, for the text and for the page.
func (s *simulated) rows() [][]string {
	var rows [][]string
	row := func(name string, cell func(a simArm) string) {
		cells := []string{name}
		for _, a := range s.Arms {
			cells = append(cells, cell(a))
		}
		rows = append(rows, cells)
	}
	share := func(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) }
	row("room for rollouts", func(a simArm) string { return grouped(a.Capacity) })
	row("updates measured", func(a simArm) string { return grouped(a.Updates) })
	row("speed: updates, of those without waits", func(a simArm) string { return share(a.Speed) })
	row("trainers waited", func(a simArm) string { return share(a.TrainersStalled) })
	row("  before an update, 50% / 99% / most, in updates", func(a simArm) string {
		return fmt.Sprintf("%.2f / %.2f / %.2f", a.Waits.Median, a.Waits.P99, a.Waits.Max)
	})
	row("workers waited", func(a simArm) string { return share(a.WorkersStalled) })
	row("  by worker, 50% / 99% / most", func(a simArm) string {
		return fmt.Sprintf("%s / %s / %s", share(a.WorkerStalls.Median), share(a.WorkerStalls.P99), share(a.WorkerStalls.Max))
	})
	row("new rollouts per update", func(a simArm) string { return grouped(int(a.NewPerUpdate + 0.5)) })
	row("uses per new rollout", func(a simArm) string { return fmt.Sprintf("%.3f", a.ReplayRatio) })
	row("compute per update, busy, in B(1 + mu)", func(a simArm) string { return fmt.Sprintf("%.3f", a.ComputeBusy) })
	row("  with the time spent waiting", func(a simArm) string { return fmt.Sprintf("%.3f", a.ComputeAll) })
	counts := func(name string, of func(a simArm) simCounts) {
		row(name+", mean", func(a simArm) string { return of(a).mean() })
		row("  50% / 90% / 99% / most", func(a simArm) string { return of(a).quantiles() })
	}
	counts("staleness, versions", func(a simArm) simCounts { return a.Staleness })
	if s.WeightSync == string(pipeline.ByToken) {
		counts("staleness of a rollout's mean token", func(a simArm) simCounts { return a.MeanStaleness })
	}
	counts("uses of rollouts that left", func(a simArm) simCounts { return a.Uses })
	row("  never used", func(a simArm) string { return share(a.NeverUsed) })
	counts("updates since the last use", func(a simArm) simCounts { return a.SinceLastUse })
	return rows
}

// mean and quantiles are - where nothing was counted.
func (c simCounts) mean() string {
	if c.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", c.Mean)
}

func (c simCounts) quantiles() string {
	if c.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("%d / %d / %d / %d", c.Median, c.P90, c.P99, c.Max)
}

// grouped writes a whole number with a comma after each thousand.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
