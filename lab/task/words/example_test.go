package words_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task/words"
)

func Example() {
	stories, err := words.New(words.Settings{Words: []string{"dog", "park"}}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := stories.Train(0)
	fmt.Println(p.Text, "...", p.Answer)
	for _, story := range []string{" met two Dogs in the park.", " met a hotdog in the park.", " slept."} {
		v := stories.Verify(p, story)
		fmt.Println(v.Reward, v.Correct, v.Extracted)
	}
	// Output:
	// Once upon a time, there was a funny clown. One day, ... dog park
	// 1 true dog park
	// 0.5 false park
	// 0 false
}
