package run

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// evaluated returns what an evaluation in batches of the given rows says of a start.
func evaluated(t *testing.T, c Config, s *Start, rows int) results.Eval {
	t.Helper()
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEvaluator(c, made, s.textModel, made.HeldOut())
	if err != nil {
		t.Fatal(err)
	}
	e.rows = rows
	var line results.Eval
	if err := e.evaluate(context.Background(), s.weights, &line); err != nil {
		t.Fatal(err)
	}
	return line
}

func TestEvaluationsDoNotDependOnTheirBatches(t *testing.T) {
	tests.Long(t)
	for name, k := range kinds() {
		c := counts(t, k.rules, k.set...)
		s := begin(t, c)
		want := evaluated(t, c, s, evaluationRows)
		if want.Problems == 0 || !want.Reward.Known() || !(want.Turns.Float() >= 1) || len(want.PassAt) != 2 {
			t.Errorf("%s: an evaluation of %+v", name, want)
		}
		for _, rows := range []int{1, 5} {
			if got := evaluated(t, c, s, rows); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: in batches of %d: %+v, want %+v", name, rows, got, want)
			}
		}
	}
}

// The greedy evaluation is an episode of each held-out problem with a luck that no seed of a run changes: a player that
// does the same meets the same.
func TestGreedyEvaluationsPlayAsAPlayerWhateverTheSeed(t *testing.T) {
	rules := counting{turns: 5, slip: 0.5}
	solved, wrong := 0.0, 0.0
	for _, steps := range []string{"warmup.steps=60", "warmup.steps=0"} {
		c := counts(t, rules, steps, "warmup.learning_rate=0.01")
		s := begin(t, c)
		line := evaluated(t, c, s, evaluationRows)
		other := c
		other.Seed = 99
		if got := evaluated(t, other, s, evaluationRows); got.Pass1 != line.Pass1 || got.Reward != line.Reward ||
			got.Turns != line.Turns {
			t.Errorf("with another seed: %+v, want %+v", got, line)
		}
		want := games(t, s, rules)
		for name, got := range map[string]float64{
			"pass@1": line.Pass1, "reward": line.Reward.Float(), "turns": line.Turns.Float(),
			"invalid": line.Invalid.Float(), "length": line.MeanLength.Float(),
		} {
			if math.Abs(got-want[name]) > 1e-6 {
				t.Errorf("%s: %s: the evaluation says %v, games %v", steps, name, got, want[name])
			}
		}
		if n := line.Solved.Count(); n != int(math.Round(line.Pass1*float64(line.Problems))) {
			t.Errorf("%d of %d problems are recorded as solved, pass@1 is %v", n, line.Problems, line.Pass1)
		}
		solved, wrong = solved+line.Pass1, wrong+line.Invalid.Float()
	}
	if solved == 0 || wrong == 0 {
		t.Errorf("pass@1 is %v and the share of invalid turns %v in all: the cases show nothing", solved, wrong)
	}
}

