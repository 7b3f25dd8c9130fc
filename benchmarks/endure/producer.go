package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// patience is how long producers and trainers let the service wait before they ask again.
const patience = 2 * time.Second

// producer inserts into one table.
type producer struct {
	*place
	number int
	random *rand.Rand
	batch  int     // number of the next
	due    *parcel // being inserted; nil: none
}

// parcel is an insertion that goes on until its fate is known, over many sessions if need be.
type parcel struct {
	client.Insertion
	count int // groups
	rows  int
}

func newProducer(p *place, number int) *producer {
	return &producer{place: p, number: number, random: rollout.Stream(p.load.seed, "producer", uint64(number))}
}

// run inserts until the context ends. The last insertion's fate may be unknown then.
func (p *producer) run(ctx context.Context) {
	p.load.run(ctx, fmt.Sprintf("producer of %s", p.Name), p.session)
	if p.due != nil {
		p.lost(p.due.rows)
	}
}

// session inserts some batches over one connection.
func (p *producer) session(ctx context.Context, c *client.Client) error {
	table := c.Table(p.Name).Waiting(patience)
	for range 1 + p.random.IntN(60) {
		p.load.pause(ctx, p.random)
		if p.due == nil {
			if err := p.prepare(ctx, table); err != nil || p.due == nil {
				return err
			}
		}
		if err := p.insert(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// prepare decides what is inserted next, asking the gate where there is one.
func (p *producer) prepare(ctx context.Context, table *client.Table) error {
	next := &parcel{count: 1 + p.random.IntN(4)}
	if p.Gate != nil {
		if err := p.chooseOld(ctx, table); err != nil {
			return err
		}
		answer, err := table.Start(ctx, next.count, groupSize)
		if err != nil || answer.Groups == 0 {
			return err
		}
		next.Grant, next.count = answer.Grant, answer.Groups
		switch p.random.IntN(20) {
		case 0:
			return table.Abandon(ctx, answer.Grant, answer.Groups)
		case 1:
			return nil // it expires
		}
	}
	next.rows = next.count * groupSize
	next.BatchID = fmt.Sprintf("producer-%d-%d", p.number, p.batch)
	p.batch++
	p.due = next
	return nil
}

// chooseOld asks which prompts to ask again, and says what came of some.
func (p *producer) chooseOld(ctx context.Context, table *client.Table) error {
	if p.Prompts == nil || p.random.IntN(4) > 0 {
		return nil
	}
	answer, err := table.PromptsNext(ctx, 8)
	if err != nil {
		return err
	}
	results := []wire.PromptResult{{Prompt: wire.Prompt{ID: fmt.Sprintf("fresh-%d-%d", p.number, p.batch%200)}, Correct: p.random.IntN(5), Total: groupSize}}
	for _, old := range answer.Prompts {
		results = append(results, wire.PromptResult{Prompt: old, Correct: p.random.IntN(5), Total: groupSize, Replayed: true})
	}
	return table.PromptsReport(ctx, results...)
}

// insert inserts what is due. Whatever happens, the same batch id is sent until an answer comes.
func (p *producer) insert(ctx context.Context, table *client.Table) error {
	version := rollout.Version(max(p.last()-int32(p.random.IntN(2)), 0))
	made := groups(p.number, p.batch-1, p.due.count, p.load.longest, version)
	began := time.Now()
	answer, err := table.InsertGroups(ctx, p.due.Insertion, made...)
	switch {
	case errors.Is(err, rollout.ErrAhead):
		info, err := table.Info(ctx)
		if err == nil {
			p.heard(info.Version)
		}
		return err
	case err != nil:
		return err
	}
	p.load.inserts.add(time.Since(began))
	if len(answer.IDs) != p.due.rows {
		p.load.verdict.violate("table %s: %d ids were answered for %d rollouts", p.Name, len(answer.IDs), p.due.rows)
	}
	if err := p.acknowledged(answer.IDs); err != nil {
		p.load.verdict.violate("table %s: %v", p.Name, err)
	}
	p.due = nil
	return nil
}
