// Package archive keeps rollouts in Arrow IPC files, which pandas, polars, DuckDB and pyarrow open.
//
// [Write] writes record batches, usually a service's export; [Choice] picks some of their rows. A [Reader] reads such a
// file, or one of another program, as insertions for a table: [Reader.Insertions] assembles groups from rows in any
// order and drops the columns that only sampling adds.
package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Reader reads an Arrow IPC file. One goroutine at a time may use it.
type Reader struct {
	path string
	file *os.File
	size int64
}

// Open opens a file and checks both of its ends.
func Open(path string) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file: want an Arrow IPC file, not a folder, a pipe or a device", path)
	}
	r := &Reader{path: path, file: f, size: info.Size()}
	if _, err := r.begin(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is no Arrow IPC file (a stream of Arrow, or Parquet, is another format): %w", path,
			err)
	}
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// begin returns a reader from the first batch on. One batch may be as large as the file, or some times that if it is
// compressed.
func (r *Reader) begin() (*flightdata.Reader, error) {
	return flightdata.NewFileReader(r.file, r.size, flightdata.Options{MaxBytes: 1<<30 + 16*r.size})
}

// Batches returns all record batches in order. Each is released when the loop asks for the next. An error ends them.
func (r *Reader) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		in, err := r.begin()
		for number := 0; err == nil; number++ {
			var frame flightdata.Frame
			frame, err = in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && frame.Batch.NumRows() > r.size {
				err = fmt.Errorf("%d rows in a file of %d bytes", frame.Batch.NumRows(), r.size)
				frame.Batch.Release()
			}
			if err != nil {
				err = fmt.Errorf("record batch %d: %w", number, err)
				break
			}
			again := yield(frame.Batch, nil)
			frame.Batch.Release()
			if !again {
				return
			}
		}
		yield(nil, fmt.Errorf("%s: %w", r.path, err))
	}
}

// Defaults of Options.
const (
	DefaultRollouts = 256
	DefaultBytes    = 64 << 20
)

// Options divide a file into insertions. A group that exceeds a bound is an insertion by itself.
type Options struct {
	Extra    []arrow.Field // user-defined columns that the file may have
	Rollouts int           // most in an insertion; 0: DefaultRollouts
	Bytes    int64         // most payload in an insertion; 0: DefaultBytes

	// Recompute drops advantages, so that the table computes them from the groups.
	Recompute bool
}

// Insertion is whole groups for one insertion.
type Insertion struct {
	Groups   []rollout.Group
	Rollouts int
	Bytes    int64           // of payload
	Newest   rollout.Version // greatest version of its tokens
}

