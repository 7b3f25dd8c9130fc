package task

import (
	"io"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
)

// Remote is a Verifier whose verdicts come from outside the process, so that they may be slow, and may fail. After a
// failure every verdict is zero. Whoever asks for verdicts checks Err before using them.
type Remote interface {
	Verifier
	// Open announces questions, until Close. Calls nest. The first forgets an earlier failure, and the last Close frees
	// what gave the verdicts.
	Open()
	io.Closer
	// Err returns the failure, nil if there was none.
	Err() error
}

// Open opens v if it is a Remote, and returns the function that closes it.
func Open(v any) (closeRemote func() error) {
	if r, ok := v.(Remote); ok {
		r.Open()
		return r.Close
	}
	return func() error { return nil }
}

// Err returns the failure of v if it is a Remote.
func Err(v any) error {
	if r, ok := v.(Remote); ok {
		return r.Err()
	}
	return nil
}

// Reward sets the rewards of the responses of a group to a prompt. Groups have numbers, unique within a run, and one
// size, so that each rollout has a number of its own for a [Chancy] verifier, whoever generates it and when. A [Remote]
// is asked for all of them at once.
func Reward(v Verifier, p Prompt, group uint64, responses []*rollout.Rollout) error {
	_, remote := v.(Remote)
	var wait sync.WaitGroup
	for i, r := range responses {
		if !remote {
			r.Reward = verify(v, p, r.Text, group*uint64(len(responses))+uint64(i)).Reward
			continue
		}
		wait.Go(func() { r.Reward = v.Verify(p, r.Text).Reward })
	}
	wait.Wait()
	return Err(v)
}

// verify asks for the verdict on the rollout of a number.
func verify(v Verifier, p Prompt, response string, number uint64) Verdict {
	if c, ok := v.(Chancy); ok {
		return c.VerifyRollout(p, response, number)
	}
	return v.Verify(p, response)
}
