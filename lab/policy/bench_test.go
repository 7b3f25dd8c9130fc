package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// benchmarkModel has 0.1 million parameters: the laboratory's default for arithmetic.
func benchmarkModel() hf.Config {
	return hf.Config{ModelType: hf.Llama, VocabSize: 16, HiddenSize: 64, IntermediateSize: 176, NumHiddenLayers: 2,
		NumAttentionHeads: 4, NumKeyValueHeads: 4, MaxPositionEmbeddings: 64, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, PadTokenID: hf.NoToken}
}

// largerModel has 0.9 million parameters.
func largerModel() hf.Config {
	c := benchmarkModel()
	c.HiddenSize, c.IntermediateSize, c.NumHiddenLayers = 128, 416, 4
	return c
}

// plainMatrices are a model's matrices multiplied in loops of plain Go, what the backend is compared with. Attention,
// norms and the softmax are left out, so that the comparison flatters the loops.
type plainMatrices struct {
	shapes    [][2]int // [out, in]
	data      [][]float32
	x, y      []float32 // room for the states of a batch
	gradients []float32
}

func newPlainMatrices(c hf.Config, rows int) *plainMatrices {
	p, widest := &plainMatrices{}, 0
	for _, s := range c.Specs() {
		if len(s.Shape) != 2 {
			continue
		}
		p.shapes = append(p.shapes, [2]int{s.Shape[0], s.Shape[1]})
		data := make([]float32, size(s.Shape))
		for i := range data {
			data[i] = float32(i%7) - 3
		}
		p.data = append(p.data, data)
		widest = max(widest, s.Shape[0], s.Shape[1])
	}
	p.x, p.y, p.gradients = make([]float32, rows*widest), make([]float32, rows*widest), make([]float32, widest*widest)
	return p
}

// forward multiplies the states of rows by every matrix: y = x W^T.
func (p *plainMatrices) forward(rows int) {
	for i, s := range p.shapes {
		out, in := s[0], s[1]
		for r := range rows {
			x := p.x[r*in : (r+1)*in]
			for o := range out {
				w, sum := p.data[i][o*in:(o+1)*in], float32(0)
				for j, v := range x {
					sum += v * w[j]
				}
				p.y[r*out+o] = sum
			}
		}
	}
}

// backward multiplies the gradients of rows by every matrix, dx = dy W, and by their states, dW = dy^T x.
func (p *plainMatrices) backward(rows int) {
	for i, s := range p.shapes {
		out, in := s[0], s[1]
		for r := range rows {
			x := p.x[r*in : (r+1)*in]
			for o := range out {
				g, w, dw := p.y[r*out+o], p.data[i][o*in:(o+1)*in], p.gradients[o*in:(o+1)*in]
				for j := range x {
					dw[j] += g * x[j]
					x[j] += g * w[j]
				}
			}
		}
	}
}

// perSecond returns how often f runs in a second, by at least half a second of it.
func perSecond(f func()) float64 {
	began, n := time.Now(), 0
	for time.Since(began) < time.Second/2 {
		f()
		n++
	}
	return float64(n) / time.Since(began).Seconds()
}

// One generation keeps one core busy.
func BenchmarkGenerate(b *testing.B) {
	for _, batch := range []int{16, 64, 256} {
		b.Run(fmt.Sprint("batch", batch), func(b *testing.B) {
			c := benchmarkModel()
			m := newTestModel(b, c)
			w := randomWeights(b, m, 1)
			prompts := make([][]int32, batch)
			for i := range prompts {
				prompts[i] = []int32{1, 2, 3, 4, 5, 6}
			}
			tokens := 0
			for b.Loop() {
				for _, r := range generate(b, m, w, prompts, Sampling{Temperature: 1, MaxTokens: 32}, 0) {
					tokens += written(r)
				}
			}
			speed := float64(tokens) / b.Elapsed().Seconds()
			b.ReportMetric(speed, "tokens/s")
			plain := newPlainMatrices(c, batch)
			b.ReportMetric(speed/(float64(batch)*perSecond(func() { plain.forward(batch) })), "x-plain-Go")
		})
	}
}

