package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/reprise-rl/reprise/rollout"
)

// goldenColumns returns the user-defined columns of the golden files.
func goldenColumns() []Column {
	return []Column{{"x_source", "utf8"}, {"x_vector", "list<float32>"}, {"x_box", "struct<left: int32, top: int32>"}}
}

// goldenGroups returns two groups: one of two rollouts with every field, one of a rollout with the required fields.
func goldenGroups(t testing.TB) []rollout.Group {
	half := float32(0.5)
	full := func() *rollout.Rollout {
		return &rollout.Rollout{
			PromptID: "größer/7", Temperature: 0.7, TopP: 0.95, Reward: 1.25, Truncated: true,
			Tokens: []int32{101, 7, 2147483647, 0, 9}, Mask: []uint8{0, 1, 1, 0, 1},
			Logprobs: []float32{0, -0.1, -1e-30, 0, -17.5},
			Versions: []rollout.Version{-1, 3, 4, -1, 4}, Turns: []rollout.Turn{{Start: 0, End: 3, Reward: 0.25},
				{Start: 3, End: 5, Reward: 1, Done: true}},
			Advantage: &half, Advantages: []float32{0, 1, 2, 0, -1}, Values: []float32{0.5, 0.25, 0.125, 0, -0.5},
			RefLogprobs:   []float32{0, -0.2, -0.3, 0, -20},
			SamplingMask:  rollout.IDLists{Ends: []int32{0, 3, 3, 3, 4}, IDs: []int32{2, 7, 11, 9}},
			RoutedExperts: []uint16{0, 1, 2, 3, 4, 5, 6, 7, 8, 65535},
			Images:        [][]byte{{0x89, 'P', 'N', 'G'}, {0, 255}}, Text: "Antwort: 42 ≠ 43",
			Meta: map[string]string{"task": "maths", "level": "3"},
		}
	}
	plain := &rollout.Rollout{PromptID: "p", Temperature: 1, TopP: 1, Reward: -1, Tokens: []int32{5}, Mask: []uint8{1},
		Logprobs: []float32{-2}, Versions: []rollout.Version{0}}
	groups := []rollout.Group{{Rollouts: []*rollout.Rollout{full(), full()}}, {Rollouts: []*rollout.Rollout{plain}}}
	groups[0].Rollouts[1].Advantage = nil
	fields := extraFields(t, goldenColumns()...)
	own := []column{opened(t, fields[0], `["engine-1"]`), opened(t, fields[1], `[[1.5, -2, 0.1]]`),
		opened(t, fields[2], `[{"left": 3, "top": null}]`)}
	groups[0].Rollouts[0].Extra = appendExtra(nil, own, fields, 0)
	return groups
}

// opened returns an opened column with the content of JSON.
func opened(t testing.TB, f arrow.Field, json string) column {
	t.Helper()
	a := valuesOf(t, f.Type, json)
	c, fault := openColumn(a.Data(), f.Type, []span{{0, a.Len()}}, false)
	if fault != nil {
		t.Fatal(fault.err(f.Name))
	}
	return c
}

func goldenDraws(t testing.TB) []rollout.Draw {
	groups := goldenGroups(t)
	draws := []rollout.Draw{
		{ID: 18446744073709551615, Group: 12, Rollout: groups[0].Rollouts[0], Advantage: 0.5, Probability: 0.1,
			Weight: 0.75, Fresh: true, Staleness: 3, Uses: 2, GroupMean: 1.25, GroupStd: 0.5},
		{ID: 1, Group: 13, Rollout: groups[1].Rollouts[0], Advantage: -1, Probability: 1e-300, Weight: 1,
			GroupMean: -1},
	}
	for _, d := range draws {
		d.Rollout.Advantage = nil
	}
	return draws
}

// golden compares bytes with a file, or writes it if the tests run with -update.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// stream returns a batch as an Arrow IPC stream.
func stream(t *testing.T, rec arrow.RecordBatch) []byte {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(rec.Schema()))
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unstream returns the one batch of an Arrow IPC stream.
func unstream(t *testing.T, b []byte) arrow.RecordBatch {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(b))
	if err != nil || !r.Next() {
		t.Fatal(err, r.Err())
	}
	return r.RecordBatch()
}

// plain returns a batch as JSON, an object for each row.
func plain(t *testing.T, rec arrow.RecordBatch) []byte {
	t.Helper()
	b, err := rec.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

func TestGoldenFilesAreWrittenAndReadAlike(t *testing.T) {
	fields := extraFields(t, goldenColumns()...)
	inserted, err := Rows(goldenGroups(t), fields)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := new(Gatherer).Batch(goldenDraws(t), sampleSchema(t, nil, fields...))
	if err != nil {
		t.Fatal(err)
	}
	for name, rec := range map[string]arrow.RecordBatch{"insert": inserted, "sample": drawn} {
		kept := unstream(t, golden(t, name+".arrow", stream(t, rec)))
		if !kept.Schema().Equal(rec.Schema()) || !kept.Schema().Metadata().Equal(rec.Schema().Metadata()) {
			t.Errorf("%s: the schema was %v and is %v", name, kept.Schema(), rec.Schema())
		}
		if !array.RecordEqual(kept, rec) {
			t.Errorf("%s: the file holds %s", name, plain(t, kept))
		}
		if b := golden(t, name+".json", plain(t, rec)); !bytes.Equal(b, plain(t, rec)) {
			t.Errorf("%s: its JSON is %s", name, plain(t, rec))
		}
	}
	groups, _, err := Groups(unstream(t, golden(t, "insert.arrow", stream(t, inserted))), fields)
	if err != nil || !reflect.DeepEqual(groups, goldenGroups(t)) {
		t.Errorf("the groups of the file: %v", err)
	}
	draws, err := Draws(unstream(t, golden(t, "sample.arrow", stream(t, drawn))), fields)
	if err != nil || !reflect.DeepEqual(draws, goldenDraws(t)) {
		t.Errorf("the draws of the file: %v", err)
	}
}

// insert-older.arrow is insert.arrow before there were sampling masks and routed experts.
func TestInsertionsWithoutTheNewerColumnsAreRead(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "insert-older.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	groups, _, err := Groups(unstream(t, b), extraFields(t, goldenColumns()...))
	want := goldenGroups(t)
	for _, r := range want[0].Rollouts {
		r.SamplingMask, r.RoutedExperts = rollout.IDLists{}, nil
	}
	if err != nil || !reflect.DeepEqual(groups, want) {
		t.Errorf("%s, %v", difference(groups, want), err)
	}
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files anew")
	os.Exit(m.Run())
}
