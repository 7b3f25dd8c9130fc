package policy

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// withTower returns an architecture with a critic and a tower of four patches to an image; the last token of the
// vocabulary stands for a patch.
func withTower() hf.Config {
	c := architectures()["grouped queries"]
	c.ValueHead = true
	c.Vision = hf.Vision{ImageSize: 6, PatchSize: 3, HiddenSize: 5, ImageTokenID: c.VocabSize - 1}
	return c
}

// randomInput returns n tokens of text behind as many images as asked for, if the model sees.
func randomInput(c hf.Config, rng *rand.Rand, n, images int) Input {
	var in Input
	for range images {
		if c.Vision.Tokens() == 0 {
			break
		}
		in.Images = append(in.Images, picture(c.Vision.ImageSize, func() uint8 { return uint8(rng.Uint32()) }))
		for range c.Vision.Tokens() {
			in.Tokens = append(in.Tokens, int32(c.Vision.ImageTokenID))
		}
	}
	in.Tokens = append(in.Tokens, randomTokens(rng, n, c.VocabSize-1)...)
	return in
}

// wish is the environment's answer to a turn of a row; nil: the row gets no more turns.
type wish func(turn, row int) *Input

// randomWish draws from streams of turn and row, so that the wishes do not depend on who asks first.
func randomWish(c hf.Config, seed uint64, turns int) wish {
	return func(turn, row int) *Input {
		rng := rollout.Stream(seed, "test/wish", uint64(100*turn+row))
		if turn >= turns || rng.IntN(5) == 0 {
			return nil
		}
		in := randomInput(c, rng, rng.IntN(13), rng.IntN(4)/2)
		return &in
	}
}

// converse runs turns until no row gets another, n positions to a call.
func converse(t *testing.T, m *Model, w *Weights, prompts []Input, s Sampling, say wish, n int) []Row {
	t.Helper()
	streams := make([]*rand.Rand, len(prompts))
	for i := range streams {
		streams[i] = stream(i)
	}
	g, err := m.Start(prompts, streams, s)
	if err != nil {
		t.Fatal(err)
	}
	over := make([]bool, len(prompts))
	for turn := 1; ; turn++ {
		for done := false; !done; {
			if done, err = g.Continue(context.Background(), w, n); err != nil {
				t.Fatal(err)
			}
		}
		for i := range prompts {
			over[i] = over[i] || !extend(t, g, i, say(turn, i))
		}
		if !slices.Contains(over, false) {
			return g.Rows()
		}
	}
}

// extend gives a row another turn, reports whether it has one, and checks the promises of Extend.
func extend(t *testing.T, g *Generation, i int, in *Input) bool {
	t.Helper()
	if in == nil {
		return false
	}
	before := g.Rows()[i]
	ok, err := g.Extend(i, *in)
	if err != nil {
		t.Fatal(err)
	}
	row, n := g.Rows()[i], len(before.Tokens)
	if fits := n+len(in.Tokens)+1 <= g.model.config.MaxPositionEmbeddings; ok != fits {
		t.Fatalf("extending a row of %d tokens by %d of %d positions: %v", n, len(in.Tokens),
			g.model.config.MaxPositionEmbeddings, ok)
	}
	if !ok {
		if !reflect.DeepEqual(before, row) {
			t.Fatalf("a row that cannot continue became %+v, was %+v", row, before)
		}
		return false
	}
	if row.Done || row.Truncated || row.Turn != len(row.Tokens) || !slices.Equal(row.Tokens[n:], in.Tokens) ||
		len(row.Images) != len(before.Images)+len(in.Images) {
		t.Fatalf("a row extended by %v became %+v", in.Tokens, row)
	}
	return true
}

