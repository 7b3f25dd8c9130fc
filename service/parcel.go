package service

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// parcel is a batch packed for the way out.
type parcel struct {
	batch    *rollout.Batch
	record   arrow.RecordBatch
	metadata []byte
	bytes    int64  // packed, about
	paid     func() // gives back what the budget gave, once
}

// rowBytes is about what a row takes beside its payload.
const rowBytes = 96

// weight is about how many bytes draws take packed.
func weight(draws []rollout.Draw) int64 {
	sum := int64(rowBytes * len(draws))
	for i := range draws {
		sum += draws[i].Rollout.Bytes()
	}
	return sum
}

// fits returns the weight of a batch's draws, and refuses one that no message can hold.
func (t *table) fits(b *rollout.Batch) (bytes int64, err error) {
	bytes = weight(b.Draws)
	if most := t.service.options.MaxMessageBytes; bytes > most {
		return bytes, wire.Errorf(wire.TooLarge, "a batch of %d rollouts takes about %d bytes, above max_message_bytes %d: ask for fewer rollouts, or raise max_message_bytes", len(b.Draws), bytes, most)
	}
	return bytes, nil
}

// pack packs a batch as soon as the budget of outgoing bytes allows.
func (t *table) pack(ctx context.Context, b *rollout.Batch, schema *arrow.Schema) (*parcel, error) {
	bytes, err := t.fits(b)
	if err != nil {
		return nil, err
	}
	taken, err := t.service.outgoing.take(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return t.packPaid(b, schema, bytes, taken)
}

// tryPack packs a batch if the budget of outgoing bytes has plenty left; nil otherwise.
func (t *table) tryPack(b *rollout.Batch, schema *arrow.Schema) (*parcel, error) {
	bytes := weight(b.Draws)
	taken, ok := t.service.outgoing.try(bytes)
	if !ok {
		return nil, nil
	}
	return t.packPaid(b, schema, bytes, taken)
}

func (t *table) packPaid(b *rollout.Batch, schema *arrow.Schema, bytes, taken int64) (*parcel, error) {
	p := &parcel{batch: b, bytes: bytes, paid: sync.OnceFunc(func() { t.service.outgoing.give(taken) })}
	var err error
	if p.record, err = t.service.gatherer.Batch(b.Draws, schema); err != nil {
		p.paid()
		return nil, err
	}
	return p, nil
}

// discard gives up a parcel that was not sent.
func (p *parcel) discard() {
	p.record.Release()
	p.paid()
}

// label writes the parcel's metadata, as of its hand-over.
func (t *table) label(p *parcel) (err error) {
	p.metadata, err = writeJSON(wire.BatchInfo{
		Batch: uint64(p.batch.ID), Version: int32(p.batch.Version), Shard: p.batch.Shard,
		Rows: len(p.batch.Draws), Present: t.store.Len(),
	})
	return err
}

// sampled counts a batch that goes out.
func (t *table) sampled(p *parcel) {
	m := &t.meter
	m.samples.Add(1)
	m.sampledRows.Add(uint64(len(p.batch.Draws)))
	m.sampledBytes.Add(uint64(p.bytes))
	tokens := 0
	for i := range p.batch.Draws {
		tokens += len(p.batch.Draws[i].Rollout.Tokens)
	}
	m.sampledTokens.Add(uint64(tokens))
}
