package policy

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// counting counts the draws from a random stream.
type counting struct {
	rand.Source
	n int
}

func (c *counting) Uint64() uint64 { c.n++; return c.Source.Uint64() }

// stream returns the random stream that the i-th row of a test draws from.
func stream(i int) *rand.Rand { return rollout.Stream(7, "test/generate", uint64(i)) }

func begin(t *testing.T, m *Model, prompts [][]int32, s Sampling) *Generation {
	t.Helper()
	streams := make([]*rand.Rand, len(prompts))
	for i := range streams {
		streams[i] = stream(i)
	}
	g, err := m.Start(Plain(prompts...), streams, s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func proceed(t *testing.T, g *Generation, w *Weights, n int) {
	t.Helper()
	if _, err := g.Continue(context.Background(), w, n); err != nil {
		t.Fatal(err)
	}
}

// bare returns rows without what draws their tokens, to be compared.
func bare(rows []Row) []Row {
	out := slices.Clone(rows)
	for i := range out {
		out[i].rng, out[i].drawing = nil, nil
	}
	return out
}

// written counts the tokens that the policy produced.
func written(r Row) int {
	n := 0
	for _, m := range r.Mask {
		n += int(m)
	}
	return n
}

func logprobs(t *testing.T, m *Model, w *Weights, tokens []int32, temperature float64) []float32 {
	t.Helper()
	scores, err := m.Score(context.Background(), w, Plain(tokens), temperature)
	if err != nil {
		t.Fatal(err)
	}
	return scores[0].Logprobs
}

func TestRowsOfOneBatchAreThoseOfEachAlone(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := randomWeights(t, m, 21)
			rng := rollout.Stream(22, "test", 0)
			var prompts [][]int32
			for _, n := range []int{1, 9, 4, 17, 2} {
				prompts = append(prompts, randomTokens(rng, n, c.VocabSize))
			}
			for _, s := range []Sampling{{MaxTokens: 12, Stop: []int32{3}},
				{Temperature: 1.1, TopP: 0.9, MaxTokens: 12, Stop: []int32{3, 4}}} {
				together := begin(t, m, prompts, s)
				proceed(t, together, w, 0)
				for i, row := range together.Rows() {
					alone, err := m.Start(Plain(prompts[i:i+1]...), []*rand.Rand{stream(i)}, s)
					if err != nil {
						t.Fatal(err)
					}
					proceed(t, alone, w, 0)
					want := alone.Rows()[0]
					if !slices.Equal(row.Tokens, want.Tokens) || row.Truncated != want.Truncated {
						t.Fatalf("row %d is %v, alone it is %v", i, row.Tokens, want.Tokens)
					}
					for j, l := range row.Logprobs {
						near(t, "log-prob", l, float64(want.Logprobs[j]), 1e-5)
					}
				}
			}
		})
	}
}

func TestChunksGiveTheBitsOfOneCall(t *testing.T) {
	c := architectures()["grouped queries"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 23)
	prompts := [][]int32{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10}, {11, 12}}
	for _, s := range []Sampling{{MaxTokens: 15}, {Temperature: 1, TopP: 0.8, MaxTokens: 15, Stop: []int32{2, 9}},
		{Temperature: 1, MaxTokens: 15, RecomputeCache: true}} {
		whole := bare(generate(t, m, w, prompts, s, 0))
		for _, chunk := range []int{1, 2, 3, 7} {
			if got := bare(generate(t, m, w, prompts, s, chunk)); !reflect.DeepEqual(got, whole) {
				t.Errorf("%+v in chunks of %d:\n%v\nwant\n%v", s, chunk, got, whole)
			}
		}
	}
}