// checkRow holds a row to the form that rollouts have, and its log-probs and values to one scoring pass over it.
func checkRow(t *testing.T, m *Model, w *Weights, r Row, temperature float64) {
	t.Helper()
	n := len(r.Tokens)
	if len(r.Mask) != n || len(r.Logprobs) != n || len(r.Versions) != n || (len(r.Values) != n) == m.config.ValueHead ||
		n > m.config.MaxPositionEmbeddings {
		t.Fatalf("a row of %d tokens has %d masks, %d log-probs, %d versions, %d values", n, len(r.Mask),
			len(r.Logprobs), len(r.Versions), len(r.Values))
	}
	scores, err := m.Score(context.Background(), w, []Input{{Tokens: r.Tokens, Images: r.Images, Mask: r.Mask,
		SamplingMask: r.SamplingMask}}, temperature)
	if err != nil {
		t.Fatal(err)
	}
	// Of long rows the sums are long, and cache and pass take them in other orders: in rows of 300 tokens, with weights
	// of these sizes, they were up to 4e-5 apart, with and without SIMD, and each up to 6e-5 from the computation in
	// float64. One token of 300 out of its place or hidden is 0.1 and more.
	tolerance := 1e-5 * max(1, float64(n)/16)
	for j, mask := range r.Mask {
		logprob, value, version := scores[0].Logprobs[j], float32(0), w.Version
		if m.config.ValueHead {
			value = scores[0].Values[j]
		}
		if mask == 0 {
			logprob, value, version = 0, 0, rollout.NoVersion
		}
		near(t, fmt.Sprintf("log-prob of token %d of %d", j, n), r.Logprobs[j], float64(logprob), tolerance)
		if m.config.ValueHead {
			near(t, fmt.Sprintf("value before token %d of %d", j, n), r.Values[j], float64(value), tolerance)
		}
		if r.Versions[j] != version {
			t.Errorf("token %d has version %d, want %d", j, r.Versions[j], version)
		}
	}
}

// turnsOf counts the stretches of tokens that the policy produced.
func turnsOf(r Row) (n int) {
	for j, m := range r.Mask {
		if j > 0 && r.Mask[j-1] == 0 {
			n += int(m)
		}
	}
	return n
}

func TestRowsOfManyTurnsHaveTheLogprobsOfOnePass(t *testing.T) {
	tests.OneGoroutine(t)
	all := architectures()
	all["critic and tower"] = withTower()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := randomWeights(t, m, 101)
			most, truncated, stopped := 0, 0, 0
			for seed := range uint64(4) {
				rng := rollout.Stream(seed, "test/turns", 0)
				var prompts []Input
				for range 1 + rng.IntN(5) {
					prompts = append(prompts, randomInput(c, rng, 1+rng.IntN(9), rng.IntN(2)))
				}
				s := Sampling{Temperature: 0.7 + rng.Float64(), TopP: 0.9, MaxTokens: 1 + rng.IntN(7),
					Stop: []int32{1, 2, 3, 4}}
				for _, r := range converse(t, m, w, prompts, s, randomWish(c, seed, 7), 0) {
					checkRow(t, m, w, r, s.Temperature)
					most = max(most, turnsOf(r))
					if slices.Contains(s.Stop, r.Tokens[len(r.Tokens)-1]) == r.Truncated {
						t.Errorf("a row ends with %d, truncated %v", r.Tokens[len(r.Tokens)-1], r.Truncated)
					}
					if r.Truncated {
						truncated++
					} else {
						stopped++
					}
				}
			}
			if most < 4 || truncated == 0 || stopped == 0 {
				t.Errorf("at most %d turns, %d rows truncated and %d stopped: the test shows little", most,
					truncated, stopped)
			}
		})
	}
}

func TestChunksOfManyTurnsGiveTheBitsOfOneCall(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 103)
	rng := rollout.Stream(104, "test", 0)
	prompts := []Input{randomInput(c, rng, 3, 1), randomInput(c, rng, 1, 0), randomInput(c, rng, 8, 2)}
	s := Sampling{Temperature: 1, MaxTokens: 6, Stop: []int32{2, 9, 11}}
	whole := bare(converse(t, m, w, prompts, s, randomWish(c, 105, 6), 0))
	for _, chunk := range []int{1, 2, 3, 7} {
		if got := bare(converse(t, m, w, prompts, s, randomWish(c, 105, 6), chunk)); !reflect.DeepEqual(got, whole) {
			t.Errorf("in chunks of %d:\n%v\nwant\n%v", chunk, got, whole)
		}
	}
}

