package countdown_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task/countdown"
)

func Example() {
	game, err := countdown.New(countdown.Settings{MaxNumbers: 3}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := game.HeldOut()[0]
	fmt.Println(p.Text, game.Demonstrate(p))
	for _, response := range []string{p.Answer, "16+10*2", "50+2"} {
		fmt.Println(response, game.Verify(p, response).Reward)
	}
	// Output:
	// 16 10 2=52: 2*(10+16)
	// 2*(10+16) 1
	// 16+10*2 0.1
	// 50+2 0
}
