package run

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// counting is an environment of known rules: a counter in 0..5 is to be brought to a goal by the actions "u" and "d".
// With probability slip an action does nothing. A turn costs 0.1, one that is no action 0.5; the goal pays 1.
type counting struct {
	turns int
	slip  float64
	size  int // of images of the counter, which then is not told in the text; 0: none
	seed  uint64
	mute  bool // its episodes are neither Expert nor Actor
}

const countingTop = 5

func (c counting) Characters() string { return "012345:>ud!" }
func (c counting) MaxTurns() int      { return c.turns }
func (c counting) ImageSize() int     { return c.size }

func (c counting) prompt(start, goal int) task.Prompt {
	p := task.Prompt{ID: fmt.Sprintf("counting/%d:%d", start, goal), State: fmt.Sprintf("%d:%d", start, goal)}
	p.Text, p.Image = c.observe(start, goal)
	return p
}

// observe returns what is seen of a counter.
func (c counting) observe(at, goal int) (string, []byte) {
	if c.size == 0 {
		return fmt.Sprintf("%d:%d>", at, goal), nil
	}
	picture := image.NewGray(image.Rect(0, 0, c.size, c.size))
	for i := range c.size * c.size {
		if i%c.size <= at {
			picture.SetGray(i%c.size, i/c.size, color.Gray{255})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%d>", goal), out.Bytes()
}

// held reports whether a problem is held out.
func held(start, goal int) bool { return (start+2*goal)%4 == 0 }

func (c counting) Train(i uint64) task.Prompt {
	r := rollout.Stream(c.seed, "counting", i)
	for {
		if start, goal := r.IntN(countingTop+1), r.IntN(countingTop+1); start != goal && !held(start, goal) {
			return c.prompt(start, goal)
		}
	}
}

func (c counting) HeldOut() []task.Prompt {
	var list []task.Prompt
	for start := range countingTop + 1 {
		for goal := range countingTop + 1 {
			if start != goal && held(start, goal) {
				list = append(list, c.prompt(start, goal))
			}
		}
	}
	return list
}

func (c counting) Reset(p task.Prompt, seed uint64) task.Episode {
	start, goal, _ := strings.Cut(p.State, ":")
	e := &count{rules: c, luck: rollout.Stream(seed, "counting/luck", 0)}
	e.at, _ = strconv.Atoi(start)
	e.goal, _ = strconv.Atoi(goal)
	if c.mute {
		return struct{ task.Episode }{e}
	}
	return e
}

// count is an episode.
type count struct {
	rules    counting
	at, goal int
	turn     int
	luck     *rand.Rand
}

func (e *count) Step(response string) task.Step {
	e.turn++
	s := task.Step{Reward: -0.1}
	slips := e.luck.Float64() < e.rules.slip
	switch {
	case response != "u" && response != "d":
		s.Invalid, s.Reward = true, -0.5
	case slips:
	case response == "u":
		e.at = min(e.at+1, countingTop)
	default:
		e.at = max(e.at-1, 0)
	}
	if e.at == e.goal {
		s.Done, s.Correct = true, true
		s.Reward++
		return s
	}
	if e.turn == e.rules.turns {
		s.Done, s.Cut = true, true
		return s
	}
	s.Text, s.Image = e.rules.observe(e.at, e.goal)
	if s.Invalid {
		s.Text = "!" + s.Text
	}
	return s
}

func (e *count) Advise() string {
	if e.at < e.goal {
		return "u"
	}
	return "d"
}

func (e *count) Actions() []string { return []string{"u", "d"} }

// counts is a small run of the counting game.
func counts(t testing.TB, rules counting, assignments ...string) Config {
	t.Helper()
	c := small(t, append([]string{"policy.positions=96", "generate.max_tokens=2", "warmup.steps=20"},
		assignments...)...)
	if rules.size > 0 {
		c.Policy.Vision = Vision{Patch: rules.size / 2, Hidden: 6}
	}
	c = c.WithTask("counting", func(seed uint64) (task.Task, error) {
		rules.seed = seed
		return rules, nil
	})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// maker returns the generator of a run's start, with the weights as the pipeline has them.
func maker(t testing.TB, c Config) (*generator, *Start, pipeline.Weights) {
	t.Helper()
	s := begin(t, c)
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	environment, _ := made.(task.Environment)
	return &generator{s.textModel, environment, s.ending(c.sampling()), c.Seed, experts{}, prefixes{}}, s,
		s.publish(s.weights, c.Generate.Precision)
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

// The last of four is the task's own answer: right, of the version that the group began with, and without log-probs.
func TestExpertsAnswerInEachGroup(t *testing.T) {
	c := small(t, "generate.experts=1", "learner.experts=sft", "pipeline.group=4")
	g, _, w := maker(t, c)
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	g.experts = experts{made.(task.Demonstrator), 1}
	p := made.Train(3)
	group, _ := generated(t, g, w, pipeline.Job{Size: 4, Prompt: p}, 0)
	g.experts = experts{}
	alone, _ := generated(t, g, w, pipeline.Job{Size: 3, Prompt: p}, 0)
	if len(group) != 4 || !reflect.DeepEqual(group[:3], alone) {
		t.Fatalf("the policy's %d rollouts are not those of a group of three", len(group)-1)
	}
	last := group[3]
	verdict := made.(task.Verifier).Verify(p, last.Text)
	if !verdict.Correct || last.LogprobsKnown() || last.Version() != group[0].Version() || last.PromptID != p.ID ||
		!slices.Equal(last.Tokens[:2], group[0].Tokens[:2]) {
		t.Errorf("the expert's rollout is %+v, with verdict %+v", last, verdict)
	}
	if err := last.Validate(rollout.Limits{UnknownLogprobs: true}); err != nil {
		t.Error(err)
	}
}

func TestExpertsThatCannotBeAreRefusedByKey(t *testing.T) {
	for set, want := range map[string]string{
		"generate.experts=1": "learner.experts: nothing: want sft, phi or shaped with generate.experts 1: experts have " +
			"no log-probs, and objective grpo reads them",
		"generate.experts=8;learner.experts=sft": "generate.experts: 8: want 0 to 7",
		"learner.experts=bc":                     "learner.experts: bc: want sft, phi or shaped",
		"learner.experts=sft;learner.expert_weight=now": "learner.expert_weight: now: want a number from 0 to 1, or an " +
			"expression over version",
		"learner.expert_weight=0.5":                              "learner.expert_weight: 0.5: want none, or experts",
		"learner.objective=oapl;generate.experts=1":              "objective oapl reads them",
		"learner.objective=ppo;learner.experts=sft":              "learner.experts: sft: want none with objective ppo",
		"generate.experts=1;learner.experts=sft;prompts.skip=.5": "generate.experts: 1: want 0 with prompts.fraction or",
		"generate.experts=1;learner.experts=sft;task={name: sokoban}": "generate.experts: 1: want 0: task sokoban has no " +
			"demonstrations of one turn",
	} {
		if _, err := Load("", strings.Split(set, ";")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
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

func TestEpisodesAreRecordedTurnByTurn(t *testing.T) {
	tests.Long(t)
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
				if problem := replayed(s.textModel, job.Prompt, g.environment.Reset(job.Prompt, luck), r,
					c.Generate.MaxTokens); problem != "" {
					t.Errorf("%s, job %d, row %d: %s\n%s", name, number, i, problem, r.Text)
				}
				if err := r.Validate(rollout.Limits{Vocab: s.tokenizer.VocabSize(),
					MaxTokens: c.Policy.Positions}); err != nil {
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
			if last := at == len(tokens)-1; (token == s.tokenizer.EOS()[0]) && !last || last &&
				token != s.tokenizer.EOS()[0] && len(tokens) < maxTokens &&
				len(r.Tokens) < s.model.Config().MaxPositionEmbeddings {
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
			in, err := s.encodeObservation(step, want[len(want)-1])
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
	scores, err := s.model.Score(context.Background(), s.weights,
		[]policy.Input{{Tokens: r.Tokens, Images: r.Images, Mask: r.Mask}}, 1)
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
	tests.Long(t)
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

func TestLongEpisodesAreCutAtTheirLimit(t *testing.T) {
	rules := endless{counting{turns: 99, slip: 0.9}, 3}
	c := counts(t, rules.counting)
	g, s, w := maker(t, c)
	g.environment = rules
	cut := 0
	group, _ := generated(t, g, w, pipeline.Job{Size: 8, Prompt: rules.prompt(0, 5)}, 0)
	for i, r := range group {
		if problem := replayed(s.textModel, rules.prompt(0, 5),
			rules.Reset(rules.prompt(0, 5), rollout.Stream(c.Seed, "environment", uint64(i)).Uint64()), r,
			c.Generate.MaxTokens); problem != "" {
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
		w := s.publish(s.weights.WithVersion(version), policy.Full)
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

// Rollouts of the newest weights have ratio 1, drawn from a nucleus too.
func TestTopPDoesNotBiasTheRatio(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	train(t, small(t, "generate.top_p=0.7", "pipeline.mode=sync", "replay.sampler=fifo", "replay.capacity=0"), dir)
	r, err := results.ReadRun(dir)
	if err != nil || len(r.Updates) == 0 {
		t.Fatalf("%d updates, %v", len(r.Updates), err)
	}
	for _, u := range r.Updates {
		if ratio := u.Other["max_ratio"].Float(); math.Abs(ratio-1) > 1e-4 || u.StalenessMean.Float() != 0 {
			t.Errorf("update %d: the largest ratio is %v at staleness %v, want 1 at 0", u.Update, ratio, u.StalenessMean)
		}
	}
}

func TestObjectivesThatNeedACriticGetOne(t *testing.T) {
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
		"text":   counts(t, counting{turns: 4, slip: 0.2}),
		"images": counts(t, counting{turns: 3, size: 8}, "replay.sampler=prioritized"),
		"chunks of tokens": counts(t, counting{turns: 4, slip: 0.5}, "pipeline.weight_sync=token", "pipeline.chunk=1",
			"pipeline.weight_transfer=2"),
		"chunks of more": counts(t, counting{turns: 4}, "pipeline.weight_sync=token", "pipeline.chunk=3",
			"generate.kv_cache=recompute", "policy.positions=24"),
		"a critic": counts(t, counting{turns: 4, slip: 0.2}, "learner.objective=ppo", "learner.values=stored"),
		"steps": counts(t, counting{turns: 4, slip: 0.2}, "replay.unit=step", "replay.capacity=200",
			"pipeline.mode=sync"),
	}
}

func TestInterruptedRunsOfEpisodesEndInTheSameBytes(t *testing.T) {
	tests.Long(t)
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
			stopped := filepath.Join(t.TempDir(), "stopped")
			trainInterrupted(t, c, begin(t, c), stopped)
			sameRuns(t, stopped, whole)
		})
	}
}

// Runs whose table keeps the steps of episodes end in the same bytes when they are resumed, with every kind of episode
// and, with text, every way to reward a step.
func TestRunsLearnFromSteps(t *testing.T) {
	tests.Long(t)
	for name, k := range kinds() {
		for objective, set := range map[string][]string{
			"own rewards": nil,
			"returns":     {"replay.step_returns=-1", "replay.step_discount=0.9", "learner.mask_zero_variance=true"},
			"critic": {"replay.step_returns=2", "learner.objective=ppo", "replay.sampler=prioritized",
				"replay.priority_base=td_error", "pipeline.batch_updates=2"},
		} {
			if objective != "critic" && name != "text" { // the critic uses returns too
				continue
			}
			t.Run(name+", "+objective, func(t *testing.T) {
				all := append([]string{"replay.unit=step", "replay.capacity=96", "budget.updates=12",
					"pipeline.batch=24"}, append(k.set, set...)...)
				c := counts(t, k.rules, all...)
				whole, stopped := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "stopped")
				sum := train(t, c, whole)
				if sum.Updates != 12 || sum.Sampling == nil && c.Replays() || sum.Sampling.Unit != "step" {
					t.Errorf("the run ended as %+v", sum)
				}
				interrupt(t, c, stopped, 5)
				resume(t, c, stopped)
				sameRuns(t, stopped, whole)
			})
		}
	}
}

// The steps of a run's table are those of the episodes that entered it, their rewards the returns by the environment's
// rewards.
func TestTheTableHoldsTheReturnsOfSteps(t *testing.T) {
	c := counts(t, counting{turns: 5, slip: 0.2}, "replay.unit=step", "replay.step_returns=3",
		"replay.step_discount=0.5", "replay.capacity=100000")
	start := begin(t, c)
	s, err := newSession(context.Background(), c, start, filepath.Join(t.TempDir(), "run"), Hooks{}, true)
	if err != nil {
		t.Fatal(err)
	}
	g, _, w := maker(t, c)
	group, _ := generated(t, g, w, jobOf(g, 0, 6), 0)
	ctx := context.Background()
	if _, err := s.table.Insert(ctx, rollout.Group{Rollouts: group}); err != nil {
		t.Fatal(err)
	}
	held, next, sum := s.table.(embedded).Inspect().Held(), 0, 0.0
	for _, r := range group {
		for i, turn := range r.Turns {
			want := 0.0
			for k := i; k < min(i+3, len(r.Turns)); k++ {
				want += math.Pow(0.5, float64(k-i)) * float64(r.Turns[k].Reward)
			}
			step := held[next].Rollout
			if math.Abs(float64(step.Reward)-want) > 1e-6 || len(step.Tokens) != int(turn.End) ||
				step.Turns[0].Start != turn.Start {
				t.Errorf("step %d is %+v, want reward %v and the tokens before %d", next, step, want, turn.End)
			}
			sum += float64(held[next].Advantage)
			next++
		}
	}
	if next != len(held) || next <= len(group) {
		t.Errorf("%d steps of %d episodes, the table holds %d", next, len(group), len(held))
	}
	if math.Abs(sum) > 1e-4 { // they are relative to the mean of all steps
		t.Errorf("the advantages of a group's steps add up to %v", sum)
	}
	if o := s.table.Options(); o.Unit != replay.UnitStep || o.StepReturns != 3 || o.StepDiscount != 0.5 {
		t.Errorf("the table's options are %+v", o)
	}
}

func TestStepsAreCountedAsUses(t *testing.T) {
	c := counts(t, counting{turns: 5, slip: 0.2}, "replay.unit=step", "replay.sampler=fifo", "replay.capacity=96",
		"pipeline.batch=24", "budget.updates=5")
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, c, dir)
	r, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Updates) != 5 || sum.Used != 5*24 {
		t.Errorf("%d updates used %d steps, want 5 of 24", len(r.Updates), sum.Used)
	}
	if episodes := r.Updates[4].Inserted; sum.Inserted <= episodes ||
		math.Abs(sum.ReplayRatio.Float()-5*24/float64(sum.Inserted)) > 1e-12 {
		t.Errorf("%d episodes made %d steps, used %v times each: want %v", episodes, sum.Inserted,
			sum.ReplayRatio.Float(), 5*24/float64(sum.Inserted))
	}
}

// What is planned counts in the unit of what is measured: steps that are used, and episodes.
func TestReplayOfStepsIsPlannedInSteps(t *testing.T) {
	tests.Long(t)
	for name, set := range map[string][]string{
		"async":          {"pipeline.workers=3", "pipeline.rollout_cost=4"},
		"turns":          {"pipeline.mode=sync", "pipeline.sync_rollouts=16", "pipeline.sync_updates=2"},
		"each step once": {"replay.sampler=fifo", "replay.capacity=96", "pipeline.workers=12", "pipeline.trainers=1"},
	} {
		all := append([]string{"replay.unit=step", "pipeline.batch=24", "budget.updates=40", "evaluate.every=100",
			"warmup.steps=0"}, set...)
		sum := train(t, counts(t, counting{turns: 5, slip: 0.2}, all...), filepath.Join(t.TempDir(), "run"))
		for what, pair := range map[string][2]float64{
			"uses of each":        {sum.ReplayRatio.Float(), sum.ReplayRatioPlanned},
			"episodes per update": {sum.NewPerUpdate.Float(), sum.NewPerUpdatePlanned},
		} {
			if math.Abs(pair[0]/pair[1]-1) > 0.25 {
				t.Errorf("%s: %s: %v, planned %v", name, what, pair[0], pair[1])
			}
		}
	}
}

func jobOf(g *generator, number uint64, size int) pipeline.Job {
	return pipeline.Job{Number: number, Size: size, Prompt: g.environment.Train(number)}
}
