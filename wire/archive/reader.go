// Package archive keeps rollouts in files that pandas, polars, DuckDB, pyarrow and Hugging Face's datasets open.
//
// [Write] writes record batches, usually a service's export, as an Arrow IPC file, and [WriteDataset] as a folder of
// Parquet or JSON lines with a card; [Choice] picks some of their rows. A [Reader] reads these, or what other programs
// wrote, as insertions for a table: [Reader.Insertions] assembles groups from rows in any order and drops the columns
// that only sampling adds. [Reader.Rows] gives rows of any columns as JSON.
package archive

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Reader reads an Arrow IPC, Parquet or JSON lines file, or a folder of files of the latter two. Nothing is open
// between its calls.
type Reader struct {
	files  []dataFile
	groups map[uint64]int // rows of each group; nil: not counted yet
}

type dataFile struct {
	path   string
	format Format
}

// Open finds the files, and checks both ends of those of Arrow and Parquet.
func Open(path string) (*Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	paths := []string{path}
	if info.IsDir() {
		if paths, err = dataFiles(path); err != nil {
			return nil, err
		}
	}
	r := &Reader{}
	for _, path := range paths {
		f, err := openData(path)
		if err != nil {
			return nil, err
		}
		r.files = append(r.files, f)
		if f.format != r.files[0].format {
			return nil, fmt.Errorf("%s and %s: want files of one format in a folder", r.files[0].path, path)
		}
	}
	return r, nil
}

// dataFiles returns the Parquet and JSON lines files below a folder, in order of their names.
func dataFiles(folder string) (paths []string, err error) {
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != folder:
			return fs.SkipDir
		case e.IsDir():
		case filepath.Ext(path) == Parquet.extension(), filepath.Ext(path) == JSONL.extension():
			paths = append(paths, path)
		}
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s has no .parquet or .jsonl file: want an export, or a folder of such files", folder)
	}
	return paths, err
}

// openData finds out the format of a file.
func openData(path string) (dataFile, error) {
	d := dataFile{path: path}
	f, size, err := d.open()
	if err != nil {
		return d, err
	}
	defer f.Close()
	beginning := make([]byte, 64)
	n, err := f.ReadAt(beginning, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return d, err
	}
	text := bytes.TrimSpace(bytes.TrimPrefix(beginning[:n], []byte("\ufeff")))
	switch {
	case bytes.HasPrefix(beginning, []byte("PAR1")):
		d.format = Parquet
		_, err := openParquet(f)
		return d, d.named(err)
	case filepath.Ext(path) == JSONL.extension(), bytes.HasPrefix(text, []byte("{")):
		d.format = JSONL
		return d, nil
	}
	d.format = Arrow
	if _, err := flightdata.NewFileReader(f, size, flightdata.Options{MaxBytes: maxBytes(size)}); err != nil {
		return d, fmt.Errorf("%s is no Arrow IPC file, nor Parquet or JSON lines (a stream of Arrow is another format): %w",
			path, err)
	}
	return d, nil
}

func (d dataFile) named(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", d.path, err)
	}
	return err
}

func (d dataFile) open() (*os.File, int64, error) {
	f, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: want a file or a folder of files, not a pipe or a device", d.path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// maxBytes bounds a record batch of a file: it may be as large as the file, or some times that if it is compressed.
func maxBytes(size int64) int64 { return 1<<30 + 16*size }

// batch is a record batch and where it comes from.
type batch struct {
	arrow.RecordBatch
	file  string
	row   int    // of the file, of the first row
	lines []line // of JSON, one a row
}

// located adds to an error where in the file it is.
func (b *batch) located(err error) error {
	var field *rollout.FieldError
	switch {
	case !errors.As(err, &field) || field.Row < 0:
		return fmt.Errorf("%s: in the rows from %d on: %w", b.file, b.row, err)
	case b.lines != nil && field.Row < len(b.lines):
		return fmt.Errorf("%s: %w", b.file, &lineError{b.lines[field.Row].number, field.Field, field.Value, field.Remedy})
	}
	moved := *field
	moved.Row += b.row
	return fmt.Errorf("%s: %w", b.file, &moved)
}

// Batches returns all record batches in order. Each is released when the loop asks for the next. An error ends them.
// extra are the user-defined columns that JSON lines may have.
func (r *Reader) Batches(extra ...arrow.Field) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for b, err := range r.batches(extra) {
			if !yield(b.RecordBatch, err) {
				return
			}
		}
	}
}

