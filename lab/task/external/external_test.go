package external_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/external"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

// The test binary is the verifier if its first argument begins so; what follows selects the behaviour.
const behave = "behave="

func TestMain(m *testing.M) {
	if how, ok := strings.CutPrefix(append(os.Args, "")[1], behave); ok {
		verifier(how, os.Args[2:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// verifier answers questions on standard input. A well-behaved one rewards right responses.
func verifier(how string, args []string) {
	lines := bufio.NewScanner(os.Stdin)
	var held []string
	for n := 1; lines.Scan(); n++ {
		var q struct {
			ID               uint64
			Response, Answer string
		}
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			panic(err)
		}
		reward := "0"
		if q.Response == q.Answer {
			reward = "1"
		}
		switch how {
		case "nan":
			reward = "NaN"
		case "large":
			reward = "1.5"
		case "text":
			fmt.Println("loading the model")
		case "die":
			fmt.Fprintln(os.Stderr, "no such model")
			os.Exit(3)
		case "die at first": // as long as its folder is not there
			if os.Mkdir(args[0], 0o700) == nil {
				os.Exit(3)
			}
		case "close":
			os.Stdout.Close()
		case "no id":
			fmt.Println(`{"reward": 1}`)
		case "words":
			reward = `"good"`
		case "other id":
			q.ID += 1000
		case "hang":
			continue
		case "forget": // the third question
			if n == 3 {
				continue
			}
		case "reads nothing":
			time.Sleep(time.Hour) // it hangs
		case "child": // holds standard output open after this process has ended
			leaveChild(args[0], nil)
			os.Exit(3)
		case "daemon", "daemon and die": // the same in a session of its own
			leaveChild(args[0], detach)
			if how == "daemon and die" {
				os.Exit(3)
			}
		}
		text := fmt.Sprintf(`{"id": %d, "reward": %s}`, q.ID, reward)
		if how == "twice" {
			text += "\n" + text
		}
		if how == "backwards" { // four at a time, the last first
			if held = append([]string{text}, held...); len(held) < 4 {
				continue
			}
			text, held = strings.Join(held, "\n"), nil
		}
		if how == "says more" {
			text = fmt.Sprintf(`{"id": %d, "reward": -0.25, "correct": true, "extracted": "x", "note": 1}`, q.ID)
		}
		fmt.Println(text)
	}
}

// detach puts a command into a session of its own. It is set on Unix.
var detach func(*exec.Cmd)

// leaveChild starts a process that has our standard output and does not end by itself, and writes its id into a file.
func leaveChild(path string, prepare func(*exec.Cmd)) {
	c := exec.Command(os.Args[0], behave+"reads nothing")
	c.Stdout = os.Stdout
	in, _ := c.StdinPipe()
	fmt.Fprintln(in, `{}`)
	if prepare != nil {
		prepare(c)
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		panic(err)
	}
}

// settings are those of a verifier that behaves so.
func settings(how string, args ...string) external.Settings {
	return external.Settings{Command: append([]string{os.Args[0], behave + how}, args...), Timeout: 120}
}

func ask(v *external.Verifier, response, answer string) task.Verdict {
	return v.Verify(task.Prompt{ID: "external/1", Text: "What?", Answer: answer}, response)
}

func newVerifier(t *testing.T, s external.Settings) *external.Verifier {
	t.Helper()
	v, err := external.NewVerifier(s)
	if err != nil {
		t.Fatal(err)
	}
	v.Open()
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func TestAnswersAreMatchedByTheirIds(t *testing.T) {
	v := newVerifier(t, settings("backwards"))
	var wait sync.WaitGroup
	for i := range 64 {
		wait.Go(func() {
			want := task.Verdict{Extracted: strconv.Itoa(i)}
			if i%3 == 0 {
				want.Reward, want.Correct = 1, true
			}
			if got := ask(v, strconv.Itoa(i), strconv.Itoa(i-min(i%3, 1))); got != want {
				t.Errorf("%d: %+v, want %+v", i, got, want)
			}
		})
	}
	wait.Wait()
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}

func TestTheProgramMaySayWhatIsRight(t *testing.T) {
	v := newVerifier(t, settings("says more"))
	if got := ask(v, "a", "b"); got != (task.Verdict{Reward: -0.25, Correct: true, Extracted: "x"}) {
		t.Errorf("%+v, %v", got, v.Err())
	}
}

func TestAFaultIsAnErrorWithTheCommandTheLineAndTheRemedy(t *testing.T) {
	for how, want := range map[string]string{
		"nan": `line 1: "{\"id\": 0, \"reward\": NaN}": invalid character 'N' looking for beginning of value: ` +
			`want`,
		"large": "line 1: reward 1.5 of id 0: want a number from -1 to 1: change the program, or set " +
			"task.max_reward",
		"text":     `line 1: "loading the model": invalid character 'l' looking for beginning of value: want {"id": 17`,
		"die":      "ended (exit status 3): its standard error tells why",
		"close":    "it must answer until its standard input ends",
		"no id":    `line 1: "{\"reward\": 1}" has no id or no reward: want {"id": 17`,
		"words":    `line 1: "{\"id\": 0, \"reward\": \"good\"}": reward is a string: want {"id": 17`,
		"other id": "line 1: id 1000: no question with this id waits: answer each question once, with its id",
	} {
		v := newVerifier(t, settings(how))
		if got := ask(v, "5", "5"); got != (task.Verdict{}) {
			t.Errorf("%s: %+v", how, got)
		}
		err := v.Err()
		for _, w := range []string{"verifier \"" + os.Args[0] + " " + behave + how + "\"", want, "1 question waits; the first is\n" +
			`{"id":0,"prompt_id":"external/1","prompt":"What?","response":"5","answer":"5"}`} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", how, err, w)
			}
		}
		if ask(v, "5", "5") != (task.Verdict{}) || v.Err() != err {
			t.Errorf("%s: the failure does not stay: %v", how, v.Err())
		}
	}
}

func TestASecondAnswerIsAFault(t *testing.T) {
	v := newVerifier(t, settings("twice"))
	for range 1000 { // the second answer may come after some questions
		if ask(v, "5", "5"); v.Err() != nil {
			break
		}
	}
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "no question with this id waits") {
		t.Error(err)
	}
}

func TestAHungProgramIsKilledAfterTheTimeout(t *testing.T) {
	for how, c := range map[string]struct {
		questions int
		timeout   float64
		rewarded  int64
		want      string
	}{
		"hang":          {1, 0.2, 0, "1 question waits; the first is\n"},
		"forget":        {5, 5, 4, "1 question waits; the first is\n"}, // seconds enough for the other four answers
		"reads nothing": {40, 0.2, 0, "questions wait; the first is\n"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if c.timeout > 1 {
				tests.Long(t)
			}
			s := settings(how)
			s.Timeout = c.timeout
			v := newVerifier(t, s)
			var wait sync.WaitGroup
			var rewarded atomic.Int64
			text := strings.Repeat("x", 10_000) // 40 of them are more than a pipe holds
			for range c.questions {
				wait.Go(func() { rewarded.Add(int64(ask(v, text, text).Reward)) })
			}
			wait.Wait()
			err := v.Err()
			if err == nil || !strings.Contains(err.Error(), "gave no answer for") ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", how, err, c.want)
			}
			if rewarded.Load() != c.rewarded {
				t.Errorf("%s: %d of %d responses are rewarded, want %d", how, rewarded.Load(), c.questions, c.rewarded)
			}
		})
	}
}

