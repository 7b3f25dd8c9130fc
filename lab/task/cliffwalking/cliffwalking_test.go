package cliffwalking

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	_ task.Environment = (*Task)(nil)
	_ task.Tabular     = (*Task)(nil)
	_ task.Alphabet    = (*Task)(nil)
)

func variety() map[string]Settings {
	return map[string]Settings{
		"default":  {},
		"slippery": {Slippery: true},
		"starts":   {RandomStart: true},
		"words": {Slippery: true, RandomStart: true, Settings: gridworld.Settings{Format: task.Words,
			ActionsPerTurn: 3, HeldOut: 20}},
	}
}

func TestExpertsWalkAlongTheEdgeInThirteenSteps(t *testing.T) {
	for perTurn, want := range map[int]string{1: "U R R R R R R R R R R R D", 5: "URRRR RRRRR RRD",
		20: "URRRRRRRRRRRD"} {
		made := newTask(t, Settings{Settings: gridworld.Settings{ActionsPerTurn: perTurn}}, 1)
		e := made.Reset(made.HeldOut()[0], 1).(task.Expert)
		var texts []string
		total := float32(0)
		for {
			text := e.Advise()
			texts = append(texts, text)
			step := e.Step(text)
			total += step.Reward
			if step.Done {
				if !step.Correct || step.Cut {
					t.Errorf("it ended with %+v", step)
				}
				break
			}
		}
		if got := strings.Join(texts, " "); got != want || total != -13 {
			t.Errorf("%d per turn: %s for %g, want %s for -13", perTurn, got, total, want)
		}
	}
}

// Random play on firm ground is compared with a naive model that keeps coordinates.
func TestRandomPlayFollowsTheRules(t *testing.T) {
	made := newTask(t, Settings{RandomStart: true, Settings: gridworld.Settings{MaxSteps: 60}}, 3)
	falls, goals := 0, 0
	for seed := range uint64(300) {
		r := rollout.Stream(seed, "cliff test", 0)
		p := made.Train(seed)
		row, column := int(p.Text[0]-'0'), int(p.Text[1]-'a')
		e := made.Reset(p, seed)
		for n := 1; ; n++ {
			action, reward, done := "URDL?"[r.IntN(5)], float32(-1), false
			switch {
			case action == '?':
				reward = -2
			case action == 'U' && row > 0:
				row--
			case action == 'D' && row < 3:
				row++
			case action == 'L' && column > 0:
				column--
			case action == 'R' && column < 11:
				column++
			}
			if row == 3 && column > 0 && column < 11 {
				reward, column = -100, 0
				falls++
			} else if row == 3 && column == 11 {
				done = true
				goals++
			}
			text := string([]byte{'0' + byte(row), 'a' + byte(column)})
			cut := !done && n == 60
			if done || cut {
				text = ""
			}
			if got, want := e.Step(string(action)),
				(task.Step{Text: text, Reward: reward, Done: done || cut, Cut: cut, Correct: done,
					Invalid: action == '?'}); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d, %q: %+v, want %+v", seed, n, action, got, want)
			}
			if done || cut {
				break
			}
		}
	}
	if falls == 0 || goals == 0 {
		t.Errorf("%d falls and %d goals: the test tries too little", falls, goals)
	}
}

func TestHeldOutStartsAreNeverTrained(t *testing.T) {
	made := newTask(t, Settings{RandomStart: true}, 1)
	held := map[string]bool{}
	for _, p := range made.HeldOut() {
		held[p.State] = true
	}
	if len(held) != 9 || held["36"] {
		t.Errorf("held out are %v, want 9 without the start of the original", held)
	}
	trained := map[string]bool{}
	for i := range uint64(1000) {
		p := made.Train(i)
		if trained[p.State] = true; held[p.State] {
			t.Fatalf("training prompt %d begins in %s", i, p.State)
		}
	}
	if len(trained) != 37-9 || !trained["36"] {
		t.Errorf("training begins in %d cells, want 28 with the start of the original", len(trained))
	}
	if one := newTask(t, Settings{}, 1); len(one.HeldOut()) != 1 || one.HeldOut()[0].Text != "3a" ||
		one.Train(5).Text != "3a" {
		t.Errorf("without random starts: %+v", one.HeldOut())
	}
	if luck := newTask(t, Settings{Slippery: true}, 1).HeldOut(); len(luck) != 100 || luck[0].ID == luck[1].ID ||
		luck[0].State != luck[1].State {
		t.Errorf("%d slippery prompts", len(luck))
	}
	other := newTask(t, Settings{RandomStart: true}, 2)
	if !reflect.DeepEqual(made.HeldOut(), other.HeldOut()) {
		t.Error("held-out prompts depend on the seed")
	}
}

