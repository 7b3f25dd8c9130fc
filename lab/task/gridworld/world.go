package gridworld

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// World is one map whose rules are a table.
type World struct {
	Table    task.Transitions
	Protocol Protocol
	// resolved: the limits and penalty of episodes
	Settings Settings
	// whether an episode that ends there was a success
	Goal     func(state int) bool
	Look     func(state int, invalid bool) (observation string, png []byte) // what the player is shown after a turn
	planning sync.Once
	plan     *Plan
}

// Plan returns the best plan, which is found at the first call.
func (w *World) Plan() *Plan {
	w.planning.Do(func() { w.plan = Solve(w.Table, w.Settings.MaxSteps) })
	return w.plan
}

// Begin starts an episode, whose randomness is drawn from the stream.
func (w *World) Begin(start int, random *rand.Rand) *Walk {
	return &Walk{world: w, state: start, random: random}
}

// HeldOut returns as many evaluation prompts as the settings ask for. They take turns with the starts, and the number
// of the prompt in its ID sets them apart.
func (w *World) HeldOut(starts []int, prompt func(start int) task.Prompt) []task.Prompt {
	prompts := make([]task.Prompt, w.Settings.HeldOut)
	for i := range prompts {
		prompts[i] = prompt(starts[i%len(starts)])
		prompts[i].ID += "#" + strconv.Itoa(i)
	}
	return prompts
}

// Characters returns the characters of actions and other texts, each once, in ascending order.
func (w *World) Characters(texts ...string) string {
	p := w.Protocol
	characters := []rune(strings.Join(slices.Concat(p.Actions(), []string{p.Write(0, 1)}, texts), ""))
	slices.Sort(characters)
	return string(slices.Compact(characters))
}

// Walk is an episode in a World. It is a task.Expert and a task.Actor.
type Walk struct {
	world        *World
	state        int
	steps, turns int
	random       *rand.Rand
}

// Step takes the actions of a turn one by one until the episode is over. A text that is not an action leaves the player
// in place, costs one step and earns the penalty.
func (w *Walk) Step(response string) task.Step {
	w.turns++
	actions, ok := w.world.Protocol.Parse(response)
	step := task.Step{Invalid: !ok}
	reward := 0.0
	if !ok {
		w.steps++
		reward = *w.world.Settings.InvalidPenalty
	}
	for _, a := range actions {
		if step.Done || w.steps >= w.world.Settings.MaxSteps {
			break
		}
		o := w.draw(w.world.Table[w.state][a])
		w.state = o.Next
		w.steps++
		reward += o.Reward
		step.Done = o.Done
	}
	step.Reward = float32(reward)
	switch {
	case step.Done:
		step.Correct = w.world.Goal(w.state)
	case w.left() == 0:
		step.Done, step.Cut = true, true
	default:
		step.Text, step.Image = w.world.Look(w.state, step.Invalid)
	}
	return step
}

// draw returns the first outcome whose cumulative probability exceeds a uniform number, or the last.
func (w *Walk) draw(outcomes []task.Outcome) task.Outcome {
	u, sum := w.random.Float64(), 0.0
	for _, o := range outcomes {
		if sum += o.Probability; sum > u {
			return o
		}
	}
	return outcomes[len(outcomes)-1]
}

// left returns how many more steps can be taken, at one per turn.
func (w *Walk) left() int {
	s := w.world.Settings
	return max(0, min(s.MaxSteps-w.steps, s.MaxTurns-w.turns))
}

// Advise writes the best action. If the rules are deterministic it writes as many of the best next actions as a turn
// may hold.
func (w *Walk) Advise() string {
	left, s, perTurn := w.left(), w.world.Settings, w.world.Protocol.PerTurn
	if left == 0 {
		return w.world.Protocol.Write(0)
	}
	if len(w.world.Table[w.state][0]) == 1 {
		left = min(s.MaxSteps-w.steps, (s.MaxTurns-w.turns)*perTurn)
	}
	var actions []int
	for state := w.state; len(actions) < min(perTurn, left); {
		a := w.world.Plan().Action(state, left-len(actions))
		actions = append(actions, a)
		outcomes := w.world.Table[state][a]
		if len(outcomes) != 1 || outcomes[0].Done {
			break
		}
		state = outcomes[0].Next
	}
	return w.world.Protocol.Write(actions...)
}

