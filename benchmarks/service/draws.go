package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Ways to draw a batch: as a plain sample, of given prompts, and by sources of the table.
const (
	plainDraw    = "plain"
	byPrompt     = "by prompt"
	bySources    = "by sources"
	sourcesTable = "bench-sources"
)

// drawsMost is what a draw by prompt or by sources may take of the time of a plain one.
const drawsMost = 1.3

// perPrompt is how many rollouts of each prompt a batch by prompt has.
const perPrompt = 8

// Draws is the figures of one way to draw from a table of many rollouts.
type Draws struct {
	How      string  `json:"how"`
	Who      string  `json:"who"`
	Held     int     `json:"held"` // rollouts
	Tokens   int     `json:"tokens"`
	Batch    int     `json:"batch"`
	Rollouts float64 `json:"rollouts_per_s"`
	P50      float64 `json:"p50_us"`
	OfPlain  float64 `json:"p50_x_plain"` // of the same client, in the same round
}

// drawSources has half of a batch of right answers, at most two of a prompt, and a third by advantage.
func drawSources() []replay.Source {
	return []replay.Source{
		{Name: "right", Share: "0.5", Where: "reward >= 1", PerPrompt: 2, Backfill: "varied"},
		{Name: "varied", Share: "0.3", Weight: "abs(advantage) + 0.1"},
	}
}

// measureDraws compares the ways to draw over TCP, from tables that hold held rollouts.
func measureDraws(ctx context.Context, l *lab, s *runCommand, held int) (list []Draws, err error) {
	announce("draws from %d rollouts of %d tokens", held, s.DrawTokens)
	tables := []wire.Table{
		{Name: sampledTable, Options: replay.Options{Capacity: held, PromptIndex: true}},
		{Name: sourcesTable, Options: replay.Options{Capacity: held, Sources: drawSources()}},
	}
	var prompts []string
	for _, t := range tables {
		if _, err := l.plain.clients[tcp].Create(ctx, t); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.plain.drop(ctx, t.Name)) }()
		if prompts, err = fill(ctx, l.plain.table(tcp, t.Name), held, s.DrawTokens); err != nil {
			return nil, err
		}
	}
	all, err := takeTurns(ctx, l.drawing(s, prompts), s.Rounds, s.turn())
	if err != nil {
		return nil, err
	}
	hows := []string{plainDraw, byPrompt, bySources}
	for i, x := range all {
		who, plain := goClient, all[i/len(hows)*len(hows)]
		if i >= len(hows) {
			who = python
		}
		list = append(list, Draws{How: hows[i%len(hows)], Who: who, Held: held, Tokens: s.DrawTokens, Batch: s.drawBatch(),
			Rollouts: x.rate() * float64(s.drawBatch()), P50: x.latency(0.5), OfPlain: x.over(plain, turn.p50)})
	}
	return list, nil
}

// drawBatch is the batch of draws, in whole prompts.
func (c *runCommand) drawBatch() int { return max(c.Batch/perPrompt, 1) * perPrompt }

// fill inserts held rollouts, and returns their prompts.
func fill(ctx context.Context, table *client.Table, held, tokens int) (prompts []string, err error) {
	const some = 4096
	for number := 0; number*some < held; number++ {
		groups := newGroups(min(some, held-number*some), tokens, number)
		if _, err := table.Insert(ctx, groups...); err != nil {
			return nil, err
		}
		for _, g := range groups {
			if len(g.Rollouts) >= perPrompt {
				prompts = append(prompts, g.Rollouts[0].PromptID)
			}
		}
	}
	return prompts, nil
}

// drawing returns the contenders of the Go client, then those of the Python client if there is one, in the order of the
// ways.
func (l *lab) drawing(s *runCommand, prompts []string) []contender {
	table, sources := l.plain.table(tcp, sampledTable), l.plain.table(tcp, sourcesTable)
	size := s.drawBatch()
	asked := size / perPrompt
	sample := func(name string, t *client.Table, request func() rollout.Request) contender {
		return repeated(name, func(ctx context.Context) error {
			b, err := t.Sample(ctx, request())
			if err == nil && len(b.Draws) != size {
				err = fmt.Errorf("a batch of %d rollouts: want %d", len(b.Draws), size)
			}
			return err
		})
	}
	plain := func() rollout.Request { return rollout.Request{Size: size} }
	next := 0
	list := []contender{
		sample(plainDraw, table, plain),
		sample(byPrompt, table, func() rollout.Request {
			if next += asked; next+asked > len(prompts) {
				next = 0
			}
			return rollout.Request{Prompts: prompts[next : next+asked], PerPrompt: perPrompt}
		}),
		sample(bySources, sources, plain),
	}
	if l.python == nil {
		return list
	}
	task := pythonTask{What: "draw", Address: l.plain.at.url(tcp), Table: sampledTable, Tokens: s.DrawTokens, Batch: size}
	ofPrompts, ofSources := task, task
	ofPrompts.Prompts, ofPrompts.PerPrompt = prompts[:min(len(prompts), 64*asked)], perPrompt
	ofSources.Table = sourcesTable
	return append(list, l.python.contender(plainDraw, task), l.python.contender(byPrompt, ofPrompts),
		l.python.contender(bySources, ofSources))
}