func TestEverythingWrittenIsInTheAlphabet(t *testing.T) {
	for _, s := range variety() {
		tasktest.Characters(t, newTask(t, s, 1), 40)
	}
	if got := newTask(t, Settings{}, 1).Characters(); got != "0123DLRUabcdefghijkl" {
		t.Errorf("the terse alphabet is %q", got)
	}
}

func TestWordsExplainTheRules(t *testing.T) {
	made := newTask(t, Settings{Settings: gridworld.Settings{Format: task.Words}}, 1)
	p := made.Train(0)
	for _, part := range []string{"<answer>Up</answer>", "one of Up, Right, Down, Left", "costs as much as 100 steps",
		"............\nPCCCCCCCCCCG\n"} {
		if !strings.Contains(p.Text, part) {
			t.Errorf("%q is not in %q", part, p.Text)
		}
	}
	e := made.Reset(p, 1)
	if step := e.Step("U"); !step.Invalid || step.Reward != -2 || !strings.Contains(step.Text, "<answer>") {
		t.Errorf("without a tag: %+v", step)
	}
	if step := e.Step("<answer>up</answer>"); step.Invalid ||
		!strings.HasSuffix(step.Text, "P...........\nSCCCCCCCCCCG\n") {
		t.Errorf("with a tag: %+v", step)
	}
	if slips := newTask(t, variety()["words"], 1).Train(0).Text; !strings.Contains(slips, "slippery") ||
		strings.Contains(p.Text, "slippery") {
		t.Error("the instruction does not say whether the ground is slippery")
	}
}

func TestPromptsOfOtherTasksAreRefused(t *testing.T) {
	tasktest.Refuses(t, newTask(t, Settings{}, 1), "", "37", "47", "-1", "SFFF/FHFH/FFFH/HFFG@0")
}

func TestBadSettingsAreRefused(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{Settings: gridworld.Settings{HeldOut: -1}}, "held_out"},
		{Settings{RandomStart: true, Settings: gridworld.Settings{HeldOut: 37}}, "held_out"},
		{Settings{Settings: gridworld.Settings{MaxSteps: 2000}}, "max_steps"},
		{Settings{Settings: gridworld.Settings{Format: "poem"}}, "format"},
	})
	newTask(t, Settings{RandomStart: true, Settings: gridworld.Settings{HeldOut: 36}}, 1).Train(0)
	var s Settings
	if s.Resolve(); s.MaxSteps != 200 || *s.InvalidPenalty != -2 {
		t.Errorf("%+v", s)
	}
}

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