// changing generates four tokens with version 0, five with version 3, the rest with version 4.
func changing(t *testing.T, m *Model, w [3]*Weights, s Sampling) []Row {
	t.Helper()
	g := begin(t, m, [][]int32{{1, 2, 3, 4, 5, 6}, {7}, {8, 9, 10}}, s)
	proceed(t, g, w[0], 4)
	proceed(t, g, w[1], 5)
	proceed(t, g, w[2], 0)
	return g.Rows()
}

func threeVersions(t *testing.T, m *Model) [3]*Weights {
	return [3]*Weights{randomWeights(t, m, 31), randomWeights(t, m, 32).WithVersion(3),
		randomWeights(t, m, 33).WithVersion(4)}
}

func TestEveryTokenHasTheVersionThatProducedIt(t *testing.T) {
	m := newTestModel(t, architectures()["tied"])
	w := threeVersions(t, m)
	rows := changing(t, m, w, Sampling{Temperature: 1, MaxTokens: 12})
	want := []rollout.Version{0, 0, 0, 0, 3, 3, 3, 3, 3, 4, 4, 4}
	for i, r := range rows {
		if got := r.Versions[r.Prompt:]; !slices.Equal(got, want) {
			t.Errorf("row %d: versions %v, want %v", i, got, want)
		}
	}
}

// With a recomputed cache a token has the log-prob that its version's weights give it after all tokens before.
func TestARecomputedCacheHoldsKeysOfTheNewWeights(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := threeVersions(t, m)
			for _, r := range changing(t, m, w, Sampling{Temperature: 0.9, MaxTokens: 12, RecomputeCache: true}) {
				for j, v := range r.Versions[r.Prompt:] {
					of := w[max(0, int(v)-2)]
					near(t, "log-prob", r.Logprobs[r.Prompt+j], float64(logprobs(t, m, of, r.Tokens, 0.9)[r.Prompt+j]),
						5e-5)
				}
			}
		})
	}
}

// With a kept cache the keys and values of earlier tokens are those of the weights that their passes ran under: the
// weights that drew the token behind them, and for the prompt the first.
func TestAKeptCacheHoldsKeysOfEarlierWeights(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := threeVersions(t, m)
			refs := map[rollout.Version]*reference{}
			for _, of := range w {
				ref, err := newReference(c, of)
				if err != nil {
					t.Fatal(err)
				}
				refs[of.Version] = ref
			}
			differs := 0.0
			for _, r := range changing(t, m, w, Sampling{Temperature: 0.9, MaxTokens: 12}) {
				var cache referenceCache
				var logits []float64
				for _, token := range r.Tokens[:r.Prompt] {
					logits = cache.next(refs[r.Versions[r.Prompt]], token)
				}
				pure := logprobs(t, m, w[2], r.Tokens, 0.9)
				for j := r.Prompt; j < len(r.Tokens); j++ {
					if j > r.Prompt {
						logits = cache.next(refs[r.Versions[j]], r.Tokens[j-1])
					}
					near(t, "log-prob", r.Logprobs[j], logSoftmax(logits, 0.9)[r.Tokens[j]], 5e-5)
					if r.Versions[j] == 4 {
						differs = max(differs, math.Abs(float64(r.Logprobs[j]-pure[j])))
					}
				}
			}
			if differs < 0.01 {
				t.Errorf("log-probs under a kept cache are within %g of those under the new weights alone: the test "+
					"shows nothing", differs)
			}
		})
	}
}

func logSoftmax(logits []float64, temperature float64) []float64 {
	var sum float64
	for _, l := range logits {
		sum += math.Exp(l / temperature)
	}
	out := make([]float64, len(logits))
	for i, l := range logits {
		out[i] = l/temperature - math.Log(sum)
	}
	return out
}

