package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// shadow is what a generation has to compute, in plain loops: every row has a cache of its own, without slots, padding or
// neighbours, and a token passes through the weights of the call that first needs what it leads to.
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

// step passes what the rows have and the caches lack, all but the last token of rows that rest, and returns the last states of
// the others.
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

// schedule is a random course of a generation: which weights decode each position, when rows are extended and by what, when
// the cache is given back on the way.
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

// Whatever the weights, turns, images and neighbours, every token has the log-prob, and the state before it the value, that the
// plain computation gives it.
func TestRandomSchedulesOfTurnsAgreeWithThePlainComputation(t *testing.T) {
	c := seeing()
	m := newTestModel(t, c)
	versions := []*Weights{randomWeights(t, m, 121), randomWeights(t, m, 122).WithVersion(3), randomWeights(t, m, 123).WithVersion(4)}
	refs := map[rollout.Version]*reference{}
	for _, w := range versions {
		ref, err := newReference(c, w)
		if err != nil {
			t.Fatal(err)
		}
		refs[w.Version] = ref
	}
	turns, changes := 0, 0
	for seed := range uint64(24) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rollout.Stream(seed, "test/schedule", 0)
			var prompts []Input
			var streams []*rand.Rand
			for i := range 1 + rng.IntN(5) {
				prompts = append(prompts, randomInput(c, rng, 1+rng.IntN(9), rng.IntN(2)))
				streams = append(streams, stream(i))
			}
			s := Sampling{Temperature: 0.5 + rng.Float64(), TopP: 0.8, MaxTokens: 1 + rng.IntN(7), Stop: []int32{1, 2, 3}, RecomputeCache: seed%2 == 1}
			g, err := m.Start(prompts, streams, s)
			if err != nil {
				t.Fatal(err)
			}
			run := &schedule{t: t, rng: rng, m: m, g: g, versions: versions, sampling: s, shadow: newShadow(len(prompts), s.RecomputeCache, refs)}
			run.run()
			turns, changes = turns+run.turns, changes+run.changes
		})
	}
	if turns < 200 || changes < 100 {
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
		near(s.t, "log-prob", r.Logprobs[last], logSoftmax(ref.head(states[i]), s.sampling.Temperature)[r.Tokens[last]], 5e-5)
		near(s.t, "value", r.Values[last], ref.linear(states[i], "v_head.summary")[0], 5e-5)
		full := len(r.Tokens)-r.Turn == s.sampling.MaxTokens || len(r.Tokens) == s.m.config.MaxPositionEmbeddings
		stopped := r.Tokens[last] >= 1 && r.Tokens[last] <= 3
		if r.Done != (stopped || full) || r.Truncated != (full && !stopped) {
			s.t.Errorf("row %d: done %v, truncated %v after %v", i, r.Done, r.Truncated, r.Tokens)
		}
	}
}

// Weights that change under a kept cache leave traces: with another cache the same course would have other log-probs.
func TestAShadowOfTheOtherKindOfCacheDisagrees(t *testing.T) {
	c := seeing()
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
			t.Errorf("recompute %v: log-probs of the second turn are within %g of those of its weights alone", recompute, worst)
		}
	}
}
