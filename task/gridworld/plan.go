package gridworld

import "github.com/reprise-rl/reprise/task"

const (
	tolerance = 1e-12 // between values that count as equal
	haste     = 0.95  // discount of the second criterion
)

// Plan is the best policy for a world in which only so many steps are left.
type Plan struct {
	values  []float64 // by state, with the whole horizon left
	actions [][]uint8 // by steps left less one, by state
}

// Solve finds the policy of the greatest expected sum of rewards within horizon steps, by value iteration backwards from the
// last step: O(horizon x outcomes). Of actions that are equally good to 1e-12 it takes the one whose rewards come sooner
// (by a discount of 0.95), and of those the first. An outcome that is done ends the episode: nothing is added after it.
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
					d += o.Probability * (o.Reward + haste*later)
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

// Action returns the best action in a state with so many steps left, 1 to the horizon.
func (p *Plan) Action(state, left int) int { return int(p.actions[left-1][state]) }
