package wire

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// The benchmarks use 64 rollouts of 4,096 tokens, out of enough that they do not stay in caches.
const (
	benchRows   = 64
	benchTokens = 4096
	benchStore  = 2048
)

// store returns rollouts to draw from.
func store() []*rollout.Rollout {
	all := make([]*rollout.Rollout, benchStore)
	for i := range all {
		x := &rollout.Rollout{PromptID: "prompt", Temperature: 1, TopP: 1, Tokens: make([]int32, benchTokens),
			Mask:     make([]uint8, benchTokens),
			Logprobs: make([]float32, benchTokens), Versions: make([]rollout.Version, benchTokens)}
		for k := range x.Tokens {
			x.Tokens[k], x.Mask[k], x.Logprobs[k] = int32(i*k), 1, -float32(k)
		}
		all[i] = x
	}
	return all
}

func pick(r *rand.Rand, all []*rollout.Rollout, draws []rollout.Draw) {
	for i := range draws {
		draws[i].Rollout = all[r.IntN(len(all))]
	}
}

// copyAll copies the per-token slices of draws: a lower bound of gathering.
func copyAll(dst []byte, draws []rollout.Draw) {
	at := 0
	for i := range draws {
		x := draws[i].Rollout
		for _, b := range [][]byte{bytesOf(x.Tokens), x.Mask, bytesOf(x.Logprobs), bytesOf(x.Versions)} {
			at += copy(dst[at:], b)
		}
	}
}

// BenchmarkGather compares gathering with copying alone and with Arrow's builders, in turns.
func BenchmarkGather(b *testing.B) {
	all, draws := store(), make([]rollout.Draw, benchRows)
	r := rand.New(rand.NewPCG(1, 1))
	var g Gatherer
	schema := sampleSchema(b, []string{"id", "prompt_id", "tokens", "mask", "logprobs", "versions", "reward", "weight"})
	dst := make([]byte, benchRows*benchTokens*13)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	var gather, copying, building time.Duration
	for b.Loop() {
		pick(r, all, draws)
		start := time.Now()
		rec, err := g.Batch(draws, schema)
		if err != nil {
			b.Fatal(err)
		}
		gather += time.Since(start)
		rec.Release()
		b.StopTimer()
		pick(r, all, draws)
		start = time.Now()
		copyAll(dst, draws)
		copying += time.Since(start)
		pick(r, all, draws)
		start = time.Now()
		build(builder, draws)
		building += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(copying.Seconds()/gather.Seconds(), "x-of-memmove")
	b.ReportMetric(building.Seconds()/gather.Seconds(), "x-of-builder")
}

// build makes the batch with Arrow's builders.
func build(builder *array.RecordBuilder, draws []rollout.Draw) {
	lists := func(i int) *array.ListBuilder { return builder.Field(i).(*array.ListBuilder) }
	for i := range draws {
		d := &draws[i]
		builder.Field(0).(*array.Uint64Builder).Append(uint64(d.ID))
		builder.Field(1).(*array.StringBuilder).Append(d.Rollout.PromptID)
		for f := 2; f < 6; f++ {
			lists(f).Append(true)
		}
		lists(2).ValueBuilder().(*array.Int32Builder).AppendValues(d.Rollout.Tokens, nil)
		lists(3).ValueBuilder().(*array.Uint8Builder).AppendValues(d.Rollout.Mask, nil)
		lists(4).ValueBuilder().(*array.Float32Builder).AppendValues(d.Rollout.Logprobs, nil)
		lists(5).ValueBuilder().(*array.Int32Builder).AppendValues(typed[int32](bytesOf(d.Rollout.Versions)), nil)
		builder.Field(6).(*array.Float32Builder).Append(d.Rollout.Reward)
		builder.Field(7).(*array.Float32Builder).Append(d.Weight)
	}
	builder.NewRecordBatch().Release()
}

// BenchmarkGatherSmall gathers every column of 64 rollouts of 256 tokens, where copying is not the main cost.
func BenchmarkGatherSmall(b *testing.B) {
	all, draws := store(), make([]rollout.Draw, benchRows)
	for i := range all {
		x := all[i]
		x.Tokens, x.Mask, x.Logprobs, x.Versions = x.Tokens[:256], x.Mask[:256], x.Logprobs[:256], x.Versions[:256]
	}
	pick(rand.New(rand.NewPCG(1, 1)), all, draws)
	var g Gatherer
	schema := sampleSchema(b, nil)
	b.SetBytes(benchRows * 256 * 13)
	b.ReportAllocs()
	for b.Loop() {
		rec, err := g.Batch(draws, schema)
		if err != nil {
			b.Fatal(err)
		}
		rec.Release()
	}
}

// BenchmarkGroups decodes the batch in the schema's types, and in those that pa.table infers.
func BenchmarkGroups(b *testing.B) {
	all := store()[:benchRows]
	groups := make([]rollout.Group, benchRows)
	for i, x := range all {
		groups[i].Rollouts = []*rollout.Rollout{x}
	}
	exact, err := Rows(groups, nil)
	if err != nil {
		b.Fatal(err)
	}
	columns := fourRows(b)
	clear(columns)
	for i, name := range []string{"tokens", "mask", "logprobs", "versions", "reward"} {
		columns[name] = exact.Column(exact.Schema().FieldIndices(name)[0])
		if i < 2 || i == 3 {
			columns[name] = widen(columns[name].(*array.List))
		}
	}
	for name, rec := range map[string]arrow.RecordBatch{"exact": exact, "inferred": batch(b, columns)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchRows * benchTokens * 13)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Groups(rec, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// widen converts the items of lists to int64.
func widen(lists *array.List) arrow.Array {
	c, fault := openColumn(lists.ListValues().Data(), arrow.PrimitiveTypes.Int64, []span{{0, lists.ListValues().Len()}},
		false)
	if fault != nil {
		panic(fault.err("items"))
	}
	items := array.NewData(arrow.PrimitiveTypes.Int64, c.n, []*memory.Buffer{nil, memory.NewBufferBytes(c.values)}, nil,
		0, 0)
	return array.MakeFromData(array.NewData(arrow.ListOf(arrow.PrimitiveTypes.Int64), lists.Len(),
		[]*memory.Buffer{nil, lists.Data().Buffers()[1]}, []arrow.ArrayData{items}, 0, 0))
}
