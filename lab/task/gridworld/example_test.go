package gridworld_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/rollout"
)

// A corridor of three cells: the goal is at its right end, and every step costs 1.
func Example() {
	left := func(to int) []task.Outcome { return []task.Outcome{{Probability: 1, Next: to, Reward: -1}} }
	right := func(to int) []task.Outcome {
		return []task.Outcome{{Probability: 1, Next: to, Reward: -1, Done: to == 2}}
	}
	world := &gridworld.World{
		Table: task.Transitions{{left(0), right(1)}, {left(0), right(2)}, {left(2), right(2)}},
		Goal:  func(state int) bool { return state == 2 },
		Look:  func(state int, _ bool) (string, []byte) { return fmt.Sprint("cell ", state), nil },
	}
	world.Settings.ActionsPerTurn = 2
	world.Settings.Resolve(10, -2, 1)
	world.Protocol = world.Settings.Protocol("LR", []string{"Left", "Right"})
	walk := world.Begin(0, rollout.Stream(1, "corridor", 0))

	fmt.Println(walk.Actions(), walk.Advise(), world.Plan().Value(0))
	for _, text := range []string{"Go!", "L", "RR"} {
		step := walk.Step(text)
		fmt.Printf("%s: %q, reward %g, invalid %v, done %v, correct %v\n", text, step.Text, step.Reward, step.Invalid,
			step.Done, step.Correct)
	}
	// Output:
	// [L R] RR -2
	// Go!: "cell 0", reward -2, invalid true, done false, correct false
	// L: "cell 0", reward -1, invalid false, done false, correct false
	// RR: "", reward -2, invalid false, done true, correct true
}
