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
	"github.com/reprise-rl/reprise/rollout"
)

// chatting returns a run of a task in the format chat, from an instruct model.
func chatting(t *testing.T, name string, assignments ...string) Config {
	t.Helper()
	c, err := Load("", append([]string{"task={name: " + name + ", format: chat, held_out: 4}",
		"policy.init=" + instruct(t), "warmup.steps=1", "warmup.batch=4", "generate.max_tokens=40", "pipeline.batch=8", "pipeline.group=4",
		"pipeline.workers=1", "pipeline.trainers=1", "replay.capacity=16", "evaluate.samples=0", "evaluate.every=10",
		"budget.compute=0", "budget.updates=2", "checkpoint.every=1"}, assignments...))
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// message is how the model of instruct reads a user's message after what came before.
func message(text string) string { return "<u>" + strings.Trim(text, "\n") + "<e>\n<a>" }

// ids are the tokens of a text for a start.
func ids(t *testing.T, s *Start, text string) []int32 {
	t.Helper()
	list, err := s.tokenizer.EncodePart(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDemonstrationsInChatAreMessages(t *testing.T) {
	c := chatting(t, "cliffwalking", "warmup.steps=0")
	s := begin(t, c)
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	d := demonstrator{s.textModel, made, c.Seed, 0}
	r, err := d.demonstrate(0)
	if err != nil {
		t.Fatal(err)
	}
	rng := rollout.Stream(c.Seed, "warmup", 0)
	p := made.Train(rng.Uint64())
	e := made.(task.Environment).Reset(p, rng.Uint64())
	want := message(p.Text)
	var imitated []int32
	for turn := 0; len(ids(t, s, want)) < len(r.Tokens); turn++ {
		advice := e.(task.Expert).Advise()
		imitated = append(imitated, ids(t, s, advice+"<e>")...)
		want += advice + "<e>"
		if step := e.Step(advice); !step.Done && len(ids(t, s, want)) < len(r.Tokens) {
			want += "\n" + message(step.Text)
		}
	}
	if got := ids(t, s, want); !slices.Equal(got, r.Tokens) {
		t.Errorf("the demonstration is %v, want %q, %v", r.Tokens, want, got)
	}
	var masked []int32
	for i, m := range r.Mask {
		if m == 1 {
			masked = append(masked, r.Tokens[i])
		}
	}
	if !slices.Equal(masked, imitated) || !strings.Contains(want, "<answer>") {
		t.Errorf("imitated are %v, want %v", masked, imitated)
	}
	if got, want := d.imitatedLengths(r)[0], len("<answer>up</answer>"); got != want {
		t.Errorf("the first turn has %d tokens, want %d", got, want)
	}
}

func TestEpisodesInChatAreMessages(t *testing.T) {
	c := chatting(t, "cliffwalking", "generate.max_tokens=3", "task.max_turns=3", "warmup.steps=0")
	g, s, w := maker(t, c)
	end := ids(t, s, "<e>")[0]
	ended, cut := 0, 0
	for number := range uint64(30) {
		job := pipeline.Job{Number: number, Size: 4, Prompt: g.environment.Train(number)}
		group, _ := generated(t, g, w, job, 0)
		for i, r := range group {
			e := g.environment.Reset(job.Prompt, rollout.Stream(c.Seed, "environment", number*4+uint64(i)).Uint64())
			want := ids(t, s, message(job.Prompt.Text))
			for n, turn := range r.Turns {
				tokens := r.Tokens[turn.Start:turn.End]
				want = append(want, tokens...)
				step := e.Step(s.dialogue.Decode(tokens))
				if n+1 == len(r.Turns) {
					break
				}
				if last := tokens[len(tokens)-1]; slices.Contains(s.dialogue.Stop(), last) {
					ended++
				} else {
					cut++
					want = append(want, end)
				}
				want = append(want, ids(t, s, "\n"+message(step.Text))...)
			}
			if !slices.Equal(r.Tokens, want) {
				t.Fatalf("job %d, row %d: %v, want %v", number, i, r.Tokens, want)
			}
		}
	}
	if ended == 0 || cut == 0 {
		t.Errorf("%d turns ended and %d were cut off: want some of both", ended, cut)
	}
}

func TestChatTrainsAndItsCheckpointPlays(t *testing.T) {
	tests.Long(t)
	for _, c := range []Config{chatting(t, "countdown"), chatting(t, "math", "task.train_file="+sums(t))} {
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := Train(context.Background(), c, beginAnew(t, c), dir, Hooks{}); err != nil {
			t.Fatal(err)
		}
		made, err := c.newTask()
		if err != nil {
			t.Fatal(err)
		}
		player, err := LoadPlayer(filepath.Join(dir, results.CheckpointDir), made, policy.Sampling{MaxTokens: 5})
		if err != nil {
			t.Fatal(err)
		}
		game, err := player.Begin(made.HeldOut()[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := game.Turn(context.Background()); err != nil {
			t.Error(err)
		}
		row := game.rows.Rows()[0]
		got, err := player.encodePrompt(made.HeldOut()[0])
		if err != nil || !slices.Equal(got.Tokens, row.Tokens[:row.Prompt]) {
			t.Errorf("the player read %v, %v, want %v", row.Tokens[:row.Prompt], err, got.Tokens)
		}
	}
}

func TestChatNeedsATemplate(t *testing.T) {
	for want, set := range map[string][]string{
		"task.format: chat: want terse or words: a policy with random weights": {"task={name: countdown, format: chat}"},
		"task.format: chat: want words: there is no chat template for the images of task frozenlake": {
			"task={name: frozenlake, format: chat, images: true}", "policy.init=" + instruct(t)},
		"format: chat: want terse or words: there is no chat template for images": {
			"task={name: geometry, format: chat}", "policy.init=" + instruct(t)},
		"task.format: essay: want words or chat": {"task={name: gsm8k, format: essay, train_file: x}"},
	} {
		c, err := Load("", append([]string{"warmup.steps=0"}, set...))
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", set, err, want)
		}
	}
	dir := pretrained(t)
	c := chatting(t, "countdown", "policy.init="+dir)
	_, err := Begin(context.Background(), c, nil)
	if want := "policy.init: " + dir + ": task.format: chat: the folder has neither chat_template.jinja nor " +
		"chat_template in tokenizer_config.json: use the folder of an instruct model, or format words"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
