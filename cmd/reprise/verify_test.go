package main

import (
	"os/exec"
	"testing"
)

// python skips a test where there is no Python.
func python(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not there")
	}
}

func TestVerifyAsksAProgram(t *testing.T) {
	t.Parallel()
	python(t)
	lines := `{"response": "dcbb", "answer": "dcba", "prompt": "abcd:"}` + "\n" +
		`{"response": "dcba", "answer": "dcba"}`
	command := "command=[python3, ../../examples/verifier/verify.py]"
	got := succeeds(t, lines, "verify", "external", "--set", command)
	want := `{"answer":"dcba","correct":false,"extracted":"dcbb","prompt":"abcd:","response":"dcbb","reward":0.75}` +
		"\n" + `{"answer":"dcba","correct":true,"extracted":"dcba","response":"dcba","reward":1}` + "\n"
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	got = fails(t, call(t, lines, "verify", "external", "--set", command, "--set", "max_reward=0.5"),
		`verifier "python3 ../../examples/verifier/verify.py" answered wrongly: line 1: reward 0.75 of id 0: want a `+
			`number from -0.5 to 0.5: change the program, or set task.max_reward`)
	if got != "" {
		t.Errorf("printed %s", got)
	}
	fails(t, call(t, "", "verify", "anagrams"), "name: anagrams: want one of arithmetic, ",
		"or external with --set command=[PROGRAM]")
	fails(t, call(t, "", "verify", "external"), "command: []: want a program and its arguments, such as [python3")
	fails(t, call(t, "", "verify", "arithmetic", "--set", "max=5"), "--set max=5: want none")
}