func TestRowsOfManyTurnsAreThoseOfEachAlone(t *testing.T) {
	tests.OneGoroutine(t)
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 107)
	rng := rollout.Stream(108, "test", 0)
	var prompts []Input
	for i := range 4 {
		prompts = append(prompts, randomInput(c, rng, 1+3*i, i%2))
	}
	s := Sampling{MaxTokens: 5, Stop: []int32{2, 9, 11, 13}}
	for i, row := range converse(t, m, w, prompts, s, randomWish(c, 109, 6), 0) {
		alone := converse(t, m, w, prompts[i:i+1], s,
			func(turn, _ int) *Input { return randomWish(c, 109, 6)(turn, i) }, 0)[0]
		if !slices.Equal(row.Tokens, alone.Tokens) || !slices.Equal(row.Mask, alone.Mask) {
			t.Fatalf("row %d is %v, alone it is %v", i, row.Tokens, alone.Tokens)
		}
		for j, l := range row.Logprobs {
			near(t, "log-prob", l, float64(alone.Logprobs[j]), 1e-5)
		}
	}
}

func TestInvalidExtensionsAreRefused(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 113)
	g := begin(t, m, [][]int32{{1, 2}}, Sampling{Temperature: 1, MaxTokens: 4})
	for _, tc := range []struct {
		row  int
		in   Input
		want string
	}{
		{0, Input{Tokens: []int32{1}}, "extend row 0: its turn is not over: continue until the row is Done"},
		{1, Input{Tokens: []int32{1}}, "extend row 1: there are 1 rows"},
		{-1, Input{Tokens: []int32{1}}, "extend row -1: there are 1 rows"},
		{0, Input{Tokens: []int32{1, 23}}, "extend: row 0, token 1: id 23 is out of range"},
		{0, Input{Tokens: []int32{22, 22, 22}}, "extend: row 0: 3 image tokens for 0 images: want 4 for each"},
		{0, Input{Images: [][]byte{nil}}, "extend: row 0 has no tokens"},
	} {
		if strings.Contains(tc.want, "token") {
			proceed(t, g, w, 0)
		}
		before := bare(g.Rows())
		if ok, err := g.Extend(tc.row, tc.in); ok || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("row %d by %v: %v, %v: want %q", tc.row, tc.in, ok, err, tc.want)
		}
		if !reflect.DeepEqual(bare(g.Rows()), before) {
			t.Errorf("after %q the row is %v, was %v", tc.want, bare(g.Rows()), before)
		}
	}
}

func TestATurnMayFollowAnEmptyAnswer(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 115)
	s := Sampling{Temperature: 1, MaxTokens: 10}
	want := bare(generate(t, m, w, [][]int32{{1, 2, 3}, {4}}, s, 0))
	s.MaxTokens = 5
	got := bare(converse(t, m, w, Plain([]int32{1, 2, 3}, []int32{4}), s, func(turn, _ int) *Input {
		if turn == 2 {
			return nil
		}
		return &Input{}
	}, 0))
	for i := range got {
		if !slices.Equal(got[i].Tokens, want[i].Tokens) || got[i].Turn != got[i].Prompt+5 {
			t.Errorf("two turns of five tokens: %v, one of ten: %v", got[i], want[i])
		}
	}
}

func TestGenerationIgnoresTheMaskOfAnInput(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 117)
	in := randomInput(c, rollout.Stream(118, "test", 0), 3, 1)
	claimed := in
	claimed.Mask = slices.Repeat([]uint8{1}, len(in.Tokens))
	s := Sampling{MaxTokens: 3}
	var rows [2][]Row
	for i, given := range []Input{in, claimed} {
		rows[i] = bare(converse(t, m, w, []Input{given}, s, func(turn, _ int) *Input {
			if turn == 3 {
				return nil
			}
			return &given
		}, 0))
	}
	if !reflect.DeepEqual(rows[0], rows[1]) {
		t.Errorf("an input that claims to be of the policy leads to %v, without the claim to %v", rows[1], rows[0])
	}
}

