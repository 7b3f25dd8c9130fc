package gridworld

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	_ task.Expert = (*Walk)(nil)
	_ task.Actor  = (*Walk)(nil)
)

// numbered is a world that tells its state, whose goal is its last state.
func numbered(table task.Transitions) *World {
	return &World{
		Table: table,
		Goal:  func(s int) bool { return s == len(table)-1 },
		Look: func(s int, invalid bool) (string, []byte) {
			if invalid {
				return "? " + strconv.Itoa(s), nil
			}
			return strconv.Itoa(s), nil
		},
	}
}

// line is a corridor: action 0 goes back, 1 on, for -1; the last cell is the goal.
func line(cells int) task.Transitions {
	t := make(task.Transitions, cells)
	for s := range t {
		next := min(s+1, cells-1)
		t[s] = [][]task.Outcome{
			{{Probability: 1, Next: max(s-1, 0), Reward: -1}},
			{{Probability: 1, Next: next, Reward: -1, Done: next == cells-1}},
		}
	}
	return t
}

func walkIn(table task.Transitions, s Settings, start int, seed uint64) *Walk {
	w := numbered(table)
	w.Settings, w.Protocol = s, s.Protocol("BO", []string{"Back", "On"})
	return w.Begin(start, rollout.Stream(seed, "walk test", 0))
}

func limits(steps, turns, perTurn int) Settings {
	penalty := -0.5
	return Settings{Format: task.Terse, MaxSteps: steps, MaxTurns: turns, ActionsPerTurn: perTurn,
		InvalidPenalty: &penalty}
}

func TestEpisodesEndByTheirRulesOrTheirLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits Settings
		texts  []string
		want   []task.Step
	}{
		"the goal ends it": {limits(9, 9, 1), []string{"O", "O"}, []task.Step{
			{Text: "1", Reward: -1}, {Reward: -1, Done: true, Correct: true},
		}},
		"the goal in the last step is no cut": {limits(2, 2, 1), []string{"O", "O"}, []task.Step{
			{Text: "1", Reward: -1}, {Reward: -1, Done: true, Correct: true},
		}},
		"steps end it": {limits(2, 2, 1), []string{"B", "O"}, []task.Step{
			{Text: "0", Reward: -1}, {Reward: -1, Done: true, Cut: true},
		}},
		"turns end it": {limits(9, 2, 2), []string{"BB", "O"}, []task.Step{
			{Text: "0", Reward: -2}, {Reward: -1, Done: true, Cut: true},
		}},
		"what is no action costs a step": {limits(2, 2, 1), []string{"X", "O"}, []task.Step{
			{Text: "? 0", Reward: -0.5, Invalid: true}, {Reward: -1, Done: true, Cut: true},
		}},
		"and can be the last": {limits(2, 2, 1), []string{"O", ""}, []task.Step{
			{Text: "1", Reward: -1}, {Reward: -0.5, Done: true, Cut: true, Invalid: true},
		}},
		"actions after the goal are not taken": {limits(9, 9, 4), []string{"OOBB"}, []task.Step{
			{Reward: -2, Done: true, Correct: true},
		}},
		"actions over the limit are not taken": {limits(3, 3, 4), []string{"BBBO"}, []task.Step{
			{Reward: -3, Done: true, Cut: true},
		}},
		"one bad action spoils the turn": {limits(9, 9, 4), []string{"OX", "O"}, []task.Step{
			{Text: "? 0", Reward: -0.5, Invalid: true}, {Text: "1", Reward: -1},
		}},
	} {
		w := walkIn(line(3), c.limits, 0, 1)
		for i, text := range c.texts {
			if got := w.Step(text); got.Text != c.want[i].Text || got.Reward != c.want[i].Reward ||
				got.Done != c.want[i].Done ||
				got.Cut != c.want[i].Cut || got.Correct != c.want[i].Correct || got.Invalid != c.want[i].Invalid {
				t.Errorf("%s: %q: %+v, want %+v", name, text, got, c.want[i])
			}
		}
	}
}

func TestOnlyTheGoalIsASuccess(t *testing.T) {
	table := line(4)
	table[0][0][0].Done = true // a hole behind
	if s := walkIn(table, limits(5, 5, 1), 0, 1).Step("B"); !s.Done || s.Cut || s.Correct {
		t.Errorf("in a hole: %+v", s)
	}
}

