package run

import (
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// play is one row's episode as far as it has come.
type play struct {
	episode task.Episode
	most    int // turns
	turns   []rollout.Turn
	said    []string  // what was said, by turns: by the policy, by the environment
	last    task.Step // the environment's latest
	invalid int       // turns whose text was no action
	over    bool      // there are no further turns
	short   bool      // it ended for want of room or turns, not because the environment said so
}

// act lets the turn that a row ended, the text of which was said, act on the environment.
func (p *play) act(row policy.Row, said string) {
	p.last = p.episode.Step(said)
	p.turns = append(p.turns, rollout.Turn{
		Start: int32(row.Turn), End: int32(len(row.Tokens)), Reward: p.last.Reward, Done: p.last.Done,
	})
	p.said = append(p.said, said)
	if p.last.Text != "" {
		p.said = append(p.said, p.last.Text)
	}
	if p.last.Invalid {
		p.invalid++
	}
	p.over = p.last.Done || len(p.turns) >= p.most
	p.short = p.over && !p.last.Done
}

// reward returns the sum of the turns' rewards.
func (p *play) reward() float32 {
	var sum float32
	for _, t := range p.turns {
		sum += t.Reward
	}
	return sum
}

// succeeded reports whether the episode ended in success.
func (p *play) succeeded() bool { return p.last.Done && p.last.Correct }

// truncated reports whether the episode, or its last turn, ended for want of room.
func (p *play) truncated(row policy.Row) bool { return p.short || row.Truncated }

// text returns the episode for a reader, a line for each time that someone spoke.
func (p *play) text() string { return strings.Join(p.said, "\n") }

// The notes that a rollout of an episode carries, see rollout.Rollout.Meta.
const (
	metaInvalid = "invalid" // turns whose text was no action, a number
	metaSuccess = "success" // whether the episode ended in success, true or false
)

// outcome returns the notes on the episode for its rollout.
func (p *play) outcome() map[string]string {
	return map[string]string{metaInvalid: strconv.Itoa(p.invalid), metaSuccess: strconv.FormatBool(p.succeeded())}
}

// tally is what came of episodes.
type tally struct{ Episodes, Turns, Invalid, Successes int }

// add counts a rollout, if it is of an episode of several turns.
func (t *tally) add(r *rollout.Rollout) {
	note, noted := r.Meta[metaInvalid]
	if !noted {
		return
	}
	t.Episodes++
	t.Turns += len(r.Turns)
	if n, err := strconv.Atoi(note); err == nil {
		t.Invalid += n
	}
	if r.Meta[metaSuccess] == strconv.FormatBool(true) {
		t.Successes++
	}
}

// line adds what came of the episodes to a line of metrics.jsonl, nothing if there were none.
func (t tally) line(l *results.Update) {
	if t.Episodes == 0 {
		return
	}
	l.Turns = results.Num(float64(t.Turns) / float64(t.Episodes))
	l.Invalid = results.Num(float64(t.Invalid) / float64(t.Turns))
	l.Success = results.Num(float64(t.Successes) / float64(t.Episodes))
}