func TestStoppedRowsDrawNoMoreAndAffectNoOthers(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 41)
	s := Sampling{Temperature: 1.2, MaxTokens: 20, Stop: []int32{1, 2, 3}}
	watched := [][]int32{{5, 6, 7}, {8, 9}}
	var want []Row
	lengths := map[int]bool{}
	for try := range 8 { // the same two rows beside two others, new ones each time
		others := rollout.Stream(42, "test/others", uint64(try))
		prompts := append(slices.Clone(watched), randomTokens(others, 5, c.VocabSize),
			randomTokens(others, 1, c.VocabSize))
		sources, streams := make([]*counting, 4), make([]*rand.Rand, 4)
		for i := range sources {
			seed := uint64(i)
			if i > 1 {
				seed += 10 * uint64(try+1)
			}
			sources[i] = &counting{Source: rand.NewPCG(seed, 3)}
			streams[i] = rand.New(sources[i])
		}
		g, err := m.Start(Plain(prompts...), streams, s)
		if err != nil {
			t.Fatal(err)
		}
		proceed(t, g, w, 0)
		for i, r := range g.Rows() {
			if sources[i].n != written(r) {
				t.Errorf("row %d drew %d times for %d tokens", i, sources[i].n, written(r))
			}
			lengths[written(r)] = true
		}
		got := bare(g.Rows()[:2])
		if want == nil {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("beside others, rows became\n%v\nwere\n%v", got, want)
		}
	}
	if len(lengths) < 4 {
		t.Errorf("rows have lengths %v only: the test shows little", lengths)
	}
}

func TestPositionsOfTheModelEndRowsAsTruncated(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 51)
	rng := rollout.Stream(52, "test", 0)
	positions := c.MaxPositionEmbeddings
	prompts := [][]int32{randomTokens(rng, positions-1, c.VocabSize), randomTokens(rng, 3, c.VocabSize),
		randomTokens(rng, positions-9, c.VocabSize)}
	for _, limit := range []int{1 << 40, positions, 30} {
		s := Sampling{Temperature: 1, MaxTokens: limit}
		for i, r := range generate(t, m, w, prompts, s, 0) {
			if room := min(limit, positions-len(prompts[i])); written(r) != room || !r.Truncated || !r.Done {
				t.Errorf("prompt of %d tokens, at most %d: %d tokens, truncated %v; there is room for %d", r.Prompt,
					limit, written(r), r.Truncated, room)
			}
			for j, l := range logprobs(t, m, w, r.Tokens, 1)[r.Prompt:] {
				near(t, "log-prob", r.Logprobs[r.Prompt+j], float64(l), 2e-5)
			}
		}
	}
}

func TestAStopTokenAtTheLastPositionIsNoTruncation(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 53)
	free := generate(t, m, w, [][]int32{{1, 2}}, Sampling{MaxTokens: 5}, 0)[0]
	last := free.Tokens[len(free.Tokens)-1]
	at := slices.Index(free.Tokens[free.Prompt:], last)
	r := generate(t, m, w, [][]int32{{1, 2}}, Sampling{MaxTokens: at + 1, Stop: []int32{last}}, 0)[0]
	if r.Truncated || !r.Done || written(r) != at+1 || r.Tokens[len(r.Tokens)-1] != last {
		t.Errorf("row %+v: want %d tokens up to the stop token %d, not truncated", bare([]Row{r})[0], at+1, last)
	}
}

func TestATurnEndsWhereItIsSaidToEnd(t *testing.T) {
	m := newTestModel(t, architectures()["llama"])
	w := randomWeights(t, m, 53)
	var seen [][]int32
	g := begin(t, m, [][]int32{{1, 2}, {3, 4, 5}}, Sampling{MaxTokens: 9, Ends: func(turn []int32) bool {
		seen = append(seen, slices.Clone(turn))
		return len(turn) == 3
	}})
	proceed(t, g, w, 0)
	for i, r := range g.Rows() {
		if r.Truncated || !r.Done || written(r) != 3 || !slices.Equal(seen[len(seen)-2+i], r.Tokens[r.Prompt:]) {
			t.Errorf("row %+v: want three tokens, not truncated", bare([]Row{r})[0])
		}
	}
	room, err := g.Extend(0, Input{Tokens: []int32{6}})
	if !room || err != nil {
		t.Fatal(room, err)
	}
	proceed(t, g, w, 0)
	if r := g.Rows()[0]; written(r) != 6 || !slices.Equal(seen[len(seen)-1], r.Tokens[r.Turn:]) {
		t.Errorf("row %+v: want a second turn of three tokens", bare([]Row{r})[0])
	}
}