// games plays the held-out problems one by one, greedily, and returns the means that an evaluation tells.
func games(t *testing.T, s *Start, rules counting) map[string]float64 {
	t.Helper()
	var correct, reward, turns, invalid, tokens float64
	player := &Player{s.textModel, s.weights, policy.Sampling{MaxTokens: 2, Stop: s.tokenizer.EOS()}}
	for i, p := range rules.HeldOut() {
		game, err := player.Begin(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := rules.Reset(p, episodeSeed(i, 0))
		for step := (task.Step{}); !step.Done; {
			said, err := game.Turn(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			step = e.Step(said)
			turns++
			reward += float64(step.Reward)
			invalid += oneIf(step.Invalid)
			correct += oneIf(step.Done && step.Correct)
			if step.Done {
				break
			}
			if err := game.Read(step); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range game.rows.Rows()[0].Mask {
			tokens += float64(m)
		}
	}
	n := float64(len(rules.HeldOut()))
	return map[string]float64{"pass@1": correct / n, "reward": reward / n, "turns": turns / n,
		"invalid": invalid / turns, "length": tokens / n}
}

// watched is a game that notes the luck of its episodes by the problem.
type watched struct {
	counting
	lock *sync.Mutex
	luck map[string][]uint64
}

func (w watched) Reset(p task.Prompt, seed uint64) task.Episode {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.luck[p.ID] = append(w.luck[p.ID], seed)
	return w.counting.Reset(p, seed)
}

// Greedy episodes, the first sample of each problem and the bounds have one luck, whatever the seed of the run; every
// other sample and every other problem has another.
func TestEveryTrialOfAProblemHasItsOwnSeed(t *testing.T) {
	c := counts(t, counting{turns: 3})
	s := begin(t, c)
	note := func(use func(w watched, e *evaluator)) map[string][]uint64 {
		w := watched{counting{turns: 3}, new(sync.Mutex), make(map[string][]uint64)}
		e, err := newEvaluator(c, w, s.textModel, w.HeldOut())
		if err != nil {
			t.Fatal(err)
		}
		use(w, e)
		for _, list := range w.luck {
			slices.Sort(list)
		}
		return w.luck
	}
	try := func(copies int) map[string][]uint64 {
		return note(func(_ watched, e *evaluator) {
			if _, err := e.runTrials(context.Background(), s.weights, copies, 0); err != nil {
				t.Fatal(err)
			}
		})
	}
	greedy, sampled := try(1), try(3)
	bounded := note(func(w watched, _ *evaluator) { bounds(t.Context(), w, w.HeldOut()) })
	c.Seed = 5
	if other := try(3); !reflect.DeepEqual(other, sampled) {
		t.Error("another seed of the run brings another luck")
	}
	seen := map[uint64]bool{}
	for id, list := range sampled {
		for _, l := range list {
			seen[l] = true
		}
		if first := greedy[id]; len(first) != 1 || !slices.Contains(list, first[0]) ||
			!slices.Equal(bounded[id], []uint64{first[0], first[0]}) {
			t.Errorf("%s: samples have the luck %v, the greedy episode %v, the bounds %v", id, list, first, bounded[id])
		}
	}
	if n := 3 * len(counting{}.HeldOut()); len(seen) != n {
		t.Errorf("%d tries have %d lucks", n, len(seen))
	}
}

// Chunks of tokens are counted over the turns of an episode.
func TestChunksCoverAllTurns(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   int
	}{
		"turns by token":    {counts(t, counting{turns: 4}, "pipeline.weight_sync=token"), 8},
		"one turn by token": {small(t, "pipeline.weight_sync=token"), 4},
	} {
		if got := c.config.pipelineOptions().MaxTokens; got != c.want {
			t.Errorf("%s: at most %d positions, want %d", name, got, c.want)
		}
	}
}

func TestAPlayerWithoutRoomSaysSo(t *testing.T) {
	rules := counting{turns: 9, slip: 1}
	c := counts(t, rules, "policy.positions=12")
	s := begin(t, c)
	player := &Player{s.textModel, s.weights, policy.Sampling{MaxTokens: 2, Stop: s.tokenizer.EOS()}}
	game, err := player.Begin(rules.prompt(0, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := rules.Reset(rules.prompt(0, 4), 1)
	for turn := range 5 {
		said, err := game.Turn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := game.Read(e.Step(said)); errors.Is(err, ErrNoRoom) {
			return
		} else if err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
	}
	t.Error("five turns fit into 12 positions")
}

// Prompts that do not fit are told by the key that makes room for them, before anything is learned.
func TestPromptsThatDoNotFitAreReported(t *testing.T) {
	for name, k := range map[string]struct {
		rules     counting
		positions string
		want      string
	}{
		"text":        {counting{turns: 4}, "4", "policy.positions: 4: want 5 or more: prompt counting/"},
		"just a turn": {counting{turns: 4}, "6", ""},
		"images":      {counting{turns: 4, size: 8}, "6", "policy.positions: 6: want 7 or more: prompt counting/"},
	} {
		c := counts(t, k.rules, "policy.positions="+k.positions, "warmup.steps=1", "warmup.until=0.5",
			"generate.max_tokens=1")
		_, err := Begin(context.Background(), c, nil)
		if told := err != nil && strings.HasPrefix(err.Error(), "policy.positions: "); told != (k.want != "") || told &&
			!strings.HasPrefix(err.Error(), k.want) {
			t.Errorf("%s: %v, want %q", name, err, k.want)
		}
	}
}

// From start to goal an expert takes |goal - start| turns of 0.1 each, and gets 1.
func TestBoundsAreWhatExpertsAndChanceComeTo(t *testing.T) {
	rules := counting{turns: 5}
	expert, chance := bounds(t.Context(), rules, rules.HeldOut())
	var reward float64
	for _, p := range rules.HeldOut() {
		reward += 1 - 0.1*math.Abs(float64(p.State[0])-float64(p.State[2]))
	}
	reward /= float64(len(rules.HeldOut()))
	if expert == nil || expert.Pass1 != 1 || math.Abs(expert.Reward-reward) > 1e-6 {
		t.Errorf("experts come to %+v, want 1 and %g", expert, reward)
	}
	if chance == nil || !(chance.Pass1 > 0 && chance.Pass1 < 0.9) || chance.Reward >= expert.Reward {
		t.Errorf("chance comes to %+v", chance)
	}
	if again, other := bounds(t.Context(), rules, rules.HeldOut()); *again != *expert || *other != *chance {
		t.Errorf("bounds differ from one time to the next: %v %v", again, other)
	}
	mute := counting{turns: 5, mute: true}
	if expert, chance := bounds(t.Context(), mute, rules.HeldOut()); expert != nil || chance != nil {
		t.Errorf("bounds of a task that has neither: %v %v", expert, chance)
	}
	if sums, err := Default().newTask(); err != nil {
		t.Error(err)
	} else if expert, chance := bounds(t.Context(), sums, sums.HeldOut()); expert != nil || chance != nil {
		t.Errorf("bounds of a task of one turn: %v %v", expert, chance)
	}
}

func TestEpisodesOfAnUpdateAreCounted(t *testing.T) {
	note := func(turns int, invalid, success string) *rollout.Rollout {
		return &rollout.Rollout{Turns: make([]rollout.Turn, turns),
			Meta: map[string]string{task.MetaInvalid: invalid, task.MetaSuccess: success}}
	}
	var seen episodeCounts
	for _, r := range []*rollout.Rollout{note(4, "1", "true"), note(2, "2", "false"), {}, note(3, "0", "false")} {
		seen.add(r)
	}
	var line, none results.Update
	seen.fill(&line)
	for name, pair := range map[string][2]float64{
		"turns": {line.Turns.Float(), 3}, "invalid": {line.Invalid.Float(), 3.0 / 9},
		"success": {line.Success.Float(), 1.0 / 3},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, want %v", name, pair[0], pair[1])
		}
	}
	if (episodeCounts{}).fill(&none); none.Turns.Known() || none.Invalid.Known() || none.Success.Known() {
		t.Errorf("of no episodes: %+v", none)
	}
}

// mistaken is a configuration that cannot be used, and the problem that must be named.
type mistaken struct {
	rules counting
	set   func(*Config)
	want  string
}

func TestSettingsThatTheTaskCannotServeAreRefused(t *testing.T) {
	none := func(*Config) {}
	for name, m := range map[string]mistaken{
		"no tower": {counting{turns: 3, size: 8}, func(c *Config) { c.Policy.Vision = Vision{} },
			"policy.vision.patch: 0: want a divisor of 8"},
		"odd patch": {counting{turns: 3, size: 8}, func(c *Config) { c.Policy.Vision.Patch = 3 },
			"policy.vision.patch: 3: want a divisor of 8"},
		"no width": {counting{turns: 3, size: 8}, func(c *Config) { c.Policy.Vision.Hidden = 0 },
			"policy.vision.hidden: 0: want 1 or more"},
		"no images": {counting{turns: 3}, func(c *Config) { c.Policy.Vision = Vision{4, 8} },
			"policy.vision.patch: 4: want 0: task counting has no images"},
		"init, a tower": {counting{turns: 3, size: 8}, func(c *Config) { c.Policy.Init = "x" },
			"policy.vision.patch: 4: want 0 with policy.init"},
		"no expert": {counting{turns: 3, mute: true}, none,
			"warmup.steps: 20: want 0: task counting has no expert"},
		"noise": {counting{turns: 3}, func(c *Config) { c.Warmup.Noise = 1 },
			"warmup.noise: 1: want a share of turns in [0, 1)"},
		"less noise": {counting{turns: 3}, func(c *Config) { c.Warmup.Noise = -0.1 }, "warmup.noise: -0.1: want"},
	} {
		c := counts(t, counting{turns: 3})
		if m.rules.size > 0 {
			c.Policy.Vision = Vision{Patch: 4, Hidden: 6}
		}
		c = c.WithTask("counting", func(uint64) (task.Task, error) { return m.rules, nil })
		m.set(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), m.want) {
			t.Errorf("%s: %v, want %q", name, err, m.want)
		}
	}
	sums := small(t)
	sums.Warmup.Noise = 0.1
	if err := sums.Validate(); err == nil || !strings.Contains(err.Error(), "warmup.noise: 0.1: want 0: the episodes "+
		"of task arithmetic have one turn") {
		t.Errorf("noise in a task of one turn: %v", err)
	}
}

func TestAFolderWhoseTowerDoesNotFitIsRefused(t *testing.T) {
	for _, c := range []struct {
		of, for_ int // pixels of the folder's images, and of the task's
		fits     bool
	}{{8, 8, true}, {8, 16, false}, {0, 8, false}, {8, 0, true}} {
		trained := counts(t, counting{turns: 3, size: c.of}, "warmup.steps=0")
		s := begin(t, trained)
		dir := t.TempDir()
		if err := s.model.Save(dir, s.weights, s.tokenizer); err != nil {
			t.Fatal(err)
		}
		next := counts(t, counting{turns: 3, size: c.for_}, "warmup.steps=0")
		next.Policy.Init, next.Policy.Vision = dir, Vision{}
		_, err := Begin(context.Background(), next, nil)
		if c.fits != (err == nil) || err != nil &&
			!strings.Contains(err.Error(), "policy.init: "+dir+": want a model with a vision tower for images of") {
			t.Errorf("a tower for %d pixels, images of %d: %v", c.of, c.for_, err)
		}
	}
}

func TestABatchIsMeasuredIfOneOfItsUpdatesHasABound(t *testing.T) {
	for _, c := range []struct {
		every, updates rollout.Version
		begins         []rollout.Version // of the first 13
	}{
		{1, 1, []rollout.Version{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{4, 1, []rollout.Version{3, 7, 11}},
		{4, 2, []rollout.Version{2, 6, 10}},
		{4, 3, []rollout.Version{3, 6, 9}}, // updates 4, 8 and 12 are of the batches that begin at 3, 6 and 9
		{2, 5, []rollout.Version{0, 5, 10}},
		{7, 5, []rollout.Version{5, 10}},
	} {
		i := improvement{every: c.every, updates: c.updates}
		var got []rollout.Version
		for v := range rollout.Version(13) {
			if i.begins(v) {
				got = append(got, v)
			}
		}
		if len(got) != len(c.begins) {
			t.Errorf("bound every %d updates, %d on a batch: measured batches begin at %v, want %v", c.every, c.updates,
				got, c.begins)
			continue
		}
		for k := range got {
			if got[k] != c.begins[k] {
				t.Errorf("bound every %d updates, %d on a batch: measured batches begin at %v, want %v", c.every,
					c.updates, got, c.begins)
				break
			}
		}
	}
}

// The change that is logged is that of the mean reward from the weights with which the update's batch began.
func TestTheTrueChangeOfRewardIsWrittenBesideTheBound(t *testing.T) {
	tests.Long(t)
	c := small(t, "pipeline.mode=sync", "pipeline.batch_updates=3", "evaluate.bound_every=2", "budget.updates=8",
		"warmup.steps=200", "learner.learning_rate=0.002", "pipeline.batch=32", "replay.capacity=64",
		"checkpoint.every=1")
	dir := filepath.Join(t.TempDir(), "run")
	start := begin(t, c)
	task, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	rewards := map[int]float64{}
	at := func(update int, s *Start) {
		measure, err := newImprovement(c, task, s.textModel)
		if err != nil {
			t.Fatal(err)
		}
		r, err := measure.reward(context.Background(), s.weights)
		if err != nil {
			t.Fatal(err)
		}
		rewards[update] = r
	}
	at(0, start)
	_, err = Train(context.Background(), c, start, dir, Hooks{OnUpdate: func(u results.Update) {
		if u.Update == 1 {
			return // its checkpoint comes after the hook
		}
		place, err := findCheckpoint(dir)
		if err != nil {
			t.Fatal(err)
		}
		before, err := loadStart(place, task)
		if err != nil {
			t.Fatal(err)
		}
		at(u.Update-1, before)
	}})
	if err != nil {
		t.Fatal(err)
	}
	last, err := loadStart(filepath.Join(dir, results.CheckpointDir), task)
	if err != nil {
		t.Fatal(err)
	}
	at(8, last)
	r, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, u := range r.Updates {
		change, measured := u.Other["reward_change"]
		bound, bounded := u.Other["bound"]
		if measured != bounded || u.Update%2 == 1 && measured {
			t.Errorf("update %d has a change: %t, a bound: %t", u.Update, measured, bounded)
		}
		if !measured {
			continue
		}
		seen++
		began := (u.Update - 1) / 3 * 3
		if want := (rewards[u.Update] - rewards[began]) / u.Other["bound_scale"].Float(); math.Abs(change.Float()-want) > 1e-12 {
			t.Errorf("update %d changed the reward by %v, want %v from version %d on", u.Update,
				change.Float(), want, began)
		}
		if math.IsNaN(bound.Float()) {
			t.Errorf("update %d has bound %v", u.Update, bound)
		}
	}
	if seen < 3 || rewards[8] == rewards[0] {
		t.Errorf("%d changes were measured, rewards are %v: the test shows little", seen, rewards)
	}
}

func TestNothingIsMeasuredWithoutABound(t *testing.T) {
	c := small(t)
	if i, err := newImprovement(c, nil, textModel{}); i != nil || err != nil {
		t.Errorf("got %v, %v", i, err)
	}
}

// asked is a counting game that counts how often its experts are asked.
type asked struct {
	counting
	times *atomic.Int32
}

func (a asked) Reset(p task.Prompt, seed uint64) task.Episode {
	return oracle{a.counting.Reset(p, seed).(*count), a.times}
}

type oracle struct {
	*count
	times *atomic.Int32
}

func (o oracle) Advise() string {
	o.times.Add(1)
	return o.count.Advise()
}

// Experts may search long for each turn: a run that is told to stop does not wait for them to play all held-out
// problems. Resumed, it ends with their bound.
func TestInterruptionDoesNotWaitForExperts(t *testing.T) {
	rules := asked{counting{turns: 5}, new(atomic.Int32)}
	c := counts(t, rules.counting, "warmup.steps=0", "budget.updates=4", "evaluate.every=100",
		"evaluate.samples=0").WithTask("asked",
		func(uint64) (task.Task, error) { return rules, nil })
	dir := filepath.Join(t.TempDir(), "run")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	sum, err := Train(ctx, c, begin(t, c), dir, Hooks{OnUpdate: func(u results.Update) {
		if u.Update == 2 {
			stop()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if n := rules.times.Load(); sum.Ended != "interrupted" || sum.Expert != nil || sum.Random != nil || n > 1 {
		t.Errorf("an interrupted run has the bounds %v and %v, for which experts were asked %d times", sum.Expert,
			sum.Random, n)
	}
	if sum, err = Resume(context.Background(), c, dir, Hooks{}); err != nil || sum.Expert == nil ||
		sum.Expert.Pass1 != 1 || sum.Random == nil {
		t.Errorf("the resumed run has the bound %+v, %v", sum, err)
	}
}

// Sampled, pass@1 is what pass@k says of one sample, in another draw; the draws differ by the run's seed.
func TestEvaluationsSampleAtATemperature(t *testing.T) {
	c := counts(t, counting{turns: 3}, "evaluate.temperature=1", "warmup.steps=20", "evaluate.samples=8",
		"evaluate.pass_at=[1]")
	s := begin(t, c)
	line := evaluated(t, c, s, evaluationRows)
	if line.Temperature != results.Num(1) {
		t.Errorf("the evaluation says temperature %v", line.Temperature)
	}
	other := c
	other.Seed = 99
	again, mean := evaluated(t, other, s, evaluationRows), line.PassAt[0].Rate
	again.PassAt, line.PassAt = nil, nil
	if reflect.DeepEqual(again, line) {
		t.Errorf("with another seed: %+v too", line)
	}
	for _, p := range []float64{line.Pass1, again.Pass1} {
		if bound := 4 * math.Sqrt(mean*(1-mean)/float64(line.Problems)); math.Abs(p-mean) > bound {
			t.Errorf("pass@1 is %.3f, eight samples a problem say %.3f", p, mean)
		}
	}
}

func TestHeldOutProblemsAreSplitIntoThoseThatChooseAndThoseThatJudge(t *testing.T) {
	made, err := small(t).newTask()
	if err != nil {
		t.Fatal(err)
	}
	all := made.HeldOut()
	choose, judge := Evaluate{Problems: "choose"}.of(all), Evaluate{Problems: "judge"}.of(all)
	if n := len(all) / 5; len(choose) != n || !reflect.DeepEqual(append(slices.Clone(choose), judge...), all) ||
		!reflect.DeepEqual(Evaluate{}.of(all), all) {
		t.Errorf("%d of %d choose, %d judge", len(choose), len(all), len(judge))
	}
	for set, want := range map[string]string{
		"evaluate.problems=some": "all, choose or judge", "evaluate.temperature=-1": "0 (greedy) or more",
	} {
		if _, err := Load("", []string{set}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}
