package gridworld

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
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

func walkIn(table task.Transitions, r Rules, start int, seed uint64) *Walk {
	w := numbered(table)
	return Begin(w, r, start, rollout.Stream(seed, "walk test", 0), Planner(w, r))
}

func rules(steps, turns, perTurn int) Rules {
	return Rules{
		Protocol: Protocol{Format: Terse, Names: []string{"Back", "On"}, PerTurn: perTurn},
		MaxSteps: steps, MaxTurns: turns, InvalidReward: -0.5,
	}
}

func TestEpisodesEndByTheirRulesOrTheirLimits(t *testing.T) {
	for name, c := range map[string]struct {
		rules Rules
		texts []string
		want  []task.Step
	}{
		"the goal ends it": {rules(9, 9, 1), []string{"O", "O"}, []task.Step{
			{Text: "1", Reward: -1}, {Reward: -1, Done: true, Correct: true},
		}},
		"the goal in the last step is no cut": {rules(2, 2, 1), []string{"O", "O"}, []task.Step{
			{Text: "1", Reward: -1}, {Reward: -1, Done: true, Correct: true},
		}},
		"steps end it": {rules(2, 2, 1), []string{"B", "O"}, []task.Step{
			{Text: "0", Reward: -1}, {Reward: -1, Done: true, Cut: true},
		}},
		"turns end it": {rules(9, 2, 2), []string{"BB", "O"}, []task.Step{
			{Text: "0", Reward: -2}, {Reward: -1, Done: true, Cut: true},
		}},
		"what is no action costs a step": {rules(2, 2, 1), []string{"X", "O"}, []task.Step{
			{Text: "? 0", Reward: -0.5, Invalid: true}, {Reward: -1, Done: true, Cut: true},
		}},
		"and can be the last": {rules(2, 2, 1), []string{"O", ""}, []task.Step{
			{Text: "1", Reward: -1}, {Reward: -0.5, Done: true, Cut: true, Invalid: true},
		}},
		"actions after the goal are not taken": {rules(9, 9, 4), []string{"OOBB"}, []task.Step{
			{Reward: -2, Done: true, Correct: true},
		}},
		"actions over the limit are not taken": {rules(3, 3, 4), []string{"BBBO"}, []task.Step{
			{Reward: -3, Done: true, Cut: true},
		}},
		"one bad action spoils the turn": {rules(9, 9, 4), []string{"OX", "O"}, []task.Step{
			{Text: "? 0", Reward: -0.5, Invalid: true}, {Text: "1", Reward: -1},
		}},
	} {
		w := walkIn(line(3), c.rules, 0, 1)
		for i, text := range c.texts {
			if got := w.Step(text); got.Text != c.want[i].Text || got.Reward != c.want[i].Reward || got.Done != c.want[i].Done ||
				got.Cut != c.want[i].Cut || got.Correct != c.want[i].Correct || got.Invalid != c.want[i].Invalid {
				t.Errorf("%s: %q: %+v, want %+v", name, text, got, c.want[i])
			}
		}
	}
}

func TestEndsThatAreNoGoalAreNoSuccess(t *testing.T) {
	table := line(4)
	table[0][0][0].Done = true // a hole behind
	if s := walkIn(table, rules(5, 5, 1), 0, 1).Step("B"); !s.Done || s.Cut || s.Correct {
		t.Errorf("in a hole: %+v", s)
	}
}

func TestAdviceFillsATurnWhereLuckHasNoPart(t *testing.T) {
	for _, c := range []struct {
		perTurn, steps, turns, cells int
		want                         string
	}{
		{1, 9, 9, 5, "O"},
		{3, 9, 9, 5, "OOO"},
		{9, 9, 9, 5, "OOOO"}, // it does not go on behind the goal
		{9, 2, 2, 5, "BB"},   // too far: no action is better than the first
	} {
		w := walkIn(line(c.cells), rules(c.steps, c.turns, c.perTurn), 0, 1)
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
	if got := walkIn(slippery, rules(9, 9, 3), 0, 1).Advise(); got != "O" {
		t.Errorf("on slippery ground: %q, want one action", got)
	}
}

func TestAdviceMindsThePlaceAndTheStepsThatAreLeft(t *testing.T) {
	// From cell 1 the goal is three steps on and pays 10; a step back ends it for 1.
	table := line(5)
	for s := range table {
		table[s][0][0].Reward, table[s][1][0].Reward = 0, 0
	}
	table[1][0][0] = task.Outcome{Probability: 1, Reward: 1, Done: true}
	table[3][1][0].Reward = 10
	for wasted, want := range []string{"O", "O", "O", "B"} {
		w := walkIn(table, rules(5, 5, 1), 1, 1)
		for range wasted {
			w.Step("")
		}
		if got := w.Advise(); got != want {
			t.Errorf("with %d steps left: %q, want %q", 5-wasted, got, want)
		}
	}
	w := walkIn(table, rules(9, 2, 3), 1, 1)
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
	w = walkIn(table, rules(9, 2, 3), 1, 1)
	if got := w.Advise(); got != "B" {
		t.Errorf("with two turns of one action: %q, want B", got)
	}
	w = walkIn(table, rules(1, 1, 1), 1, 1)
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
		w := walkIn(table, rules(1, 1, 1), 0, seed)
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

// A naive player of a table, which keeps nothing but its place, beside many random courses.
func TestRandomCoursesFollowTheTable(t *testing.T) {
	for seed := range uint64(200) {
		r := rollout.Stream(seed, "walk courses", 0)
		table := randomTable(r)
		for s := range table {
			table[s] = table[s][:2]
		}
		w := walkIn(table, rules(1+r.IntN(30), 30, 1), 0, seed)
		luck := rollout.Stream(seed, "walk test", 0)
		place := 0
		for n := 1; ; n++ {
			text := []string{"B", "O", "?"}[r.IntN(3)]
			want, ended := naive(table, &place, text, luck)
			got := w.Step(text)
			cut := !ended && n >= min(w.rules.MaxSteps, 30)
			if math.Abs(float64(got.Reward)-want) > 1e-6 || got.Done != (ended || cut) || got.Cut != cut || w.state != place {
				t.Fatalf("seed %d, step %d, %q: %+v in %d, want %g in %d, ended %v, cut %v", seed, n, text, got, w.state, want, place, ended, cut)
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
