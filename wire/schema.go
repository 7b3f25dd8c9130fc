package wire

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// SchemaVersion is the version of both schemas, which stands in their metadata under SchemaKey.
const (
	SchemaVersion = 1
	SchemaKey     = "reprise.schema"
)

// extraPrefix begins the names of the columns of the user's own.
const extraPrefix = "x_"

func listOf(t arrow.DataType) arrow.DataType { return arrow.ListOfNonNullable(t) }

func turnsType() arrow.DataType {
	return listOf(arrow.StructOf(
		arrow.Field{Name: "start", Type: arrow.PrimitiveTypes.Int32},
		arrow.Field{Name: "end", Type: arrow.PrimitiveTypes.Int32},
		arrow.Field{Name: "reward", Type: arrow.PrimitiveTypes.Float32},
		arrow.Field{Name: "done", Type: arrow.FixedWidthTypes.Boolean},
	))
}

func metaType() arrow.DataType {
	t := arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)
	t.SetItemNullable(false)
	return t
}

// commonFields are the columns that insertions and sampled batches share, in order. Those that are nullable may be left
// out of an insertion.
func commonFields() []arrow.Field {
	ints, floats := listOf(arrow.PrimitiveTypes.Int32), listOf(arrow.PrimitiveTypes.Float32)
	return []arrow.Field{
		{Name: "prompt_id", Type: arrow.BinaryTypes.String},
		{Name: "tokens", Type: ints},
		{Name: "mask", Type: listOf(arrow.PrimitiveTypes.Uint8)},
		{Name: "logprobs", Type: floats},
		{Name: "versions", Type: ints},
		{Name: "temperature", Type: arrow.PrimitiveTypes.Float32},
		{Name: "top_p", Type: arrow.PrimitiveTypes.Float32},
		{Name: "reward", Type: arrow.PrimitiveTypes.Float32},
		{Name: "truncated", Type: arrow.FixedWidthTypes.Boolean},
		{Name: "turns", Type: turnsType(), Nullable: true},
		{Name: "advantage", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
		{Name: "advantages", Type: floats, Nullable: true},
		{Name: "values", Type: floats, Nullable: true},
		{Name: "ref_logprobs", Type: floats, Nullable: true},
		{Name: "images", Type: listOf(arrow.BinaryTypes.Binary), Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "meta", Type: metaType(), Nullable: true},
	}
}

// drawFields are the columns that sampling adds, before and after the common ones.
func drawFields() (before, after []arrow.Field) {
	before = []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Uint64}, {Name: "group", Type: arrow.PrimitiveTypes.Uint64}}
	after = []arrow.Field{
		{Name: "probability", Type: arrow.PrimitiveTypes.Float64},
		{Name: "weight", Type: arrow.PrimitiveTypes.Float32},
		{Name: "staleness", Type: arrow.PrimitiveTypes.Int32},
		{Name: "uses", Type: arrow.PrimitiveTypes.Int32},
		{Name: "group_mean", Type: arrow.PrimitiveTypes.Float32},
		{Name: "group_std", Type: arrow.PrimitiveTypes.Float32},
		{Name: "fresh", Type: arrow.FixedWidthTypes.Boolean},
	}
	return before, after
}

func versionMetadata() *arrow.Metadata {
	m := arrow.NewMetadata([]string{SchemaKey}, []string{"1"})
	return &m
}

// InsertSchema returns the schema that [Rows] makes of groups: the columns that insertions and sampling share and group, then
// the table's own, as [ExtraFields] gives them. Insertions by others may differ from it as [Groups] says.
func InsertSchema(extra ...arrow.Field) *arrow.Schema {
	fields := append(commonFields(), arrow.Field{Name: "group", Type: arrow.PrimitiveTypes.Uint64})
	return arrow.NewSchema(append(fields, extra...), versionMetadata())
}

// SampleSchema returns the schema of sampled batches with the named columns, in that order; none stands for all there are: what
// was inserted, the table's own columns, and what sampling adds. Its group is the table's number, and its advantage that of the
// draw, which is never null. A name that is no column is an error.
func SampleSchema(columns []string, extra ...arrow.Field) (*arrow.Schema, error) {
	before, after := drawFields()
	all := slices.Concat(before, commonFields(), extra, after)
	for i := range all {
		if all[i].Name == "advantage" {
			all[i].Nullable = false
		}
	}
	if len(columns) == 0 {
		return arrow.NewSchema(all, versionMetadata()), nil
	}
	fields := make([]arrow.Field, len(columns))
	for i, name := range columns {
		at := slices.IndexFunc(all, func(f arrow.Field) bool { return f.Name == name })
		if at < 0 {
			return nil, Errorf(Invalid, "columns: %q: want columns of a sampled batch%s", name, suggestion(name, all))
		}
		if slices.Contains(columns[:i], name) {
			return nil, Errorf(Invalid, "columns: %q: want each column once", name)
		}
		fields[i] = all[at]
	}
	return arrow.NewSchema(fields, versionMetadata()), nil
}

// suggestion names the column that was probably meant, and else all of them.
func suggestion(name string, of []arrow.Field) string {
	best, distance := "", 1+len(name)/3
	names := make([]string, len(of))
	for i, f := range of {
		names[i] = f.Name
		if d := editDistance(strings.ToLower(name), f.Name); d <= distance {
			best, distance = f.Name, d-1
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	return ": " + strings.Join(names, ", ")
}

// editDistance is how many letters must be put in, left out or replaced to turn a into b. Names are short: longer ones are cut.
func editDistance(a, b string) int {
	const most = 64
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
