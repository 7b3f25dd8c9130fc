package service

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// insertion is the groups of one record batch.
type insertion struct {
	wire.InsertRequest
	groups []rollout.Group
	order  wire.Order
	wait   patience

	rows  int
	items int // rows, or their steps with unit step
}

// newInsertion completes what a record batch and its request say, and refuses what the table's definition does (invariants 8 and 9).
func (t *table) newInsertion(req wire.InsertRequest, groups []rollout.Group, order wire.Order) (*insertion, error) {
	in := &insertion{InsertRequest: req, groups: groups, order: order}
	err := checkID("batch_id", req.BatchID)
	if err != nil {
		return nil, err
	}
	if in.wait, err = patienceOf(req.TimeoutMS); err != nil {
		return nil, err
	}
	size := t.GroupSize
	switch {
	case req.GroupSize < 0:
		return nil, wire.Errorf(wire.Invalid, "group_size: %d: want the rollouts in every group, or none where groups differ", req.GroupSize)
	case req.GroupSize > 0 && size > 0 && req.GroupSize != size:
		return nil, wire.Errorf(wire.Invalid, "group_size: %d: want %d, as the table's definition says", req.GroupSize, size)
	case req.GroupSize > 0:
		size = req.GroupSize
	}
	for i := range groups {
		groups[i].Size = size
		for _, r := range groups[i].Rollouts {
			in.rows++
			in.items += t.itemsOf(r)
		}
	}
	return in, nil
}

// insert puts the groups into the table, waiting for room and for the limiter, and returns the ids of the rows in order.
func (t *table) insert(ctx context.Context, in *insertion) ([]uint64, error) {
	leave, err := t.first(ctx, in)
	if err != nil {
		return nil, err
	}
	defer leave()
	var ids []rollout.ID
	repeated := false
	w := waiter{on: &t.room, count: &t.meter.insertsWaiting, patience: in.wait, now: t.now}
	err = t.until(ctx, w, func() error {
		return t.alive(func() (err error) {
			if ids, repeated = t.store.Inserted(in.BatchID); repeated {
				return nil
			}
			ids, err = t.enter(ctx, in)
			return err
		})
	})
	if err != nil {
		return nil, in.byRow(err)
	}
	if len(ids) != in.items {
		return nil, wire.Errorf(wire.Invalid, "batch_id: %q: it was given to an insertion of %d rollouts before, this one has %d: want an id of its own for each", in.BatchID, len(ids), in.items)
	}
	if repeated {
		t.meter.repeated.Add(1)
	} else {
		t.stock.wake()
		t.entered(in, ids)
	}
	return t.byRow(in, ids), nil
}

// first waits until no other insertion with the same batch id is under way, as long as this one may wait.
func (t *table) first(ctx context.Context, in *insertion) (leave func(), err error) {
	patient := ctx
	if in.wait.bounded {
		var cancel context.CancelFunc
		patient, cancel = context.WithTimeout(ctx, in.wait.limit)
		defer cancel()
	}
	leave, err = t.pending.enter(patient, in.BatchID)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("batch_id: %q: the insertion that came before with it is still under way: %w", in.BatchID, rollout.ErrFull)
	}
	return leave, err
}

// enter inserts the groups if the limiter lets them in.
func (t *table) enter(ctx context.Context, in *insertion) ([]rollout.ID, error) {
	if err := t.healthy(); err != nil {
		return nil, err
	}
	var ids []rollout.ID
	insert := func() (err error) {
		ids, err = t.store.InsertOnce(ctx, in.BatchID, in.groups...)
		return err
	}
	var err error
	if t.limiter != nil {
		err = t.limiter.Insert(in.items, t.store.Flow, insert)
	} else {
		err = insert()
	}
	if err == nil {
		t.gate.Load().Insert(t.now(), in.Grant, in.rows, t.version())
	}
	return ids, err
}

// entered counts what came in.
func (t *table) entered(in *insertion, ids []rollout.ID) {
	m := &t.meter
	m.inserts.Add(1)
	m.insertedRows.Add(uint64(in.rows))
	var tokens, bytes, shown, next int
	now := t.now()
	for _, g := range in.groups {
		for _, r := range g.Rollouts {
			tokens += len(r.Tokens)
			bytes += int(r.Bytes())
			if r.Text != "" && shown < recentsEach {
				m.recent.add(ids[next], r, now)
				shown++
			}
			next += t.itemsOf(r)
		}
	}
	m.insertedTokens.Add(uint64(tokens))
	m.insertedBytes.Add(uint64(bytes))
}

// itemsOf is how many ids a rollout gets.
func (t *table) itemsOf(r *rollout.Rollout) int {
	if t.options.Unit == replay.UnitStep {
		return max(len(r.Turns), 1)
	}
	return 1
}

// byRow brings ids, which are in order of the groups, into that of the rows.
func (t *table) byRow(in *insertion, ids []rollout.ID) []uint64 {
	if in.items == in.rows {
		sorted := make([]uint64, len(ids))
		for row, at := range in.order {
			sorted[row] = uint64(ids[at])
		}
		return sorted
	}
	first := make([]int, 0, in.rows+1) // of each rollout's ids
	at := 0
	for _, g := range in.groups {
		for _, r := range g.Rollouts {
			first = append(first, at)
			at += t.itemsOf(r)
		}
	}
	first = append(first, at)
	sorted := make([]uint64, 0, len(ids))
	for _, position := range in.order {
		for _, id := range ids[first[position]:first[position+1]] {
			sorted = append(sorted, uint64(id))
		}
	}
	return sorted
}

// byRow names the row that an error means, which counts positions in the groups.
func (in *insertion) byRow(err error) error {
	var field *rollout.FieldError
	if !errors.As(err, &field) || field.Row < 0 || field.Row >= len(in.order) {
		return err
	}
	moved := *field
	moved.Row = in.order.Row(field.Row)
	return &moved
}

// pending is the batch ids of insertions under way: a repeat that comes while the first is waiting waits for it.
type pending struct {
	mu   sync.Mutex
	done map[string]chan struct{}
}

// enter waits until no other insertion with the id is under way; leave ends this one. Insertions without an id do not wait.
func (p *pending) enter(ctx context.Context, id string) (leave func(), err error) {
	if id == "" {
		return func() {}, nil
	}
	for {
		p.mu.Lock()
		before := p.done[id]
		if before == nil {
			mine := make(chan struct{})
			if p.done == nil {
				p.done = make(map[string]chan struct{})
			}
			p.done[id] = mine
			p.mu.Unlock()
			return func() { p.leave(id, mine) }, nil
		}
		p.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *pending) leave(id string, mine chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.done, id)
	close(mine)
}
