package capture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// randomCall returns what an agent may ask next: to continue a completion, a rewritten history, or something new.
func randomCall(rng *rand.Rand, seen [][]int32) []int32 {
	prompt := []int32{0}
	if len(seen) > 0 && rng.IntN(4) > 0 {
		prompt = slices.Clone(seen[rng.IntN(len(seen))])
		if rng.IntN(3) == 0 {
			prompt = prompt[:1+rng.IntN(len(prompt))]
		}
	}
	for range rng.IntN(3) {
		prompt = append(prompt, rng.Int32N(3))
	}
	return prompt
}

// Whatever agents ask, each token that was sampled is learned from in exactly one rollout, with the log-prob that it
// was sampled with, and what precedes it there is the prompt of its call.
func TestEverySampledTokenIsLearnedFromOnceAfterItsOwnPrompt(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range tests.Rounds(20_000, 1000, 200) {
		s := newSession(begin{ID: "a", UID: "u", Named: true})
		var seen [][]int32
		want := make(map[string]int) // the tokens before and the sampled one
		number := float32(0)
		for range 1 + rng.IntN(8) {
			prompt := randomCall(rng, seen)
			var list []engine.Recorded
			for range 1 + rng.IntN(8)/6 {
				r := engine.Recorded{Prompt: prompt}
				for range 1 + rng.IntN(4) {
					number--
					r.Tokens, r.Logprobs = append(r.Tokens, rng.Int32N(3)), append(r.Logprobs, number)
					r.Versions = append(r.Versions, 4)
				}
				list = append(list, r)
				seen = append(seen, slices.Concat(prompt, r.Tokens))
				for i := range r.Tokens {
					want[fmt.Sprint(prompt, r.Tokens[:i+1], r.Logprobs[i])]++
				}
			}
			pieces := s.pieces(list, "", "id")
			before, growth := s.size(), s.sizeOf(pieces)
			for _, p := range pieces {
				if !s.add(p) {
					t.Fatalf("piece %+v does not fit", p)
				}
			}
			if s.size() != before+growth {
				t.Fatalf("%d and %d bytes became %d", before, growth, s.size())
			}
		}
		s.reward = &reward{Reward: 1}
		for _, r := range s.rollouts("p", 1, false) {
			if err := r.Validate(rollout.Limits{}); err != nil {
				t.Fatal(err)
			}
			for _, turn := range r.Turns {
				for i := turn.Start; i < turn.End; i++ {
					want[fmt.Sprint(r.Tokens[:turn.Start], r.Tokens[turn.Start:i+1], r.Logprobs[i])]--
				}
			}
		}
		for what, n := range want {
			if n != 0 {
				t.Fatalf("%s: %d times too few", what, n)
			}
		}
	}
}

func TestATurnThatDidNotStopByItselfIsTruncated(t *testing.T) {
	for finish, want := range map[engine.Finish]bool{engine.Stopped: false, engine.Length: true, engine.Aborted: true} {
		s := newSession(begin{ID: "a"})
		for _, p := range s.pieces([]engine.Recorded{{Prompt: []int32{1}, Completion: engine.Completion{Tokens: []int32{2},
			Logprobs: []float32{-1}, Versions: []rollout.Version{0}, Finish: finish}}}, "", "id") {
			s.add(p)
		}
		s.reward = &reward{}
		if r := s.rollouts("p", 1, false)[0]; r.Truncated != want {
			t.Errorf("%s: truncated is %v", finish, r.Truncated)
		}
	}
}

// A session that is read from its file, as far as a kill let it be written, is that of before up to a call.
func TestAFileThatEndsAnywhereIsASessionUpToACall(t *testing.T) {
	f, err := openFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	s := newSession(begin{ID: "a/../b", UID: "u"})
	if err := f.write(s, false, line{Begin: &s.begin}); err != nil {
		t.Fatal(err)
	}
	path := f.path(s.id)
	var ends []int64 // of the file, after each call
	for i := range int32(4) {
		prompt := slices.Concat([]int32{7}, slices.Repeat([]int32{i}, int(i)))
		pieces := s.pieces([]engine.Recorded{{Prompt: prompt, Completion: engine.Completion{Tokens: []int32{i, 5},
			Logprobs: []float32{-0.1 * float32(i+1), -1e-30}, Versions: []rollout.Version{0, 1}}}}, "", "")
		if err := f.write(s, i == 3, line{Pieces: pieces}); err != nil {
			t.Fatal(err)
		}
		for _, p := range pieces {
			s.add(p)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s.reward = &reward{}
	all := s.rollouts("p", 1, false)
	for n := range len(whole) + 1 {
		cut := filepath.Join(t.TempDir(), "cut.jsonl")
		if err := os.WriteFile(cut, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readSession(cut)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		calls := 0
		for calls < len(ends) && ends[calls] <= int64(n) {
			calls++
		}
		if got == nil {
			if calls > 0 {
				t.Fatalf("%d bytes: nothing", n)
			}
			continue
		}
		got.reward = &reward{}
		list := got.rollouts("p", 1, false)
		if got.calls != calls || len(list) > len(all) {
			t.Fatalf("%d bytes: %d calls in %d rollouts, want %d calls", n, got.calls, len(list), calls)
		}
		for i, r := range list {
			if m := len(r.Tokens); !slices.Equal(r.Tokens, all[i].Tokens[:m]) || !slices.Equal(r.Logprobs,
				all[i].Logprobs[:m]) {
				t.Fatalf("%d bytes: rollout %d is %v", n, i, r)
			}
		}
	}
}

func FuzzAFileOfASession(f *testing.F) {
	f.Add([]byte(`{"begin":{"id":"a","uid":"u"}}` + "\n" +
		`{"pieces":[{"branch":0,"parent":-1,"context":[1],"tokens":[2],` +
		`"logprobs":[-1],"versions":[0],"first":true}]}` + "\n" + `{"reward":{"reward":1,"order":3}}` + "\n"))
	f.Add([]byte(`{"begin":{}}` + "\n" + `{"pieces":[{"branch":1,"parent":5,"shared":-1}]}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readSession(path)
		if err != nil || s == nil {
			return
		}
		s.reward = &reward{}
		s.rollouts(s.task(), 1, false)
	})
}
