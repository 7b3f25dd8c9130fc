// Package wire defines what the service and its clients send each other: the Arrow schemas of rollouts and the
// conversion to and from them, the JSON of requests and answers, and the codes of errors.
//
// Rollouts travel as Arrow record batches, one row each. Everything else is small and travels as JSON, so that a
// program with a stock Arrow Flight client needs nothing of ours. [Rows] encodes insertions and [Groups] decodes them;
// [Gatherer] encodes sampled batches and [Draws] decodes them. In the schemas' own types ([InsertSchema],
// [SampleSchema]) whole slices are copied without a look at the values. Groups also accepts what pa.table makes by
// default, and other types that convert without loss.
//
// Data from a network is not trusted: Groups and Draws check every offset before they follow it. Their errors name
// column, row, value and remedy. rollout.Validate checks what the values mean.
//
// A table may have user-defined columns ([Column]). They travel with their rollouts through the table as bytes that
// only this package reads (rollout.Rollout.Extra).
package wire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// The metadata of both schemas has their version under schemaKey.
const (
	schemaVersion = 1
	schemaKey     = "reprise.schema"
)

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

// commonFields returns the columns that insertions and sampled batches share, in order. An insertion may leave the
// nullable ones out.
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
		{Name: "sampling_mask", Type: listOf(ints), Nullable: true},
		{Name: "routed_experts", Type: listOf(arrow.PrimitiveTypes.Uint16), Nullable: true},
		{Name: "images", Type: listOf(arrow.BinaryTypes.Binary), Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "meta", Type: metaType(), Nullable: true},
	}
}

// drawFields returns the columns that sampling adds before and after the common ones.
func drawFields() (before, after []arrow.Field) {
	before = []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Uint64},
		{Name: "group", Type: arrow.PrimitiveTypes.Uint64}}
	after = []arrow.Field{
		{Name: "probability", Type: arrow.PrimitiveTypes.Float64},
		{Name: "weight", Type: arrow.PrimitiveTypes.Float32},
		{Name: "staleness", Type: arrow.PrimitiveTypes.Int32},
		{Name: "uses", Type: arrow.PrimitiveTypes.Int32},
		{Name: "group_mean", Type: arrow.PrimitiveTypes.Float32},
		{Name: "group_std", Type: arrow.PrimitiveTypes.Float32},
		{Name: "fresh", Type: arrow.FixedWidthTypes.Boolean},
		{Name: "redelivered", Type: arrow.FixedWidthTypes.Boolean},
	}
	return before, after
}

func newSchema(fields []arrow.Field) *arrow.Schema {
	version := arrow.NewMetadata([]string{schemaKey}, []string{strconv.Itoa(schemaVersion)})
	return arrow.NewSchema(fields, &version)
}

func insertFields(extra []arrow.Field) []arrow.Field {
	return slices.Concat(commonFields(), []arrow.Field{{Name: "group", Type: arrow.PrimitiveTypes.Uint64}}, extra)
}

// InsertSchema returns the schema of insertions that [Rows] writes: the common columns, group, and the user-defined
// columns as [ExtraFields] returns them. [Groups] accepts others.
func InsertSchema(extra ...arrow.Field) *arrow.Schema { return newSchema(insertFields(extra)) }

func sampleFields(extra []arrow.Field) []arrow.Field {
	before, after := drawFields()
	all := slices.Concat(before, commonFields(), extra, after)
	for i := range all {
		if all[i].Name == "advantage" {
			all[i].Nullable = false
		}
	}
	return all
}

// SampleSchema returns the schema of sampled batches with the named columns in that order, or with all columns if there
// are no names: what was inserted, the user-defined columns, and what sampling adds. Column group is the table's number
// of the group; advantage is that of the draw and never null.
func SampleSchema(columns []string, extra ...arrow.Field) (*arrow.Schema, error) {
	all := sampleFields(extra)
	if len(columns) == 0 {
		return newSchema(all), nil
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
	return newSchema(fields), nil
}

// suggestion ends an error message with the name that was probably meant, or with all names.
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

// editDistance returns how many bytes must be inserted, removed or replaced to turn a into b (Levenshtein). Long names
// are cut.
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
