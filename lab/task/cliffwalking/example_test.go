package cliffwalking_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task/cliffwalking"
)

func Example() {
	cliff, err := cliffwalking.New(cliffwalking.Settings{}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := cliff.Train(0)
	fmt.Println(p.Text)
	episode := cliff.Reset(p, 1)
	for _, action := range []string{"U", "R", "D"} {
		step := episode.Step(action)
		fmt.Println(action, step.Text, step.Reward, step.Done)
	}
	// Output:
	// 3a
	// U 2a -1 false
	// R 2b -1 false
	// D 3a -100 false
}