func TestTheNextOpenStartsAnotherProgram(t *testing.T) {
	v := newVerifier(t, settings("die at first", filepath.Join(t.TempDir(), "died")))
	ask(v, "5", "5")
	if v.Err() == nil {
		t.Fatal("it did not die")
	}
	_ = v.Close()
	v.Open()
	if got := ask(v, "5", "5"); got.Reward != 1 || v.Err() != nil {
		t.Errorf("%+v, %v", got, v.Err())
	}
}

// gone reports whether a process has ended. A dead child of another process may remain as a zombie.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// readPid reads what leaveChild wrote.
func readPid(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestNothingOfTheProgramIsLeft(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc")
	}
	path := filepath.Join(t.TempDir(), "pid")
	v := newVerifier(t, settings("child", path))
	ask(v, "5", "5")
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "ended (exit status 3)") {
		t.Errorf("a program whose child holds its output open: %v", err)
	}
	pid := readPid(t, path)
	for deadline := time.Now().Add(time.Minute); !gone(pid); time.Sleep(time.Millisecond) { // init reaps it
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left", pid)
		}
	}
}

// write writes a file of questions and returns its path.
func write(t *testing.T, lines ...string) string {
	t.Helper()
	return tests.File(t, "questions.jsonl", strings.Join(lines, "\n"))
}