// Insertions returns the file's rollouts, validated, in whole groups. Rows wait in memory until their group is
// complete: few of them if a group's rows are neighbours, as in an export.
func (r *Reader) Insertions(o Options) iter.Seq2[Insertion, error] {
	o.Rollouts, o.Bytes = cmp.Or(o.Rollouts, DefaultRollouts), cmp.Or(o.Bytes, DefaultBytes)
	return func(yield func(Insertion, error) bool) {
		missing, err := r.countGroups()
		if err != nil {
			yield(Insertion{}, err)
			return
		}
		a := assembly{missing: missing, partial: make(map[uint64][]*rollout.Rollout)}
		row := 0
		for rec, err := range r.Batches() {
			if err == nil {
				err = r.decode(&a, rec, row, o)
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

// countGroups counts the rows of each group in the file.
func (r *Reader) countGroups() (map[uint64]int, error) {
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

// decode decodes and validates a record batch, whose first row is that row of the file, and adds its rollouts to the
// assembly.
func (r *Reader) decode(a *assembly, rec arrow.RecordBatch, row int, o Options) error {
	labels, err := r.labels(rec)
	if err != nil {
		return err
	}
	insertion := withoutSampling(rec, o.Recompute)
	defer insertion.Release()
	groups, order, err := wire.Groups(insertion, o.Extra)
	if err == nil {
		err = validate(groups, order)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.path, fromRow(err, row))
	}
	return a.add(groups, labels)
}

// withoutSampling drops the columns that only sampling adds, and those of advantages if they are to be recomputed.
func withoutSampling(rec arrow.RecordBatch, recompute bool) arrow.RecordBatch {
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range rec.Schema().Fields() {
		switch f.Name {
		case "id", "probability", "weight", "staleness", "uses", "group_mean", "group_std", "fresh",
			"redelivered":
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

// validate validates every rollout. The error names the row of the first bad one.
func validate(groups []rollout.Group, order wire.Order) error {
	position := 0
	for _, g := range groups {
		for _, r := range g.Rollouts {
			if err := r.Validate(rollout.Limits{UnknownLogprobs: true}); err != nil {
				return fromRow(err, order.Row(position))
			}
			position++
		}
	}
	return nil
}

// fromRow adds row to the row that an error names.
func fromRow(err error, row int) error {
	var field *rollout.FieldError
	if !errors.As(err, &field) {
		return fmt.Errorf("in the record batch from row %d on: %w", row, err)
	}
	moved := *field
	moved.Row += row
	return &moved
}

// label is the group of a row.
type label struct {
	group uint64
	alone bool // it has none
}

func (r *Reader) labels(rec arrow.RecordBatch) (labels []label, err error) {
	defer func() { // a validity bitmap may be shorter than its column
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: group: damaged: %v", r.path, p)
		}
	}()
	if labels, err = labelsOf(rec); err != nil {
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	return labels, nil
}

// labelsOf returns the group of each row. Without a column `group`, or if it has no type, every row is alone.
func labelsOf(rec arrow.RecordBatch) ([]label, error) {
	labels := make([]label, rec.NumRows())
	at := rec.Schema().FieldIndices("group")
	if len(at) == 0 || rec.Column(at[0]).DataType().ID() == arrow.NULL {
		for i := range labels {
			labels[i].alone = true
		}
		return labels, nil
	}
	column := rec.Column(at[0])
	value, err := integers(column)
	if err != nil {
		return nil, err
	}
	for i := range labels {
		if column.IsNull(i) {
			labels[i].alone = true
			continue
		}
		labels[i].group = value(i)
	}
	return labels, nil
}

// integers returns a getter of a column of integers. Distinct values stay distinct.
func integers(column arrow.Array) (func(i int) uint64, error) {
	switch c := column.(type) {
	case *array.Uint64:
		return c.Value, nil
	case *array.Int64:
		return func(i int) uint64 { return uint64(c.Value(i)) }, nil
	case *array.Uint32:
		return func(i int) uint64 { return uint64(c.Value(i)) }, nil
	case *array.Int32:
		return func(i int) uint64 { return uint64(c.Value(i)) }, nil
	}
	return nil, fmt.Errorf("group: type %s: want uint64, or another type of integers of 32 or 64 bits",
		column.DataType())
}

// assembly assembles groups from rows in any order.
type assembly struct {
	missing map[uint64]int                // rows of each group that were not read yet
	partial map[uint64][]*rollout.Rollout // groups with rows missing
	whole   []rollout.Group               // in the order of their last rows
}

// add adds the groups of one record batch, ordered by their first labels.
func (a *assembly) add(groups []rollout.Group, labels []label) error {
	next := 0
	seen := make(map[uint64]bool)
	for _, l := range labels {
		if !l.alone && seen[l.group] {
			continue
		}
		if next == len(groups) {
			return errors.New("there are fewer groups than labels: the column `group` was read in two ways")
		}
		g := groups[next]
		next++
		if l.alone {
			a.whole = append(a.whole, g)
			continue
		}
		seen[l.group] = true
		a.extend(l.group, g.Rollouts)
	}
	return nil
}

// extend adds rows to a group, which is whole after the last one.
func (a *assembly) extend(group uint64, rows []*rollout.Rollout) {
	a.missing[group] -= len(rows)
	all := append(a.partial[group], rows...)
	if a.missing[group] > 0 {
		a.partial[group] = all
		return
	}
	delete(a.partial, group)
	delete(a.missing, group)
	a.whole = append(a.whole, rollout.Group{Rollouts: all})
}

// next takes as many whole groups as fit in an insertion, at least one. Before the end it returns full insertions only.
func (a *assembly) next(o Options, end bool) Insertion {
	in := Insertion{Newest: rollout.NoVersion}
	for i, g := range a.whole {
		var bytes int64
		newest := rollout.Version(math.MinInt32)
		for _, r := range g.Rollouts {
			bytes += r.Bytes()
			for _, v := range r.Versions {
				newest = max(newest, v)
			}
		}
		if i > 0 && (in.Rollouts+len(g.Rollouts) > o.Rollouts || in.Bytes+bytes > o.Bytes) {
			a.whole = a.whole[i:]
			return in
		}
		in.Groups = append(in.Groups, g)
		in.Rollouts += len(g.Rollouts)
		in.Bytes += bytes
		in.Newest = max(in.Newest, newest)
	}
	if full := in.Rollouts >= o.Rollouts || in.Bytes >= o.Bytes; !end && !full {
		return Insertion{}
	}
	a.whole = nil
	return in
}
