package results

import (
	"fmt"
	"math"
	"strings"
)

// word fills in the result in words: compute to the target where the arms have one in common, and
// accuracy at equal compute.
func (t *Table) word() {
	t.Caution = t.caution()
	for _, row := range t.Arms[min(1, len(t.Arms)):] {
		switch a := row.Against; {
		case a == nil:
			t.Findings = append(t.Findings, fmt.Sprintf("%s and %s are not compared: they differ in what they were evaluated on.", row.Name, t.Arms[0].Name))
		case len(a.Seeds) == 0:
			t.Findings = append(t.Findings, fmt.Sprintf("%s has no seed in common with %s: they are not compared.", row.Name, a.Arm))
		case a.Ratio.Seeds > 0:
			t.Findings = append(t.Findings, ratioFinding(row.Name, a, t.Target.Float())+" "+differenceFinding("It", a))
		default:
			t.Findings = append(t.Findings, differenceFinding(row.Name, a))
		}
	}
	t.Statement = strings.TrimSpace(t.Caution + " " + strings.Join(t.Findings, " "))
}

// caution says why no claim is made, nothing where all pairs have the seeds for one.
func (t *Table) caution() string {
	switch {
	case len(t.Arms) < 2:
		return "One arm: nothing to compare it with."
	case t.Claim:
		return ""
	}
	least, most, unfinished := math.MaxInt, 0, 0
	for _, row := range t.Arms[1:] {
		n := 0
		if row.Against != nil {
			n = len(row.Against.Seeds)
			unfinished += row.Against.Unfinished
		}
		least, most = min(least, n), max(most, n)
	}
	switch {
	case most == 0:
		return "No claim: there is nothing to compare on one seed."
	case least >= claimSeeds && unfinished > 0:
		return "Runs that have not ended are compared as far as they came: no claim."
	case least < most:
		return fmt.Sprintf("The arms have %d to %d seeds in common with %s; fewer than %d make no claim.", least, most, t.Arms[0].Name, claimSeeds)
	case most == 1:
		return "One seed: no claim."
	default:
		return fmt.Sprintf("%d seeds: an indication, no claim; a claim needs %d.", most, claimSeeds)
	}
}

// ratioFinding words what the target cost an arm.
func ratioFinding(name string, a *Against, target float64) string {
	s, r := finding(a.Ratio, contest{target: target, replay: name, baseline: a.Arm}), a.Ratio
	if n := len(a.Seeds); r.Seeds < claimSeeds && n >= claimSeeds {
		s += fmt.Sprintf(" Only %d of %d seeds have a ratio: no claim.", r.Seeds, n)
	}
	if r.Seeds >= claimSeeds && r.Reached && r.Low.Float() <= 1 && !(r.High.Float() < 1) {
		s += " The interval includes 1: a difference is not established."
	}
	return s
}

// differenceFinding words how far an arm came at equal compute.
func differenceFinding(name string, a *Against) string {
	d := a.Difference
	if d.Seeds == 0 {
		return fmt.Sprintf("%s was never evaluated at the same step of compute as %s.", name, a.Arm)
	}
	what := fmt.Sprintf("%s ended level with %s in held-out pass@1", name, a.Arm)
	if m := d.Median.Float(); m != 0 {
		what = fmt.Sprintf("%s ended %.3f %s %s in held-out pass@1", name, math.Abs(m), map[bool]string{true: "above", false: "below"}[m > 0], a.Arm)
	}
	if d.Seeds == 1 {
		return what + " on one seed."
	}
	if d.Seeds < claimSeeds {
		return fmt.Sprintf("%s (median of %d seeds, IQR %s to %s).", what, d.Seeds, signed(d.Q1), signed(d.Q3))
	}
	what += fmt.Sprintf(" (median of %d seeds, 95%% bootstrap interval %s to %s).", d.Seeds, signed(d.Low), signed(d.High))
	if d.Low.Float() <= 0 && d.High.Float() >= 0 {
		what += " The interval includes 0: a difference is not established."
	}
	return what
}

// signed writes a difference with its sign, nothing being infinite.
func signed(n Number) string {
	if n.Float() == 0 {
		return "0"
	}
	return strings.Replace(fmt.Sprintf("%+.3f", n.Float()), "-", "−", 1)
}
