package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/policy"
)

// The tests run the program as a user does, in a process of its own: this test binary, which is the program when
// runProgram is set in its environment. So nothing is linked twice, and the test cache knows what the program is made
// of.
const runProgram = "REPRISE_TEST_RUN_PROGRAM"

var (
	binary string // path of the program
	shared string // folder for what several tests use
)

func TestMain(m *testing.M) {
	if os.Getenv(runProgram) != "" {
		main()
		os.Exit(0)
	}
	var err error
	if binary, err = os.Executable(); err == nil {
		shared, err = os.MkdirTemp("", "reprise")
	}
	if err == nil {
		err = os.Setenv(runProgram, "1")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(shared)
	os.Exit(code)
}

// outcome is how a call of the program ended.
type outcome struct {
	stdout, stderr string
	code           int
}

// call runs the program to its end.
func call(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	c := exec.Command(binary, args...)
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &stdout, &stderr
	return outcome{code: exitOf(t, c.Run()), stdout: stdout.String(), stderr: stderr.String()}
}

// exitOf returns the exit code of a process that ended with err.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return exit.ExitCode()
	}
	return 0
}

// succeeds returns the standard output of a call that must succeed and print nothing to standard error.
func succeeds(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	got := call(t, stdin, args...)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("reprise %v: exit code %d, standard error:\n%s", args, got.code, got.stderr)
	}
	return got.stdout
}

// fails checks that a call ended with exit code 1 and every want on standard error, and returns its standard output.
func fails(t *testing.T, got outcome, want ...string) string {
	t.Helper()
	if got.code != 1 {
		t.Errorf("exit code %d, want 1", got.code)
	}
	for _, w := range want {
		if !strings.Contains(got.stderr, w) {
			t.Errorf("standard error lacks %q:\n%s", w, got.stderr)
		}
	}
	return got.stdout
}

// narrow checks that a text fits into the columns of a terminal.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > words.Columns {
			t.Errorf("a line of %d columns, more than %d:\n%s", n, words.Columns, line)
		}
	}
}

func TestHelpNamesTheVerbs(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}} {
		help := succeeds(t, "", args...)
		for _, verb := range []string{"train", "design", "report", "board", "inspect", "play", "generate", "score",
			"verify"} {
			if !strings.Contains(help, "\n  "+verb+" ") {
				t.Errorf("reprise %v does not name %s:\n%s", args, verb, help)
			}
		}
	}
	if help := succeeds(t, "", "train", "--help"); !strings.Contains(help, "--resume") ||
		!strings.Contains(help, "--compare") {
		t.Errorf("help of train:\n%s", help)
	}
}

func TestWrongCallsAreRefusedByName(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag --colour":      {"train", "--colour"},
		"missing flags: --model=DIR": {"score"},
		"unexpected argument dance":  {"dance"},
		"--max-tokens: many: want a whole number; see reprise generate --help": {"generate", "--model", "x", "--prompt",
			"y", "--max-tokens", "many"},
		"--seed: one: want a whole number, 0 or more;":                         {"train", "--seed", "one"},
		"--seed: -1: want a whole number, 0 or more; see reprise train --help": {"train", "--seed", "-1"},
		"--seed: want a whole number, 0 or more after it;":                     {"train", "--seed"},
		"--noise-scale: much: want a number;":                                  {"design", "--noise-scale", "much"},
		"--out: want a value after it;":                                        {"train", "--out"},
		`expected "<task>"`:                                                    {"verify"},
		"unknown flag --foo; see reprise train --help":                         {"train", "--foo"},
		"unknown flag --sede, did you mean --seed?":                            {"train", "--sede"},
		"unknown flag --resu, did you mean --resume?":                          {"train", "--resu"},
		"unexpected argument trian, did you mean train?; see reprise --help":   {"trian"},
	} {
		got := call(t, "", args...)
		if got.code == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("reprise %v: exit code %d, want another than 0 and %q in:\n%s", args, got.code, want, got.stderr)
		}
	}
}

func TestTheVersionSaysHowTheProgramWasBuilt(t *testing.T) {
	got := succeeds(t, "", "--version")
	for _, want := range []string{"reprise " + version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, "SIMD"} {
		if !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("the version lacks %q, or has several lines:\n%s", want, got)
		}
	}
	if with := strings.Contains(got, "with SIMD"); with != policy.SIMD {
		t.Errorf("the version is %q, and SIMD is %v", got, policy.SIMD)
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	for _, verb := range []string{"", "train", "up", "serve", "design", "study", "report", "board", "inspect", "play",
		"generate", "score", "engine", "rollout", "journal", "verify", "table", "export", "import", "completion",
		"methods"} {
		narrow(t, succeeds(t, "", append(strings.Fields(verb), "--help")...))
	}
}

func TestAShellThatAsksGetsVerbsFlagsAndNames(t *testing.T) {
	for line, want := range map[string][]string{
		"reprise tra":         {"train"},
		"bin/reprise table ":  {"create", "drop", "list", "scrub", "stats"},
		"reprise train --see": {"--seed", "--seeds"},
		"reprise train -q --buffer-": {"--buffer-ca", "--buffer-certificate", "--buffer-key", "--buffer-server-name",
			"--buffer-token-file"},
		"reprise study fresh":       {"fresh-parts", "freshness"},
		"reprise verify gsm":        {"gsm8k"},
		"reprise completion ":       {"bash", "fish", "zsh"},
		"reprise generate --model ": nil,
	} {
		t.Setenv("COMP_LINE", line)
		got := strings.Fields(succeeds(t, ""))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q is completed by %v, want %v", line, got, want)
		}
	}
}

func TestTheScriptsForCompletionRunThisProgram(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script := succeeds(t, "", "completion", shell); !strings.Contains(script, binary) {
			t.Errorf("the script for %s does not run %s:\n%s", shell, binary, script)
		}
	}
}

func TestMethodsAreListedShownAndRun(t *testing.T) {
	list := succeeds(t, "", "methods")
	narrow(t, list)
	for _, want := range []string{"\nvcrl  ", "\nrepo  ", "Not yet, and what each needs:"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	if got := succeeds(t, "", "methods", "greso"); !strings.Contains(got, "skip: 1 - 0.5 ** streak") {
		t.Errorf("greso is %s", got)
	}
	dir := filepath.Join(t.TempDir(), "run")
	succeeds(t, "", "train", "-q", "--method", "greso", "--set", "budget.updates=2", "--set", "budget.compute=0",
		"--set", "warmup.steps=3", "--set", "pipeline.batch=96", "--set", "task.held_out=20", "--out", dir)
	for _, c := range [][]string{
		{"--method: grpo2: want one of a-3po, advantage-replay, ", "train", "--method", "grpo2"},
		{"--method: rrl (arXiv 2504.14363) is not a configuration yet: it needs a score of unfinished answers",
			"train", "--method", "rrl"},
		{"--method: greso: want none with --resume", "train", "--method", "greso", "--resume", "--out", dir},
	} {
		fails(t, call(t, "", c[1:]...), c[0])
	}
}
