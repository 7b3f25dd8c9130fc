package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/policy/hf"
)

// conversation is generation of one shape: a prompt, and turns of the policy with observations between them.
type conversation struct{ prompt, turns, tokens, observation int }

// length returns the tokens of a row at the end.
func (s conversation) length() int { return s.prompt + s.turns*s.tokens + (s.turns-1)*s.observation }

// hold runs the conversation with a batch of rows.
func (s conversation) hold(b *testing.B, m *Model, w *Weights, batch int) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	prompts, streams := make([][]int32, batch), make([]*rand.Rand, batch)
	for i := range prompts {
		prompts[i], streams[i] = randomTokens(rng, s.prompt, m.config.VocabSize), stream(i)
	}
	g, err := m.Start(Plain(prompts...), streams, Sampling{Temperature: 1, MaxTokens: s.tokens})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	for turn := range s.turns {
		for i := range prompts {
			if turn == 0 {
				break
			}
			if ok, err := g.Extend(i, Input{Tokens: randomTokens(rng, s.observation, m.config.VocabSize)}); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		if done, err := g.Continue(context.Background(), w, 0); !done || err != nil {
			b.Fatal(done, err)
		}
	}
	for _, r := range g.Rows() {
		if len(r.Tokens) != s.length() {
			b.Fatalf("a row of %d tokens, want %d", len(r.Tokens), s.length())
		}
	}
}

// Turns with observations between them, beside a single turn of as many tokens behind a prompt as long as prompt and
// observations together: both write the same number of tokens and end with the same number of all tokens, so that their times
// compare per token of either kind.
func BenchmarkTurns(b *testing.B) {
	turns := conversation{prompt: 24, turns: 8, tokens: 8, observation: 24}
	single := conversation{prompt: 192, turns: 1, tokens: 64}
	for _, size := range []struct {
		name   string
		config hf.Config
	}{{"0.1M", benchmarkModel()}, {"0.9M", largerModel()}} {
		for _, batch := range []int{8, 32} {
			b.Run(fmt.Sprintf("%s/batch%d", size.name, batch), func(b *testing.B) {
				c := size.config
				c.MaxPositionEmbeddings = turns.length()
				m := newTestModel(b, c)
				w := randomWeights(b, m, 1)
				var spent [2]time.Duration
				began := time.Now()
				turns.hold(b, m, w, batch) // compiles
				first := time.Since(began)
				single.hold(b, m, w, batch)
				var ratios []float64
				for b.Loop() {
					var round [2]time.Duration
					for i, s := range []conversation{turns, single} {
						began := time.Now()
						s.hold(b, m, w, batch)
						round[i] = time.Since(began)
						spent[i] += round[i]
					}
					ratios = append(ratios, float64(round[0])/float64(round[1]))
				}
				slices.Sort(ratios)
				rounds := len(ratios)
				b.ReportMetric(float64(rounds*batch*turns.turns*turns.tokens)/spent[0].Seconds(), "tokens/s")
				b.ReportMetric(float64(rounds*batch*turns.length())/spent[0].Seconds(), "sequence-tokens/s")
				b.ReportMetric(ratios[rounds/2], "x-single-turn") // the median: other programs disturb single rounds
				b.ReportMetric(first.Seconds(), "first-s")
			})
		}
	}
}
