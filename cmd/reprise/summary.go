package main

import (
	"fmt"
	"path/filepath"

	"github.com/reprise-rl/reprise/lab/results"
)

// summary prints the result of a run.
func (d *display) summary(s *results.Summary, dir string) {
	d.printf("\n%s, seed %d: %d updates (%s)\n", s.Name, s.Seed, s.Updates, s.Ended)
	d.printf("  held-out pass@1      %s -> %s, best %s\n", number(s.Pass1First, "%.3f"), number(s.Pass1Last, "%.3f"),
		number(s.Pass1Best, "%.3f"))
	if s.RewardLast.Known() {
		d.printf("  held-out reward      %s -> %s\n", number(s.RewardFirst, "%.3f"), number(s.RewardLast, "%.3f"))
	}
	d.bound("expert", s.Expert)
	d.bound("random actions", s.Random)
	if s.Target.Known() {
		reached := "not reached"
		if s.Pass1Best.Known() && s.Pass1Best.Float() >= s.Target.Float() {
			reached += ": only single evaluations were above it"
		}
		if s.ToTarget.Reached {
			reached = fmt.Sprintf("reached at update %s, compute %s (%s of budget.compute)",
				number(s.ToTarget.Update, "%.0f"), number(s.ToTarget.Compute, "%.0f"),
				number(results.Num(s.ToTarget.Compute.Float()/s.BudgetUnit()), "%.1f"))
		}
		d.wrapped(fmt.Sprintf("  target %-13.2f ", s.Target.Float()), reached)
	}
	d.printf("  replay ratio         %s (planned %.2f)\n", number(s.ReplayRatio, "%.2f"), s.ReplayRatioPlanned)
	d.printf("  staleness            mean %s, largest %d\n", number(s.Staleness.Mean(), "%.1f"), s.Staleness.Max())
	if m := s.Mismatch; m != nil {
		d.wrapped("  mismatch             ", fmt.Sprintf("k = p/b %s, 98%% of tokens %s to %s; mean |log k| %s",
			number(m.Mean, "%.4f"), number(m.Low, "%.3f"), number(m.High, "%.3f"), number(m.AbsLog, "%.2g")))
	}
	if s.Sampling != nil && s.Sampling.Priority != nil {
		halfLife := "none: no age decay"
		if p := s.Sampling.Priority; p.HalfLife.Known() {
			halfLife = fmt.Sprintf("%.0f versions (age decay %s)", p.HalfLife.Float(), number(p.AgeDecay, "%.4g"))
		}
		d.printf("  half-life            %s\n", halfLife)
	}
	d.printf("  compute per update   %.3f of the no-replay baseline's\n", s.ComputeRatio)
	d.printf("  report               %s\n", filepath.Join(dir, results.ReportFile))
}

// bound prints the held-out results of another player, if they are known.
func (d *display) bound(who string, b *results.Bound) {
	if b != nil {
		d.printf("  %-20s pass@1 %.3f, reward %.3f\n", who, b.Pass1, b.Reward)
	}
}

// sides prints what the sides of a comparison had.
func (d *display) sides(arms ...results.NamedRuns) {
	for _, side := range results.Setups(arms) {
		d.wrapped("", side.String())
	}
}

// comparison prints what each side had and what replay saved.
func (d *display) comparison(c *results.Compare, dir string) {
	d.printf("\n")
	if both, err := results.ReadComparison(dir); err == nil { // the report has just been written from it
		d.sides(results.NamedRuns{Name: "baseline", Runs: both.Baseline},
			results.NamedRuns{Name: "replay", Runs: both.Replay})
		d.printf("\n")
	}
	d.wrapped("", c.Statement)
	d.printf("\n")
	d.printf("%6s  %22s  %22s  %7s\n", "seed", "baseline compute", "replay compute", "ratio")
	for _, s := range c.Seeds {
		d.printf("%6d  %22s  %22s  %7s\n", s.Seed, number(s.Baseline.Compute, "%.0f"), number(s.Replay.Compute, "%.0f"),
			seedRatio(s))
	}
	for _, m := range []struct {
		name  string
		ratio results.Effect
	}{{"formula", c.Ratio}, {"busy GPUs", c.RatioBusy}, {"all GPUs", c.RatioAll}, {"clock", c.RatioClock}} {
		ratio := func(v float64) string { return number(results.Num(v), "%.3f") }
		d.printf("  ratio by %-10s mean %s", m.name, m.ratio.Text(ratio))
		if interval := m.ratio.IntervalText(ratio); interval != "" {
			d.printf(", 95%% interval %s", interval)
		}
		d.printf("\n")
	}
	d.printf("\nreport: %s\n", filepath.Join(dir, results.ReportFile))
}

// seedRatio writes the ratio of a seed, which is a bound if one of the runs did not reach the target.
func seedRatio(s results.SeedCompare) string {
	text := number(s.Ratio, "%.3f")
	switch {
	case !s.Ratio.Known():
	case !s.Replay.Reached:
		text = "≥ " + text
	case !s.Baseline.Reached:
		text = "≤ " + text
	}
	return text
}

// study prints the findings of a study, and where its page is; empty: it has none.
func (d *display) study(s *results.Study, page string) {
	d.printf("\n")
	d.wrapped("", s.Sheet.Title)
	if s.Quick {
		d.printf("a rehearsal: it makes no claim\n")
	}
	for _, f := range s.Sheet.Findings {
		kind := "claim"
		if f.Check { // by arithmetic or the clock
			kind = "check"
		}
		d.printf("\n")
		d.wrapped("", f.Source)
		d.wrapped("  "+kind+"    ", f.Claim)
		d.wrapped("  found    ", f.Found)
		d.wrapped("  verdict  ", string(f.Verdict))
	}
	for _, a := range s.Arms {
		for _, why := range a.Failed {
			d.printf("\n")
			d.wrapped("", fmt.Sprintf("arm %s, %s", a.Name, why))
		}
	}
	if page != "" {
		d.printf("\nreport: %s\n", page)
	}
}