func (r *Reader) batches(extra []arrow.Field) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		for _, f := range r.files {
			row, stopped := 0, false
			err := f.read(jsonFields(extra), func(b batch) bool {
				b.file, b.row = f.path, row
				row += int(b.NumRows())
				stopped = !yield(b, nil)
				b.Release()
				return !stopped
			})
			if err != nil && !stopped {
				yield(batch{}, f.named(err))
			}
			if err != nil || stopped {
				return
			}
		}
	}
}

// read passes on a file's record batches, which yield releases.
func (d dataFile) read(fields []arrow.Field, yield func(batch) bool) (err error) {
	f, size, err := d.open()
	if err != nil {
		return err
	}
	defer f.Close()
	switch d.format {
	case Parquet:
		return readParquet(f, func(rec arrow.RecordBatch) bool {
			rec.Retain()
			return yield(batch{RecordBatch: rec})
		})
	case JSONL:
		var wrong error
		err := readLines(f, func(lines []line) bool {
			var rec arrow.RecordBatch
			if rec, wrong = decodeLines(lines, fields); wrong != nil {
				return false
			}
			return yield(batch{RecordBatch: rec, lines: lines})
		})
		return errors.Join(wrong, err)
	}
	return readArrow(f, size, yield)
}

// readArrow passes on the record batches of an Arrow IPC file.
func readArrow(f *os.File, size int64, yield func(batch) bool) error {
	in, err := flightdata.NewFileReader(f, size, flightdata.Options{MaxBytes: maxBytes(size)})
	for number := 0; err == nil; number++ {
		var frame flightdata.Frame
		frame, err = in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && frame.Batch.NumRows() > size {
			err = fmt.Errorf("%d rows in a file of %d bytes", frame.Batch.NumRows(), size)
			frame.Batch.Release()
		}
		if err != nil {
			return fmt.Errorf("record batch %d: %w", number, err)
		}
		if !yield(batch{RecordBatch: frame.Batch}) {
			return nil
		}
	}
	return err
}

// jsonFields returns the columns that JSON lines may have: those of exports and insertions, all of which may be null.
func jsonFields(extra []arrow.Field) []arrow.Field {
	schema, err := wire.SampleSchema(nil, extra...)
	if err != nil { // it has no names that could be wrong
		panic(err)
	}
	fields := append(schema.Fields(), arrow.Field{Name: "version", Type: arrow.PrimitiveTypes.Int32})
	for i := range fields {
		fields[i].Nullable = true
	}
	return fields
}

// Row is a row of a file as a JSON object.
type Row struct {
	Where string // the file and the line, or the row from 0 on
	JSON  []byte
}

// Rows returns the rows of files with any columns. An error ends them.
func (r *Reader) Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, f := range r.files {
			stopped := false
			err := f.rows(func(row Row) bool {
				stopped = !yield(row, nil)
				return !stopped
			})
			if err != nil && !stopped {
				yield(Row{}, f.named(err))
			}
			if err != nil || stopped {
				return
			}
		}
	}
}

func (d dataFile) rows(yield func(Row) bool) (err error) {
	if d.format == JSONL {
		f, _, err := d.open()
		if err != nil {
			return err
		}
		defer f.Close()
		return readLines(f, func(lines []line) bool {
			for _, l := range lines {
				if !yield(Row{fmt.Sprintf("%s: line %d", d.path, l.number), l.text}) {
					return false
				}
			}
			return true
		})
	}
	first := 0
	var wrong error
	err = d.read(nil, func(b batch) bool {
		defer b.Release()
		for i := range int(b.NumRows()) {
			var text []byte
			if text, wrong = appendRow(nil, b, i); wrong != nil {
				return false
			}
			if !yield(Row{fmt.Sprintf("%s: row %d", d.path, first+i), text}) {
				return false
			}
		}
		first += int(b.NumRows())
		return true
	})
	return errors.Join(wrong, err)
}

