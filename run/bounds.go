package run

import (
	"context"
	"sync"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// adviser returns the text of an episode's next turn, and whether there is one to give.
type adviser func(problem int, e task.Episode) (string, bool)

// byExpert plays as the episodes themselves advise.
func byExpert(_ int, e task.Episode) (string, bool) {
	expert, ok := e.(task.Expert)
	if !ok {
		return "", false
	}
	return expert.Advise(), true
}

// byChance returns an adviser that plays one of the possible actions, each equally likely.
func byChance(problems int) adviser {
	type source = interface{ IntN(n int) int }
	streams := make([]source, problems)
	for i := range streams {
		streams[i] = rollout.Stream(evaluationSeed, "evaluate/chance", uint64(i))
	}
	return func(problem int, e task.Episode) (string, bool) {
		actor, ok := e.(task.Actor)
		if !ok {
			return "", false
		}
		actions := actor.Actions()
		if len(actions) == 0 {
			return "", false
		}
		return actions[streams[problem].IntN(len(actions))], true
	}
}

// bounds says what experts and chance make of an environment's held-out prompts with the luck of the evaluations: what a
// policy is to be seen between. Nil where there is none: for tasks of one turn, and episodes that are no Expert, or no Actor; and
// when ctx ends before they are known, as experts may search long for each turn.
func bounds(ctx context.Context, t task.Task) (expert, chance *results.Bound) {
	environment, ok := t.(task.Environment)
	if !ok {
		return nil, nil
	}
	problems := environment.HeldOut()
	var wait sync.WaitGroup
	wait.Go(func() { expert = bound(ctx, environment, problems, byExpert) })
	chance = bound(ctx, environment, problems, byChance(len(problems)))
	wait.Wait()
	return expert, chance
}

// bound plays all problems once, each by an adviser.
func bound(ctx context.Context, environment task.Environment, problems []task.Prompt, advise adviser) *results.Bound {
	var b results.Bound
	for i, p := range problems {
		episode := environment.Reset(p, episodeSeed(i, 0))
		for turn, done := 0, false; !done && turn < environment.MaxTurns(); turn++ {
			text, ok := advise(i, episode)
			if !ok || ctx.Err() != nil {
				return nil
			}
			step := episode.Step(text)
			b.Reward += float64(step.Reward)
			b.Pass1 += oneIf(step.Done && step.Correct)
			done = step.Done
		}
	}
	n := float64(len(problems))
	b.Pass1, b.Reward = b.Pass1/n, b.Reward/n
	return &b
}
