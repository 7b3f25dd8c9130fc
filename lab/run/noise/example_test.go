package noise_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run/noise"
	"github.com/reprise-rl/reprise/rollout"
)

// Gradients of 64 rollouts, fresh ones first. Those of the table are twice as noisy.
func ExampleMeter() {
	rng := rollout.Stream(1, "example/noise", 0)
	meter := noise.NewMeter(32)
	for i := range 64 {
		std, d := 1.0, rollout.Draw{Group: uint64(i / 4)}
		if i >= 32 {
			std, d.Staleness = 1.5, 3
		}
		gradient := make([]float32, 1000)
		for k := range gradient {
			gradient[k] = float32(0.1 + std*rng.NormFloat64())
		}
		if err := meter.Add(d, gradient); err != nil {
			panic(err)
		}
	}
	var n results.Noise
	if err := meter.Fill(&n); err != nil {
		panic(err)
	}
	for _, s := range n.ByStaleness {
		fmt.Printf("staleness %d: %.1f times the noise of fresh rollouts\n", s.Last,
			s.Variance/n.ByStaleness[0].Variance)
	}
	// Output:
	// staleness 0: 1.0 times the noise of fresh rollouts
	// staleness 3: 2.2 times the noise of fresh rollouts
}
