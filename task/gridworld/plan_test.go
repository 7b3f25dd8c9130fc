package gridworld

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

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
					Probability: 1 / float64(n), Next: r.IntN(len(t)), Reward: float64(r.IntN(5) - 2), Done: r.IntN(4) == 0,
				})
			}
		}
	}
	return t
}

func TestPlansAreWorthAsMuchAsTheBestOfAllCourses(t *testing.T) {
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
					if got, want := worth(table, s, plan.Action(s, left), left), best(table, s, left); math.Abs(got-want) > 1e-9 {
						t.Fatalf("seed %d, state %d, %d left: the action is worth %g, want %g", seed, s, left, got, want)
					}
				}
			}
		}
	}
}

// In a corridor whose goal pays 1, any walk that arrives in time is worth 1: the shortest is meant. Of equal actions it is the
// first.
func TestPlansDoNotDawdle(t *testing.T) {
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
				table[s][a] = append(table[s][a], task.Outcome{Probability: 1.0 / 3, Next: r.IntN(64), Reward: r.Float64()})
			}
		}
	}
	for b.Loop() {
		Solve(table, 200)
	}
}
