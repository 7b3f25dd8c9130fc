package cliffwalking

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/gridworld"
)

func newTask(t *testing.T, s Settings, seed uint64) *Task {
	t.Helper()
	made, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Lines of Gymnasium's table, written out by hand from its rules.
func TestTransitionsAreThoseOfGymnasium(t *testing.T) {
	for slippery, want := range map[bool]map[[2]int]string{
		false: {
			{36, up}:    "[[1,24,-1,false]]",
			{36, right}: "[[1,36,-100,false]]", // over the edge
			{36, down}:  "[[1,36,-1,false]]",
			{36, left}:  "[[1,36,-1,false]]",
			{0, up}:     "[[1,0,-1,false]]",
			{0, left}:   "[[1,0,-1,false]]",
			{11, right}: "[[1,11,-1,false]]",
			{25, down}:  "[[1,36,-100,false]]",
			{34, down}:  "[[1,36,-100,false]]",
			{35, down}:  "[[1,47,-1,true]]", // the goal
			{35, left}:  "[[1,34,-1,false]]",
			{40, up}:    "[[1,28,-1,false]]", // on the cliff, where nobody stands
			{40, right}: "[[1,36,-100,false]]",
			{46, right}: "[[1,47,-1,true]]",
			{47, down}:  "[[1,47,-1,true]]",
			{47, left}:  "[[1,36,-100,false]]",
			{47, up}:    "[[1,35,-1,false]]",
		},
		true: {
			{36, up}:    "[[⅓,36,-1,false],[⅓,24,-1,false],[⅓,36,-100,false]]",  // left, up, right
			{36, left}:  "[[⅓,36,-1,false],[⅓,36,-1,false],[⅓,24,-1,false]]",    // down, left, up: two outcomes stay, not merged
			{35, down}:  "[[⅓,35,-1,false],[⅓,47,-1,true],[⅓,34,-1,false]]",     // right, down, left
			{24, right}: "[[⅓,12,-1,false],[⅓,25,-1,false],[⅓,36,-1,false]]",    // up, right, down
			{34, up}:    "[[⅓,33,-1,false],[⅓,22,-1,false],[⅓,35,-1,false]]",    // left, up, right
			{25, left}:  "[[⅓,36,-100,false],[⅓,24,-1,false],[⅓,13,-1,false]]",  // down, left, up
			{25, right}: "[[⅓,13,-1,false],[⅓,26,-1,false],[⅓,36,-100,false]]",  // up, right, down
			{46, down}:  "[[⅓,47,-1,true],[⅓,36,-100,false],[⅓,36,-100,false]]", // right, down, left
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

// Of a slippery cliff the expert keeps its distance; the mean return of 2000 episodes is within four standard errors of what
// value iteration says.
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
