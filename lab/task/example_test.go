package task_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gsm8k"
)

func Example() {
	lines := `{"response": "2 + 3 = 5\n#### 5", "answer": "5"}
{"response": "about 5 or 6", "answer": "5"}
{"response": "#### 5"}`
	err := task.VerifyLines(context.Background(), gsm8k.Verifier{}, strings.NewReader(lines), os.Stdout)
	fmt.Println(err)
	// Output:
	// {"answer":"5","correct":true,"extracted":"5","response":"2 + 3 = 5\n#### 5","reward":1}
	// {"answer":"5","correct":false,"extracted":"6","response":"about 5 or 6","reward":0}
	// line 3: field answer: missing: want a string
}
