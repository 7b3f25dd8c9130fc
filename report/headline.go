package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// headline is the result in words, with one number that stands out and a few beside it.
type headline struct {
	Big      string // "38%"
	BigLabel string
	Claim    bool   // the number is a claim, not an indication
	Caution  string // why it is none
	Text     string
	Points   []string // that follow the text
	Lead     string   // what the facts beside it are
	Beside   []fact
}

// fact is a number with its name.
type fact struct{ Name, Value, Note string }

func comparisonHeadline(c *results.Comparison) headline {
	if c.Compare == nil {
		return headline{Big: "…", BigLabel: "not ended", Text: "The comparison has not ended: nothing can be said of savings yet."}
	}
	m := c.Compare.Compute
	h := headline{Claim: c.Compare.Claim, Text: c.Compare.Statement}
	switch saved := m.Savings.Median.Float(); {
	case m.Ratio.Seeds == 0 && c.Compare.Above():
		h.Big, h.BigLabel = "–", "both arms begin at the target"
	case m.Ratio.Seeds == 0:
		h.Big, h.BigLabel = "–", "no arm reached the target"
	case !m.Ratio.Reached:
		h.Big, h.BigLabel = "–", "replay did not reach the target"
	case m.Ratio.Median.Float() == 0:
		h.Big, h.BigLabel = "–", "only replay reached the target"
	case saved > 0:
		h.Big, h.BigLabel = percent(saved), "of the baseline's compute saved"
	default:
		h.Big, h.BigLabel = percent(-saved), "more compute than the baseline"
	}
	if m.Ratio.Reached && m.Savings.Median.Float() == 0 {
		h.Big, h.BigLabel = "0%", "of the baseline's compute saved"
	}
	switch n := len(c.Compare.Seeds); {
	case n == 1:
		h.Caution = "One seed: no claim"
	case !c.Compare.Claim:
		h.Caution = fmt.Sprintf("%d seeds: no claim", n)
	}
	if m.Ratio.Seeds == 0 {
		return h
	}
	h.Lead = "What the target cost, replay over baseline:"
	h.Beside = []fact{
		ratioFact("compute by formula", c.Compare.Compute),
		ratioFact("busy GPU time", c.Compare.ComputeBusy),
		ratioFact("all GPU time", c.Compare.ComputeAll),
		ratioFact("clock time", c.Compare.Clock),
		{"of the median curves", ratioText(m.MedianCurves), "compute by formula"},
	}
	return h
}

// ratioFact words a ratio with its quartiles.
func ratioFact(name string, m results.Measure) fact {
	f := fact{Name: name, Value: ratioText(m.Ratio.Median)}
	if m.Ratio.Seeds > 1 && m.Ratio.Reached {
		f.Note = fmt.Sprintf("IQR %s–%s", ratioText(m.Ratio.Q1), ratioText(m.Ratio.Q3))
	}
	return f
}

// ratioText writes a ratio, a dash where it is infinite or there is none.
func ratioText(n results.Number) string {
	if !n.Known() {
		return "–"
	}
	return fmt.Sprintf("%.2f", n.Float())
}

func percent(share float64) string {
	return fmt.Sprintf("%.0f%%", math.Abs(100*share))
}

func runHeadline(run *results.Run) headline {
	h := headline{Claim: true, Big: "–", BigLabel: "not evaluated yet"}
	if n := len(run.Evals); n > 0 {
		last := run.Evals[n-1]
		h.Big, h.BigLabel = fmt.Sprintf("%.3f", last.Pass1), "held-out pass@1 at the last evaluation"
		h.Text = fmt.Sprintf("Held-out pass@1 of %.3f after %s updates, on %d problems answered greedily.", last.Pass1, grouped(float64(last.Update)), last.Problems)
		if n > 1 {
			h.Text += fmt.Sprintf(" It began at %.3f and was at best %.3f.", run.Evals[0].Pass1, results.BestPass1(run.Evals).Float())
		}
	}
	s := run.Summary
	if s == nil {
		h.Caution = "This run has not ended"
		h.Text = strings.TrimSpace(h.Text + " There is no summary yet: what follows is the run so far.")
		return h
	}
	if s.Target.Known() {
		if s.ToTarget.Reached {
			h.Text += fmt.Sprintf(" It reached the target of %.4g at update %s, after %s of compute.",
				s.Target.Float(), grouped(float64(s.ToTarget.Update)), grouped(s.ToTarget.Compute.Float()))
		} else {
			h.Text += fmt.Sprintf(" It did not reach the target of %.4g.", s.Target.Float())
		}
	}
	h.Beside = []fact{
		{"updates", grouped(float64(s.Updates)), "ended: " + s.Ended},
		{"compute", short(s.Compute, 0), "by formula"},
		{"replay ratio", number(s.ReplayRatio), "expected " + short(s.ReplayRatioPlanned, 0)},
		{"best pass@1", fraction(s.Pass1Best), "held-out"},
	}
	return h
}

// number writes a measured number with three significant digits, a dash if there is none.
func number(n results.Number) string {
	if !n.Known() {
		return "–"
	}
	return short(n.Float(), 0)
}

// fraction writes an accuracy.
func fraction(n results.Number) string {
	if !n.Known() {
		return "–"
	}
	return fmt.Sprintf("%.3f", n.Float())
}
