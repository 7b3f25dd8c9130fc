package flightdata_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// draws is n rollouts of so many tokens.
func draws(r *rand.Rand, n, tokens int) []rollout.Draw {
	all := make([]rollout.Draw, n)
	for i := range all {
		x := &rollout.Rollout{PromptID: fmt.Sprint("prompt ", i), Temperature: 1, TopP: 1, Reward: r.Float32(),
			Tokens: make([]int32, tokens), Mask: make([]uint8, tokens), Logprobs: make([]float32, tokens), Versions: make([]rollout.Version, tokens)}
		for k := range tokens {
			x.Tokens[k], x.Mask[k], x.Logprobs[k], x.Versions[k] = r.Int32(), 1, -r.Float32(), 3
		}
		all[i] = rollout.Draw{ID: rollout.ID(i + 1), Group: uint64(i), Rollout: x, Probability: r.Float64(), Weight: 1}
	}
	return all
}

func sampleSchema(t testing.TB) *arrow.Schema {
	t.Helper()
	s, err := wire.SampleSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sampled is random batches of the sampling schema, some of them empty.
func sampled(t testing.TB, n int) []arrow.RecordBatch {
	t.Helper()
	var g wire.Gatherer
	r := rand.New(rand.NewPCG(1, 2))
	batches := make([]arrow.RecordBatch, n)
	for i := range batches {
		var err error
		if batches[i], err = g.Batch(draws(r, r.IntN(9), 1+r.IntN(3000)), sampleSchema(t)); err != nil {
			t.Fatal(err)
		}
	}
	return batches
}

// uncommon is a batch of types that only Arrow's own reader knows.
func uncommon(t testing.TB, seed uint64) arrow.RecordBatch {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	word := array.NewDictionaryBuilder(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	view := array.NewStringViewBuilder(memory.DefaultAllocator)
	for range 20 {
		text := fmt.Sprint("a prompt that is longer than twelve bytes ", r.IntN(5))
		if err := word.AppendString(text); err != nil {
			t.Fatal(err)
		}
		view.AppendString(text)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "word", Type: word.Type(), Nullable: true}, {Name: "view", Type: view.Type(), Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{word.NewArray(), view.NewArray()}, 20)
}

// zeros is a batch that compresses well: one list of n zeros.
func zeros(t testing.TB, n int) arrow.RecordBatch {
	t.Helper()
	b := array.NewInt32Builder(memory.DefaultAllocator)
	b.AppendValues(make([]int32, n), nil)
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "zeros", Type: arrow.PrimitiveTypes.Int32}}, nil), []arrow.Array{b.NewArray()}, int64(n))
}

// lentBatch is a batch of one column over memory of an allocator, which gets it back when the batch is released.
func lentBatch(a memory.Allocator, n int) arrow.RecordBatch {
	b := memory.NewBufferWithAllocator(a.Allocate(4*n), a)
	d := array.NewData(arrow.PrimitiveTypes.Int32, n, []*memory.Buffer{nil, b}, nil, 0, 0)
	b.Release()
	c := array.NewInt32Data(d)
	d.Release()
	defer c.Release()
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "numbers", Type: arrow.PrimitiveTypes.Int32}}, nil), []arrow.Array{c}, int64(n))
}
