package sokoban_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/lab/task/sokoban"
)

func Example() {
	rooms, err := sokoban.New(sokoban.Settings{Difficulty: sokoban.Simple, Settings: gridworld.Settings{MaxSteps: 20}},
		1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := rooms.HeldOut()[14]
	fmt.Print(p.Text)
	episode := rooms.Reset(p, 0).(task.Expert)
	for done := false; !done; {
		action := episode.Advise()
		step := episode.Step(action)
		fmt.Printf("%s %.1f\n%s", action, step.Reward, step.Text)
		done = step.Done
	}

	_, err = sokoban.New(sokoban.Settings{Size: 40}, 1)
	fmt.Println(err)
	// Output:
	// #___
	// _@$_
	// #__.
	// #___
	// R -0.1
	// #___
	// __@$
	// #__.
	// #___
	// U -0.1
	// #_@_
	// ___$
	// #__.
	// #___
	// R -0.1
	// #__@
	// ___$
	// #__.
	// #___
	// D 10.9
	// size: 40: want 0 (default) or 5 to 16
}