// Defaults of Options.
const (
	DefaultRollouts = 256
	DefaultBytes    = 64 << 20
)

// Options divide files into insertions. A group that exceeds a bound is an insertion by itself.
type Options struct {
	Extra    []arrow.Field  // user-defined columns that files may have
	Limits   rollout.Limits // of the table that the rollouts are for
	Rollouts int            // most in an insertion; 0: DefaultRollouts
	Bytes    int64          // most payload in an insertion; 0: DefaultBytes

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

// Insertions returns the rollouts, validated, in whole groups. Rows wait in memory until their group is complete: few
// of them if a group's rows are neighbours, as in an export that is not divided by version.
func (r *Reader) Insertions(o Options) iter.Seq2[Insertion, error] {
	o.Rollouts, o.Bytes = cmp.Or(o.Rollouts, DefaultRollouts), cmp.Or(o.Bytes, DefaultBytes)
	return func(yield func(Insertion, error) bool) {
		if err := r.countGroups(o); err != nil {
			yield(Insertion{}, err)
			return
		}
		a := assembly{missing: maps.Clone(r.groups), partial: make(map[uint64][]*rollout.Rollout)}
		for b, err := range r.batches(o.Extra) {
			if err == nil {
				err = b.decode(&a, o)
			}
			if err != nil {
				yield(Insertion{}, err)
				return
			}
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

// countGroups counts the rows of each group, once.
func (r *Reader) countGroups(o Options) error {
	if r.groups != nil {
		return nil
	}
	sizes := make(map[uint64]int)
	for b, err := range r.batches(o.Extra) {
		if err != nil {
			return err
		}
		labels, err := b.labels()
		if err != nil {
			return err
		}
		for _, l := range labels {
			if !l.alone {
				sizes[l.group]++
			}
		}
	}
	r.groups = sizes
	return nil
}

// decode decodes and validates a record batch and adds its rollouts to the assembly.
func (b *batch) decode(a *assembly, o Options) error {
	labels, err := b.labels()
	if err != nil {
		return err
	}
	insertion := withoutSampling(b, o.Recompute)
	defer insertion.Release()
	if has := insertion.Schema().HasField; !has("tokens") && (has("messages") || has("completion")) {
		return fmt.Errorf("%s has chats and no tokens: name the folder of a tokenizer (--tokenizer)", b.file)
	}
	groups, order, err := wire.Groups(insertion, o.Extra)
	if err == nil {
		err = validate(groups, order, o.Limits)
	}
	if err != nil {
		return b.located(err)
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

// validate validates every rollout. The error names the row of the first bad one. An export has advantage NaN for
// groups that wait for rewards: they have none yet.
func validate(groups []rollout.Group, order wire.Order, limits rollout.Limits) error {
	position := 0
	for _, g := range groups {
		for _, r := range g.Rollouts {
			if a := r.Advantage; limits.PendingRewards && a != nil && *a != *a {
				r.Advantage = nil
			}
			if err := r.Validate(limits); err != nil {
				return ofRow(err, order.Row(position))
			}
			position++
		}
	}
	return nil
}

// ofRow returns an error of a rollout with its row.
func ofRow(err error, row int) error {
	var field *rollout.FieldError
	if errors.As(err, &field) {
		moved := *field
		moved.Row = row
		return &moved
	}
	return err
}

// label is the group of a row.
type label struct {
	group uint64
	alone bool // it has none
}

func (b *batch) labels() (labels []label, err error) {
	defer func() { // a validity bitmap may be shorter than its column
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: group: damaged: %v", b.file, p)
		}
	}()
	if labels, err = labelsOf(b); err != nil {
		return nil, fmt.Errorf("%s: %w", b.file, err)
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
