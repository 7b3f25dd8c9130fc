package results

import (
	"fmt"
	"slices"
	"strings"
)

// statement says in words what the numbers allow to say, and no more.
func (c *Compare) statement() string {
	var s []string
	n, ratio := len(c.Seeds), c.Compute.Ratio
	switch {
	case n == 1:
		s = append(s, "One seed: no claim.")
	case n < claimSeeds:
		s = append(s, fmt.Sprintf("%d seeds: an indication, no claim; a claim needs %d.", n, claimSeeds))
	case !c.Claim:
		s = append(s, fmt.Sprintf("Only %d of %d seeds have a ratio: no claim; a claim needs %d.", ratio.Seeds, n, claimSeeds))
	}
	s = append(s, c.finding())
	if c.Claim && ratio.Reached && ratio.Low.Float() <= 1 && !(ratio.High.Float() < 1) {
		s = append(s, "The interval includes 1: a difference is not established.")
	}
	if missed := c.missed(); missed != "" {
		s = append(s, missed)
	}
	return strings.Join(s, " ")
}

// finding is the ratio and the savings, with their spread.
func (c *Compare) finding() string {
	if c.Compute.Ratio.Seeds == 0 && c.Above() {
		return fmt.Sprintf("Both arms are at %.4g held-out pass@1 before their first update: nothing can be said of savings; set a higher target, or end the warm-up sooner.", c.Target)
	}
	if c.Compute.Ratio.Seeds == 0 {
		return fmt.Sprintf("Neither arm reached %.4g held-out pass@1 on any seed: nothing can be said of savings.", c.Target)
	}
	return finding(c.Compute.Ratio, contest{target: c.Target, replay: "Replay", baseline: "the baseline"})
}

// Above reports whether both arms begin at the target on some seed, which then has no ratio.
func (c *Compare) Above() bool { return slices.ContainsFunc(c.Seeds, SeedCompare.above) }

func (s SeedCompare) above() bool {
	return s.Baseline.Reached && s.Replay.Reached && s.Baseline.Compute.Float() == 0 && s.Replay.Compute.Float() == 0
}

// contest names the arms of a ratio, replay over baseline, and their target.
type contest struct {
	target           float64
	replay, baseline string
}

// finding words a ratio that some seed has.
func finding(ratio Spread, of contest) string {
	goal := fmt.Sprintf("%.4g held-out pass@1", of.target)
	if !ratio.Reached {
		return fmt.Sprintf("%s did not reach %s where %s did (median ratio infinite): nothing saved.", of.replay, goal, of.baseline)
	}
	r := ratio.Median.Float()
	var what string
	switch {
	case r == 0:
		what = fmt.Sprintf("%s reached %s, %s did not within its budget: savings cannot be put in numbers; raise the budget", of.replay, goal, of.baseline)
	case r < 1:
		what = fmt.Sprintf("%s reached %s with %.2f of %s's compute: %.0f%% saved", of.replay, goal, r, of.baseline, 100*(1-r))
	case r == 1:
		what = fmt.Sprintf("%s reached %s with %s's compute: nothing saved", of.replay, goal, of.baseline)
	default:
		what = fmt.Sprintf("%s reached %s with %.2f times %s's compute: nothing saved", of.replay, goal, r, of.baseline)
	}
	if ratio.Seeds == 1 || ratio.Q3.Float() == 0 { // a quotient by infinity on all seeds has no quartiles worth telling
		return what + "."
	}
	spread := fmt.Sprintf("median of %d seeds, IQR %s to %s", ratio.Seeds, words(ratio.Q1), words(ratio.Q3))
	if ratio.Seeds >= claimSeeds {
		spread += fmt.Sprintf(", 95%% bootstrap interval %s to %s", words(ratio.Low), words(ratio.High))
	}
	return fmt.Sprintf("%s (ratio: %s).", what, spread)
}

// missed names the seeds on which an arm did not reach the target, if any seed has a ratio at all.
func (c *Compare) missed() string {
	if c.Compute.Ratio.Seeds == 0 {
		return ""
	}
	var baseline, replay, both, above []uint64
	for _, s := range c.Seeds {
		switch {
		case !s.Baseline.Reached && !s.Replay.Reached:
			both = append(both, s.Seed)
		case !s.Baseline.Reached:
			baseline = append(baseline, s.Seed)
		case !s.Replay.Reached:
			replay = append(replay, s.Seed)
		case s.above():
			above = append(above, s.Seed)
		}
	}
	var s []string
	if len(baseline) > 0 {
		s = append(s, fmt.Sprintf("On %s only replay reached the target (ratio 0).", seeds(baseline)))
	}
	if len(replay) > 0 {
		s = append(s, fmt.Sprintf("On %s only the baseline reached the target (ratio infinite).", seeds(replay)))
	}
	if len(both) > 0 {
		s = append(s, fmt.Sprintf("On %s neither did (no ratio).", seeds(both)))
	}
	if len(above) > 0 {
		s = append(s, fmt.Sprintf("On %s both are there before their first update (no ratio).", seeds(above)))
	}
	return strings.Join(s, " ")
}

// seeds lists seeds as words.
func seeds(list []uint64) string {
	if len(list) == 1 {
		return fmt.Sprintf("seed %d", list[0])
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = fmt.Sprint(s)
	}
	return "seeds " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// words writes a ratio for reading, nothing being infinite.
func words(n Number) string {
	if !n.Known() {
		return "infinity"
	}
	return fmt.Sprintf("%.2f", n.Float())
}
