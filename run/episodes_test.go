package run

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// maker returns the generator of a run's start, with the weights as the pipeline has them.
func maker(t testing.TB, c Config) (*generator, *Start, pipeline.Weights) {
	t.Helper()
	s := begin(t, c)
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	environment, _ := made.(task.Environment)
	return &generator{s.textModel, environment, c.sampling(s.tokenizer.EOS()), c.Seed}, s, pipeline.Weights{Tensors: s.weights}
}

// generated returns the group of a job, decoded n positions at a time.
func generated(t testing.TB, g *generator, w pipeline.Weights, job pipeline.Job, n int) ([]*rollout.Rollout, int) {
	t.Helper()
	under, err := g.Start(job)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for done := false; !done; calls++ {
		if done, err = under.Continue(context.Background(), w, n); err != nil {
			t.Fatal(err)
		}
	}
	group, err := under.Rollouts()
	if err != nil {
		t.Fatal(err)
	}
	return group, calls
}

// kinds are games in which episodes are of every length: with luck, images, and too little room.
func kinds() map[string]struct {
	rules counting
	set   []string
} {
	type kind = struct {
		rules counting
		set   []string
	}
	return map[string]kind{
		"text":      {counting{turns: 5, slip: 0.2}, nil},
		"images":    {counting{turns: 4, slip: 0.2, size: 8}, nil},
		"no room":   {counting{turns: 9, slip: 0.9}, []string{"policy.positions=24"}},
		"long turn": {counting{turns: 4}, []string{"generate.max_tokens=1"}},
	}
}

func TestEpisodesAreRecordedTurnByTurnAsTheEnvironmentSaidThem(t *testing.T) {
	short, whole := 0, 0
	for name, k := range kinds() {
		c := counts(t, k.rules, k.set...)
		g, s, w := maker(t, c)
		for number := range uint64(4) {
			job := pipeline.Job{Number: number, Size: 6, Prompt: g.environment.Train(number)}
			group, _ := generated(t, g, w, job, 0)
			for i, r := range group {
				luck := rollout.Stream(c.Seed, "environment", number*6+uint64(i)).Uint64()
				if r.Truncated {
					short++
				} else {
					whole++
				}
				if problem := replayed(s.textModel, job.Prompt, g.environment.Reset(job.Prompt, luck), r, c.Generate.MaxTokens); problem != "" {
					t.Errorf("%s, job %d, row %d: %s\n%s", name, number, i, problem, r.Text)
				}
				if err := r.Validate(rollout.Limits{Vocab: s.tokenizer.VocabSize(), MaxTokens: c.Policy.Positions}); err != nil {
					t.Errorf("%s, job %d, row %d: %v", name, number, i, err)
				}
				rescored(t, s, r)
			}
		}
	}
	if short < 10 || whole < 10 {
		t.Errorf("%d episodes cut short and %d whole are tried: want 10 or more of both", short, whole)
	}
}

// replayed plays the turns of a rollout again in a fresh episode, and says where the rollout differs from that.
func replayed(s textModel, p task.Prompt, e task.Episode, r *rollout.Rollout, maxTokens int) string {
	in, err := s.encodePrompt(p)
	if err != nil {
		return err.Error()
	}
	want, images := append([]int32{}, in.Tokens...), append([][]byte{}, in.Images...)
	mask := make([]uint8, len(want))
	var reward float32
	var text string
	var step task.Step
	for i, turn := range r.Turns {
		if int(turn.Start) != len(want) {
			return "a turn begins at the wrong token"
		}
		tokens := r.Tokens[turn.Start:turn.End]
		for at, token := range tokens {
			if last := at == len(tokens)-1; (token == s.tokenizer.EOS()[0]) && !last || last && token != s.tokenizer.EOS()[0] && len(tokens) < maxTokens && len(r.Tokens) < s.model.Config().MaxPositionEmbeddings {
				return "a turn does not end where it should"
			}
			mask = append(mask, 1)
		}
		said := s.tokenizer.Decode(tokens)
		step = e.Step(said)
		want = append(want, tokens...)
		if i > 0 {
			text += "\n"
		}
		text += said
		if step.Text != "" {
			text += "\n" + step.Text
		}
		reward += step.Reward
		if turn.Reward != step.Reward || turn.Done != step.Done {
			return "a turn's reward, or its end, is another than the environment's"
		}
		if i+1 < len(r.Turns) {
			if step.Done {
				return "a turn after the end"
			}
			in, err := s.encodeObservation(step)
			if err != nil {
				return err.Error()
			}
			want, images = append(want, in.Tokens...), append(images, in.Images...)
			mask = append(mask, make([]uint8, len(in.Tokens))...)
		}
	}
	last := r.Tokens[len(r.Tokens)-1]
	switch {
	case !reflect.DeepEqual(r.Tokens, want):
		return "the tokens are others"
	case !reflect.DeepEqual(r.Mask, mask):
		return "the mask is another"
	case len(r.Images) != len(images) || len(images) > 0 && !reflect.DeepEqual(r.Images, images):
		return "the images are others"
	case r.Reward != reward:
		return "the reward is not the sum of the turns'"
	case r.Text != text:
		return "the text is another"
	case r.Truncated != (!step.Done || last != s.tokenizer.EOS()[0]):
		return "it is truncated, or not, against the truth"
	case r.PromptID != p.ID:
		return "the prompt is another"
	}
	return ""
}

