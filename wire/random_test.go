package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// randomRollout is any rollout that a table would take, with some of the optional fields.
func randomRollout(r *rand.Rand, prompt string) *rollout.Rollout {
	n := 1 + r.IntN(40)
	x := &rollout.Rollout{
		PromptID: prompt, Temperature: 0.1 + r.Float32(), TopP: 0.5 + r.Float32()/2, Reward: r.Float32()*4 - 2, Truncated: r.IntN(3) == 0,
		Tokens: make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float32, n), Versions: make([]rollout.Version, n),
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

// randomGroups is groups of one prompt each.
func randomGroups(r *rand.Rand, groups int) []rollout.Group {
	all := make([]rollout.Group, groups)
	for g := range all {
		for range 1 + r.IntN(5) {
			all[g].Rollouts = append(all[g].Rollouts, randomRollout(r, fmt.Sprintf("prompt-%d", g)))
		}
	}
	return all
}

// someColumns are columns of every type that a table may declare.
func someColumns() []Column {
	return []Column{
		{"x_flag", "bool"}, {"x_small", "int8"}, {"x_short", "int16"}, {"x_int", "int32"}, {"x_long", "int64"},
		{"x_byte", "uint8"}, {"x_word", "uint16"}, {"x_dword", "uint32"}, {"x_big", "uint64"},
		{"x_half", "float16"}, {"x_float", "float32"}, {"x_double", "float64"},
		{"x_text", "utf8"}, {"x_bytes", "binary"}, {"x_day", "date32"}, {"x_time", "timestamp<us>"},
		{"x_list", "list<float32>"}, {"x_flags", "list<bool>"}, {"x_texts", "list<utf8>"}, {"x_matrix", "list<list<int64>>"},
		{"x_vector", "fixed_size_list<float32, 3>"}, {"x_pair", "struct<a: int32, b: utf8, c: list<int8>>"}, {"x_map", "map<utf8, int64>"},
		{"x_nested", "list<struct<k: utf8, v: fixed_size_list<int16, 2>>>"},
	}
}

func extraFields(t testing.TB, columns ...Column) []arrow.Field {
	t.Helper()
	fields, err := ExtraFields(columns)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// growRandom adds a random entry, null now and then.
func growRandom(r *rand.Rand, g *grower) {
	if r.IntN(6) == 0 {
		g.addNull()
		return
	}
	switch t := g.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		g.addText([]string{"", "a", "größer", "日本語 text"}[r.IntN(4)])
	case *arrow.ListType, *arrow.MapType:
		g.mark(true)
		for range r.IntN(5) {
			if t.ID() == arrow.MAP {
				g.parts[0].mark(true)
				g.parts[0].parts[0].addText(fmt.Sprint(r.Uint32()))
				growRandom(r, g.parts[0].parts[1])
				continue
			}
			growRandom(r, g.parts[0])
		}
		g.offsets = append(g.offsets, int32(g.parts[0].n))
	case *arrow.FixedSizeListType:
		g.mark(true)
		for range t.Len() {
			growRandom(r, g.parts[0])
		}
	case *arrow.StructType:
		g.mark(true)
		for _, p := range g.parts {
			growRandom(r, p)
		}
	case *arrow.BooleanType:
		g.mark(true)
		g.addBool(r.IntN(2) == 0)
	case arrow.FixedWidthDataType:
		g.mark(true)
		for range t.Bytes() {
			g.data = append(g.data, byte(r.Uint32()))
		}
	}
}

// withExtra gives rollouts entries of columns, by the way that insertions take.
func withExtra(r *rand.Rand, groups []rollout.Group, fields []arrow.Field) {
	for _, g := range groups {
		for _, x := range g.Rollouts {
			var columns []column
			for _, f := range fields {
				w := newGrower(f.Type)
				growRandom(r, w)
				columns = append(columns, w.column())
			}
			x.Extra = appendExtra(nil, columns, fields, 0)
		}
	}
}
