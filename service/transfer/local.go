package transfer

import (
	"cmp"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Local returns a table of this process as a source. It has no user-defined columns.
func Local(table *replay.Table) Source { return local{table} }

type local struct{ table *replay.Table }

// Info implements [Source].
func (l local) Info(context.Context) (wire.TableInfo, error) {
	return wire.TableInfo{Version: int32(l.table.Version())}, nil
}

const (
	localRows  = 256      // in a record batch, unless the options say otherwise
	localBytes = 32 << 20 // of payload in one, unless a single rollout has more
)

// Export implements [Source].
func (l local) Export(ctx context.Context, o client.ExportOptions, each func(arrow.RecordBatch) error) error {
	schema, err := wire.SampleSchema(o.Columns)
	if err != nil {
		return err
	}
	places, err := l.table.Inspect().Where(ctx, o.Where)
	if err != nil {
		return err
	}
	var gatherer wire.Gatherer
	for some := range slices.Chunk(places, cmp.Or(o.Rows, localRows)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		held := l.table.Inspect().At(some)
		for len(held) > 0 {
			var draws []rollout.Draw
			for bytes := int64(0); len(held) > 0 && (bytes == 0 || bytes+held[0].Rollout.Bytes() <= localBytes); {
				bytes += held[0].Rollout.Bytes()
				draws, held = append(draws, held[0].Draw()), held[1:]
			}
			rec, err := gatherer.Batch(draws, schema)
			if err != nil {
				return err
			}
			err = each(rec)
			rec.Release()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
