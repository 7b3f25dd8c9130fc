package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/rollout"
)

func TestGroupsSurviveEncodingAndDecoding(t *testing.T) {
	fields := extraFields(t, someColumns()...)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		want := randomGroups(r, r.IntN(6))
		withExtra(r, want, fields)
		rec, err := Rows(want, fields)
		if err != nil {
			t.Fatal(err)
		}
		got, order, err := Groups(rec, fields)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		rec.Release()
		if !reflect.DeepEqual(got, want) && len(want) > 0 {
			t.Fatalf("seed %d: %s", seed, difference(got, want))
		}
		for i, position := range order {
			if i != position || order.Row(i) != i {
				t.Fatalf("seed %d: row %d is at %d", seed, i, position)
			}
		}
	}
}

func TestRowsOfAGroupNeedNotBeNeighbours(t *testing.T) {
	columns := fourRows(t)
	columns["group"] = values(t, "uint64", `[5, null, 9, 5]`)
	groups, order, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	var tokens [][]int32
	for _, g := range groups {
		for _, r := range g.Rollouts {
			tokens = append(tokens, r.Tokens)
		}
	}
	if want := [][]int32{{1, 2}, {8, 9}, {3, 4, 5}, {6, 7}}; len(groups) != 3 || !reflect.DeepEqual(tokens, want) {
		t.Errorf("got %d groups of %v, want 3 of %v", len(groups), tokens, want)
	}
	if want := (Order{0, 2, 3, 1}); !reflect.DeepEqual(order, want) {
		t.Errorf("the rows went to %v, want %v", order, want)
	}
	if order.Row(1) != 3 || order.Row(4) != -1 {
		t.Errorf("position 1 is row %d, position 4 row %d", order.Row(1), order.Row(4))
	}
}

