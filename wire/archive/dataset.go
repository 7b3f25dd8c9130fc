package archive

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/rollout"
)

// Format is how rows are written.
type Format string

// The formats. Datasets have one of the latter two.
const (
	Arrow   Format = "arrow"
	Parquet Format = "parquet"
	JSONL   Format = "jsonl" // JSON lines
)

// extension ends the names of files.
func (f Format) extension() string { return "." + string(f) }

// DatasetOptions say how a dataset is written.
type DatasetOptions struct {
	Format    Format
	ByVersion bool   // a folder for each version of the rollouts: that of their oldest token
	Replace   bool   // a dataset that is there
	About     string // sentence of the card, such as where the rollouts come from
}

// Dataset is what was written.
type Dataset struct {
	Rollouts int64
	Files    int
	Bytes    int64
	Versions []rollout.Version // with ByVersion, ascending
}

const (
	cardFile   = "README.md"
	dataFolder = "data"

	fileBytes = 512 << 20 // after which a file is complete and the next begins
	openFiles = 64        // of different versions
	heldBytes = 64 << 20  // of row groups that are not complete, over all files
)

// WriteDataset writes a folder of the record batches that fill adds: files under data, and a card that Hugging Face's
// datasets reads. All of the schema is written, with lists of pairs in place of maps. The folder gets its name once it
// is complete and on disk; after an error, of fill too, nothing of it is left. Memory is bounded, however large the
// dataset is.
func WriteDataset(path string, schema *arrow.Schema, o DatasetOptions,
	fill func(add func(arrow.RecordBatch) error) error) (Dataset, error) {
	if err := checkPlace(path, o.Replace); err != nil {
		return Dataset{}, err
	}
	if o.ByVersion && len(schema.FieldIndices(versionsColumn)) == 0 {
		return Dataset{}, fmt.Errorf("to part rollouts by version, column %s is needed: add it", versionsColumn)
	}
	d := &datasetWriter{options: o, from: schema, schema: portableSchema(schema), parts: make(map[int32]*part)}
	err := disk.ReplaceFolder(path, func(folder string) (err error) {
		defer func() { err = errors.Join(err, d.closeAll()) }()
		d.folder = folder
		if err := fill(d.add); err != nil {
			return err
		}
		return d.finish()
	})
	if err != nil {
		return Dataset{}, fmt.Errorf("write %s: %w", path, err)
	}
	d.done.Versions = slices.Sorted(maps.Keys(d.versions))
	return d.done, nil
}

// checkPlace returns an error unless a path is free, or is a dataset that may be replaced: a folder with anything else
// in it is somebody's.
func checkPlace(path string, replace bool) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: want a folder that does not exist", err)
	case !replace:
		return fmt.Errorf("%s: exists; --force replaces it", path)
	}
	for _, e := range entries {
		if e.Name() != cardFile && e.Name() != dataFolder {
			return fmt.Errorf("%s has %s, which no export wrote: want another folder", path, e.Name())
		}
	}
	return nil
}

const versionsColumn = "versions"

// rowWriter writes record batches of one schema to a file.
type rowWriter interface {
	write(rec arrow.RecordBatch) error
	held() int64  // bytes of payload in memory
	flush() error // writes those
	close() error
}

func (f Format) writer(to io.Writer, schema *arrow.Schema) (rowWriter, error) {
	switch f {
	case Parquet:
		return newParquetWriter(to, schema)
	case JSONL:
		return newJSONWriter(to, schema)
	}
	return nil, fmt.Errorf("format %q: want %s or %s", f, Parquet, JSONL)
}

// part is the files of one version, or of all.
type part struct {
	folder string
	files  int       // so far
	last   int       // when it was last written to
	rows   rowWriter // of the open file; nil: none is open
	file   *os.File
	buffer *bufio.Writer
	bytes  int64 // of the open file
}

// Write counts what goes into the open file.
func (p *part) Write(b []byte) (int, error) {
	n, err := p.buffer.Write(b)
	p.bytes += int64(n)
	return n, err
}

// datasetWriter divides record batches among files.
type datasetWriter struct {
	options      DatasetOptions
	folder       string
	from, schema *arrow.Schema // of what comes, and of what is written
	parts        map[int32]*part
	versions     map[rollout.Version]bool
	writes       int
	done         Dataset
}

