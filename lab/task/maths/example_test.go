package maths_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/maths"
)

func Example() {
	reference := task.Prompt{Answer: `Completing the square, we get $\boxed{1 \pm \frac{\sqrt{2}}{2}}$.`}
	for _, response := range []string{
		`Thus $x = \boxed{\frac{2+\sqrt2}{2}}$ or $x = \boxed{\frac{2-\sqrt2}{2}}$.`,
		`The answer is $1+\frac{1}{\sqrt{2}}, 1-\frac{1}{\sqrt{2}}$.`,
		`\boxed{1 + \frac{\sqrt2}{2}}`,
		`\boxed{1.707, 0.293}`,
	} {
		v := maths.Verifier{}.Verify(reference, response)
		fmt.Printf("%v %q\n", v.Reward, v.Extracted)
	}
	// Output:
	// 1 "\\frac{2+\\sqrt2}{2} \\text{ or } \\frac{2-\\sqrt2}{2}"
	// 1 "1+\\frac{1}{\\sqrt{2}}, 1-\\frac{1}{\\sqrt{2}}"
	// 0 "1 + \\frac{\\sqrt2}{2}"
	// 0 "1.707, 0.293"
}
