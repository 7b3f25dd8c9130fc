package run

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
)

func TestFewShotRunsAskWithExamples(t *testing.T) {
	tests.Long(t)
	for name, set := range map[string][]string{
		"text": {"task={name: arithmetic, max: 10, held_out: 4, examples: 2}", "policy.init=" + pretrained(t),
			"warmup.steps=1",
			"warmup.batch=2"},
		"chat": {"task={name: countdown, format: chat, held_out: 2, examples: 2}", "policy.init=" + instruct(t)},
		"file": {"task={name: math, examples: 1, train_file: " + sums(t) + "}", "policy.init=" + modelFolder(t, 512)},
		"file, chat": {"task={name: math, examples: 1, format: chat, train_file: " + sums(t) + "}",
			"policy.init=" + instruct(t)},
	} {
		c, err := Load("", append([]string{"warmup.steps=0", "generate.max_tokens=4", "pipeline.batch=2",
			"pipeline.group=2", "pipeline.workers=1", "pipeline.trainers=1", "replay.capacity=4", "evaluate.samples=0",
			"evaluate.every=10", "budget.compute=0", "budget.updates=1"}, set...))
		if err == nil {
			err = c.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		g, s, w := maker(t, c)
		made, err := c.newTask()
		if err != nil {
			t.Fatal(err)
		}
		e, err := task.NewExamples(made)
		if err != nil {
			t.Fatal(err)
		}
		p := made.Train(5)
		want, err := s.dialogue.Prompt(e.Ask(p)...)
		if err != nil || len(e.Ask(p)) == 1 || !strings.Contains(strings.Join(e.Ask(p), ""), p.Text) {
			t.Fatal(err, e.Ask(p))
		}
		group, _ := generated(t, g, w, pipeline.Job{Size: 1, Prompt: p}, 0)
		if r := group[0]; !slices.Equal(r.Tokens[:slices.Index(r.Mask, 1)], want) {
			t.Errorf("%s: the prompt is %v, want %v", name, r.Tokens[:slices.Index(r.Mask, 1)], want)
		}
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := Train(context.Background(), c, s, dir, Hooks{}); err != nil {
			t.Fatal(err)
		}
		player, err := LoadPlayer(filepath.Join(dir, results.CheckpointDir), made, policy.Sampling{MaxTokens: 5})
		if err != nil {
			t.Fatal(err)
		}
		if in, err := player.encodePrompt(p); err != nil || !slices.Equal(in.Tokens, want) {
			t.Errorf("%s: the player reads %v, %v, want %v", name, in.Tokens, err, want)
		}
	}
}

func TestAFewShotTurnEndsWhereTheNextProblemBegins(t *testing.T) {
	c, err := Load("", []string{"task={name: math, examples: 1, train_file: " + sums(t) + "}",
		"policy.init=" + modelFolder(t, 512), "warmup.steps=0"})
	if err != nil {
		t.Fatal(err)
	}
	s := begin(t, c)
	ends := s.ending(c.sampling()).Ends
	text := "It is \\boxed{3}.\n\nProblem: Halve 8"
	tokens, ended := ids(t, s, text), 0
	for i := range tokens {
		if ends(tokens[:i+1]) {
			ended = i + 1
			break
		}
	}
	if got := text[:ended]; got != "It is \\boxed{3}.\n\nProblem: Halve " {
		t.Errorf("the turn ends as %q", got)
	}
	row := policy.Row{Tokens: tokens[:ended]}
	if got := s.decodeTurn(row); got != "It is \\boxed{3}." {
		t.Errorf("the turn is read as %q", got)
	}
	plain := begin(t, small(t))
	if plain.ending(c.sampling()).Ends != nil {
		t.Error("turns end at a text without examples")
	}
}

func TestExamplesNeedAPretrainedModel(t *testing.T) {
	for set, want := range map[string]string{
		"arithmetic, examples: 2": "2: want 0: a policy with random weights has learned no texts to continue",
		"countdown, examples: -1": "-1: want 0 (none) or more",
		"words, examples: 2":      "unknown key",
	} {
		c, err := Load("", []string{"warmup.steps=0", "task={name: " + set + "}"})
		if err == nil {
			err = c.Validate()
		}
		if want = "task.examples: " + want; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}