// Actions returns the text of each action alone.
func (w *Walk) Actions() []string { return w.world.Protocol.Actions() }

const (
	tolerance = 1e-12 // between equal values
	discount  = 0.95  // of the second criterion
)

// Plan is the best policy for a world with a limited number of steps.
type Plan struct {
	values  []float64 // by state, with the whole horizon left
	actions [][]uint8 // by steps left minus one, then by state
}

// Solve finds the policy with the greatest expected sum of rewards within horizon steps, by value iteration backwards
// from the last step: O(horizon × outcomes). Of actions equal to 1e-12 it takes the one whose rewards come sooner (by a
// discount of 0.95), and of those the first. Nothing is added after an outcome that ends the episode.
func Solve(t task.Transitions, horizon int) *Plan {
	p := &Plan{values: make([]float64, len(t)), actions: make([][]uint8, horizon)}
	sooner := make([]float64, len(t))
	for left := range p.actions {
		p.actions[left] = make([]uint8, len(t))
		values, discounted := make([]float64, len(t)), make([]float64, len(t))
		for state, actions := range t {
			for a, outcomes := range actions {
				v, d := 0.0, 0.0
				for _, o := range outcomes {
					future, later := p.values[o.Next], sooner[o.Next]
					if o.Done {
						future, later = 0, 0
					}
					v += o.Probability * (o.Reward + future)
					d += o.Probability * (o.Reward + discount*later)
				}
				better := v > values[state]+tolerance || v > values[state]-tolerance && d > discounted[state]+tolerance
				if a == 0 || better {
					values[state], discounted[state], p.actions[left][state] = v, d, uint8(a)
				}
			}
		}
		p.values, sooner = values, discounted
	}
	return p
}

// Value returns the expected sum of rewards from a state with the whole horizon left.
func (p *Plan) Value(state int) float64 { return p.values[state] }

// Action returns the best action in a state with the given number of steps left, 1 to the horizon.
func (p *Plan) Action(state, left int) int { return int(p.actions[left-1][state]) }

// Slide makes a table in which an action moves in its own direction with probability odds[1] and in the two directions
// beside it with odds[0] and odds[2], in Gymnasium's order. With a single odds the action always moves in its own
// direction. Of each outcome step gives everything but the probability.
func Slide(states, actions int, odds []float64, step func(state, direction int) task.Outcome) task.Transitions {
	t := make(task.Transitions, states)
	for s := range t {
		t[s] = make([][]task.Outcome, actions)
		for a := range t[s] {
			for i, p := range odds {
				o := step(s, (a+i-len(odds)/2+actions)%actions)
				o.Probability = p
				t[s][a] = append(t[s][a], o)
			}
		}
	}
	return t
}

// Move returns the cell one step away in a direction, 'L', 'R', 'U' or 'D', or the same cell at the edge of the map.
func Move(cell, rows, columns int, direction byte) int {
	row, column := cell/columns, cell%columns
	switch direction {
	case 'L':
		column = max(column-1, 0)
	case 'R':
		column = min(column+1, columns-1)
	case 'U':
		row = max(row-1, 0)
	case 'D':
		row = min(row+1, rows-1)
	}
	return row*columns + column
}

// startsSeed is the seed of the held-out starts: a constant, so that all runs share them.
const startsSeed = 0x7265707269736532

// SplitStarts splits the cells that episodes may begin in: held of them are for evaluation, beginning with those in
// first, and the others for training. It is the same for all runs.
func SplitStarts(cells, first []int, held int) (heldOut, train []int) {
	rest := slices.DeleteFunc(slices.Clone(cells), func(c int) bool { return slices.Contains(first, c) })
	heldOut = slices.Clone(first[:min(held, len(first))])
	order := rollout.Stream(startsSeed, "gridworld starts", uint64(len(cells))).Perm(len(rest))
	chosen := order[:min(held-len(heldOut), len(rest))]
	slices.Sort(chosen)
	for _, i := range chosen {
		heldOut = append(heldOut, rest[i])
	}
	for _, c := range cells {
		if !slices.Contains(heldOut, c) {
			train = append(train, c)
		}
	}
	return heldOut, train
}
