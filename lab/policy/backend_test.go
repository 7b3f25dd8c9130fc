package policy

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/reprise-rl/reprise/lab/backend"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// smolLM2 is the shape of SmolLM2-135M.
func smolLM2() hf.Config {
	return hf.Config{ModelType: hf.Llama, VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumHiddenLayers: 30,
		NumAttentionHeads: 9, NumKeyValueHeads: 3, MaxPositionEmbeddings: 1024, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, PadTokenID: hf.NoToken}
}

func skipWithoutXLA(t testing.TB) {
	t.Helper()
	if backend.IsGo() {
		t.Skipf("%s chooses the Go backend: name a PJRT plugin, in a build with -tags xla", backend.Variable)
	}
}

// Another backend computes the Go backend's log-probs, and its gradients, to 1e-4 of the largest of each parameter.
func TestBackendsAgree(t *testing.T) {
	skipWithoutXLA(t)
	const rows, length = 8, 40
	c := largerModel()
	batch := benchmarkBatch(c, 1, rows, length)
	var inputs []Input
	for _, d := range batch.Draws {
		inputs = append(inputs, Input{Tokens: d.Rollout.Tokens})
	}
	run := func() ([]Score, LearnerState) {
		m := newOwnModel(t, c)
		w, err := m.Initial(1)
		if err != nil {
			t.Fatal(err)
		}
		scores, err := m.Score(context.Background(), w, inputs, 0.8)
		if err != nil {
			t.Fatal(err)
		}
		l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}})
		step(t, l, batch)
		s, err := l.State()
		if err != nil {
			t.Fatal(err)
		}
		return scores, s
	}
	got, gotState := run()
	t.Setenv(backend.Variable, "go")
	want, wantState := run()
	worst := 0.0
	for i := range want {
		for j, p := range want[i].Logprobs {
			worst = max(worst, math.Abs(float64(got[i].Logprobs[j]-p)))
		}
	}
	t.Logf("log-probs differ by at most %.2g", worst)
	if !(worst < 1e-4) {
		t.Errorf("log-probs differ by %g, want less than 1e-4", worst)
	}
	worst = 0
	for i := range wantState.First { // after one step Adam's first moments are the gradients, scaled
		largest, differ := 0.0, 0.0
		for j, g := range wantState.First[i] {
			largest = max(largest, math.Abs(float64(g)))
			differ = max(differ, math.Abs(float64(gotState.First[i][j]-g)))
		}
		worst = max(worst, differ/largest)
	}
	t.Logf("gradients differ by at most %.2g of the largest of their parameter", worst)
	if !(worst < 1e-4) {
		t.Errorf("gradients differ by %g of the largest of their parameter, want less than 1e-4", worst)
	}
}

// XLA's tensors of zeros are on the host until a program reads them.
func TestCopiesTensorsThatNoProgramHasRead(t *testing.T) {
	flat := []float32{1, 2, 3}
	got, err := copyAll([]*tensors.Tensor{tensors.FromFlatDataAndDimensions(flat, 3)})
	if err != nil || !slices.Equal(got[0], flat) {
		t.Errorf("got %v and error %v, want %v", got, err, flat)
	}
}

// What a GPU makes of a model of SmolLM2-135M's shape: benchmarks/gpu/torch_model.py does the same with PyTorch. One
// operation is one multiplication or addition, 6 for each parameter and token of a step.
func BenchmarkSmolLM2(b *testing.B) {
	skipWithoutXLA(b)
	c := smolLM2()
	m := newTestModel(b, c)
	w, err := m.Initial(1)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("generate", func(b *testing.B) {
		const batch, prompt, answer = 64, 64, 128
		prompts := make([][]int32, batch)
		for i := range prompts {
			prompts[i] = randomTokens(rollout.Stream(1, "bench/prompts", uint64(i)), prompt, c.VocabSize)
		}
		generate(b, m, w, prompts, Sampling{Temperature: 1, MaxTokens: answer}, 0) // compiles
		tokens := 0
		for b.Loop() {
			for _, r := range generate(b, m, w, prompts, Sampling{Temperature: 1, MaxTokens: answer}, 0) {
				tokens += written(r)
			}
		}
		b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("train", func(b *testing.B) {
		const rows, length = 64, 257
		l := newTestLearner(b, m, w, Learning{Objective: objective.GRPO{}, Optimizer: Adam{LearningRate: 1e-6}})
		batch := benchmarkBatch(c, 1, rows, length)
		step(b, l, batch) // compiles
		steps := 0
		for b.Loop() {
			step(b, l, batch)
			steps++
		}
		const tokens = rows * (length - 1)
		speed := tokens * float64(steps) / b.Elapsed().Seconds()
		b.ReportMetric(speed, "tokens/s")
		b.ReportMetric(6*float64(c.Parameters())*speed/1e12, "TFLOP/s")
	})
}
