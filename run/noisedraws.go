package run

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// heldDraws draws rollouts of the table uniformly, each at most once and in random order.
func (s *session) heldDraws(o NoiseOptions) []rollout.Draw {
	held := s.table.(embedded).Inspect().Held()
	var draws []rollout.Draw
	for _, i := range rollout.Stream(o.Seed, "noise/choice", 0).Perm(len(held))[:min(o.Held, len(held))] {
		draws = append(draws, drawOf(held[i]))
	}
	return s.normalised(draws)
}

// drawOf is the draw of a rollout with weight 1.
func drawOf(h replay.Held) rollout.Draw {
	return rollout.Draw{
		ID: h.ID, Group: h.Group, Rollout: h.Rollout, Advantage: h.Advantage, Weight: 1, Staleness: int32(h.Age), Uses: int32(h.Uses),
		GroupMean: h.Mean, GroupStd: h.Std,
	}
}

// normalised sets advantages that are taken over the training batch as if the draws were one.
func (s *session) normalised(draws []rollout.Draw) []rollout.Draw {
	kind := s.config.advantageKind()
	if !kind.UsesBatch() || len(draws) == 0 {
		return draws
	}
	rewards, means := make([]float32, len(draws)), make([]float32, len(draws))
	for i, d := range draws {
		rewards[i], means[i] = d.Rollout.Reward, d.GroupMean
	}
	advantage.OfBatch(rewards, rewards, means, kind)
	for i := range draws {
		draws[i].Advantage = rewards[i]
	}
	return draws
}

// freshDraws generates groups with the newest weights, about the prompts that come next, and compares them as the run's table does.
// They are in the order of their groups.
func (s *session) freshDraws(ctx context.Context, state *saved, o NoiseOptions) ([]rollout.Draw, error) {
	g := s.parts().Generator.(*generator)
	g.seed = rollout.Stream(o.Seed, "noise/generate", s.config.Seed).Uint64() // that of no rollout of the run
	size := s.config.Pipeline.Group
	var groups []rollout.Group
	units := 0
	for n := range max(2, (o.Fresh+size-1)/size) {
		rollouts, err := s.freshGroup(ctx, g, state.Machine.NextJob+uint64(n))
		if err != nil {
			return nil, err
		}
		groups = append(groups, rollout.Group{Rollouts: rollouts, Size: size})
		for _, r := range rollouts {
			units += max(1, len(r.Turns))
		}
	}
	table, err := s.freshTable(ctx, units)
	if err != nil {
		return nil, err
	}
	if _, err := table.Insert(ctx, groups...); err != nil {
		return nil, err
	}
	var draws []rollout.Draw
	for _, h := range table.Inspect().Held() {
		draws = append(draws, drawOf(h))
	}
	return s.normalised(draws), nil
}

// freshTable returns a table that makes units and advantages as the run's does and holds so many.
func (s *session) freshTable(ctx context.Context, capacity int) (*replay.Table, error) {
	of := s.table.Options()
	table, err := replay.New(replay.Options{
		Capacity: capacity, Sampler: replay.Uniform, Unit: of.Unit, GroupSize: of.GroupSize, Advantage: of.Advantage, Vocab: of.Vocab,
		StepReturns: of.StepReturns, StepDiscount: of.StepDiscount, Shards: 1,
	})
	if err != nil {
		return nil, err
	}
	return table, table.Advance(ctx, s.learner.Weights().Version)
}

// freshGroup generates the group of a job with the newest weights, about the prompt whose turn it is.
func (s *session) freshGroup(ctx context.Context, g *generator, number uint64) ([]*rollout.Rollout, error) {
	turn := number
	if n := s.config.Prompts.Limit; n > 0 {
		turn, _ = rounds{limit: uint64(n)}.Choose(number, 0)
	}
	prompt := s.task.Train(turn)
	generation, err := g.Start(pipeline.Job{Number: number, Size: s.config.Pipeline.Group, Prompt: prompt, PromptNumber: turn})
	if err != nil {
		return nil, err
	}
	done, err := generation.Continue(ctx, learner{s.learner}.Weights(), 0)
	if err != nil {
		return nil, err
	}
	if !done {
		return nil, fmt.Errorf("group %d is unfinished after all its tokens", number)
	}
	rollouts, err := generation.Rollouts()
	if v, ok := s.task.(task.Verifier); ok {
		for _, r := range rollouts {
			r.Reward = v.Verify(prompt, r.Text).Reward
		}
	}
	return rollouts, err
}
