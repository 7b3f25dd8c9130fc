package wire

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// difference describes the first rollout that differs.
func difference(got, want []rollout.Group) string {
	for g := range min(len(got), len(want)) {
		for i := range min(len(got[g].Rollouts), len(want[g].Rollouts)) {
			if a, b := got[g].Rollouts[i], want[g].Rollouts[i]; !reflect.DeepEqual(a, b) {
				return fmt.Sprintf("group %d, rollout %d: got %+v, want %+v", g, i, *a, *b)
			}
		}
	}
	return fmt.Sprintf("%d groups, want %d", len(got), len(want))
}

// batch returns a record batch of columns.
func batch(t testing.TB, columns map[string]arrow.Array) arrow.RecordBatch {
	t.Helper()
	var fields []arrow.Field
	var arrays []arrow.Array
	n := -1
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		fields = append(fields, arrow.Field{Name: name, Type: columns[name].DataType(), Nullable: true})
		arrays = append(arrays, columns[name])
		n = columns[name].Len()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(n))
}

// fourRows returns the required columns of four rollouts of two to three tokens.
func fourRows(t testing.TB) map[string]arrow.Array {
	return map[string]arrow.Array{
		"tokens":   values(t, "list<int32>", `[[1, 2], [3, 4, 5], [6, 7], [8, 9]]`),
		"mask":     values(t, "list<uint8>", `[[0, 1], [0, 1, 1], [0, 1], [1, 1]]`),
		"logprobs": values(t, "list<float32>", `[[0, -1], [0, -0.5, -0.25], [0, -2], [-1, -3]]`),
		"version":  values(t, "int32", `[7, 8, 9, 0]`),
		"reward":   values(t, "float32", `[1, 0, 0.5, -1]`),
	}
}

// values makes an array of a type, as parseType reads it, from JSON.
func values(t testing.TB, typ, json string) arrow.Array {
	t.Helper()
	dt, err := parseType(typ)
	if err != nil {
		t.Fatal(err)
	}
	return valuesOf(t, dt, json)
}

func valuesOf(t testing.TB, dt arrow.DataType, json string) arrow.Array {
	t.Helper()
	a, _, err := array.FromJSON(memory.DefaultAllocator, dt, stringReader(json))
	if err != nil {
		t.Fatalf("%s as %s: %v", json, dt, err)
	}
	return a
}

// randomRollout returns a valid rollout with some of the optional fields.
func randomRollout(r *rand.Rand, prompt string) *rollout.Rollout {
	n := 1 + r.IntN(40)
	x := &rollout.Rollout{
		PromptID: prompt, Temperature: 0.1 + r.Float32(), TopP: 0.5 + r.Float32()/2, Reward: r.Float32()*4 - 2,
		Truncated: r.IntN(3) == 0,
		Tokens:    make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float32, n),
		Versions: make([]rollout.Version, n),
	}
	for i := range n {
		x.Tokens[i], x.Versions[i] = r.Int32(), rollout.NoVersion
		if i == n-1 || r.IntN(2) == 0 {
			x.Mask[i], x.Logprobs[i], x.Versions[i] = 1, -r.Float32()*10, rollout.Version(r.IntN(1000))
		}
	}
	if r.IntN(2) == 0 {
		a := r.Float32() - 0.5
		x.Advantage = &a
	}
	for _, s := range []*[]float32{&x.Advantages, &x.Values, &x.RefLogprobs} {
		if r.IntN(2) == 0 {
			*s = make([]float32, n)
			for i := range *s {
				(*s)[i] = -r.Float32()
			}
		}
	}
	if r.IntN(2) == 0 {
		for i, token := range x.Tokens {
			if x.Mask[i] == 0 || r.IntN(4) == 0 {
				x.SamplingMask.Append()
				continue
			}
			x.SamplingMask.Append(slices.Sorted(maps.Keys(map[int32]bool{token: true, r.Int32(): true, 1: true}))...)
		}
	}
	if experts := r.IntN(3); experts > 0 {
		for range n * experts {
			x.RoutedExperts = append(x.RoutedExperts, uint16(r.Uint32()))
		}
	}
	for at := int32(0); r.IntN(2) == 0 && int(at) < n; {
		end := at + 1 + r.Int32N(int32(n)-at)
		x.Turns = append(x.Turns, rollout.Turn{Start: at, End: end, Reward: r.Float32(), Done: r.IntN(2) == 0})
		at = end
	}
	for range r.IntN(3) {
		image := make([]byte, 1+r.IntN(100))
		for i := range image {
			image[i] = byte(r.Uint32())
		}
		x.Images = append(x.Images, image)
	}
	if r.IntN(2) == 0 {
		x.Text = fmt.Sprintf("Antwort %d: größer als π", r.Uint32())
	}
	if r.IntN(2) == 0 {
		x.Meta = map[string]string{"task": "maths", "n": fmt.Sprint(r.Uint32()), "": "é"}
	}
	return x
}

// randomGroups returns groups of one prompt each.
func randomGroups(r *rand.Rand, groups int) []rollout.Group {
	all := make([]rollout.Group, groups)
	for g := range all {
		for range 1 + r.IntN(5) {
			all[g].Rollouts = append(all[g].Rollouts, randomRollout(r, fmt.Sprintf("prompt-%d", g)))
		}
	}
	return all
}

// asJSON returns an array as JSON, to build one of another type from.
func asJSON(t testing.TB, a arrow.Array) string {
	t.Helper()
	b, err := a.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\n", "")
}

// randomDraws returns random draws.
func randomDraws(r *rand.Rand, n int, fields []arrow.Field) []rollout.Draw {
	groups := []rollout.Group{{}}
	draws := make([]rollout.Draw, n)
	for i := range draws {
		x := randomRollout(r, "prompt")
		x.Advantage = nil
		groups[0].Rollouts = append(groups[0].Rollouts, x)
		draws[i] = rollout.Draw{
			ID: rollout.ID(r.Uint64()), Group: r.Uint64(), Rollout: x, Advantage: r.Float32() - 0.5,
			Probability: r.Float64(), Weight: r.Float32(),
			Fresh: r.IntN(2) == 0, Staleness: r.Int32N(100), Uses: r.Int32N(100), GroupMean: r.Float32(),
			GroupStd: r.Float32(),
		}
	}
	withExtra(r, groups, fields)
	return draws
}

func sampleSchema(t testing.TB, columns []string, fields ...arrow.Field) *arrow.Schema {
	t.Helper()
	s, err := SampleSchema(columns, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stringReader(s string) io.Reader { return strings.NewReader(s) }

func stringData(s string) *byte { return unsafe.StringData(s) }