// shadow is what a generation has to compute, in plain loops: every row has a cache of its own, without slots, padding
// or neighbours, and a token passes through the weights of the call that first needs what it leads to.
type shadow struct {
	refs      map[rollout.Version]*reference
	recompute bool
	filled    bool
	version   rollout.Version // whose weights began to fill the caches
	caches    []referenceCache
	held      []int
}

func newShadow(rows int, recompute bool, refs map[rollout.Version]*reference) *shadow {
	return &shadow{refs: refs, recompute: recompute, caches: make([]referenceCache, rows), held: make([]int, rows)}
}

func (s *shadow) clear() {
	s.filled = false
	clear(s.caches)
	clear(s.held)
}

// step passes what the rows have and the caches lack, all but the last token of rows that rest, and returns the last
// states of the others.
func (s *shadow) step(rows []Row, v rollout.Version) [][]float64 {
	if s.recompute && s.version != v {
		s.clear()
	}
	if !s.filled {
		s.filled, s.version = true, v
	}
	out := make([][]float64, len(rows))
	for i, r := range rows {
		end := len(r.Tokens)
		if r.Done {
			end--
		}
		embeddings := s.refs[v].embeddings(Input{Tokens: r.Tokens, Images: r.Images, Mask: r.Mask})
		for ; s.held[i] < end; s.held[i]++ {
			out[i] = s.caches[i].pass(s.refs[v], embeddings[s.held[i]])
		}
		if r.Done {
			out[i] = nil
		}
	}
	return out
}

// schedule is a random course of a generation: which weights decode each position, when rows are extended and by what,
// when the cache is given back on the way.
type schedule struct {
	t        *testing.T
	rng      *rand.Rand
	m        *Model
	g        *Generation
	versions []*Weights
	shadow   *shadow
	sampling Sampling
	turns    int
	changes  int
}

// Whatever the weights, turns, images and neighbours, every token has the log-prob, and the state before it the value,
// that the plain computation gives it.
func TestRandomSchedulesOfTurnsAgreeWithThePlainComputation(t *testing.T) {
	tests.OneGoroutine(t)
	c := withTower()
	m := newTestModel(t, c)
	versions := []*Weights{randomWeights(t, m, 121), randomWeights(t, m, 122).WithVersion(3),
		randomWeights(t, m, 123).WithVersion(4)}
	refs := map[rollout.Version]*reference{}
	for _, w := range versions {
		ref, err := newReference(c, w)
		if err != nil {
			t.Fatal(err)
		}
		refs[w.Version] = ref
	}
	turns, changes, seeds := 0, 0, tests.Count(24, 6)
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rollout.Stream(seed, "test/schedule", 0)
			var prompts []Input
			var streams []*rand.Rand
			for i := range 1 + rng.IntN(5) {
				prompts = append(prompts, randomInput(c, rng, 1+rng.IntN(9), rng.IntN(2)))
				streams = append(streams, stream(i))
			}
			s := Sampling{Temperature: 0.5 + rng.Float64(), TopP: 0.8, MaxTokens: 1 + rng.IntN(7),
				Stop: []int32{1, 2, 3}, RecomputeCache: seed%2 == 1}
			g, err := m.Start(prompts, streams, s)
			if err != nil {
				t.Fatal(err)
			}
			run := &schedule{t: t, rng: rng, m: m, g: g, versions: versions, sampling: s,
				shadow: newShadow(len(prompts), s.RecomputeCache, refs)}
			run.run()
			turns, changes = turns+run.turns, changes+run.changes
		})
	}
	if turns < 8*seeds || changes < 4*seeds {
		t.Errorf("%d turns and %d changes of weights: the test shows little", turns, changes)
	}
}