func TestInvalidPromptsAreRefused(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	ok, one := []int32{1}, Sampling{MaxTokens: 1}
	for want, call := range map[string]func() error{
		"prompt 1 has 64 tokens, the model's 64 positions leave no room": func() error {
			_, err := m.Start(Plain(ok, make([]int32, 64)), nil, one)
			return err
		},
		"row 1 has no tokens: give at least one": func() error {
			_, err := m.Start(Plain(ok, []int32{}), nil, one)
			return err
		},
		"row 0, token 2: id 23 is out of range: the vocabulary is 0 to 22": func() error {
			_, err := m.Start(Plain([]int32{1, 2, 23}), nil, one)
			return err
		},
		"id -1 is out of range": func() error {
			_, err := m.Start(Plain([]int32{-1}), nil, one)
			return err
		},
		"1 random streams for 2 prompts: give one to each": func() error {
			_, err := m.Start(Plain(ok, ok), []*rand.Rand{stream(0)}, Sampling{Temperature: 1, MaxTokens: 1})
			return err
		},
		"max_tokens: 0: want 1 or more": func() error {
			_, err := m.Start(Plain(ok), nil, Sampling{})
			return err
		},
		"temperature: NaN: want 0 (greedy) to 100\ntop_p: 1.5: want a share in (0, 1]": func() error {
			_, err := m.Start(Plain(ok), nil, Sampling{Temperature: math.NaN(), TopP: 1.5, MaxTokens: 1})
			return err
		},
		"score: row 1 has 65 tokens, the model 64 positions: shorten it": func() error {
			_, err := m.Score(context.Background(), nil, Plain(ok, make([]int32, 65)), 1)
			return err
		},
		"score: row 0 has no tokens": func() error {
			_, err := m.Score(context.Background(), nil, Plain([]int32{}), 1)
			return err
		},
		"score: temperature: 0: want": func() error {
			_, err := m.Score(context.Background(), nil, Plain(ok), 0)
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func TestDivergedWeightsEndAGenerationWithARemedy(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	flat, err := randomWeights(t, m, 1).Flat()
	if err != nil {
		t.Fatal(err)
	}
	for i := range flat[0] {
		flat[0][i] = float32(math.NaN())
	}
	w, err := m.NewWeights(0, flat)
	if err != nil {
		t.Fatal(err)
	}
	_, err = begin(t, m, [][]int32{{1}}, Sampling{MaxTokens: 3}).Continue(context.Background(), w, 0)
	if err == nil || !strings.Contains(err.Error(), "row 0: logit 0 is NaN: the weights have diverged; lower "+
		"learner.learning_rate") {
		t.Errorf("generation with weights of NaN: %v", err)
	}
}

// cancelAfter is a context that ends after a number of looks at it.
type cancelAfter struct {
	context.Context
	looks int
}

func (c *cancelAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestACancelledGenerationStopsBetweenTokensAndCanContinue(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 61)
	prompts, s := [][]int32{{1, 2}, {3}}, Sampling{Temperature: 1, MaxTokens: 9}
	g := begin(t, m, prompts, s)
	if done, err := g.Continue(&cancelAfter{context.Background(), 4}, w, 0); done || !errors.Is(err, context.Canceled) {
		t.Fatalf("done %v, %v: want a cancellation", done, err)
	}
	if n := written(g.Rows()[0]); n != 4 {
		t.Errorf("%d tokens were drawn before the cancellation, want 4", n)
	}
	proceed(t, g, w, 0)
	if got, want := bare(g.Rows()), bare(generate(t, m, w, prompts, s, 0)); !reflect.DeepEqual(got, want) {
		t.Errorf("after a cancellation rows became\n%v\nwant\n%v", got, want)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Score(cancelled, w, Plain(prompts...), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("scoring under a cancelled context: %v", err)
	}
}

// Prompts that come one by one, into rows that others have left, are completed as each alone, with its own sampling.
func TestRowsThatAreReplacedAreThoseOfEachAlone(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := threeVersions(t, m)[0]
			random := stream(99)
			g := m.StartIdle(3)
			next, owner := 0, make([]int, 3)
			const prompts = 14
			inputs, samplings := make([]Input, prompts), make([]Sampling, prompts)
			for i := range inputs {
				inputs[i] = Input{Tokens: make([]int32, 1+random.IntN(12))}
				for j := range inputs[i].Tokens {
					inputs[i].Tokens[j] = random.Int32N(int32(c.VocabSize))
				}
				samplings[i] = Sampling{Temperature: []float64{0, 0.7, 1, 1.5}[i%4], TopP: []float64{1, 0.8}[i%2],
					MaxTokens: 1 + random.IntN(9), Stop: []int32{int32(i % c.VocabSize)}}
			}
			for ended := 0; ended < prompts; {
				for i := range g.Rows() {
					if next < prompts && g.Rows()[i].Done && random.IntN(2) == 0 {
						if err := g.Replace(i, inputs[next], stream(next), samplings[next]); err != nil {
							t.Fatal(err)
						}
						owner[i] = next
						next++
					}
				}
				if _, err := g.Continue(t.Context(), w, 1); err != nil {
					t.Fatal(err)
				}
				for i, row := range g.Rows() {
					if !row.Done || len(row.Tokens) == 0 {
						continue
					}
					n := owner[i]
					alone, err := m.Start([]Input{inputs[n]}, []*rand.Rand{stream(n)}, samplings[n])
					if err != nil {
						t.Fatal(err)
					}
					proceed(t, alone, w, 0)
					want := alone.Rows()[0]
					if !slices.Equal(row.Tokens, want.Tokens) || row.Truncated != want.Truncated ||
						!slices.Equal(row.SamplingMask.IDs, want.SamplingMask.IDs) {
						t.Fatalf("prompt %d became %v, alone %v", n, row.Tokens, want.Tokens)
					}
					for j := range row.Logprobs {
						near(t, "log-prob", row.Logprobs[j], float64(want.Logprobs[j]), 2e-5)
					}
					if err := g.Release(i); err != nil {
						t.Fatal(err)
					}
					ended++
				}
			}
		})
	}
}

// The rows of a group read their prompt in a pass of one row, and are what they would be had each read it.
func TestAGroupReadsItsPromptOnce(t *testing.T) {
	for _, name := range []string{"tied", "grouped queries"} {
		c := architectures()[name]
		c.ValueHead = true
		m := newOwnModel(t, c)
		w := randomWeights(t, m, 121)
		g := begin(t, m, slices.Repeat([][]int32{{1, 2, 3, 4, 5, 6, 7}}, 5), Sampling{Temperature: 1, MaxTokens: 9})
		proceed(t, g, w, 0)
		for _, r := range g.Rows() {
			checkRow(t, m, w, r, 1)
		}
		for d := range m.decode.compiled {
			if (d.length > 1) != (d.rows == 1) {
				t.Errorf("%s: a pass of %d rows x %d tokens: want the prompt in one row, and one token of all others", name,
					d.rows, d.length)
			}
		}
		if slices.Equal(g.rows[0].Tokens, g.rows[1].Tokens) && slices.Equal(g.rows[0].Tokens, g.rows[2].Tokens) {
			t.Errorf("%s: rows with streams of their own wrote the same", name)
		}
	}
}