// Two trainers, a shard each, keep two cores busy, and so do two of the plain loops.
func BenchmarkTrain(b *testing.B) {
	const trainers, rows, length = 2, 64, 33
	c := largerModel()
	m := newTestModel(b, c)
	w, err := m.Initial(1)
	if err != nil {
		b.Fatal(err)
	}
	l := newTestLearner(b, m, w, Learning{Objective: objective.GRPO{}, Optimizer: Adam{LearningRate: 1e-4}})
	var batches []*rollout.Batch
	for i := range trainers {
		batches = append(batches, benchmarkBatch(c, uint64(i), rows, length))
	}
	step(b, l, batches...) // compiles
	steps := 0
	for b.Loop() {
		step(b, l, batches...)
		steps++
	}
	const tokens = trainers * rows * (length - 1) // the last token of a rollout is predicted, not passed
	work := 6 * float64(c.Parameters()) * tokens / 1e9
	speed := work * float64(steps) / b.Elapsed().Seconds()
	b.ReportMetric(speed, "GFLOP/s")
	b.ReportMetric(tokens*float64(steps)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(c.Parameters()), "parameters")
	plain := make([]*plainMatrices, trainers)
	for i := range plain {
		plain[i] = newPlainMatrices(c, rows)
	}
	passes := perSecond(func() {
		var wait sync.WaitGroup
		for _, p := range plain {
			wait.Go(func() {
				for range length - 1 {
					p.forward(rows)
					p.backward(rows)
				}
			})
		}
		wait.Wait()
	})
	b.ReportMetric(speed/(passes*work), "x-plain-Go")
}

