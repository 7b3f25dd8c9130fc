package archive

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// awkward returns groups with what formats tend to lose: no log-probs, negative zero, the least and the greatest
// numbers, empty texts and images, several turns, names in any writing, all or none of the optional fields.
func awkward() []rollout.Group {
	nan, negative := float32(math.NaN()), float32(math.Copysign(0, -1))
	bare := rollout.New("", []int32{0}, rollout.Completion{Tokens: []int32{1}, Logprobs: []float32{nan}, Reward: negative})
	bare.Advantage = new(float32)
	full := rollout.New("\"quoted\"\n<ä>\u2028\x00😀", []int32{math.MaxInt32, 7}, rollout.Completion{
		Tokens: []int32{1, 2, 3, 4}, Version: math.MaxInt32,
		Logprobs: []float32{negative, -math.MaxFloat32, nan, -math.SmallestNonzeroFloat32}, Reward: 1e-9,
	})
	full.Mask[4], full.Logprobs[4], full.Versions[4] = 0, 0, rollout.NoVersion
	full.Versions[2] = 3
	full.Turns = []rollout.Turn{{Start: 2, End: 4, Reward: negative}, {Start: 5, End: 6, Reward: 0.1, Done: true}}
	advantage := negative
	full.Advantage, full.Advantages = &advantage, []float32{0, negative, 1, 0.1, 1e-45, 1e9}
	full.Values, full.RefLogprobs = full.Advantages, []float32{0, negative, -1, -0.1, -1e-45, -1e9}
	full.Text, full.Meta = "</think>&", map[string]string{"": "", "a.b": "1", "ü\\": "\t"}
	full.Images = [][]byte{{}, {0, 255, '"'}}
	full.RoutedExperts = []uint16{0, 65535, 1, 2, 3, 4}
	for i, m := range full.Mask {
		if m == 0 || i == 2 {
			full.SamplingMask.Append()
		} else {
			full.SamplingMask.Append(full.Tokens[i], math.MaxInt32)
		}
	}
	return append([]rollout.Group{{Rollouts: []*rollout.Rollout{bare}}, {Rollouts: []*rollout.Rollout{full, full}}},
		groupsOf(3, 1, 8, 2)...)
}

