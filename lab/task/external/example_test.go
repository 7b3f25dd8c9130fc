package external_test

import (
	"fmt"
	"os"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/external"
)

func Example() {
	// This test binary is the program.
	v, err := external.NewVerifier(external.Settings{Command: []string{os.Args[0], behave + "well"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	v.Open()
	defer v.Close()
	verdict := v.Verify(task.Prompt{Text: "2+3=", Answer: "5"}, "5")
	fmt.Println(verdict.Reward, verdict.Correct, v.Err())
	// Output: 1 true <nil>
}
