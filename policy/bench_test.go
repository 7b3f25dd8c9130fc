package policy

import (
	"fmt"
	"github.com/reprise-rl/reprise/policy/hf"
	"testing"
)

// benchmarkModel has 0.1 million parameters: the laboratory's default for arithmetic.
func benchmarkModel() hf.Config {
	return hf.Config{ModelType: hf.Llama, VocabSize: 16, HiddenSize: 64, IntermediateSize: 176, NumHiddenLayers: 2,
		NumAttentionHeads: 4, NumKeyValueHeads: 4, MaxPositionEmbeddings: 64, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, PadTokenID: hf.NoToken}
}

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
					tokens += len(r.Logprobs)
				}
			}
			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
