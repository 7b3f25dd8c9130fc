package report

import (
	"cmp"
	"fmt"
	"io"

	"github.com/reprise-rl/reprise/results"
)

// Arms writes a page over up to eight arms, each a configuration under one seed or several. The
// first is what the others are compared with.
func Arms(w io.Writer, title string, arms []results.NamedRuns) error {
	if n := len(arms); n < 1 || n > MostArms {
		return fmt.Errorf("%d arms: a page shows 1 to %d", n, MostArms)
	}
	table := results.NewTable(arms)
	var sides []*arm
	for i, a := range arms {
		sides = append(sides, &arm{label: a.Name, role: armRole(i), runs: a.Runs})
	}
	p := newPage(sides)
	p.Kind = "Arms"
	p.Title = cmp.Or(title, "Arms side by side")
	p.Headline = armsHeadline(table)
	p.Warnings = table.Warnings
	p.Arms = armRows(table, sides)
	p.Against, p.Chance = againstRows(table, sides)
	p.target = table.Target
	return p.write(w)
}

// armsHeadline is the result over arms in words.
func armsHeadline(t *results.Table) headline {
	h := headline{Big: fmt.Sprint(len(t.Arms)), BigLabel: "arms, " + seedsText(t), Claim: t.Claim, Text: t.Caution, Points: t.Findings}
	if len(t.Arms) == 1 {
		h.BigLabel = "arm, " + seedsText(t)
	}
	switch {
	case !t.Claim && len(t.Arms) > 1:
		h.Caution = "No claim"
	case t.Claim:
		h.Text = fmt.Sprintf("Against %s, seed by seed:", t.Arms[0].Name)
	}
	h.Lead = "Held-out pass@1 at the last evaluation, median over seeds:"
	for _, row := range t.Arms {
		f := fact{Name: row.Name, Value: fraction(row.Last.Median)}
		if row.Last.Runs > 1 {
			f.Note = fraction(row.Last.Low) + "–" + fraction(row.Last.High)
		}
		h.Beside = append(h.Beside, f)
	}
	return h
}

// seedsText says how many runs the arms have.
func seedsText(t *results.Table) string {
	least, most := t.Arms[0].Runs, t.Arms[0].Runs
	for _, row := range t.Arms {
		least, most = min(least, row.Runs), max(most, row.Runs)
	}
	switch {
	case least < most:
		return fmt.Sprintf("%d to %d seeds each", least, most)
	case most == 1:
		return "one seed each"
	default:
		return fmt.Sprintf("%d seeds each", most)
	}
}

// armRow is a row of the table of arms.
type armRow struct {
	Class, Name, Seeds, Ended           string
	First, Best, Last, Target           spanned
	Advantage, ZeroVariance, ESS, Reuse string
	Never                               string
}

// spanned is a median with the range that it lies in.
type spanned struct{ Median, Range string }

func armRows(t *results.Table, sides []*arm) []armRow {
	var rows []armRow
	for i, a := range t.Arms {
		row := armRow{
			Class: sides[i].class(), Name: a.Name, Seeds: fmt.Sprint(a.Runs),
			First: rangeText(a.First), Best: rangeText(a.Best), Last: rangeText(a.Last), Target: reachedText(a),
			Advantage: number(a.MeanAbsAdvantage), ZeroVariance: shareText(a.ZeroVariance), ESS: number(a.ESS),
			Reuse: number(a.ReplayRatio), Never: shareText(a.NeverDrawn),
		}
		if a.Unfinished > 0 {
			row.Ended = fmt.Sprintf("%d not ended", a.Unfinished)
		}
		rows = append(rows, row)
	}
	return rows
}

// rangeText writes an accuracy over seeds.
func rangeText(r results.Range) spanned {
	text := spanned{Median: fraction(r.Median)}
	if r.Runs > 1 {
		text.Range = fraction(r.Low) + "–" + fraction(r.High)
	}
	return text
}

// reachedText writes what the target cost an arm.
func reachedText(a results.ArmRow) spanned {
	to := a.ToTarget
	text := spanned{Median: "not reached"}
	switch {
	case to.Runs == 0:
		return spanned{Median: "–"}
	case to.Median.Known():
		text.Median = grouped(to.Median.Float())
	}
	switch {
	case to.Runs == 1:
	case a.Reached < to.Runs:
		text.Range = fmt.Sprintf("by %d of %d seeds", a.Reached, to.Runs)
	default:
		text.Range = grouped(to.Low.Float()) + "–" + grouped(to.High.Float())
	}
	return text
}

// againstRow compares an arm with the first.
type againstRow struct {
	Class, Name, Seeds string
	Difference, Ratio  spread
}

// spread is a median with its quartiles and its bootstrap interval.
type spread struct{ Median, IQR, Interval string }

// againstRows returns the comparisons with the first arm, and what chance may do where several are
// claims.
func againstRows(t *results.Table, sides []*arm) (rows []againstRow, chance string) {
	claims := 0
	for i, row := range t.Arms {
		a := row.Against
		if a == nil {
			continue
		}
		d, r := a.Difference, a.Ratio
		ratioOver := func(n results.Number) string { return ratioOver(r, n) }
		if d.Low.Known() {
			claims++
		}
		rows = append(rows, againstRow{
			Class: sides[i].class(), Name: row.Name, Seeds: fmt.Sprint(len(a.Seeds)),
			Difference: spread{differenceText(d.Median), within(differenceText, d.Q1, d.Q3), within(differenceText, d.Low, d.High)},
			Ratio:      spread{ratioOver(r.Median), within(ratioOver, r.Q1, r.Q3), within(ratioOver, r.Low, r.High)},
		})
	}
	if claims > 1 {
		chance = fmt.Sprintf("Each interval stands for its own pair: of %d, one may leave out 0 or 1 by chance.", claims)
	}
	return rows, chance
}

// ratioOver writes a quantile of a ratio; one that is nothing, of ratios that are there, is infinite.
func ratioOver(r results.Spread, n results.Number) string {
	if r.Seeds > 0 && !n.Known() {
		return "∞"
	}
	return ratioText(n)
}

// within writes an interval, a dash where there is none.
func within(text func(results.Number) string, low, high results.Number) string {
	if !low.Known() && !high.Known() {
		return "–"
	}
	return text(low) + " to " + text(high)
}

// differenceText writes a difference of accuracies with its sign.
func differenceText(n results.Number) string {
	switch v := n.Float(); {
	case !n.Known():
		return "–"
	case v < 0:
		return fmt.Sprintf("−%.3f", -v)
	case v > 0:
		return fmt.Sprintf("+%.3f", v)
	default:
		return "0"
	}
}