// rescored demands that the log-probs noted while an episode was played are those of its tokens scored in one pass.
func rescored(t *testing.T, s *Start, r *rollout.Rollout) {
	t.Helper()
	scores, err := s.model.Score(context.Background(), s.weights, []policy.Input{{Tokens: r.Tokens, Images: r.Images, Mask: r.Mask}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range r.Mask {
		if m == 1 && math.Abs(float64(r.Logprobs[i]-scores[0].Logprobs[i])) > 1e-4 {
			t.Errorf("token %d: noted %v, scored %v", i, r.Logprobs[i], scores[0].Logprobs[i])
		}
	}
}

func TestEpisodesDoNotDependOnHowManyPositionsAreDecodedAtATime(t *testing.T) {
	for name, k := range kinds() {
		g, _, w := maker(t, counts(t, k.rules, k.set...))
		job := pipeline.Job{Number: 3, Size: 5, Prompt: g.environment.Train(3)}
		whole, _ := generated(t, g, w, job, 0)
		// Rows wait for one another at the end of each turn, which therefore takes as long as the longest.
		longest := make([]int, g.environment.MaxTurns())
		for _, r := range whole {
			for i, turn := range r.Turns {
				longest[i] = max(longest[i], int(turn.End-turn.Start))
			}
		}
		positions := 0
		for _, n := range longest {
			positions += n
		}
		for _, n := range []int{1, 2, 3, 7} {
			parts, calls := generated(t, g, w, job, n)
			if !reflect.DeepEqual(parts, whole) {
				t.Errorf("%s: %d positions at a time give other episodes", name, n)
			}
			if want := (positions + n - 1) / n; calls != want {
				t.Errorf("%s: %d calls of %d positions for %d positions, want %d", name, calls, n, positions, want)
			}
		}
	}
}

// endless is a game whose episodes do not keep to its limit of turns.
type endless struct {
	counting
	most int
}

func (e endless) MaxTurns() int { return e.most }

func TestEpisodesThatGoOnBeyondTheirLimitAreCutThere(t *testing.T) {
	rules := endless{counting{turns: 99, slip: 0.9}, 3}
	c := counts(t, rules.counting)
	g, s, w := maker(t, c)
	g.environment = rules
	cut := 0
	group, _ := generated(t, g, w, pipeline.Job{Size: 8, Prompt: rules.prompt(0, 5)}, 0)
	for i, r := range group {
		if problem := replayed(s.textModel, rules.prompt(0, 5), rules.Reset(rules.prompt(0, 5), rollout.Stream(c.Seed, "environment", uint64(i)).Uint64()), r, c.Generate.MaxTokens); problem != "" {
			t.Errorf("row %d: %s", i, problem)
		}
		if len(r.Turns) > 3 {
			t.Errorf("row %d has %d turns, the limit is 3", i, len(r.Turns))
		}
		if len(r.Turns) == 3 && !r.Turns[2].Done && r.Truncated {
			cut++
		}
	}
	if cut != 8 { // five steps up do not fit into three turns
		t.Errorf("%d of 8 episodes were cut", cut)
	}
}

// Across turns, every token has the version of the weights that it was decoded with.
func TestTokensHaveTheVersionsOfTheirChunks(t *testing.T) {
	g, s, _ := maker(t, counts(t, counting{turns: 5, slip: 0.5}))
	under, err := g.Start(pipeline.Job{Size: 1, Prompt: g.environment.Train(0)})
	if err != nil {
		t.Fatal(err)
	}
	version := rollout.Version(0)
	for done := false; !done; version++ {
		w := pipeline.Weights{Version: version, Tensors: s.weights.WithVersion(version)}
		if done, err = under.Continue(context.Background(), w, 1); err != nil {
			t.Fatal(err)
		}
	}
	group, err := under.Rollouts()
	if err != nil {
		t.Fatal(err)
	}
	next := rollout.Version(0)
	for i, m := range group[0].Mask {
		want := rollout.NoVersion
		if m == 1 {
			want = next
			next++
		}
		if v := group[0].Versions[i]; v != want {
			t.Errorf("token %d has version %d, want %d", i, v, want)
		}
	}
	if next != version || len(group[0].Turns) < 2 {
		t.Errorf("%d tokens in %d chunks of one, %d turns", next, version, len(group[0].Turns))
	}
}

func TestACriticIsThereWhereTheObjectiveNeedsOne(t *testing.T) {
	plain := counts(t, counting{turns: 3})
	without := begin(t, plain)
	if without.model.Config().ValueHead {
		t.Error("a critic for an objective that needs none")
	}
	dir := t.TempDir()
	if err := without.model.Save(dir, without.weights, without.tokenizer); err != nil {
		t.Fatal(err)
	}
	for name, init := range map[string]string{"from scratch": "", "from a folder": dir} {
		c := counts(t, counting{turns: 3}, "learner.objective=ppo", "warmup.steps=0")
		c.Policy.Init = init
		g, s, w := maker(t, c)
		if !s.model.Config().ValueHead {
			t.Errorf("%s: no critic for ppo", name)
		}
		group, _ := generated(t, g, w, pipeline.Job{Size: 2, Prompt: g.environment.Train(0)}, 0)
		for _, r := range group {
			if len(r.Values) != len(r.Tokens) {
				t.Errorf("%s: %d values of %d tokens", name, len(r.Values), len(r.Tokens))
			}
		}
	}
}

// episodic are runs of episodes: schedules, units and losses on every kind of game.
func episodic(t *testing.T) map[string]Config {
	return map[string]Config{
		"text":             counts(t, counting{turns: 4, slip: 0.2}),
		"images":           counts(t, counting{turns: 3, size: 8}, "replay.sampler=prioritized"),
		"chunks of tokens": counts(t, counting{turns: 4, slip: 0.5}, "pipeline.weight_sync=token", "pipeline.chunk=1", "pipeline.weight_transfer=2"),
		"chunks of more":   counts(t, counting{turns: 4}, "pipeline.weight_sync=token", "pipeline.chunk=3", "generate.kv_cache=recompute", "policy.positions=24"),
		"a critic":         counts(t, counting{turns: 4, slip: 0.2}, "learner.objective=ppo", "learner.values=stored"),
		"steps":            counts(t, counting{turns: 4, slip: 0.2}, "replay.unit=step", "replay.capacity=200", "pipeline.mode=sync"),
	}
}

func TestRunsOfEpisodesGiveTheSameBytesHoweverTheyAreInterrupted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for name, c := range episodic(t) {
		t.Run(name, func(t *testing.T) {
			runtime.GOMAXPROCS(1)
			whole := filepath.Join(t.TempDir(), "whole")
			sum := train(t, c, whole)
			if sum.Expert == nil || sum.Random == nil || !sum.RewardLast.Known() {
				t.Errorf("summary without bounds or rewards: %+v", sum)
			}
			runtime.GOMAXPROCS(2)
			for _, at := range few([]int{5, 1}, 1) {
				dir := filepath.Join(t.TempDir(), "stopped")
				interrupt(t, c, dir, at)
				resume(t, c, dir)
				sameRuns(t, dir, whole)
			}
			dir := filepath.Join(t.TempDir(), "crashed")
			crash(t, c, dir, 17)
			resume(t, c, dir)
			sameRuns(t, dir, whole)
		})
	}
}