// Lines of Gymnasium's table, written out by hand from its rules.
func TestTransitionsAreThoseOfGymnasium(t *testing.T) {
	for slippery, want := range map[bool]map[[2]int]string{
		false: {
			{36, 0}: "[[1,24,-1,false]]",
			{36, 1}: "[[1,36,-100,false]]", // over the edge
			{36, 2}: "[[1,36,-1,false]]",
			{36, 3}: "[[1,36,-1,false]]",
			{0, 0}:  "[[1,0,-1,false]]",
			{0, 3}:  "[[1,0,-1,false]]",
			{11, 1}: "[[1,11,-1,false]]",
			{25, 2}: "[[1,36,-100,false]]",
			{34, 2}: "[[1,36,-100,false]]",
			{35, 2}: "[[1,47,-1,true]]", // the goal
			{35, 3}: "[[1,34,-1,false]]",
			{40, 0}: "[[1,28,-1,false]]", // on the cliff, where nobody stands
			{40, 1}: "[[1,36,-100,false]]",
			{46, 1}: "[[1,47,-1,true]]",
			{47, 2}: "[[1,47,-1,true]]",
			{47, 3}: "[[1,36,-100,false]]",
			{47, 0}: "[[1,35,-1,false]]",
		},
		true: {
			{36, 0}: "[[⅓,36,-1,false],[⅓,24,-1,false],[⅓,36,-100,false]]", // left, up, right
			// down, left, up: two outcomes stay, not merged
			{36, 3}: "[[⅓,36,-1,false],[⅓,36,-1,false],[⅓,24,-1,false]]",
			{35, 2}: "[[⅓,35,-1,false],[⅓,47,-1,true],[⅓,34,-1,false]]",     // right, down, left
			{24, 1}: "[[⅓,12,-1,false],[⅓,25,-1,false],[⅓,36,-1,false]]",    // up, right, down
			{34, 0}: "[[⅓,33,-1,false],[⅓,22,-1,false],[⅓,35,-1,false]]",    // left, up, right
			{25, 3}: "[[⅓,36,-100,false],[⅓,24,-1,false],[⅓,13,-1,false]]",  // down, left, up
			{25, 1}: "[[⅓,13,-1,false],[⅓,26,-1,false],[⅓,36,-100,false]]",  // up, right, down
			{46, 2}: "[[⅓,47,-1,true],[⅓,36,-100,false],[⅓,36,-100,false]]", // right, down, left
		},
	} {
		table := newTask(t, Settings{Slippery: slippery}, 1).Transitions()
		third, _ := json.Marshal(1.0 / 3)
		for at, text := range want {
			got, err := json.Marshal(table[at[0]][at[1]])
			if err != nil {
				t.Fatal(err)
			}
			if text = strings.ReplaceAll(text, "⅓", string(third)); string(got) != text {
				t.Errorf("slippery %v, state %d, action %d: %s, want %s", slippery, at[0], at[1], got, text)
			}
		}
		outcomes := 0
		for _, actions := range table {
			for _, list := range actions {
				outcomes += len(list)
			}
		}
		if want := map[bool]int{false: 48 * 4, true: 48 * 12}[slippery]; outcomes != want {
			t.Errorf("slippery %v: %d outcomes, want %d", slippery, outcomes, want)
		}
	}
}

func TestValueIterationGivesTheKnownReturn(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	if got := gridworld.Solve(made.Transitions(), made.MaxTurns()).Value(start); got != -13 {
		t.Errorf("%g, want -13", got)
	}
	// From the cell above the cliff in column c the shortest way is along it and down: 11 - c steps and one.
	for c := range width {
		if got := gridworld.Solve(made.Transitions(), 50).Value(2*width + c); got != float64(-(width - c)) {
			t.Errorf("from column %d: %g, want %d", c, got, -(width - c))
		}
	}
	if got := gridworld.Solve(made.Transitions(), 12).Value(start); got != -12 {
		t.Errorf("12 steps do not reach the goal: %g, want -12", got)
	}
}

func TestATaskIsTabular(t *testing.T) {
	var made task.Tabular = newTask(t, Settings{}, 1)
	if n := len(made.Transitions()); n != 48 {
		t.Errorf("%d states", n)
	}
}

// Of a slippery cliff the expert keeps its distance; the mean return of 2000 episodes is within four standard errors of
// what value iteration says.
func TestExpertsEarnWhatValueIterationSays(t *testing.T) {
	made := newTask(t, Settings{Slippery: true}, 1)
	want := gridworld.Solve(made.Transitions(), made.MaxTurns()).Value(start)
	sum, squares, n := 0.0, 0.0, 2000
	for seed := range uint64(n) {
		e := made.Reset(made.Train(0), seed).(task.Expert)
		total := 0.0
		for done := false; !done; {
			step := e.Step(e.Advise())
			total += float64(step.Reward)
			done = step.Done
		}
		sum += total
		squares += total * total
	}
	mean := sum / float64(n)
	deviation := math.Sqrt((squares/float64(n) - mean*mean) / float64(n))
	if math.Abs(mean-want) > 4*deviation || want > -14 || deviation > 2 {
		t.Errorf("mean return %.2f (standard error %.2f), want %.2f", mean, deviation, want)
	}
}

func BenchmarkEpisode(b *testing.B) {
	made, err := New(Settings{}, 1)
	if err != nil {
		b.Fatal(err)
	}
	steps := 0
	for i := uint64(0); b.Loop(); i++ {
		e := made.Reset(made.Train(i), i)
		for r := rollout.Stream(i, "benchmark", 0); ; {
			steps++
			if e.Step("URDL"[r.IntN(4):][:1]).Done {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
}
