package archive

import (
	"errors"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Defaults of Options.
const (
	DefaultRollouts = 256
	DefaultBytes    = 64 << 20
)

// Options say how a file is cut into insertions.
type Options struct {
	Extra    []arrow.Field // columns of the table's own, which the file may have
	Rollouts int           // in an insertion, at most, where its groups are not larger; 0: DefaultRollouts
	Bytes    int64         // of payload in an insertion, at most, where no group is larger; 0: DefaultBytes

	// Recompute leaves advantages out, so that the table computes them from the groups anew; otherwise they are given.
	Recompute bool
}

// Insertion is whole groups for one insertion.
type Insertion struct {
	Groups   []rollout.Group
	Rollouts int
	Bytes    int64           // of payload
	Newest   rollout.Version // greatest version among its tokens
}

// Insertions gives what the file holds, checked, in whole groups: a group comes when its last row has been read. Until then its rows wait
// in memory, which is little where the rows of a group stand together, as they do in an export.
func (r *Reader) Insertions(o Options) iter.Seq2[Insertion, error] {
	orElse(&o.Rollouts, DefaultRollouts)
	orElse(&o.Bytes, DefaultBytes)
	return func(yield func(Insertion, error) bool) {
		missing, err := r.groupSizes()
		if err != nil {
			yield(Insertion{}, err)
			return
		}
		a := assembly{missing: missing, begun: make(map[uint64][]*rollout.Rollout)}
		row := 0
		for rec, err := range r.Batches() {
			if err == nil {
				err = r.add(&a, rec, row, o)
			}
			if err != nil {
				yield(Insertion{}, err)
				return
			}
			row += int(rec.NumRows())
			for in := a.next(o, false); in.Rollouts > 0; in = a.next(o, false) {
				if !yield(in, nil) {
					return
				}
			}
		}
		if in := a.next(o, true); in.Rollouts > 0 {
			yield(in, nil)
		}
	}
}

// add takes the rollouts of a record batch whose first row is that row of the file.
func (r *Reader) add(a *assembly, rec arrow.RecordBatch, row int, o Options) error {
	labels, err := r.labels(rec)
	if err != nil {
		return err
	}
	bare := withoutSampling(rec, o.Recompute)
	defer bare.Release()
	groups, order, err := wire.Groups(bare, o.Extra)
	if err == nil {
		err = validate(groups, order)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.path, fromRow(err, row))
	}
	return a.add(groups, labels)
}

// validate holds every rollout to what any table demands, and names the row of the first that is bad.
func validate(groups []rollout.Group, order wire.Order) error {
	position := 0
	for _, g := range groups {
		for _, r := range g.Rollouts {
			if err := r.Validate(rollout.Limits{}); err != nil {
				return fromRow(err, order.Row(position))
			}
			position++
		}
	}
	return nil
}

// fromRow counts the row that an error names from the beginning of the file.
func fromRow(err error, row int) error {
	var field *rollout.FieldError
	if !errors.As(err, &field) {
		return fmt.Errorf("in the record batch from row %d on: %w", row, err)
	}
	moved := *field
	moved.Row += row
	return &moved
}

// groupSizes counts the rows of each group in the whole file.
func (r *Reader) groupSizes() (map[uint64]int, error) {
	sizes := make(map[uint64]int)
	for rec, err := range r.Batches() {
		if err != nil {
			return nil, err
		}
		labels, err := r.labels(rec)
		if err != nil {
			return nil, err
		}
		for _, l := range labels {
			if !l.alone {
				sizes[l.group]++
			}
		}
	}
	return sizes, nil
}

// labels reads the groups of a record batch's rows.
func (r *Reader) labels(rec arrow.RecordBatch) (labels []label, err error) {
	defer func() { // a bitmap of nulls may be shorter than the column
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: group: damaged: %v", r.path, p)
		}
	}()
	if labels, err = labelsOf(rec); err != nil {
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	return labels, nil
}

// withoutSampling returns a record batch without the columns that only sampling adds, and those of advantages if they
// are to be computed anew.
func withoutSampling(rec arrow.RecordBatch, recompute bool) arrow.RecordBatch {
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range rec.Schema().Fields() {
		switch f.Name {
		case "id", "probability", "weight", "staleness", "uses", "group_mean", "group_std", "fresh":
			continue
		case "advantage", "advantages":
			if recompute {
				continue
			}
		}
		fields = append(fields, f)
		columns = append(columns, rec.Column(i))
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, rec.NumRows())
}

func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
