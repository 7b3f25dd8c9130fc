package advantage_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/advantage"
)

// One of four answers to a prompt was right.
func ExampleOfGroup() {
	rewards := []float32{1, 0, 0, 0}
	for _, kind := range []advantage.Kind{advantage.Group, advantage.NoStd, advantage.LeaveOneOut} {
		dst := make([]float32, len(rewards))
		advantage.OfGroup(dst, rewards, kind)
		fmt.Printf("%s: %.3f\n", kind, dst)
	}
	// Output:
	// group: [1.732 -0.577 -0.577 -0.577]
	// no_std: [0.750 -0.250 -0.250 -0.250]
	// leave_one_out: [1.000 -0.333 -0.333 -0.333]
}
