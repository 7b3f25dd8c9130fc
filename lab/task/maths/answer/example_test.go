package answer_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task/maths/answer"
)

func Example() {
	reference := answer.Parse(`\left(-\infty, \frac{\sqrt{2}}{2}\right]`)
	for _, text := range []string{`x \le \frac{1}{\sqrt2}`, `(-\infty, 2^{-1/2}]`, `x < \frac{1}{\sqrt2}`,
		`(-\infty, 0.707]`} {
		fmt.Println(answer.Equal(reference, answer.Parse(text)))
	}
	fmt.Println(answer.Parse("1/2x").Err())
	// Output:
	// true
	// true
	// false
	// false
	// can be read in several ways
}
