package frozenlake_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/frozenlake"
)

func Example() {
	firm := false
	lakes, err := frozenlake.New(frozenlake.Settings{Map: frozenlake.MapRandom, Slippery: &firm}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := lakes.Train(3)
	fmt.Print(p.Text)
	episode := lakes.Reset(p, 1).(task.Expert)
	for done := false; !done; {
		action := episode.Advise()
		step := episode.Step(action)
		fmt.Print(action, " ", step.Reward, "\n", step.Text)
		done = step.Done
	}
	// Output:
	// PFFH
	// HFFF
	// FFHH
	// HFFG
	// R 0
	// SPFH
	// HFFF
	// FFHH
	// HFFG
	// D 0
	// SFFH
	// HPFF
	// FFHH
	// HFFG
	// D 0
	// SFFH
	// HFFF
	// FPHH
	// HFFG
	// D 0
	// SFFH
	// HFFF
	// FFHH
	// HPFG
	// R 0
	// SFFH
	// HFFF
	// FFHH
	// HFPG
	// R 1
}
