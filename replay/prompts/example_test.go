package prompts_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// Four prompts are asked, sixteen times each. Half of a batch may be replayed: the one answered correctly every
// second time comes first, and of the two as far from that as each other the one reported first. What comes of them
// is reported as of replayed ones: the policy has learned the first, which leaves.
func Example() {
	options := prompts.Defaults()
	options.Fraction = 0.5
	buffer, err := prompts.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	asked := func(id string, row uint64, correct int) prompts.Result {
		return prompts.Result{Prompt: prompts.Prompt{ID: id, Ref: row}, Correct: correct, Total: 16}
	}
	err = buffer.Report(0, asked("7+5", 0, 16), asked("17+25", 1, 11), asked("31+48", 2, 5), asked("317+489", 3, 8))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, version := range []rollout.Version{4, 5} {
		fmt.Printf("version %d:", version)
		for _, p := range buffer.Next(version, 4) {
			fmt.Printf(" %s (row %d)", p.ID, p.Ref)
		}
		fmt.Println()
	}
	first, second := asked("317+489", 3, 16), asked("17+25", 1, 12)
	first.Replayed, second.Replayed = true, true
	if err := buffer.Report(6, first, second); err != nil {
		fmt.Println(err)
		return
	}
	s := buffer.Stats()
	fmt.Printf("%d held, %d of %d reported without variance, %d replayed\n", s.Held, s.ZeroVariance,
		s.Reported, s.Replayed)
	// Output:
	// version 4:
	// version 5: 317+489 (row 3) 17+25 (row 1)
	// 2 held, 2 of 6 reported without variance, 2 replayed
}