// dataset writes draws to a folder, rows of them to a record batch.
func dataset(t testing.TB, rows int, draws []rollout.Draw, o DatasetOptions) (string, Dataset) {
	t.Helper()
	schema, err := wire.SampleSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "table")
	var gatherer wire.Gatherer
	done, err := WriteDataset(path, schema, o, func(add func(arrow.RecordBatch) error) error {
		for part := range slices.Chunk(draws, rows) {
			rec, err := gatherer.Batch(part, schema)
			if err != nil {
				return err
			}
			defer rec.Release()
			if err := add(rec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || done.Rollouts != int64(len(draws)) {
		t.Fatalf("%+v were written, %v: want %d", done, err, len(draws))
	}
	return path, done
}

// sameBits demands that groups have the same rollouts to the bit. DeepEqual alone tells NaN from itself, but not 0 from
// -0.
func sameBits(t *testing.T, got, want []rollout.Group) {
	t.Helper()
	bits := func(groups []rollout.Group) []byte {
		rec, err := wire.Rows(groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Release()
		var b bytes.Buffer
		for i, c := range rec.Columns() {
			fmt.Fprintln(&b, rec.ColumnName(i), c.NullN())
			writeBits(&b, c.Data())
		}
		return b.Bytes()
	}
	if a, b := bits(got), bits(want); !bytes.Equal(a, b) {
		same(t, got, want)
		t.Fatal("the bits of numbers differ")
	}
}

func writeBits(b *bytes.Buffer, d arrow.ArrayData) {
	for _, buffer := range d.Buffers() {
		if buffer != nil {
			fmt.Fprintf(b, "%x\n", buffer.Bytes())
		}
	}
	for _, c := range d.Children() {
		writeBits(b, c)
	}
}

func TestADatasetIsReadBackToTheBit(t *testing.T) {
	want := awkward()
	for _, format := range []Format{Parquet, JSONL} {
		for _, rows := range []int{1, 4, 100} {
			path, _ := dataset(t, rows, drawsOf(want), DatasetOptions{Format: format})
			sameBits(t, groupsIn(mustRead(t, path, Options{})), want)
		}
	}
}

func TestADatasetByVersionHasTheSameRollouts(t *testing.T) {
	want := awkward()
	for _, format := range []Format{Parquet, JSONL} {
		path, done := dataset(t, 7, drawsOf(want), DatasetOptions{Format: format, ByVersion: true})
		if want := []rollout.Version{0, 1, 2, 3}; !slices.Equal(done.Versions, want) || done.Files != len(want) {
			t.Errorf("%+v: want versions %v", done, want)
		}
		for _, v := range done.Versions {
			part := filepath.Join(path, "data", fmt.Sprintf("version=%d", v))
			for _, g := range groupsIn(mustRead(t, part, Options{})) {
				for _, r := range g.Rollouts {
					if r.Version() != v {
						t.Errorf("%s has a rollout of version %d", part, r.Version())
					}
				}
			}
		}
		got := groupsIn(mustRead(t, path, Options{}))
		for _, groups := range [][]rollout.Group{got, want} {
			slices.SortStableFunc(groups, func(a, b rollout.Group) int {
				return cmp.Compare(a.Rollouts[0].PromptID, b.Rollouts[0].PromptID)
			})
		}
		sameBits(t, got, want)
	}
}

func TestManyVersionsAreWrittenWithFewOpenFiles(t *testing.T) {
	var draws []rollout.Draw
	for i := range 600 {
		r := rollout.New("p", []int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-1},
			Version: rollout.Version(i % 150)})
		draws = append(draws, rollout.Draw{ID: rollout.ID(i + 1), Group: uint64(i), Rollout: r})
	}
	path, done := dataset(t, 10, draws, DatasetOptions{Format: Parquet, ByVersion: true})
	if len(done.Versions) != 150 || done.Files != 600 {
		t.Errorf("%d versions in %d files", len(done.Versions), done.Files)
	}
	if n := len(groupsIn(mustRead(t, path, Options{}))); n != 600 {
		t.Errorf("%d of 600 rollouts came back", n)
	}
}

// The types that a user may declare.
func TestColumnsOfEveryTypeAreReadBackOrRefusedByName(t *testing.T) {
	var columns []wire.Column
	for i, typ := range []string{"bool", "int8", "int64", "uint16", "uint64", "float16", "float32", "float64", "utf8",
		"binary", "date32", "timestamp<s>", "timestamp<ms>", "timestamp<us>", "timestamp<ns>", "list<float32>",
		"list<list<utf8>>", "fixed_size_list<float32, 2>", "struct<a: int32, b: list<utf8>>", "map<utf8, int32>",
		"map<int32, utf8>", "list<map<utf8, float64>>", "fixed_size_list<fixed_size_list<int8, 2>, 2>",
		"fixed_size_list<float32, 2>"} {
		columns = append(columns, wire.Column{Name: fmt.Sprintf("x_%d", i), Type: typ})
	}
	extra, err := wire.ExtraFields(columns)
	if err != nil {
		t.Fatal(err)
	}
	groups := groupsOf(1, 1, 1)
	plain, err := wire.Rows(groups, nil)
	if err != nil {
		t.Fatal(err)
	}
	fields, arrays := plain.Schema().Fields(), plain.Columns()
	for i, f := range extra { // a third of the values are null
		b := array.NewBuilder(memory.DefaultAllocator, f.Type)
		for row := range 3 {
			if row == i%3 {
				b.AppendNull()
			} else {
				appendSome(b, row)
			}
		}
		fields, arrays = append(fields, f), append(arrays, b.NewArray())
	}
	rows := array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, 3)
	want, _, err := wire.Groups(rows, extra)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []Format{JSONL, Parquet} {
		path := filepath.Join(t.TempDir(), "table")
		write := func() error {
			_, err := WriteDataset(path, rows.Schema(), DatasetOptions{Format: format},
				func(add func(arrow.RecordBatch) error) error { return add(rows) })
			return err
		}
		err := write()
		if format == Parquet {
			if err == nil || !strings.Contains(err.Error(), "x_11: timestamp[s]: Parquet has no times in seconds") {
				t.Errorf("times in seconds: %v", err)
			}
			rows = rowsWithout(rows, "x_11")
			extra = slices.DeleteFunc(slices.Clone(extra), func(f arrow.Field) bool { return f.Name == "x_11" })
			if want, _, err = wire.Groups(rows, extra); err == nil {
				err = write()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		got := groupsIn(mustRead(t, path, Options{Extra: extra}))
		if len(got) != len(want) {
			t.Fatalf("%s: %d groups", format, len(got))
		}
		for i := range want {
			if !bytes.Equal(got[i].Rollouts[0].Extra, want[i].Rollouts[0].Extra) {
				t.Errorf("%s: the columns of rollout %d are\n%x\nwant\n%x", format, i, got[i].Rollouts[0].Extra,
					want[i].Rollouts[0].Extra)
			}
		}
		if _, err := read(t, path, Options{}); err == nil || !strings.Contains(err.Error(), "is not one of the table's") {
			t.Errorf("%s: read into a table without the columns: %v", format, err)
		}
	}
}

func rowsWithout(rec arrow.RecordBatch, name string) arrow.RecordBatch {
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range rec.Schema().Fields() {
		if f.Name != name {
			fields, columns = append(fields, f), append(columns, rec.Column(i))
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, rec.NumRows())
}

// appendSome appends a value of any type.
func appendSome(to array.Builder, row int) {
	switch b := to.(type) {
	case *array.BooleanBuilder:
		b.Append(row == 1)
	case *array.Int8Builder:
		b.Append(-128)
	case *array.Int32Builder:
		b.Append(int32(-row))
	case *array.Int64Builder:
		b.Append(math.MinInt64)
	case *array.Uint16Builder:
		b.Append(65535)
	case *array.Uint64Builder:
		b.Append(math.MaxUint64)
	case *array.Float16Builder:
		b.Append(float16.New(-0.1))
	case *array.Float32Builder:
		b.Append(0.1)
	case *array.Float64Builder:
		b.Append(math.Copysign(0, -1))
	case *array.StringBuilder:
		b.Append([]string{"", "ä\"", "\\"}[row])
	case *array.BinaryBuilder:
		b.Append([]byte{0, byte(row)})
	case *array.Date32Builder:
		b.Append(-1)
	case *array.TimestampBuilder:
		b.Append(1<<40 + 1)
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendSome(b.FieldBuilder(i), row)
		}
	case *array.MapBuilder:
		b.Append(true)
		appendSome(b.KeyBuilder(), row)
		appendSome(b.ItemBuilder(), row)
	case *array.FixedSizeListBuilder:
		b.Append(true)
		appendSome(b.ValueBuilder(), row)
		appendSome(b.ValueBuilder(), row)
	case *array.ListBuilder:
		b.Append(true)
		for range row {
			appendSome(b.ValueBuilder(), row)
		}
	}
}

func TestWhatJSONCannotHoldIsRefusedByName(t *testing.T) {
	extra, err := wire.ExtraFields([]wire.Column{{Name: "x_score", Type: "float64"}})
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues([]float64{1, math.NaN()}, nil)
	ids := array.NewUint64Builder(memory.DefaultAllocator)
	ids.AppendValues([]uint64{7, 8}, nil)
	schema := arrow.NewSchema(append([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Uint64}}, extra...), nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{ids.NewArray(), b.NewArray()}, 2)
	path := filepath.Join(t.TempDir(), "table")
	_, err = WriteDataset(path, schema, DatasetOptions{Format: JSONL},
		func(add func(arrow.RecordBatch) error) error { return add(rec) })
	for _, want := range []string{"x_score of rollout 8", "NaN", "--columns", "parquet"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func TestAnExportThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "table")
	schema, err := wire.SampleSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	var gatherer wire.Gatherer
	fail := func(add func(arrow.RecordBatch) error) error {
		rec, err := gatherer.Batch(drawsOf(groupsOf(2)), schema)
		if err == nil {
			err = add(rec)
		}
		return errors.Join(err, broken)
	}
	none := func(func(arrow.RecordBatch) error) error { return nil }
	entries := func() string {
		list, err := os.ReadDir(dir)
		return fmt.Sprint(list, err)
	}
	for _, format := range []Format{Parquet, JSONL} {
		if _, err := WriteDataset(path, schema, DatasetOptions{Format: format}, fail); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if got := entries(); got != "[] <nil>" {
			t.Errorf("after a failure there is %s", got)
		}
	}
	if _, err := WriteDataset(path, schema, DatasetOptions{Format: Parquet}, none); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteDataset(path, schema, DatasetOptions{Format: JSONL}, none); err == nil ||
		!strings.Contains(err.Error(), "exists; --force") {
		t.Errorf("over another: %v", err)
	}
	if _, err := WriteDataset(path, schema, DatasetOptions{Format: JSONL, Replace: true}, fail); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if got, err := filepath.Glob(filepath.Join(path, "data", "*.parquet")); len(got) != 1 {
		t.Errorf("a failed export took what was there: %v, %v", got, err)
	}
	if _, err := WriteDataset(path, schema, DatasetOptions{Format: JSONL, Replace: true}, none); err != nil {
		t.Error(err)
	}
	if got := entries(); got != "[d table/] <nil>" {
		t.Errorf("there is %s", got)
	}
	if all := mustRead(t, path, Options{}); len(all) != 0 {
		t.Errorf("an empty dataset has %d insertions", len(all))
	}
	if err := os.WriteFile(filepath.Join(path, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteDataset(path, schema, DatasetOptions{Format: JSONL, Replace: true}, none); err == nil ||
		!strings.Contains(err.Error(), "thesis.tex, which no export wrote") {
		t.Errorf("over somebody's folder: %v", err)
	}
}

// lines reads JSON lines.
func lines(t testing.TB, text string) ([]Insertion, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return read(t, path, Options{})
}

const goodLine = `{"tokens":[1,2],"mask":[0,1],"logprobs":[0,-0.5],"reward":1,"version":3}`

func TestJSONLinesOfOtherProgramsAreRead(t *testing.T) {
	all, err := lines(t, "\ufeff\n"+goodLine+"\r\n\n"+
		` { "meta" : {"a":"b\n"}, "version":3 , "reward":1e0,"logprobs":[ 0 , null ],`+
		`"mask":[0,1], "tokens" : [1 ,2], "turns":null,"group":null,"text":"\u00e4\ud83d\ude00" } `)
	if err != nil {
		t.Fatal(err)
	}
	groups := groupsIn(all)
	if len(groups) != 2 {
		t.Fatalf("%d groups", len(groups))
	}
	r := groups[1].Rollouts[0]
	if r.Text != "ä😀" || !reflect.DeepEqual(r.Meta, map[string]string{"a": "b\n"}) || r.LogprobsKnown() ||
		r.Versions[1] != 3 {
		t.Errorf("the rollout is %+v", r)
	}
}

func TestErrorsOfJSONLinesNameLineFieldValueAndRemedy(t *testing.T) {
	for text, want := range map[string]string{
		`{"tokens":[1,2],`:                                "line 3: character 16 is unexpected end of JSON input: write",
		`[1]`:                                             "line 3: the line is [1]: write one JSON object a line",
		`{"tokens":[1,2.5]}`:                              "line 3: tokens[1] is 2.5: give int32",
		`{"tokens":[3000000000]}`:                         "line 3: tokens[0] is 3000000000: give int32",
		`{"tokens":[1],"mask":[true]}`:                    "line 3: mask[0] is true: give uint8",
		`{"tokens":7}`:                                    "line 3: tokens is 7: give list<",
		`{"tokens":[1],"tokens":[1]}`:                     `line 3: "tokens" is given twice: give it once`,
		`{"turns":[{"start":"0"}]}`:                       `line 3: turns[0].start is "0": give int32`,
		`{"turns":[{"begin":0}]}`:                         "line 3: turns[0].begin is unknown: leave it out",
		`{"meta":{"a":1}}`:                                "line 3: meta.a is 1: give utf8",
		`{"images":["%"]}`:                                `line 3: images[0] is "%": give binary`,
		`{"truncated":1}`:                                 "line 3: truncated is 1: give bool",
		`{"text":"` + "\xff" + `"}`:                       "line 3: text is \"\xff\": give utf8",
		strings.Replace(goodLine, "-0.5", "5", 1):         "line 3: logprobs[1] is 5:",
		strings.Replace(goodLine, "[0,1]", "[0,null]", 1): "line 3: mask[1] is null: give a value",
		strings.Replace(goodLine, `"reward":1`, `"reward":null`, 1): "line 3: reward is null: give a value",
		strings.Replace(goodLine, `"reward"`, `"rewrad"`, 1):        "column rewrad is unknown",
	} {
		_, err := lines(t, goodLine+"\n\n"+text+"\n")
		if err == nil || !strings.Contains(err.Error(), "rows.jsonl") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestChatsAreRefusedWithoutATokenizer(t *testing.T) {
	_, err := lines(t, `{"messages":[{"role":"user","content":"a"}]}`)
	if err == nil || !strings.Contains(err.Error(), "--tokenizer") {
		t.Error(err)
	}
}

func TestRowsAreGivenAsJSONWhateverTheirColumns(t *testing.T) {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.AppendValues([]string{"a\"", ""}, []bool{true, false})
	schema := arrow.NewSchema([]arrow.Field{{Name: "prompt", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 2)
	path := filepath.Join(t.TempDir(), "table")
	if _, err := WriteDataset(path, schema, DatasetOptions{Format: Parquet},
		func(add func(arrow.RecordBatch) error) error { return add(rec) }); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for row, err := range r.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.Base(row.Where)+" "+string(row.JSON))
	}
	want := []string{`part-00000.parquet: row 0 {"prompt":"a\""}`, `part-00000.parquet: row 1 {}`}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q", got)
	}
}

// Pages have no checksums: what is damaged inside a page may come out as other valid rollouts.
func TestDamagedParquetIsRefusedOrHoldsValidRollouts(t *testing.T) {
	folder, _ := dataset(t, 100, drawsOf(awkward()), DatasetOptions{Format: Parquet})
	whole, err := os.ReadFile(filepath.Join(folder, "data", "part-00000.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	random := rollout.Stream(4, "archive test", 0)
	path := filepath.Join(t.TempDir(), "damaged.parquet")
	refused := 0
	files := tests.Count(600, 150)
	for i := range files {
		damaged := slices.Clone(whole)
		if i%4 == 0 {
			damaged = damaged[:random.IntN(len(damaged))]
		} else {
			damaged[random.IntN(len(damaged))] ^= byte(1 + random.IntN(255))
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := read(t, path, Options{})
		if err != nil {
			refused++
			continue
		}
		for _, g := range groupsIn(all) {
			for _, r := range g.Rollouts {
				if err := r.Validate(rollout.Limits{UnknownLogprobs: true}); err != nil {
					t.Fatalf("a bad rollout came out: %v", err)
				}
			}
		}
	}
	if refused < files/4 {
		t.Errorf("%d of %d damaged files were refused", refused, files)
	}
}

// What is read has the types of its columns, and written and read again it has the same bits.
func FuzzReadingJSONLines(f *testing.F) {
	f.Add(goodLine)
	f.Add(`{"meta":{"a":"b"},"turns":[{"start":0,"end":1}],"images":["aGk="],"id":1,"x":[[{}]],"probability":null}`)
	path, _ := dataset(f, 100, drawsOf(awkward()), DatasetOptions{Format: JSONL})
	whole, err := os.ReadFile(filepath.Join(path, "data", "part-00000.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(whole)) {
		f.Add(line)
	}
	fields := jsonFields(nil)
	f.Fuzz(func(t *testing.T, text string) {
		var read arrow.RecordBatch
		err := readLines(strings.NewReader(text), func(lines []line) bool {
			rec, err := decodeLines(lines, fields)
			if err != nil {
				return false
			}
			if groups, order, err := wire.Groups(withoutSampling(rec, false), nil); err == nil {
				_ = validate(groups, order, rollout.Limits{})
			}
			read = rec
			return true
		})
		if err != nil || read == nil {
			return
		}
		var written []line
		for row := range int(read.NumRows()) {
			text, err := appendRow(nil, read, row)
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, line{row + 1, text})
		}
		again, err := decodeLines(written, fields)
		if err != nil {
			t.Fatalf("%+v: %v", written, err)
		}
		for i, c := range again.Columns() { // a column that is null in all rows is not written
			name := again.ColumnName(i)
			before := read.Column(read.Schema().FieldIndices(name)[0])
			if a, b := fmt.Sprint(c), fmt.Sprint(before); a != b {
				t.Errorf("%s is %s, and was %s", name, a, b)
			}
		}
	})
}
