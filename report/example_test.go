package report_test

import (
	"bytes"
	"fmt"
	"log"
	"strings"

	"github.com/reprise-rl/reprise/report"
	"github.com/reprise-rl/reprise/results"
)

// A run in memory becomes a page; [report.Write] does the same for a folder.
func Example() {
	run := &results.Run{
		Config: "seed: 1\n",
		Updates: []results.Update{
			{Update: 1, Version: 1, Compute: 1024, Reward: results.Num(0.31)},
			{Update: 2, Version: 2, Compute: 2048, Reward: results.Num(0.35)},
		},
		Evals: []results.Eval{
			{Problems: 400, Pass1: 0.34},
			{Update: 2, Version: 2, Grid: 2000, Compute: 2048, Problems: 400, Pass1: 0.36},
		},
	}
	var page bytes.Buffer
	if err := report.Run(&page, run); err != nil {
		log.Fatal(err)
	}
	text := page.String()
	fmt.Println(strings.Contains(text, "Held-out pass@1 of 0.360 after 2 updates"), strings.Contains(text, "<script"))
	// Output: true false
}

// A sheet holds figures as numbers, and what was found in words.
func ExampleSheet() {
	sheet := &results.Sheet{
		Kind: "Study", Title: "Does replay save compute?",
		Findings: []results.Finding{{
			Source: "[ER] fig. 1", Claim: "Replay reaches the target with less compute.",
			Found: "The median ratio is 0.62 (95% interval 0.57 to 0.68).", Verdict: results.Holds,
			Why: "holds if the interval lies below 1",
		}},
		Sections: []results.Section{{Title: "Accuracy", Figures: []results.Figure{{
			Title: "Accuracy against compute", X: results.Axis{Title: "compute"}, Y: results.Axis{Title: "held-out pass@1"},
			Curves: []results.Curve{{Name: "replay", Colour: 1,
				At: []results.Point{{X: 0, Y: results.Num(0.35)}, {X: 4000, Y: results.Num(0.65)}}}},
		}}}},
	}
	var page bytes.Buffer
	if err := report.Sheet(&page, sheet); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(page.String(), "One claim: 1 holds."), strings.Count(page.String(), "<figure>"))
	// Output: true 1
}
