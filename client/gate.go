package client

import (
	"context"
	"time"

	"github.com/reprise-rl/reprise/wire"
)

// Start asks how many of so many groups may be started now without becoming too stale, waiting for the first as
// [Table.Waiting] says. What is granted is to be inserted under the grant ([Insertion]) or abandoned. A groupSize of 0 is the
// table's.
func (t *Table) Start(ctx context.Context, groups, groupSize int) (wire.StartAnswer, error) {
	var answer wire.StartAnswer
	began := time.Now()
	for {
		wait := min(max(t.left(ctx, began), 0), longestWait)
		req := wire.StartRequest{Table: t.name, Groups: groups, GroupSize: groupSize, TimeoutMS: wait.Milliseconds()}
		err := t.client.act(ctx, t.name, wire.Start, req, &answer, wait)
		if err != nil || answer.Groups > 0 || t.left(ctx, began) <= 0 {
			return answer, err
		}
	}
}

// Abandon gives back granted groups that will not come.
func (t *Table) Abandon(ctx context.Context, grant uint64, groups int) error {
	_, err := t.act(ctx, wire.Abandon, wire.AbandonRequest{Table: t.name, Grant: grant, Groups: groups})
	return err
}

// PromptsNext returns prompts worth asking again, for a batch of so many.
func (t *Table) PromptsNext(ctx context.Context, batch int) (wire.PromptsAnswer, error) {
	var answer wire.PromptsAnswer
	err := t.client.act(ctx, t.name, wire.PromptsNext, wire.PromptsRequest{Table: t.name, Batch: batch}, &answer, 0)
	return answer, err
}

// PromptsReport tells the table what came of prompts.
func (t *Table) PromptsReport(ctx context.Context, results ...wire.PromptResult) error {
	_, err := t.act(ctx, wire.PromptsReport, wire.PromptResults{Table: t.name, Results: results})
	return err
}
