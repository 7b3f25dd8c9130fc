package search_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/search"
)

func Example() {
	facts, err := search.New(search.Settings{Passages: 2}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := facts.HeldOut()[0]
	fmt.Println(p.Text)
	episode := facts.Reset(p, 1).(task.Expert)
	for {
		text := episode.Advise()
		step := episode.Step(text)
		fmt.Printf("%s -> %q\n", text, step.Text)
		if step.Done {
			fmt.Println(step.Reward)
			return
		}
	}
	// Output:
	// misi fears?
	// ?misi fears -> "\nmisi fears lot.\nmisi sells buv.\n"
	// =lot -> ""
	// 1
}
