package arithmetic_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task/arithmetic"
)

func Example() {
	sums, err := arithmetic.New(arithmetic.Settings{Max: 50}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := sums.HeldOut()[0]
	fmt.Println(p.Text, p.Answer)
	fmt.Println(sums.Verify(p, p.Answer).Reward, sums.Verify(p, p.Answer+"0").Reward)
	fmt.Println(sums.Characters())

	_, err = arithmetic.New(arithmetic.Settings{Max: 20}, 1)
	fmt.Println(err)
	// Output:
	// 43+40= 83
	// 1 0
	// 0123456789+=
	// held_out: 400: want 0 (400) to 200, half of the 400 problems with 0 <= a, b < 20: hold out fewer, or widen min and max
}
