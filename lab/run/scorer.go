package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout"
)

// Scorer is a policy that scores rollouts, of others too. Its method may be called concurrently.
type Scorer struct {
	model   *policy.Model
	weights *policy.Weights
}

// LoadScorer reads a Hugging Face folder.
func LoadScorer(folder string) (*Scorer, error) {
	model, weights, _, err := policy.Load(folder)
	return &Scorer{model, weights}, err
}

// LastScorer reads the policy of a run's last checkpoint, which has all weights in one file.
func LastScorer(dir string) (*Scorer, error) {
	place, err := findCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(place, hf.WeightsFile)); err != nil { // no index of other files is read
		return nil, err
	}
	return LoadScorer(place)
}

// LastTokenizer reads the tokenizer of a run's last checkpoint, nil if it has none.
func LastTokenizer(dir string) (*hf.Tokenizer, error) {
	place, err := findCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	t, err := hf.ReadTokenizer(place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return t, err
}

// PolicyFiles lists, below a run's folder, all files that [LastScorer] may read.
func PolicyFiles() []string { return checkpointFiles(append(hf.TokenizerFiles(), hf.WeightsFile)...) }

// TableFiles lists, below a run's folder, all files that [LastTable] and [LastTokenizer] may read.
func TableFiles() []string {
	return append(checkpointFiles(append(hf.TokenizerFiles(), stateFile, tableFile)...), results.ConfigFile, bufferFile)
}

// checkpointFiles lists where files of a checkpoint may be.
func checkpointFiles(names ...string) (files []string) {
	for _, suffix := range checkpointSuffixes() {
		for _, name := range names {
			files = append(files, filepath.Join(results.CheckpointDir+suffix, name))
		}
	}
	return files
}

// Score returns the log-probs [L] of a rollout's tokens as the policy would draw them now: at the rollout's temperature
// and within its sampling mask. Those of tokens that a policy did not produce mean nothing.
func (p *Scorer) Score(ctx context.Context, r *rollout.Rollout) ([]float32, error) {
	in := policy.Input{Tokens: r.Tokens, Mask: r.Mask, Images: r.Images, SamplingMask: r.SamplingMask}
	scores, err := p.model.Score(ctx, p.weights, []policy.Input{in}, float64(r.Temperature))
	if err != nil {
		return nil, fmt.Errorf("score rollout of %.100q: %w", r.PromptID, err)
	}
	return scores[0].Logprobs, nil
}
