package worker_test

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/enginetest"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/worker"
	"github.com/reprise-rl/reprise/rollout"
)

// problems are in the form of GSM8K.
const problems = `{"question": "Ann has 3 red and 4 green apples. How many apples has she?", ` +
	`"answer": "She has 3+4=7 apples.\n#### 7"}
{"question": "A book costs 6 dollars. What do 3 books cost?", "answer": "They cost 3*6=18 dollars.\n#### 18"}
{"question": "Of 12 birds 5 fly away. How many are left?", "answer": "12-5=7 are left.\n#### 7"}
{"question": "Tom walks 2 miles a day. How far does he walk in 7 days?", "answer": "He walks 2*7=14 miles.\n#### 14"}
`

// With llama.cpp and SmolLM2-135M a worker plays tasks of one turn and of several and fills a durable table. The
// log-probs agree with those that the converted model gives, but for what llama.cpp rounds.
func TestWorkersPlayWithLlamaCPP(t *testing.T) {
	server := enginetest.StartLlamaCPP(t)
	folder := os.Getenv("REPRISE_SMOLLM2")
	if folder == "" {
		t.Skip("REPRISE_SMOLLM2 does not name SmolLM2-135M-Instruct as a Hugging Face folder: docs/models.md converts it")
	}
	model, weights, tokenizer, err := policy.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "..", "shared", "data", "gsm8k", "train.jsonl")
	if _, err := os.Stat(file); err != nil {
		t.Log("gsm8k is not in ../shared/data: four problems of its form instead")
		file = filepath.Join(t.TempDir(), "problems.jsonl")
		if err := os.WriteFile(file, []byte(problems), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// play has a worker play a task with a durable table, and returns the differences of the table's log-probs from
	// those of the weights, sorted.
	play := func(o worker.Options, e engine.Engine, weights *policy.Weights, name string, settings ...string) []float64 {
		t.Helper()
		made, err := run.NewTask(name, settings, 1)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		table, stop := serveTable(t, dir, nil)
		if err := table.Advance(t.Context(), weights.Version); err != nil {
			t.Fatal(err)
		}
		s := work(t, o, made, tokenizer, []engine.Engine{e}, table)
		stop()
		table, _ = serveTable(t, dir, nil)
		list := held(t, table)
		if len(list) != 4*o.Groups || s.Tokens == 0 {
			t.Fatalf("%s: after a restart the table holds %d rollouts, want %d", name, len(list), 4*o.Groups)
		}
		var differences []float64
		sum := 0.0
		for some := range slices.Chunk(list, 4) {
			inputs := make([]policy.Input, len(some))
			for i, d := range some {
				inputs[i] = policy.Input{Tokens: d.Rollout.Tokens, Mask: d.Rollout.Mask}
			}
			scores, err := model.Score(t.Context(), weights, inputs, o.Sampling.Temperature)
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range some {
				r := d.Rollout
				for at, m := range r.Mask {
					if m == 0 {
						continue
					}
					if r.Versions[at] != weights.Version {
						t.Fatalf("%s: a token is of version %d, want %d", name, r.Versions[at], weights.Version)
					}
					d := math.Abs(float64(scores[i].Logprobs[at] - r.Logprobs[at]))
					differences, sum = append(differences, d), sum+d
				}
			}
		}
		slices.Sort(differences)
		t.Logf("%s at temperature %g: mean reward %.2f; of %d tokens the log-probs differ by %.4f in the mean, median "+
			"%.4f, 90%% %.4f, 99%% %.4f, most %.4f; %q", name, o.Sampling.Temperature, s.Reward, len(differences),
			sum/float64(len(differences)), at(differences, 0.5), at(differences, 0.9), at(differences, 0.99),
			at(differences, 1), strings.ReplaceAll(list[0].Rollout.Text, "\n", " / "))
		return differences
	}
	options := func(temperature float64, tokens int) worker.Options {
		o := options()
		o.Groups, o.Positions, o.InFlight = 3, 1024, 8
		o.Sampling = engine.Sampling{Temperature: temperature, TopP: 1, MaxTokens: tokens}
		return o
	}
	quantised := open(t, engine.LlamaCPP, server.Address)
	for _, differences := range [][]float64{
		play(options(0.7, 48), quantised, weights, "gsm8k", "format=chat", "train_file="+file, "held_out=1"),
		play(options(1, 6), quantised, weights, "arithmetic", "examples=4", "max=50"),
		play(options(1, 12), quantised, weights, "frozenlake", "format=chat", "max_steps=3"),
	} {
		if half, most := at(differences, 0.5), at(differences, 0.9); half > 0.05 || most > 0.3 {
			t.Errorf("half of the log-probs differ by up to %.3f, nine tenths by up to %.3f", half, most)
		}
	}

	// What a trainer publishes reaches the server by a command that converts it. Nothing is rounded then.
	flat, err := weights.Flat()
	if err != nil {
		t.Fatal(err)
	}
	rng := rollout.Stream(1, "worker/llamacpp_test", 0)
	for _, tensor := range flat {
		for i := range tensor {
			tensor[i] *= float32(1 + 0.05*rng.NormFloat64())
		}
	}
	learned, err := model.NewWeights(7, flat)
	if err != nil {
		t.Fatal(err)
	}
	o := options(1, 24)
	o.Weights = t.TempDir()
	if _, err := engine.Publish(o.Weights, 7, 1, func(dir string) error {
		return model.Save(dir, learned, tokenizer)
	}); err != nil {
		t.Fatal(err)
	}
	reloading, err := engine.Open(engine.Options{Dialect: engine.LlamaCPP, Address: server.Address,
		Reload: func(ctx context.Context, w engine.Weights) error { return server.Reload(ctx, w.Folder) }})
	if err != nil {
		t.Fatal(err)
	}
	differences := play(o, reloading, learned, "arithmetic", "examples=4", "max=50")
	if half, most := at(differences, 0.5), at(differences, 1); half > 0.002 || most > 0.05 {
		t.Errorf("half of the log-probs of published weights differ by up to %.4f, all by up to %.4f", half, most)
	}

	made, err := run.NewTask("arithmetic", []string{"max=50"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	o = options(0.7, 6)
	o.Groups = 1
	w, err := worker.New(o, made, tokenizer, []engine.Engine{open(t, engine.OpenAI, server.Address)}, newTable(t, nil),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ignore the temperature, 0.7") {
		t.Errorf("log-probs that ignore the temperature: %v", err)
	}
}

// at returns a quantile of sorted values.
func at(sorted []float64, share float64) float64 { return sorted[int(share*float64(len(sorted)-1))] }