func TestMissingColumnsHaveDefaults(t *testing.T) {
	groups, _, err := Groups(batch(t, fourRows(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 4 {
		t.Fatalf("%d groups", len(groups))
	}
	want := &rollout.Rollout{
		Tokens: []int32{3, 4, 5}, Mask: []uint8{0, 1, 1}, Logprobs: []float32{0, -0.5, -0.25},
		Versions: []rollout.Version{-1, 8, 8}, Temperature: 1, TopP: 1,
	}
	if got := groups[1].Rollouts[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := groups[1].Validate(rollout.Limits{}); err != nil {
		t.Error(err)
	}
}

func TestNullsCountAsMissing(t *testing.T) {
	columns := fourRows(t)
	for name, typ := range map[string]string{
		"prompt_id": "utf8", "temperature": "float32", "top_p": "float32", "truncated": "bool",
		"turns":     "list<struct<start:int32,end:int32>>",
		"advantage": "float32", "advantages": "list<float32>", "values": "list<float32>",
		"ref_logprobs": "list<float32>", "sampling_mask": "list<list<int32>>", "routed_experts": "list<uint16>",
		"images": "list<binary>", "text": "utf8", "meta": "map<utf8,utf8>", "versions": "list<int32>", "group": "int64",
	} {
		columns[name] = values(t, typ, `[null, null, null, null]`)
	}
	for _, name := range []string{"text", "values", "turns"} {
		columns[name] = array.NewNull(4)
	}
	got, _, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := Groups(batch(t, fourRows(t)), nil)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestNullListsOfTheSamplingMaskAreEmpty(t *testing.T) {
	columns := fourRows(t)
	columns["sampling_mask"] = values(t, "list<list<int64>>", `[[null, [2, 9]], null, [null, null], [[8], [9, 11]]]`)
	groups, _, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []rollout.IDLists{
		{Ends: []int32{0, 2}, IDs: []int32{2, 9}}, {}, {Ends: []int32{0, 0}},
		{Ends: []int32{1, 3}, IDs: []int32{8, 9, 11}},
	} {
		if got := groups[i].Rollouts[0].SamplingMask; !reflect.DeepEqual(got, want) {
			t.Errorf("row %d has %v, want %v", i, got, want)
		}
		if err := groups[i].Validate(rollout.Limits{}); err != nil {
			t.Errorf("row %d: %v", i, err)
		}
	}
}

func TestSlicesOfARecordBatchDecodeToTheirRows(t *testing.T) {
	fields := extraFields(t, someColumns()...)
	r := rand.New(rand.NewPCG(3, 3))
	all := randomGroups(r, 12)
	for i := range all {
		all[i].Rollouts = all[i].Rollouts[:1]
	}
	withExtra(r, all, fields)
	rec, err := Rows(all, fields)
	if err != nil {
		t.Fatal(err)
	}
	for from := range 12 {
		for to := from; to <= 12; to++ {
			part := rec.NewSlice(int64(from), int64(to))
			got, _, err := Groups(part, fields)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got, all[from:to], func(a, b rollout.Group) bool { return reflect.DeepEqual(a, b) }) {
				t.Fatalf("rows %d to %d differ", from, to)
			}
		}
	}
}

func TestRolloutsShareNoMemoryWithTheirRows(t *testing.T) {
	fields := extraFields(t, Column{"x_vector", "list<float32>"})
	r := rand.New(rand.NewPCG(4, 4))
	groups := randomGroups(r, 5)
	withExtra(r, groups, fields)
	rec, err := Rows(groups, fields)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := Groups(rec, fields)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rec.Columns() {
		scribble(c.Data())
	}
	if !reflect.DeepEqual(got, groups) {
		t.Error("the rollouts changed with the record batch")
	}
	// A slice of one rollout cannot grow into another of it.
	x := got[0].Rollouts[0]
	for _, s := range []int{cap(x.Tokens) - len(x.Tokens), cap(x.Logprobs) - len(x.Logprobs),
		cap(x.Versions) - len(x.Versions), cap(x.Mask) - len(x.Mask),
		cap(x.SamplingMask.IDs) - len(x.SamplingMask.IDs), cap(x.RoutedExperts) - len(x.RoutedExperts)} {
		if s != 0 {
			t.Errorf("a slice has room for %d more", s)
		}
	}
}

func scribble(d arrow.ArrayData) {
	for _, b := range d.Buffers() {
		if b != nil {
			for i := range b.Bytes() {
				b.Bytes()[i] ^= 0x5a
			}
		}
	}
	for _, c := range d.Children() {
		scribble(c)
	}
}

func TestRowsOfOnePromptShareItsString(t *testing.T) {
	columns := fourRows(t)
	columns["prompt_id"] = values(t, "utf8",
		`["what is two and two", "what is two and two", "else", "what is two and two"]`)
	rec := batch(t, columns)
	groups, _, err := Groups(rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := func(i int) string { return fmt.Sprintf("%p", stringData(groups[i].Rollouts[0].PromptID)) }
	if data(0) != data(1) || data(0) == data(2) {
		t.Error("the names are stored apart")
	}
	if p := groups[3].Rollouts[0].PromptID; p != "what is two and two" {
		t.Errorf("the last prompt is %q", p)
	}
}

func TestUnclearedMemoryHasTheRequestedSize(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4096, 100_000} {
		b := uncleared(n)
		if len(b) != n {
			t.Fatalf("%d words: want %d", len(b), n)
		}
		for i := range b {
			b[i] = int32(i)
		}
	}
}

func TestDrawsReadSamplingMasksOfAnyLayout(t *testing.T) {
	want := randomDraws(rand.New(rand.NewPCG(8, 8)), 20, nil)
	rec, err := new(Gatherer).Batch(want, sampleSchema(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	columns := make(map[string]arrow.Array)
	for i, f := range rec.Schema().Fields() {
		columns[f.Name] = rec.Column(i)
	}
	given := columns["sampling_mask"]
	for _, dt := range []arrow.DataType{given.DataType(), list(arrow.ListViewOf(arrow.PrimitiveTypes.Int64)),
		arrow.ListViewOf(arrow.LargeListViewOf(arrow.PrimitiveTypes.Int32))} {
		columns["sampling_mask"] = valuesOf(t, dt, asJSON(t, given))
		got, err := Draws(batch(t, columns), nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("as %s: %v", dt, err)
		}
	}
}

func TestDrawsSurviveEncodingAndDecoding(t *testing.T) {
	fields := extraFields(t, someColumns()...)
	schema := sampleSchema(t, nil, fields...)
	var g Gatherer
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		want := randomDraws(r, r.IntN(20), fields)
		rec, err := g.Batch(want, schema)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Draws(rec, fields)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("seed %d: draw %d: got %+v of %+v, want %+v of %+v", seed, i, got[i], *got[i].Rollout, want[i],
					*want[i].Rollout)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d draws of %d", seed, len(got), len(want))
		}
		rec.Release()
	}
}
