package task

import (
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// Progress is an episode as far as it was played: its turns, and what was said in them. It belongs to one goroutine.
type Progress struct {
	Episode  Episode
	MaxTurns int // the turn after which the episode is over

	Turns   []rollout.Turn
	Last    Step // the environment's latest answer
	Invalid int  // turns whose text was no action
	Over    bool
	Cut     bool // over for lack of room or turns, not by the environment

	said []string // by the policy and the environment, in order
}

// Step lets a turn of the policy act on the environment: tokens [start, end) of the rollout, which say text.
func (p *Progress) Step(start, end int, text string) {
	p.Last = p.Episode.Step(text)
	p.Turns = append(p.Turns, rollout.Turn{Start: int32(start), End: int32(end), Reward: p.Last.Reward,
		Done: p.Last.Done})
	p.said = append(p.said, text)
	if p.Last.Text != "" {
		p.said = append(p.said, p.Last.Text)
	}
	if p.Last.Invalid {
		p.Invalid++
	}
	p.Over = p.Last.Done || len(p.Turns) >= p.MaxTurns
	p.Cut = p.Over && !p.Last.Done
}

// End ends the episode because the policy has no room for another turn.
func (p *Progress) End() { p.Over, p.Cut = true, true }

// Reward returns the sum of the turns' rewards.
func (p *Progress) Reward() float32 {
	var sum float32
	for _, t := range p.Turns {
		sum += t.Reward
	}
	return sum
}

// Succeeded reports whether the episode ended in success.
func (p *Progress) Succeeded() bool { return p.Last.Done && p.Last.Correct }

// Keys of rollout.Rollout.Meta in rollouts of episodes.
const (
	MetaInvalid = "invalid" // number of turns whose text was no action
	MetaSuccess = "success" // true or false
)

// Describe sets what a rollout says of its episode: Text, Turns, Reward and Meta.
func (p *Progress) Describe(r *rollout.Rollout) {
	r.Text, r.Turns, r.Reward = strings.Join(p.said, "\n"), p.Turns, p.Reward()
	r.Meta = map[string]string{MetaInvalid: strconv.Itoa(p.Invalid), MetaSuccess: strconv.FormatBool(p.Succeeded())}
}
