package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Rollouts returns the rollouts of a table for pages. Every question is answered to those only who may read the table,
// as the actions rollouts and rollout are, by the caller that its context has; rewards are taken of those who may label
// it.
func (s *Service) Rollouts(table string) browse.Rewarder { return browsed{s, table} }

type browsed struct {
	service *Service
	name    string
}

// Rollouts implements [browse.Source].
func (b browsed) Rollouts(ctx context.Context, q replay.Query) (page browse.Page, err error) {
	err = b.ask(ctx, toRead, func(t *table) (err error) {
		page, err = t.findRollouts(ctx, q)
		return err
	})
	return page, err
}

// Rollout implements [browse.Source].
func (b browsed) Rollout(ctx context.Context, id rollout.ID) (shown browse.Rollout, err error) {
	err = b.ask(ctx, toRead, func(t *table) (err error) {
		shown, err = t.showRollout(ctx, id)
		return err
	})
	return shown, err
}

// ask answers a question about the table like an action.
func (b browsed) ask(ctx context.Context, right wire.Right, answer func(t *table) error) error {
	if err := b.service.requests.begin(); err != nil {
		return err
	}
	defer b.service.requests.end()
	t, err := b.service.allowed(ctx, b.name, right)
	if err != nil {
		return err
	}
	if err := answer(t); err != nil || right != toRead {
		return err
	}
	return b.service.checkLease() // it may have ended since the table was read
}

func findRollouts(ctx context.Context, t *table, r *wire.RolloutsRequest) (any, error) {
	return t.findRollouts(ctx, r.Query)
}

func showRollout(ctx context.Context, t *table, r *wire.RolloutRequest) (any, error) {
	return t.showRollout(ctx, rollout.ID(r.ID))
}

// findRollouts finds rollouts. Searches of a table take turns: one takes a processor, which training needs too.
func (t *table) findRollouts(ctx context.Context, q replay.Query) (browse.Page, error) {
	if err := checkID("text", q.Text); err != nil {
		return browse.Page{}, err
	}
	if err := t.searching.Acquire(ctx, 1); err != nil {
		return browse.Page{}, err
	}
	defer t.searching.Release(1)
	present, err := t.rollouts.Len(ctx)
	if err != nil {
		return browse.Page{}, err
	}
	before := int64(min(max(q.Skip, 0), present)) * replay.SkippedBytes
	if err := t.chargeAnswer(ctx, before+browse.RowBytes*int64(min(max(q.Limit, 0), replay.MostFound))); err != nil {
		return browse.Page{}, err
	}
	return t.shown().Rollouts(ctx, q)
}

// showRollout returns all that is known of a rollout.
func (t *table) showRollout(ctx context.Context, id rollout.ID) (browse.Rollout, error) {
	h, ok := t.rollouts.Inspect().Get(id)
	if !ok {
		return t.showLeft(ctx, id)
	}
	bytes := t.shown().Bytes(h.Rollout)
	if most := t.service.options.MaxMessageBytes; bytes > most {
		return browse.Rollout{}, wire.Errorf(wire.TooLarge, "rollout %d may take %d bytes as JSON, above "+
			"max_message_bytes %d: export it instead (reprise export --ids %[1]d), or raise max_message_bytes", id, bytes,
			most)
	}
	if err := t.searching.Acquire(ctx, 1); err != nil {
		return browse.Rollout{}, err
	}
	defer t.searching.Release(1)
	if err := t.chargeAnswer(ctx, bytes); err != nil {
		return browse.Rollout{}, err
	}
	return t.shown().Show(ctx, h)
}

// showLeft returns what is remembered of a rollout that has left.
func (t *table) showLeft(ctx context.Context, id rollout.ID) (browse.Rollout, error) {
	if err := t.chargeAnswer(ctx, browse.LeftBytes); err != nil {
		return browse.Rollout{}, err
	}
	shown, err := t.shown().ShowLeft(id)
	if err != nil {
		err = wire.Errorf(wire.NotFound, "%s", err)
	}
	return shown, err
}

// shown returns the table as pages show it.
func (t *table) shown() browse.Table {
	return browse.Table{Table: t.rollouts, Decoder: t.service.options.Decoder}
}

// named returns the context with the name of the caller, for a table's history.
func (t *table) named(ctx context.Context) context.Context {
	if t.History == 0 {
		return ctx
	}
	a := t.service.accountOf(ctx)
	return replay.WithCaller(ctx, cmp.Or(a.name, a.network))
}

// chargeAnswer waits for memory for an answer and charges it until the call's context ends, which is once the answer is
// written.
func (t *table) chargeAnswer(ctx context.Context, bytes int64) error {
	free, err := t.service.outgoing.acquire(ctx, t.service.accountOf(ctx), t.Name, bytes)
	if err != nil {
		return fmt.Errorf("waiting for %d bytes of max_outgoing_bytes for the answer: %w", bytes,
			errors.Join(context.Cause(ctx), err))
	}
	context.AfterFunc(ctx, free)
	return nil
}
