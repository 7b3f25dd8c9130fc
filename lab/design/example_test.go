package design_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/design"
)

// What to run on eight GPUs where a rollout costs 5.28 times what training on it costs.
func Example() {
	theory := design.Theory{TrainCost: 1 / 5.28, Correlation: 0.1, Profile: design.PowerLaw{Exponent: 0.2}}
	best := theory.Optimum()
	fmt.Printf("keep rollouts for %.2f versions and use each %.2f times\n", best.X, best.Y)

	plan, err := theory.Configure(design.Fleet{GPUs: 8, Batch: 256, Group: 16, MostCapacity: 1 << 14})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("W=%d T=%d N=%d: x %.2f, y %.2f, gamma %.2f\n", plan.Workers, plan.Trainers, plan.Capacity,
		plan.Horizon, plan.ReplayRatio, plan.ComputeRatio)
	// Output:
	// keep rollouts for 4.27 versions and use each 3.97 times
	// W=4 T=4 N=256: x 5.28, y 5.28, gamma 0.32
}

// A profile fitted from measurements of a run.
func ExampleFit() {
	fitted, err := design.Fit(design.Measurements{
		RolloutCost:  5.28,
		NewPerUpdate: 145,
		Noise: []design.Noise{
			{Staleness: 0, Variance: 1.00, Count: 300},
			{Staleness: 1, Variance: 1.06, Count: 300},
			{Staleness: 2, Variance: 1.04, Count: 300}, // chance: the table will not fall here
			{Staleness: 6, Variance: 1.30, Count: 300},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", fitted.Table.Values())
	fmt.Printf("exponent %.2f\n", fitted.PowerLaw.Exponent)
	// Output:
	// [1.000 1.050 1.050 1.113 1.175 1.238 1.300]
	// exponent 0.04
}
