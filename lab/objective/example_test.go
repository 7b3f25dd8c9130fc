package objective_test

import (
	"fmt"
	"log"

	"github.com/gomlx/compute/gobackend"
	. "github.com/gomlx/gomlx/core/graph"

	"github.com/reprise-rl/reprise/lab/objective"
)

// Two rollouts of two tokens, one good and one bad, drawn from a policy that gave every token
// probability 1/2. The current policy likes the first token of the good one better.
func Example() {
	grpo := objective.GRPO{ClipHigh: 0.28}
	if err := grpo.Validate(); err != nil {
		log.Fatal(err)
	}
	backend, err := gobackend.New("ops_sequential,num_executors=1")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Finalize()
	exec := MustNewExec(backend, func(pi, b, mask, advantage, count *Node) (*Node, *Node) {
		logprobs := Log(pi)
		out := grpo.Loss(objective.Inputs{
			Logprobs: logprobs, Behaviour: Log(b), Mask: mask, Advantage: advantage,
			Rollouts: count, Tokens: MulScalar(count, 2),
		})
		return Gradient(out.Loss, logprobs)[0], out.Sums
	})
	gradient, sums, err := exec.Call2(
		[][]float32{{0.75, 0.5}, {0.5, 0.5}},
		[][]float32{{0.5, 0.5}, {0.5, 0.5}},
		[][]float32{{1, 1}, {1, 1}},
		[][]float32{{1, 1}, {-1, -1}},
		float32(2))
	if err != nil {
		log.Fatal(err)
	}
	m := objective.Combine([]objective.Sums{objective.ReadSums(sums.Value().([]float32))})
	fmt.Println("gradient:", gradient.Value())
	fmt.Printf("loss %.3f, clipped %.2f, ESS/n %.3f\n", m["loss"], m["clip_fraction"], m["ess"])
	// Output:
	// gradient: [[0 -0.25] [0.25 0.25]]
	// loss -0.070, clipped 0.25, ESS/n 0.964
}
