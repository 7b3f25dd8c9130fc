package results_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/lab/results"
)

// A run writes a line per update, is killed, and goes on from the line that its checkpoint knew.
func Example() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := results.WriteConfig(dir, []byte("seed: 1\n")); err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, results.MetricsFile)
	metrics, err := results.CreateLog[results.Update](path)
	if err != nil {
		log.Fatal(err)
	}
	for u := 1; u <= 3; u++ {
		if err := metrics.Append(results.Update{Update: u, Version: u, Compute: 60 * float64(u),
			Loss: results.Num(-0.5)}); err != nil {
			log.Fatal(err)
		}
	}
	metrics.Close()

	metrics, err = results.ResumeLog[results.Update](path, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer metrics.Close()
	run, err := results.ReadRun(dir)
	if err != nil {
		log.Fatal(err)
	}
	last := run.Updates[len(run.Updates)-1]
	fmt.Println(last.Update, last.Compute, last.Loss.Float(), last.ESS.Known())
	// Output: 2 120 -0.5 false
}

// Two arms on one seed: replay crosses 0.65 at 171 of compute, the baseline at 350, and one seed makes no claim.
func ExampleNewCompare() {
	curve := func(step float64, accuracies ...float64) []results.Eval {
		var evals []results.Eval
		for i, a := range accuracies {
			at := step * float64(i)
			evals = append(evals, results.Eval{Grid: at, Compute: at, Problems: 400, Pass1: a})
		}
		return evals
	}
	c, err := results.NewCompare(results.Protocol{
		Target:   0.65,
		Baseline: []results.SeedEvals{{Seed: 1, Evals: curve(100, 0.4, 0.5, 0.6, 0.64, 0.66, 0.7)}},
		Replay:   []results.SeedEvals{{Seed: 1, Evals: curve(100, 0.4, 0.6, 0.67, 0.71, 0.72, 0.74)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Statement)
	// Output: One seed: no claim. Replay reached 0.65 held-out pass@1 with 0.49 of the baseline's compute: 51% saved.
}
