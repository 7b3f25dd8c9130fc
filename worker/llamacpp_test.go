package worker_test

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/enginetest"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/worker"
)

// problems are in the form of GSM8K.
const problems = `{"question": "Ann has 3 red and 4 green apples. How many apples has she?", "answer": "She has 3+4=7 apples.\n#### 7"}
{"question": "A book costs 6 dollars. What do 3 books cost?", "answer": "They cost 3*6=18 dollars.\n#### 18"}
{"question": "Of 12 birds 5 fly away. How many are left?", "answer": "12-5=7 are left.\n#### 7"}
{"question": "Tom walks 2 miles a day. How far does he walk in 7 days?", "answer": "He walks 2*7=14 miles.\n#### 14"}
`

// With llama.cpp and SmolLM2-135M a worker plays tasks of one turn and of several and fills a durable table. The
// log-probs agree with those that the converted model gives, but for what llama.cpp rounds.
func TestWorkersPlayWithLlamaCPP(t *testing.T) {
	address := enginetest.StartLlamaCPP(t)
	folder := os.Getenv("REPRISE_SMOLLM2")
	if folder == "" {
		t.Skip("REPRISE_SMOLLM2 does not name SmolLM2-135M-Instruct as a Hugging Face folder: docs/models.md converts it")
	}
	model, weights, tokenizer, err := policy.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "problems.jsonl")
	if err := os.WriteFile(file, []byte(problems), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, play := range []struct {
		task        string
		settings    []string
		temperature float64
		tokens      int
	}{
		{"gsm8k", []string{"format=chat", "train_file=" + file, "held_out=1"}, 0.7, 48},
		{"arithmetic", []string{"examples=4", "max=50"}, 1, 6},
		{"frozenlake", []string{"format=chat", "max_steps=3"}, 1, 12},
	} {
		made, err := run.NewTask(play.task, play.settings, 1)
		if err != nil {
			t.Fatal(err)
		}
		table := newTable(t, func(*wire.Table) {})
		o := options()
		o.Groups, o.Positions, o.InFlight = 3, 1024, 8
		o.Sampling = engine.Sampling{Temperature: play.temperature, TopP: 1, MaxTokens: play.tokens}
		s := work(t, o, made, tokenizer, []engine.Engine{open(t, engine.LlamaCPP, address)}, table)
		list := held(t, table)
		if len(list) != 12 || s.Tokens == 0 {
			t.Fatalf("%s: the table holds %d rollouts, want 12", play.task, len(list))
		}
		var differences []float64
		for _, d := range list {
			r := d.Rollout
			scores, err := model.Score(t.Context(), weights, []policy.Input{{Tokens: r.Tokens, Mask: r.Mask}}, play.temperature)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range r.Mask {
				if m == 1 {
					differences = append(differences, math.Abs(float64(scores[0].Logprobs[i]-r.Logprobs[i])))
				}
			}
		}
		slices.Sort(differences)
		at := func(share float64) float64 { return differences[int(share*float64(len(differences)-1))] }
		sum := 0.0
		for _, d := range differences {
			sum += d
		}
		said := strings.ReplaceAll(list[0].Rollout.Text, "\n", " / ")
		t.Logf("%s at temperature %g: mean reward %.2f; of %d tokens the log-probs differ by %.4f in the mean, median "+
			"%.4f, 90%% %.4f, 99%% %.4f, most %.4f; %q", play.task, play.temperature, s.Reward, len(differences),
			sum/float64(len(differences)), at(0.5), at(0.9), at(0.99), at(1), said)
		if at(0.5) > 0.05 || at(0.9) > 0.3 {
			t.Errorf("%s: half of the log-probs differ by up to %.3f, nine tenths by up to %.3f", play.task, at(0.5), at(0.9))
		}
	}

	made, err := run.NewTask("arithmetic", []string{"max=50"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Groups, o.Sampling.Temperature = 1, 0.7
	w, err := worker.New(o, made, tokenizer, []engine.Engine{open(t, engine.OpenAI, address)}, newTable(t, nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ignore the temperature, 0.7") {
		t.Errorf("log-probs that ignore the temperature: %v", err)
	}
}
