package run

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/task"
)

// episodes are rows of one batch that play, each an episode of its own: all rows decode a turn, the environments answer, and
// the rows that go on read the answers and decode the next. What comes of a row does not depend on the others. It is used from
// one goroutine.
type episodes struct {
	speaker
	rows  *policy.Generation
	plays []play
}

// beginning is an episode to be played: what the policy reads first, and its random stream, nil when greedy.
type beginning struct {
	input   policy.Input
	episode task.Episode
	stream  *rand.Rand
}

// start begins episodes of at most so many turns.
func (s speaker) start(rows []beginning, turns int, sampling policy.Sampling) (*episodes, error) {
	e := &episodes{speaker: s, plays: make([]play, len(rows))}
	inputs, streams := make([]policy.Input, len(rows)), make([]*rand.Rand, len(rows))
	for i, r := range rows {
		inputs[i], streams[i] = r.input, r.stream
		e.plays[i] = play{episode: r.episode, most: turns}
	}
	var err error
	e.rows, err = s.model.Start(inputs, streams, sampling)
	return e, err
}

// proceed decodes up to n further positions, all that remain when n <= 0, and reports whether every episode is over. A
// position is one token of every row whose turn is not over.
func (e *episodes) proceed(ctx context.Context, w *policy.Weights, n int) (bool, error) {
	for left := n; ; {
		before := e.lengths()
		rest, err := e.rows.Continue(ctx, w, left)
		if err != nil || !rest {
			return false, err
		}
		left -= e.decoded(before)
		over, err := e.answer()
		if over {
			e.rows.Close()
		}
		if err != nil || over {
			return over, err
		}
		if n > 0 && left <= 0 {
			return false, nil
		}
	}
}

// lengths returns the tokens of each row.
func (e *episodes) lengths() []int {
	var list []int
	for _, row := range e.rows.Rows() {
		list = append(list, len(row.Tokens))
	}
	return list
}

// decoded returns how many positions were decoded since the rows had these lengths.
func (e *episodes) decoded(before []int) int {
	positions := 0
	for i, n := range e.lengths() {
		positions = max(positions, n-before[i])
	}
	return positions
}

// answer has every environment answer the turn that its row ended, and reports whether all episodes are over.
func (e *episodes) answer() (over bool, err error) {
	over = true
	for i := range e.plays {
		p := &e.plays[i]
		if p.over {
			continue
		}
		row := e.rows.Rows()[i]
		if p.act(row, e.said(row)); !p.over {
			if err := e.read(i); err != nil {
				return false, fmt.Errorf("episode of row %d, turn %d: %w", i, len(p.turns), err)
			}
		}
		over = over && p.over
	}
	return over, nil
}

// read has a row read what its environment answered. Without room for that and a further turn the episode ends.
func (e *episodes) read(i int) error {
	in, err := e.observation(e.plays[i].last)
	if err != nil {
		return err
	}
	room, err := e.rows.Extend(i, in)
	if !room {
		e.plays[i].over, e.plays[i].short = true, true
	}
	return err
}
