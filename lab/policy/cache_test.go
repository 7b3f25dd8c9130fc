package policy

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// The gaps that rows of unequal turns leave in the cache would add up without end.
func TestTheCacheStaysNearTheLengthOfItsRows(t *testing.T) {
	c := architectures()["llama"]
	c.MaxPositionEmbeddings = 256
	m := newTestModel(t, c)
	w := randomWeights(t, m, 111)
	g, err := m.Start(Plain([]int32{1}, []int32{2}), nil, Sampling{MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]bool{}
	for turn := range 60 { // one row reads six tokens, the other one, in turn
		proceed(t, g, w, 0)
		sizes[g.cache.slots] = true
		if held := slices.Max(g.cache.lengths); g.cache.slots > roundSlots(held+8) {
			t.Fatalf("%d slots for rows of up to %d tokens and passes of up to 8", g.cache.slots, held)
		}
		for i := range 2 {
			extend(t, g, i, &Input{Tokens: make([]int32, 1+5*((turn+i)%2))})
		}
	}
	proceed(t, g, w, 0)
	for _, r := range g.Rows() {
		checkRow(t, m, w, r, 1)
		if len(r.Tokens) < 240 {
			t.Errorf("a row has %d tokens only", len(r.Tokens))
		}
	}
	if len(sizes) > 12 {
		t.Errorf("the cache had the sizes %v: want few", sizes)
	}
	g.Close()
	if g.cache.tensors != nil || len(g.Rows()[0].Tokens) == 0 {
		t.Error("Close gives the cache back and leaves the rows")
	}
}

func TestALongTurnBeginsWithASmallCache(t *testing.T) {
	c := architectures()["tied"]
	c.MaxPositionEmbeddings = 320
	m := newTestModel(t, c)
	w := randomWeights(t, m, 112)
	g := begin(t, m, [][]int32{{1, 2, 3}, {4}}, Sampling{Temperature: 1, MaxTokens: 300})
	proceed(t, g, w, 1)
	if g.cache.slots > 80 {
		t.Errorf("%d slots for 4 tokens", g.cache.slots)
	}
	proceed(t, g, w, 0)
	for _, r := range g.Rows() {
		checkRow(t, m, w, r, 1)
		if written(r) != 300 {
			t.Errorf("%d tokens were written, want 300", written(r))
		}
	}
}

func TestAShortTurnNeverMovesItsCache(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 113)
	g := begin(t, m, [][]int32{{1, 2, 3, 4, 5, 6}, {4}}, Sampling{Temperature: 1, MaxTokens: 11})
	for range 2 { // the last token of a turn is never passed
		for done := false; !done; done = g.Done() {
			proceed(t, g, w, 1)
			if want := 16 * (1 + g.rows[0].Turn/16); g.cache.slots != want {
				t.Fatalf("%d slots for rows of %d tokens, want %d", g.cache.slots, len(g.rows[0].Tokens), want)
			}
		}
		for i := range 2 {
			extend(t, g, i, &Input{Tokens: []int32{1, 2, 3}})
		}
	}
}

func TestGrowingCachesHaveFewSizesAndAreHalfFull(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= 4096; n++ {
		size := roundSlots(n)
		sizes[size] = true
		if size < n || (n > 8 && size >= 2*n) || size < roundSlots(n-1) {
			t.Fatalf("%d tokens have %d slots, one fewer %d", n, size, roundSlots(n-1))
		}
	}
	for n, want := range map[int]int{1: 12, 12: 12, 13: 16, 16: 16, 17: 24, 24: 24, 25: 32, 1537: 2048} {
		if got := roundSlots(n); got != want {
			t.Errorf("%d tokens have %d slots, want %d", n, got, want)
		}
	}
	if len(sizes) > 18 {
		t.Errorf("%d sizes up to 4096: want at most 18", len(sizes))
	}
}

// A move keeps each row's keys and values, whatever gaps they stood among.
func TestMovingACachePacksEveryRow(t *testing.T) {
	m := newTestModel(t, architectures()["grouped queries"])
	const rows, slots = 3, 12
	c, k := m.Config(), newCache(m, rows)
	if err := k.reserve(slots, 0); err != nil {
		t.Fatal(err)
	}
	rng := rollout.Stream(114, "test", 0)
	taken := make([][]int, rows) // slots of the tokens of each row
	for _, n := range []int{4, 1, 1, 5} {
		pending := make([]int, rows)
		for i := range pending {
			pending[i] = rng.IntN(n + 1)
			for j := range pending[i] {
				taken[i] = append(taken[i], k.next+n-pending[i]+j)
			}
		}
		k.occupy(n, pending)
	}
	at := func(size, row, head, slot, d int) int {
		return ((row*c.NumKeyValueHeads+head)*size+slot)*c.HeadDim + d
	}
	for _, part := range k.tensors {
		err := tensors.MutableFlatData(part, func(flat []float32) {
			for i := range flat {
				flat[i] = float32(i)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := k.resize(16); err != nil {
		t.Fatal(err)
	}
	flat := make([][]float32, len(k.tensors))
	for n, part := range k.tensors {
		if err := tensors.ConstFlatData(part, func(all []float32) { flat[n] = slices.Clone(all) }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rows {
		for head := range c.NumKeyValueHeads {
			for j, slot := range taken[i] {
				for d := range c.HeadDim {
					for n := range flat {
						if got, want := flat[n][at(16, i, head, j, d)],
							float32(at(slots, i, head, slot, d)); got != want {
							t.Fatalf("tensor %d, row %d, head %d, token %d: %v, want %v", n, i, head, j, got, want)
						}
					}
				}
			}
		}
		for slot := range 16 {
			if open := k.bias[i*16+slot] == 0; open != (slot < len(taken[i])) {
				t.Errorf("slot %d of row %d with %d tokens: open %v", slot, i, len(taken[i]), open)
			}
		}
	}
}

func TestADroppedGenerationFreesItsCache(t *testing.T) {
	tests.Long(t)
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 119)
	heap := func() int {
		runtime.GC()
		runtime.GC() // what pools keep outlives one collection
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc)
	}
	prompts := make([][]int32, 256)
	for i := range prompts {
		prompts[i] = []int32{1, 2}
	}
	before := 0
	for n := range 14 {
		g := begin(t, m, prompts, Sampling{Temperature: 1, MaxTokens: 40})
		proceed(t, g, w, 2) // neither done nor closed
		if n == 3 {
			before = heap()
		}
	}
	size := 4 * 2 * c.NumHiddenLayers * 256 * c.NumKeyValueHeads * 48 * m.config.HeadDim // bytes of one cache, 4.7 MB
	if grown := heap() - before; grown > 4*size {
		t.Errorf("10 generations of %d bytes each left %d bytes behind", size, grown)
	}
}

func TestAGenerationContinuesAfterAFailedPass(t *testing.T) {
	m, other := newTestModel(t, architectures()["llama"]), newTestModel(t, architectures()["biases"])
	w := randomWeights(t, m, 115)
	g := begin(t, m, [][]int32{{1, 2, 3}, {4}}, Sampling{Temperature: 1, MaxTokens: 9})
	proceed(t, g, w, 4)
	if _, err := g.Continue(context.Background(), randomWeights(t, other, 116), 1); err == nil {
		t.Fatal("weights of another architecture are taken")
	}
	proceed(t, g, w, 0)
	for _, r := range g.Rows() {
		checkRow(t, m, w, r, 1)
		if written(r) != 9 {
			t.Errorf("%d tokens were written, want 9", written(r))
		}
	}
}