func TestTheTaskAsksTheQuestionsOfAFile(t *testing.T) {
	s := settings("well")
	s.HeldOutFraction = 0.5
	s.TrainFile = write(t, `{"question": "a+b", "answer": 3}`, `{"prompt": "c", "answer": ["x", 1], "solution": "yz"}`,
		`{"problem": "d", "answer": "e"}`, `{"question": "f", "answer": "g"}`)
	made := tasktest.New(t, external.New, s, 1)
	answers := map[string]string{}
	shows := made.(task.Demonstrator)
	demonstrations := map[string]string{}
	for _, p := range append(made.HeldOut(), made.Train(0), made.Train(1)) {
		answers[p.Text], demonstrations[p.Text] = p.Answer, shows.Demonstrate(p)
	}
	for text, want := range map[string][2]string{"a+b": {"3", "3"}, "c": {`["x", 1]`, "yz"}, "d": {"e", "e"},
		"f": {"g", "g"}} {
		if answers[text] != want[0] || demonstrations[text] != want[1] {
			t.Errorf("%s: answer %q, demonstration %q, want %q", text, answers[text], demonstrations[text], want)
		}
	}
	if got := made.(task.Alphabet).Characters(); got != ` "+,13[]abcdefgxyz` {
		t.Errorf("characters %q", got)
	}
	tasktest.Characters(t, made, 3)
	unwanted := made.Train(0).ID
	left := made.(task.Selective).Without(map[string]bool{unwanted: true})
	if _, ok := left.(task.Demonstrator); !ok || left.Train(0).ID == unwanted || left.Train(1).ID == unwanted {
		t.Errorf("without %s: %s, demonstrated %t", unwanted, left.Train(0).ID, ok)
	}
	s.TrainFile = write(t, `{"question": "a", "answer": "b"}`, `{"question": "c", "answer": null}`, `{"question": "d"}`)
	made = tasktest.New(t, external.New, s, 1)
	for _, some := range []task.Task{made, made.(task.Selective).Without(nil)} {
		if _, ok := some.(task.Demonstrator); ok {
			t.Error("questions without an answer are demonstrated")
		}
	}
}

func TestSettingsOutOfRangeAreNamed(t *testing.T) {
	good := external.Settings{Command: []string{os.Args[0]}}
	good.TrainFile = "x"
	bad := good
	bad.Timeout, bad.InFlight, bad.MaxReward = -1, -1, math.NaN()
	tasktest.Problems(t, external.Settings.Validate, []tasktest.Case[external.Settings]{
		{good, ""}, {external.Settings{}, "command train_file"}, {bad, "timeout in_flight max_reward"},
	})
	s := external.Settings{Command: []string{"no-such-program-4711", "x"}}
	if _, err := external.NewVerifier(s); err == nil ||
		!strings.Contains(err.Error(), "command: [no-such-program-4711 x]: want a program that is installed") {
		t.Error(err)
	}
}
