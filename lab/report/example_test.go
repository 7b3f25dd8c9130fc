package report_test

import (
	"bytes"
	"fmt"
	"log"
	"strings"

	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
)

// Runs in memory become a page; [report.Write] does the same for a folder.
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
	arms := []results.NamedRuns{{Name: "replay", Runs: []*results.Run{run}}}
	if err := report.Arms(&page, "One arm", arms); err != nil {
		log.Fatal(err)
	}
	text := page.String()
	fmt.Println(strings.Contains(text, "<h1>One arm</h1>"), strings.Contains(text, "0.360"),
		strings.Contains(text, "<noscript"))
	// Output: true true false
}
