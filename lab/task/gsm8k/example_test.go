package gsm8k_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gsm8k"
)

func Example() {
	reference := task.Prompt{Answer: "She has 3 * 250 = <<3*250=750>>750 left.\n#### 750"}
	for _, response := range []string{
		"3 times 250 makes 750.\n#### $750.00",
		`Therefore \boxed{\frac{1500}{2} \text{ coins}}.`,
		"I think 700 or 750",
		"#### 700 or 750",
	} {
		v := gsm8k.Verifier{}.Verify(reference, response)
		fmt.Printf("%v %q\n", v.Reward, v.Extracted)
	}
	// Output:
	// 1 "750"
	// 1 "750"
	// 1 "750"
	// 0 ""
}
