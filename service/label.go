package service

import (
	"cmp"
	"context"
	"strings"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// giveRewards answers wire.Reward. The rewards are as safe as the journal makes them when the answer leaves.
func giveRewards(ctx context.Context, t *table, r *wire.RewardRequest) (any, error) {
	given := r.Rewards
	if err := replay.CheckRewards(given); err != nil {
		return nil, err
	}
	given.By = t.labeller(ctx, given.By)
	bytes := replay.RewardBytes(len(given.IDs))
	if err := t.service.tableMemory.charge(bytes, "remembering %d rewards", len(given.IDs)); err != nil {
		return nil, err
	}
	defer t.service.tableMemory.add(-bytes) // info recounts
	var answer wire.RewardAnswer
	t.rewarding.Add(1)
	defer t.rewarding.Add(-1)
	err := t.unlessDropped(func() (err error) {
		if err = t.checkJournal(); err == nil {
			answer.Rewarded, err = t.rollouts.Reward(t.named(ctx), given)
		}
		return err
	})
	refused := err != nil
	if _, err = t.committed(ctx, err); err != nil {
		if !refused { // the table has the rewards, and the journal may not
			t.failed.Add(1)
		}
		return nil, err
	}
	answer.TableInfo = t.info()
	return answer, nil
}

// labeller returns who gives rewards: where callers have tokens the name of the token comes first, which nobody can
// make up.
func (t *table) labeller(ctx context.Context, by string) string {
	name := t.service.accountOf(ctx).name
	if name == "" || by == "" {
		return cmp.Or(by, name)
	}
	both := name + ": " + by
	if len(both) > rollout.MostRewardBytes { // what the caller says is cut: 128 bytes of it are allowed without a token
		both = strings.ToValidUTF8(both[:rollout.MostRewardBytes], "")
	}
	return both
}

// Reward implements [browse.Rewarder]: it is the action wire.Reward.
func (b browsed) Reward(ctx context.Context, r rollout.Rewards) (done rollout.Rewarded, err error) {
	err = b.ask(ctx, toLabel, func(t *table) error {
		answer, err := giveRewards(ctx, t, &wire.RewardRequest{Rewards: r})
		if err == nil {
			done = answer.(wire.RewardAnswer).Rewarded
		}
		return err
	})
	return done, err
}