// add writes a record batch.
func (d *datasetWriter) add(rec arrow.RecordBatch) error {
	rec, err := portable(rec, d.schema)
	if err != nil {
		return err
	}
	defer rec.Release()
	d.done.Rollouts += rec.NumRows()
	if !d.options.ByVersion {
		return d.write(0, rec)
	}
	rows, err := rowsByVersion(rec)
	if err != nil {
		return err
	}
	for _, version := range slices.Sorted(maps.Keys(rows)) {
		some, err := concatenate(rec, rows[version])
		if err != nil {
			return err
		}
		err = d.write(version, some)
		some.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// rowsByVersion returns the runs of rows of each version: the oldest of the policy's tokens.
func rowsByVersion(rec arrow.RecordBatch) (map[int32][]run, error) {
	column, ok := rec.Column(rec.Schema().FieldIndices(versionsColumn)[0]).(*array.List)
	if !ok {
		return nil, fmt.Errorf("%s: not a list", versionsColumn)
	}
	all, ok := column.ListValues().(*array.Int32)
	if !ok {
		return nil, fmt.Errorf("%s: not a list of int32", versionsColumn)
	}
	rows := make(map[int32][]run)
	for i := range column.Len() {
		oldest := int32(math.MaxInt32)
		start, end := column.ValueOffsets(i)
		for _, v := range all.Int32Values()[start:end] {
			if v != int32(rollout.NoVersion) {
				oldest = min(oldest, v)
			}
		}
		rows[oldest] = extendRuns(rows[oldest], int64(i))
	}
	return rows, nil
}

// write writes rows of one version to its file.
func (d *datasetWriter) write(version int32, rec arrow.RecordBatch) error {
	p := d.parts[version]
	if p == nil {
		p = &part{folder: filepath.Join(d.folder, dataFolder)}
		if d.options.ByVersion {
			p.folder = filepath.Join(p.folder, versionFolder(version))
			if d.versions == nil {
				d.versions = make(map[rollout.Version]bool)
			}
			d.versions[rollout.Version(version)] = true
		}
		d.parts[version] = p
	}
	if p.rows != nil && p.bytes >= fileBytes {
		if err := d.close(p); err != nil {
			return err
		}
	}
	if p.rows == nil {
		if err := d.open(p); err != nil {
			return err
		}
	}
	d.writes++
	p.last = d.writes
	if err := p.rows.write(rec); err != nil {
		return err
	}
	return d.flush()
}

// flush writes the largest of the incomplete row groups if they hold too much.
func (d *datasetWriter) flush() error {
	total, largest := int64(0), (*part)(nil)
	for _, p := range d.parts {
		if p.rows == nil {
			continue
		}
		if total += p.rows.held(); largest == nil || p.rows.held() > largest.rows.held() {
			largest = p
		}
	}
	if total <= heldBytes {
		return nil
	}
	return largest.rows.flush()
}

func versionFolder(version int32) string { return fmt.Sprintf("version=%d", version) }

// open begins the next file of a part, and completes that of another if too many are open.
func (d *datasetWriter) open(p *part) (err error) {
	var open []*part
	for _, other := range d.parts {
		if other.rows != nil {
			open = append(open, other)
		}
	}
	if len(open) >= openFiles {
		if err := d.close(slices.MinFunc(open, func(a, b *part) int { return cmp.Compare(a.last, b.last) })); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return err
	}
	name := fmt.Sprintf("part-%05d%s", p.files, d.options.Format.extension())
	if p.file, err = os.Create(filepath.Join(p.folder, name)); err != nil {
		return err
	}
	p.files++
	d.done.Files++
	p.bytes, p.buffer = 0, bufio.NewWriterSize(p.file, 256<<10)
	if p.rows, err = d.options.Format.writer(p, d.schema); err != nil {
		return errors.Join(err, p.file.Close())
	}
	return nil
}

// close completes a part's open file.
func (d *datasetWriter) close(p *part) error {
	rows := p.rows
	p.rows = nil
	err := errors.Join(rows.close(), p.buffer.Flush(), p.file.Sync(), p.file.Close(), disk.SyncFolder(p.folder))
	d.done.Bytes += p.bytes
	return err
}

// closeAll completes all open files.
func (d *datasetWriter) closeAll() (err error) {
	for _, p := range d.parts {
		if p.rows != nil {
			err = errors.Join(err, d.close(p))
		}
	}
	return err
}

// finish completes the files and writes the card. A dataset without rollouts has one file without rows.
func (d *datasetWriter) finish() error {
	if len(d.parts) == 0 {
		p := &part{folder: filepath.Join(d.folder, dataFolder)}
		d.parts[0] = p
		if err := d.open(p); err != nil {
			return err
		}
	}
	if err := d.closeAll(); err != nil {
		return err
	}
	card, err := d.card()
	if err != nil {
		return err
	}
	return errors.Join(disk.SyncFolder(filepath.Join(d.folder, dataFolder)),
		disk.WriteFile(filepath.Join(d.folder, cardFile), card))
}

// card returns the dataset's card. Its head is YAML that datasets reads: which files there are, for all rollouts and
// for those of each version, and with JSON the types of columns, which it would otherwise guess from the first lines.
func (d *datasetWriter) card() ([]byte, error) {
	var b strings.Builder
	files := "*" + d.options.Format.extension()
	names, paths := []string{"default"}, []string{dataFolder + "/**/" + files}
	for _, v := range slices.Sorted(maps.Keys(d.versions)) {
		names = append(names, fmt.Sprintf("version-%d", v))
		paths = append(paths, fmt.Sprintf("%s/%s/%s", dataFolder, versionFolder(int32(v)), files))
	}
	b.WriteString("---\ntags: [reinforcement-learning, rollouts, reprise]\nconfigs:\n")
	for i, name := range names {
		fmt.Fprintf(&b, "- config_name: %s\n  data_files: [{split: train, path: \"%s\"}]\n", name, paths[i])
	}
	if d.options.Format == JSONL {
		list, err := json.Marshal(features(d.schema.Fields()))
		if err != nil {
			return nil, err
		}
		b.WriteString("dataset_info:\n")
		for i, name := range names {
			value := "*features"
			if i == 0 {
				value = "&features " + string(list)
			}
			fmt.Fprintf(&b, "- config_name: %s\n  features: %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "---\n\n# Rollouts\n\n%s\n\n", d.options.About)
	b.WriteString("A row is a rollout: `tokens`, prompts included, with `mask` 1 where the policy produced the token, " +
		"and its\n`logprobs` and `versions` of the weights. A log-prob that nobody knows is NaN")
	if d.options.Format == JSONL {
		b.WriteString(", null in JSON")
	}
	b.WriteString(". docs/protocol.md of Reprise\ndescribes all columns; `reprise import` reads this folder into a " +
		"table.\n\n| column | type |\n|---|---|\n")
	for _, f := range d.schema.Fields() {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", f.Name, shortType(f.Type))
	}
	return []byte(b.String()), nil
}

// shortType names a type as a reader of the card does.
func shortType(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.StructType:
		fields := make([]string, t.NumFields())
		for i, f := range t.Fields() {
			fields[i] = f.Name + ": " + shortType(f.Type)
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	case arrow.ListLikeType:
		return "list<" + shortType(t.Elem()) + ">"
	}
	return t.String()
}

// features returns the types of columns as dataset_info has them. What JSON has no form for is what stands there.
func features(fields []arrow.Field) []map[string]any {
	list := make([]map[string]any, len(fields))
	for i, f := range fields {
		kind, is := feature(f.Type)
		list[i] = map[string]any{"name": f.Name, kind: is}
	}
	return list
}

func feature(t arrow.DataType) (kind string, is any) {
	switch t := t.(type) {
	case *arrow.StructType:
		return "struct", features(t.Fields())
	case arrow.ListLikeType:
		kind, is := feature(t.Elem())
		if kind == "list" {
			return "list", map[string]any{kind: is}
		}
		return "list", is
	case *arrow.BinaryType, *arrow.StringType:
		return "dtype", "string"
	case *arrow.Date32Type:
		return "dtype", "int32"
	case *arrow.TimestampType:
		return "dtype", "int64"
	case *arrow.Float16Type:
		return "dtype", "float16"
	}
	return "dtype", t.Name()
}