// The cost of gradient norms by logits: the time of a step with them over one without.
func BenchmarkLogitGradients(b *testing.B) {
	for _, vocabulary := range []int{16, 4096} {
		b.Run(fmt.Sprint("vocabulary", vocabulary), func(b *testing.B) {
			c := benchmarkModel()
			c.VocabSize = vocabulary
			m := newTestModel(b, c)
			w, err := m.Initial(1)
			if err != nil {
				b.Fatal(err)
			}
			batches := []*rollout.Batch{benchmarkBatch(c, 1, 32, 33), benchmarkBatch(c, 2, 32, 33)}
			learners, spent := [2]*Learner{}, [2]time.Duration{}
			for i := range learners {
				learners[i] = newTestLearner(b, m, w, Learning{Objective: objective.GRPO{}, LogitGradients: i == 1})
				step(b, learners[i], batches...) // compiles
			}
			for b.Loop() {
				for i, l := range learners {
					began := time.Now()
					step(b, l, batches...)
					spent[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "x-without")
		})
	}
}

// benchmarkBatch makes rollouts of one length, six tokens of which are the prompt.
func benchmarkBatch(c hf.Config, seed uint64, rows, length int) *rollout.Batch {
	rng, b := rollout.Stream(seed, "bench/batch", 0), &rollout.Batch{}
	for range rows {
		r := &rollout.Rollout{Tokens: randomTokens(rng, length, c.VocabSize), Temperature: 1,
			Mask: make([]uint8, length), Logprobs: make([]float32, length)}
		for i := 6; i < length; i++ {
			r.Mask[i], r.Logprobs[i] = 1, -2.8
		}
		b.Draws = append(b.Draws, rollout.Draw{Rollout: r, Weight: 1, Advantage: 2*rng.Float32() - 1, GroupStd: 1})
	}
	return b
}

// The cost of the forward passes and inputs of other objectives: the time of a step of each over one of grpo.
func BenchmarkObjectives(b *testing.B) {
	for name, o := range map[string]Learning{
		"grpo_off":     {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact}},
		"grpo_off_kl":  {Objective: objective.OffPolicyGRPO{KLCoef: 0.1}, Reference: Reference{Every: 10}},
		"grpo_off_4":   {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.1}, Updates: 4},
		"filter":       {Objective: objective.GRPO{}, MaxLogRatio: 3},
		"ppo":          {Objective: objective.PPO{}, Advantage: advantage.Critic},
		"ppo_stored":   {Objective: objective.PPO{}, Advantage: advantage.Critic, StoredValues: true},
		"bound_each":   {Objective: objective.GRPO{}, BoundEvery: 1},
		"grpo_as_self": {Objective: objective.GRPO{}},
	} {
		b.Run(name, func(b *testing.B) {
			c := benchmarkModel()
			c.ValueHead = true
			m := newTestModel(b, c)
			w, err := m.Initial(1)
			if err != nil {
				b.Fatal(err)
			}
			batches := []*rollout.Batch{benchmarkBatch(c, 1, 32, 33), benchmarkBatch(c, 2, 32, 33)}
			for i, d := range allDraws(batches) {
				d.Rollout.Reward, d.Rollout.Values = float32(i%2), make([]float32, len(d.Rollout.Tokens))
			}
			learners, spent := [2]*Learner{}, [2]time.Duration{}
			for i, o := range []Learning{{Objective: objective.GRPO{}}, o} {
				learners[i] = newTestLearner(b, m, w, o)
				step(b, learners[i], batches...) // compiles
			}
			step(b, learners[1], batches...) // compiles with a reference policy of its own
			for b.Loop() {
				for i, l := range learners {
					began := time.Now()
					step(b, l, batches...)
					spent[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "x-grpo")
		})
	}
}

// The cost of corrections: the time of four updates, in recompute_4 all on one batch, over that of four of plain grpo.
func BenchmarkCorrections(b *testing.B) {
	corrected := func(proximal objective.Proximal, steps ...objective.Correction) objective.Corrections {
		return objective.Corrections{Proximal: proximal, Steps: steps}
	}
	for _, c := range []struct {
		name        string
		updates     int // on each batch
		method      string
		corrections objective.Corrections
	}{
		{"none", 1, "", objective.Corrections{}},
		{"recompute", 1, "", corrected(objective.ProximalRecompute)},
		{"recompute_4", 4, "", corrected(objective.ProximalRecompute)},
		{"truncate", 1, "", corrected(objective.ProximalRecompute, objective.Correction{Kind: objective.Truncate})},
		{"mask_token", 1, "", corrected("", objective.Correction{Kind: objective.MaskRatio})},
		{"mask_sequence", 1, "", corrected("", objective.Correction{Kind: objective.MaskRatio,
			Level: objective.LevelSequence})},
		{"opsm", 1, "", corrected("", objective.Correction{Kind: objective.OPSM})},
		{"m2po", 1, "", corrected("", objective.Correction{Kind: objective.M2PO})},
		{"dppo", 1, "", corrected("", objective.Correction{Kind: objective.DPPO})},
		{"cispo", 1, objective.CISPO, objective.Corrections{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			shape := benchmarkModel()
			m := newTestModel(b, shape)
			w, err := m.Initial(1)
			if err != nil {
				b.Fatal(err)
			}
			batches := []*rollout.Batch{benchmarkBatch(shape, 1, 32, 33), benchmarkBatch(shape, 2, 32, 33)}
			var learners [2]*Learner
			for i, o := range []Learning{{Objective: objective.GRPO{}}, {
				Objective: objective.GRPO{Method: c.method, Corrections: c.corrections}, Updates: c.updates,
			}} {
				learners[i] = newTestLearner(b, m, w, o)
				for range 4 { // compiles
					step(b, learners[i], batches...)
				}
			}
			var ratios []float64
			for b.Loop() {
				var round [2]time.Duration
				for range 4 {
					for i, l := range learners {
						began := time.Now()
						step(b, l, batches...)
						round[i] += time.Since(began)
					}
				}
				ratios = append(ratios, float64(round[1])/float64(round[0]))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "x-none") // the median: other programs disturb single rounds
		})
	}
}

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
			if ok, err := g.Extend(i, Input{Tokens: randomTokens(rng, s.observation, m.config.VocabSize)}); !ok ||
				err != nil {
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
// observations together: both write the same number of tokens and end with the same number of all tokens, so that their
// times compare per token of either kind.
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