func TestAdviceFillsATurnOnFirmGround(t *testing.T) {
	for _, c := range []struct {
		perTurn, steps, turns, cells int
		want                         string
	}{
		{1, 9, 9, 5, "O"},
		{3, 9, 9, 5, "OOO"},
		{9, 9, 9, 5, "OOOO"}, // it does not go on behind the goal
		{9, 2, 2, 5, "BB"},   // too far: no action is better than the first
	} {
		w := walkIn(line(c.cells), limits(c.steps, c.turns, c.perTurn), 0, 1)
		if got := w.Advise(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	slippery := line(5)
	for s := range slippery {
		for a := range slippery[s] {
			o := slippery[s][a][0]
			o.Probability = 0.5
			slippery[s][a] = []task.Outcome{o, o}
		}
	}
	if got := walkIn(slippery, limits(9, 9, 3), 0, 1).Advise(); got != "O" {
		t.Errorf("on slippery ground: %q, want one action", got)
	}
}

func TestAdviceDependsOnStateAndStepsLeft(t *testing.T) {
	// From cell 1 the goal is three steps on and pays 10; a step back ends it for 1.
	table := line(5)
	for s := range table {
		table[s][0][0].Reward, table[s][1][0].Reward = 0, 0
	}
	table[1][0][0] = task.Outcome{Probability: 1, Reward: 1, Done: true}
	table[3][1][0].Reward = 10
	for wasted, want := range []string{"O", "O", "O", "B"} {
		w := walkIn(table, limits(5, 5, 1), 1, 1)
		for range wasted {
			w.Step("")
		}
		if got := w.Advise(); got != want {
			t.Errorf("with %d steps left: %q, want %q", 5-wasted, got, want)
		}
	}
	w := walkIn(table, limits(9, 2, 3), 1, 1)
	if got := w.Advise(); got != "OOO" {
		t.Errorf("with two turns of three actions: %q, want OOO", got)
	}
	for s := range table { // with luck in it only one action is taken in a turn
		for a := range table[s] {
			o := table[s][a][0]
			o.Probability = 0.5
			table[s][a] = []task.Outcome{o, o}
		}
	}
	w = walkIn(table, limits(9, 2, 3), 1, 1)
	if got := w.Advise(); got != "B" {
		t.Errorf("with two turns of one action: %q, want B", got)
	}
	w = walkIn(table, limits(1, 1, 1), 1, 1)
	w.Step("")
	if got := w.Advise(); !slices.Contains(w.Actions(), got) {
		t.Errorf("after the end it advises %q", got)
	}
}

// Chi-square of 3000 draws against probabilities 0.2, 0.3 and 0.5: 2 degrees of freedom, the 99.9% quantile is 13.8.
func TestOutcomesAreDrawnByTheirProbabilities(t *testing.T) {
	chances := []float64{0.2, 0.3, 0.5}
	table := task.Transitions{{nil}, nil, nil, nil}
	for i, p := range chances {
		table[0][0] = append(table[0][0], task.Outcome{Probability: p, Next: i + 1, Done: true})
	}
	counts := make([]float64, 3)
	const draws = 3000
	for seed := range uint64(draws) {
		w := walkIn(table, limits(1, 1, 1), 0, seed)
		w.Step("B")
		counts[w.state-1]++
	}
	chi := 0.0
	for i, p := range chances {
		chi += math.Pow(counts[i]-p*draws, 2) / (p * draws)
	}
	if chi > 13.8 {
		t.Errorf("chi-square %.1f over 13.8: %v", chi, counts)
	}
}

// Random play is compared with a naive player that keeps only its cell.
func TestRandomCoursesFollowTheTable(t *testing.T) {
	for seed := range uint64(200) {
		r := rollout.Stream(seed, "walk courses", 0)
		table := randomTable(r)
		for s := range table {
			table[s] = table[s][:2]
		}
		w := walkIn(table, limits(1+r.IntN(30), 30, 1), 0, seed)
		luck := rollout.Stream(seed, "walk test", 0)
		place := 0
		for n := 1; ; n++ {
			text := []string{"B", "O", "?"}[r.IntN(3)]
			want, ended := naive(table, &place, text, luck)
			got := w.Step(text)
			cut := !ended && n >= min(w.world.Settings.MaxSteps, 30)
			if math.Abs(float64(got.Reward)-want) > 1e-6 || got.Done != (ended || cut) || got.Cut != cut ||
				w.state != place {
				t.Fatalf("seed %d, step %d, %q: %+v in %d, want %g in %d, ended %v, cut %v", seed, n, text, got,
					w.state, want, place, ended, cut)
			}
			if got.Done {
				break
			}
		}
	}
}

func naive(table task.Transitions, place *int, text string, luck *rand.Rand) (reward float64, ended bool) {
	if text == "?" {
		return -0.5, false
	}
	outcomes := table[*place][map[string]int{"B": 0, "O": 1}[text]]
	u := luck.Float64()
	i := 0
	for sum := outcomes[0].Probability; sum <= u && i < len(outcomes)-1; sum += outcomes[i].Probability {
		i++
	}
	*place = outcomes[i].Next
	return outcomes[i].Reward, outcomes[i].Done
}

// best is the value of a state by trying every course of actions: Solve without a table.
func best(t task.Transitions, state, left int) float64 {
	if left == 0 {
		return 0
	}
	value := math.Inf(-1)
	for a := range t[state] {
		value = math.Max(value, worth(t, state, a, left))
	}
	return value
}

// worth is the value of an action, the best following.
func worth(t task.Transitions, state, action, left int) float64 {
	sum := 0.0
	for _, o := range t[state][action] {
		future := 0.0
		if !o.Done {
			future = best(t, o.Next, left-1)
		}
		sum += o.Probability * (o.Reward + future)
	}
	return sum
}

// randomTable makes a process of a few states with two or three actions of one to three outcomes.
func randomTable(r *rand.Rand) task.Transitions {
	t := make(task.Transitions, 2+r.IntN(4))
	for s := range t {
		t[s] = make([][]task.Outcome, 2+r.IntN(2))
		for a := range t[s] {
			n := 1 + r.IntN(3)
			for range n {
				t[s][a] = append(t[s][a], task.Outcome{
					Probability: 1 / float64(n), Next: r.IntN(len(t)), Reward: float64(r.IntN(5) - 2),
					Done: r.IntN(4) == 0,
				})
			}
		}
	}
	return t
}

func TestPlansAreOptimal(t *testing.T) {
	for seed := range uint64(60) {
		table := randomTable(rollout.Stream(seed, "plan test", 0))
		for horizon := 1; horizon <= 4; horizon++ {
			plan := Solve(table, horizon)
			for s := range table {
				want := best(table, s, horizon)
				if got := plan.Value(s); math.Abs(got-want) > 1e-9 {
					t.Fatalf("seed %d, horizon %d, state %d: worth %g, want %g", seed, horizon, s, got, want)
				}
				for left := 1; left <= horizon; left++ {
					if got, want := worth(table, s, plan.Action(s, left), left),
						best(table, s, left); math.Abs(got-want) > 1e-9 {
						t.Fatalf("seed %d, state %d, %d left: the action is worth %g, want %g", seed, s,
							left, got, want)
					}
				}
			}
		}
	}
}

// In a corridor whose goal pays 1, any walk that arrives in time is worth 1: the shortest is meant. Of equal actions it
// is the first.
func TestPlansTakeTheShortestWay(t *testing.T) {
	const cells = 6
	table := make(task.Transitions, cells)
	for s := range table {
		stay := task.Outcome{Probability: 1, Next: s}
		on := task.Outcome{Probability: 1, Next: min(s+1, cells-1)}
		if on.Next == cells-1 {
			on.Reward, on.Done = 1, true
		}
		table[s] = [][]task.Outcome{{stay}, {stay}, {on}, {on}}
	}
	plan := Solve(table, 50)
	for s := range cells - 1 {
		if a := plan.Action(s, 50); a != 2 {
			t.Errorf("cell %d: action %d, want 2", s, a)
		}
	}
	if a := plan.Action(0, 2); a != 0 {
		t.Errorf("too far to arrive: action %d, want the first", a)
	}
}

func BenchmarkSolve(b *testing.B) {
	r := rollout.Stream(1, "plan benchmark", 0)
	table := make(task.Transitions, 64)
	for s := range table {
		table[s] = make([][]task.Outcome, 4)
		for a := range table[s] {
			for range 3 {
				table[s][a] = append(table[s][a], task.Outcome{Probability: 1.0 / 3, Next: r.IntN(64),
					Reward: r.Float64()})
			}
		}
	}
	for b.Loop() {
		Solve(table, 200)
	}
}

func TestStartsAreSplitWithoutOverlap(t *testing.T) {
	cells := []int{3, 5, 6, 8, 9, 12, 20}
	for held := 1; held < len(cells); held++ {
		heldOut, train := SplitStarts(cells, []int{8}, held)
		if len(heldOut) != held || heldOut[0] != 8 || !slices.IsSorted(heldOut[1:]) || !slices.IsSorted(train) {
			t.Errorf("%d held out: %v, want 8 first, the others and %v in order", held, heldOut, train)
		}
		all := append(slices.Clone(heldOut), train...)
		if slices.Sort(all); !slices.Equal(all, cells) {
			t.Errorf("%v and %v are not %v", heldOut, train, cells)
		}
	}
	if heldOut, train := SplitStarts(cells, []int{20, 3}, 1); !slices.Equal(heldOut, []int{20}) ||
		!slices.Contains(train, 3) {
		t.Errorf("of two first cells one is held out: %v, %v", heldOut, train)
	}
}
