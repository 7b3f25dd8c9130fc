package run

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
)

// pretrained writes the folder of a tiny model that knows ASCII, for tasks that begin from one.
func pretrained(t *testing.T) string {
	t.Helper()
	var ascii strings.Builder
	ascii.WriteByte('\n')
	for c := ' '; c <= '~'; c++ {
		ascii.WriteRune(c)
	}
	tokenizer, err := hf.NewCharTokenizer(ascii.String())
	if err != nil {
		t.Fatal(err)
	}
	model, err := policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: tokenizer.VocabSize(), HiddenSize: 16, IntermediateSize: 32, NumHiddenLayers: 1,
		NumAttentionHeads: 2, MaxPositionEmbeddings: 256, BOSTokenID: hf.NoToken, PadTokenID: tokenizer.Pad(), EOSTokenIDs: []int{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	weights, err := model.Initial(1)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := model.Save(dir, weights, tokenizer); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sums writes a file of problems for the math task.
func sums(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for n := range 20 {
		fmt.Fprintf(&lines, "{\"problem\": \"Halve %d.\", \"answer\": \"\\\\frac{%d}{2}\"}\n", n, n)
	}
	path := filepath.Join(t.TempDir(), "sums.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEveryShippedConfigurationTrainsForAFewUpdates(t *testing.T) {
	files, err := filepath.Glob("../configs/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %q: %v", files, err)
	}
	if testing.Short() { // one of each kind: turns, and images; without -short all run
		files = []string{"../configs/geometry.yaml", "../configs/search.yaml"}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set := []string{"budget.compute=0", "budget.updates=3", "pipeline.batch=32", "replay.capacity=64", "evaluate.every=100", "evaluate.samples=0", "checkpoint.every=100"}
			switch {
			case strings.Contains(string(text), "{name: words}"):
				set = append(set, "policy.init="+pretrained(t), "pipeline.group=8")
			case strings.Contains(string(text), "name: math"):
				set = append(set, "policy.init="+pretrained(t), "generate.max_tokens=8", "task.train_file="+sums(t))
			default:
				set = append(set, "warmup.steps=3", "warmup.until=0")
			}
			c, err := Load(file, set)
			if err != nil {
				t.Fatal(err)
			}
			sum := train(t, c, t.TempDir()+"/run")
			if sum.Updates != 3 || sum.Ended != "budget" || sum.Used != 96 {
				t.Errorf("%d updates on %d rollouts, ended by %s", sum.Updates, sum.Used, sum.Ended)
			}
			if p := sum.Pass1Last.Float(); math.IsNaN(p) || p < 0 || p > 1 {
				t.Errorf("accuracy %v", p)
			}
		})
	}
}
