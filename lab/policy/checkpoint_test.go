package policy

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// golden is what transformers computes with a checkpoint (testdata/checkpoints.py).
type golden struct {
	Tokens    []int32              `json:"tokens"`
	Logprobs  []float64            `json:"logprobs"` // of the tokens but the first
	Entropy   []float64            `json:"entropy"`
	Gradients map[string][]float64 `json:"gradients"` // of minus the mean of Logprobs, by tensor
	Greedy    []int32              `json:"greedy"`    // what follows the first Prompt tokens
	Prompt    int                  `json:"prompt"`
}

// eachCheckpoint runs a test on every checkpoint of testdata.
func eachCheckpoint(t *testing.T, test func(t *testing.T, m *Model, w *Weights, want golden)) {
	for _, name := range []string{"qwen3", "llama3"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", name)
			m, w, _, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			var want golden
			file, err := os.ReadFile(filepath.Join(dir, "reference.json"))
			if err == nil {
				err = json.Unmarshal(file, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			test(t, m, w, want)
		})
	}
}

func TestCheckpointsScoreAsInTransformers(t *testing.T) {
	eachCheckpoint(t, func(t *testing.T, m *Model, w *Weights, want golden) {
		scores, err := m.Score(context.Background(), w, Plain(want.Tokens), 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Logprobs {
			near(t, "log-prob", scores[0].Logprobs[i+1], want.Logprobs[i], 5e-5)
			near(t, "entropy", scores[0].Entropy[i+1], want.Entropy[i], 5e-5)
		}
	})
}

func TestCheckpointsGenerateAsInTransformers(t *testing.T) {
	eachCheckpoint(t, func(t *testing.T, m *Model, w *Weights, want golden) {
		// The shorter prompt's row is at other positions than its slots.
		rows := generate(t, m, w, [][]int32{want.Tokens[:want.Prompt+9], want.Tokens[:want.Prompt]},
			Sampling{MaxTokens: len(want.Greedy)}, 0)
		if got := rows[1].Tokens[want.Prompt:]; !slices.Equal(got, want.Greedy) {
			t.Errorf("greedy decoding gives %v, transformers %v", got, want.Greedy)
		}
	})
}

func TestCheckpointsHaveTheGradientsOfTransformers(t *testing.T) {
	eachCheckpoint(t, func(t *testing.T, m *Model, w *Weights, want golden) {
		n := len(want.Tokens)
		mask := slices.Repeat([]uint8{1}, n)
		mask[0] = 0
		b := &rollout.Batch{Draws: []rollout.Draw{{Weight: 1, Rollout: &rollout.Rollout{Tokens: want.Tokens,
			Mask: mask, Logprobs: make([]float32, n), Temperature: 1}}}}
		got := drawGradients(t, newTestLearner(t, m, w, Learning{Objective: objective.SFT{}}), b)[0]
		for _, s := range m.Config().Specs() {
			if len(want.Gradients[s.Name]) != size(s.Shape) {
				t.Fatalf("%s: the reference has %d gradients, want %d", s.Name, len(want.Gradients[s.Name]),
					size(s.Shape))
			}
			for i, g := range want.Gradients[s.Name] {
				near(t, s.Name, got[i], g, 2e-5)
			}
			got = got[size(s.Shape):]
		}
	})
}
