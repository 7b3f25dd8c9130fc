package results

import (
	"fmt"
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
	ratio := c.Compute.Ratio
	goal := fmt.Sprintf("%.4g held-out pass@1", c.Target)
	if ratio.Seeds == 0 {
		return fmt.Sprintf("Neither arm reached %s on any seed: nothing can be said of savings.", goal)
	}
	if !ratio.Reached {
		return fmt.Sprintf("Replay did not reach %s where the baseline did (median ratio infinite): nothing saved.", goal)
	}
	r := ratio.Median.Float()
	var what string
	switch {
	case r == 0:
		what = fmt.Sprintf("Replay reached %s, the baseline did not within its budget: savings cannot be put in numbers; raise the budget", goal)
	case r < 1:
		what = fmt.Sprintf("Replay reached %s with %.2f of the baseline's compute: %.0f%% saved", goal, r, 100*(1-r))
	case r == 1:
		what = fmt.Sprintf("Replay reached %s with the baseline's compute: nothing saved", goal)
	default:
		what = fmt.Sprintf("Replay reached %s with %.2f times the baseline's compute: nothing saved", goal, r)
	}
	if ratio.Seeds == 1 {
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
	var baseline, replay, both []uint64
	for _, s := range c.Seeds {
		switch {
		case !s.Baseline.Reached && !s.Replay.Reached:
			both = append(both, s.Seed)
		case !s.Baseline.Reached:
			baseline = append(baseline, s.Seed)
		case !s.Replay.Reached:
			replay = append(replay, s.Seed)
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