func (s *schedule) run() {
	w := s.versions[0]
	for s.rows() > 0 {
		if s.rng.IntN(6) == 0 {
			w = s.versions[s.rng.IntN(len(s.versions))]
			s.changes++
		}
		if s.rng.IntN(25) == 0 {
			s.g.Close()
			s.shadow.clear()
		}
		s.step(w)
	}
}

// rows extends some of the rows that rest, all of them at a time for the most part, and returns how many are at work.
func (s *schedule) rows() int {
	working, resting := 0, []int{}
	for i, r := range s.g.Rows() {
		if r.Done {
			resting = append(resting, i)
		} else {
			working++
		}
	}
	if working > 0 && s.rng.IntN(10) > 0 {
		return working
	}
	for _, i := range resting {
		if s.rng.IntN(4) == 0 {
			continue
		}
		in := randomInput(s.m.config, s.rng, s.rng.IntN(10), s.rng.IntN(4)/2)
		if extend(s.t, s.g, i, &in) {
			working++
			s.turns++
		}
	}
	return working
}

// step decodes a position and compares what it left in the rows.
func (s *schedule) step(w *Weights) {
	s.t.Helper()
	states := s.shadow.step(s.g.Rows(), w.Version)
	before := bare(s.g.Rows())
	proceed(s.t, s.g, w, 1)
	for i, r := range s.g.Rows() {
		last := len(r.Tokens) - 1
		if states[i] == nil {
			if last != len(before[i].Tokens)-1 {
				s.t.Fatalf("row %d rests, and grew to %d tokens", i, last+1)
			}
			continue
		}
		if last != len(before[i].Tokens) || r.Mask[last] != 1 || r.Versions[last] != w.Version {
			s.t.Fatalf("row %d of %d tokens became %+v", i, len(before[i].Tokens), r)
		}
		ref := s.shadow.refs[w.Version]
		logprobs := logSoftmax(ref.head(states[i]), s.sampling.Temperature)
		kept := 0.0
		for _, id := range r.SamplingMask.At(last) {
			kept += math.Exp(logprobs[id])
		}
		near(s.t, "log-prob", r.Logprobs[last], logprobs[r.Tokens[last]]-math.Log(kept), 5e-5)
		near(s.t, "value", r.Values[last], ref.linear(states[i], "v_head.summary")[0], 5e-5)
		full := len(r.Tokens)-r.Turn == s.sampling.MaxTokens || len(r.Tokens) == s.m.config.MaxPositionEmbeddings
		stopped := r.Tokens[last] >= 1 && r.Tokens[last] <= 3
		if r.Done != (stopped || full) || r.Truncated != (full && !stopped) {
			s.t.Errorf("row %d: done %v, truncated %v after %v", i, r.Done, r.Truncated, r.Tokens)
		}
	}
}

// Weights that change under a kept cache leave traces: with a recomputed cache the log-probs differ.
func TestAShadowWithTheOtherCachePolicyDisagrees(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	a, b := randomWeights(t, m, 131), randomWeights(t, m, 132).WithVersion(1)
	for _, recompute := range []bool{false, true} {
		g, err := m.Start(Plain([]int32{1, 2, 3}), nil, Sampling{MaxTokens: 3, RecomputeCache: recompute})
		if err != nil {
			t.Fatal(err)
		}
		proceed(t, g, a, 0)
		extend(t, g, 0, &Input{Tokens: []int32{4, 5}})
		proceed(t, g, b, 0)
		r := g.Rows()[0]
		scores, err := m.Score(context.Background(), b, []Input{{Tokens: r.Tokens, Mask: r.Mask}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		worst := float32(0)
		for j := r.Turn; j < len(r.Tokens); j++ {
			worst = max(worst, scores[0].Logprobs[j]-r.Logprobs[j], r.Logprobs[j]-scores[0].Logprobs[j])
		}
		if (worst < 1e-4) != recompute {
			t.Errorf("recompute %v: log-probs of the second turn are within %g of those of its weights alone",
				recompute, worst)
		}
	}
}
