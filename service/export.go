package service

import (
	"cmp"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// exportRows is how many rows a record batch of an export has, if the request says nothing.
const exportRows = 256

// export sends all rollouts of the table in order of ids, as of one moment for each shard. Nothing is drawn: probability is that
// of the next draw (NaN where samplers know none), weight 1, and group_mean and group_std are what the table computed at insertion.
func (t *table) export(req *wire.SampleRequest, schema *arrow.Schema, out *outlet) error {
	rows := req.Size
	switch {
	case rows < 0 || rows > maxSize:
		return wire.Errorf(wire.Invalid, "size: %d: want rows to a record batch, 1 to %d, or 0 for %d", rows, maxSize, exportRows)
	case req.Fresh != 0 || req.Shard != 0 || req.RequestID != "" || req.UseAtDraw:
		return wire.Errorf(wire.Invalid, "ticket: fresh, shard, request_id, use_at_draw: want none of them with export, which draws nothing")
	case rows == 0:
		rows = exportRows
	}
	draws, version := t.everything()
	if err := out.writer.Begin(); err != nil {
		return err
	}
	for len(draws) > 0 {
		n := t.fitting(draws, rows)
		if err := t.exportSome(draws[:n], version, schema, out); err != nil {
			return err
		}
		draws = draws[n:]
	}
	return nil
}

// everything returns the table's content as draws.
func (t *table) everything() ([]rollout.Draw, rollout.Version) {
	version := t.version()
	held := t.store.Held()
	slices.SortFunc(held, func(a, b replay.Held) int { return cmp.Compare(a.ID, b.ID) })
	draws := make([]rollout.Draw, len(held))
	for i := range held {
		h := &held[i]
		draws[i] = rollout.Draw{
			ID: h.ID, Group: h.Group, Rollout: h.Rollout, Advantage: h.Advantage, Probability: h.Probability, Weight: 1,
			Fresh: h.Fresh, Staleness: int32(min(h.Age, math.MaxInt32)), Uses: int32(h.Uses), GroupMean: h.Mean, GroupStd: h.Std,
		}
	}
	return draws, version
}

// fitting returns how many of the first draws go into one record batch: rows, or fewer if they are large.
func (t *table) fitting(draws []rollout.Draw, rows int) int {
	n, bytes := 0, int64(0)
	for n < min(rows, len(draws)) {
		bytes += weight(draws[n : n+1])
		if n > 0 && bytes > t.service.options.MaxMessageBytes/2 {
			break
		}
		n++
	}
	return n
}

func (t *table) exportSome(draws []rollout.Draw, version rollout.Version, schema *arrow.Schema, out *outlet) error {
	p, err := t.pack(out.ctx, &rollout.Batch{Version: version, Draws: draws}, schema)
	if err != nil {
		return err
	}
	if p.metadata, err = writeJSON(wire.BatchInfo{Version: int32(version), Rows: len(draws), Present: t.store.Len()}); err != nil {
		p.discard()
		return err
	}
	return out.send(p.record, p.metadata, p.paid)
}
