package transcript_test

import (
	"context"
	"fmt"
	"io"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/arithmetic"
	"github.com/reprise-rl/reprise/lab/task/transcript"
)

func Example() {
	sums, err := arithmetic.New(arithmetic.Settings{}, 1)
	if err != nil {
		panic(err)
	}
	prompt := sums.Train(0)
	played, err := transcript.Play(context.Background(), transcript.Episode{
		Task: "arithmetic", Number: 1, Prompt: prompt, State: task.Begin(sums, prompt, 1), Turns: task.MaxTurns(sums),
	}, &transcript.Expert{}, transcript.Options{Out: io.Discard})
	if err != nil {
		panic(err)
	}
	fmt.Println(played.Ended, played.Success, len(played.Turns))
	// Output: done true 1
}
