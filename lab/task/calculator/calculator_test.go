package calculator

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

func newTask(t *testing.T, s Settings, seed uint64) *Task {
	t.Helper()
	return tasktest.New(t, New, s, seed)
}

func TestTheTaskKeepsThePromisesOfATask(t *testing.T) {
	one, again, other := newTask(t, Settings{}, 1), newTask(t, Settings{}, 1), newTask(t, Settings{}, 2)
	tasktest.SeedOrdersTraining(t, one, again, other, 500, 10)
	tasktest.HeldOut(t, one, 400, 2000, func(p task.Prompt) string { return p.Text })
	tasktest.Characters(t, one, 200)
	tasktest.Problems(t, Settings.Validate, []tasktest.Case[Settings]{
		{Settings: Settings{}},
		{Settings: Settings{Max: -1, MaxTurns: 1}, Keys: "max max_turns"},
		{Settings: Settings{HeldOut: 5001}, Keys: "held_out"},
	})
}

func TestExpertsAskTheCalculatorAndSayWhatItSays(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	for i := range uint64(50) {
		p := made.Train(i)
		e := made.Reset(p, 0).(task.Expert)
		call := e.Advise()
		if want := Call(strings.TrimSuffix(p.Text, "=")); call != want {
			t.Fatalf("%s: advises %s, want %s", p.Text, call, want)
		}
		if step := e.Step(call); !reflect.DeepEqual(step, task.Step{Text: p.Answer + "="}) {
			t.Fatalf("%s: the calculator says %+v, want %s=", p.Text, step, p.Answer)
		}
		if step := e.Step(e.Advise()); !reflect.DeepEqual(step, task.Step{Done: true, Correct: true, Reward: 1}) {
			t.Fatalf("%s: the answer earns %+v", p.Text, step)
		}
	}
}

func TestTurnsAreCallsOrAnswers(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	p := task.Prompt{Text: "12+7=", Answer: "19"}
	for turns, want := range map[string]task.Step{
		"19":                         {Done: true, Correct: true, Reward: 1},
		"18":                         {Done: true},
		"":                           {Done: true, Invalid: true},
		"12+7=19":                    {Done: true, Invalid: true},
		Call("1+1"):                  {Text: "2="},
		Call("1*1"):                  {Text: "error=", Invalid: true},
		"<tool_call>19</tool_call>":  {Text: "error=", Invalid: true},
		strings.ToUpper(Call("1+1")): {Done: true, Invalid: true},
		Call("1+1")[:20]:             {Text: "error=", Invalid: true},
		Call("12+7") + "|" + "19":    {Done: true, Correct: true, Reward: 1},
		Call("1") + "|" + Call("1+1") + "|" + Call("2+2"): {Done: true, Cut: true},
		Call("1") + "|" + Call("2") + "|" + Call("3"):     {Done: true, Cut: true, Invalid: true},
	} {
		e := made.Reset(p, 0)
		var step task.Step
		for turn := range strings.SplitSeq(turns, "|") {
			step = e.Step(turn)
		}
		if !reflect.DeepEqual(step, want) {
			t.Errorf("%q: %+v, want %+v", turns, step, want)
		}
	}
}

func Example() {
	sums, err := New(Settings{}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := sums.Train(0)
	fmt.Println(p.Text)
	episode := sums.Reset(p, 1).(task.Expert)
	for done := false; !done; {
		turn := episode.Advise()
		step := episode.Step(turn)
		fmt.Println(turn, step.Text, step.Reward)
		done = step.Done
	}
	// Output:
	// 14+84=
	// <tool_call>{"name": "calculator", "arguments": {"expression": "14+84"}}</tool_call> 98= 0
	// 98  1
}
