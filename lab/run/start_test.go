package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
)

// expected makes starts that expect runs of the configurations.
func expected(t *testing.T, list ...Config) *Starts {
	t.Helper()
	s := new(Starts)
	for _, c := range list {
		if err := s.Expect(c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// startOf asks for a start and reports whether it was made for it.
func startOf(t *testing.T, s *Starts, c Config) (*Start, bool) {
	t.Helper()
	fresh := false
	start, err := s.Begin(context.Background(), c, func(int, float64) { fresh = true })
	if err != nil {
		t.Fatal(err)
	}
	return start, fresh
}

func TestRunsThatBeginAlikeShareAStart(t *testing.T) {
	tests.LongShared(t)
	c := small(t)
	for change, shared := range map[string]bool{
		"learner.learning_rate=0.01": true, "replay.capacity=64": true, "generate.temperature=0.9": true,
		"budget.updates=30":  true,
		"pipeline.workers=2": true, "name=other": true, "evaluate.samples=0": true, "learner.objective=dr_grpo": true,
		"seed=2": true, "warmup.seed=own": true, "warmup.seed=2": false, "task.max=11": false,
		"task.held_out=10": false, "policy.hidden=20": false,
		"warmup.steps=6": false, "warmup.batch=9": false,
		"warmup.learning_rate=0.01": false, "warmup.until=0.9": false, "generate.max_tokens=5": false,
		"learner.objective=ppo": false,
	} {
		other := small(t, change)
		s := expected(t, c, other)
		first, _ := startOf(t, s, c)
		second, fresh := startOf(t, s, other)
		if fresh == shared || (first == second) != shared {
			t.Errorf("%s: made anew %t, the same start %t, want it shared: %t", change, fresh, first == second, shared)
		}
	}
}

func TestRunsOfSeveralSeedsShareAStartOfItsOwnSeed(t *testing.T) {
	first, second, third := small(t, "seed=1", "warmup.seed=7"), small(t, "seed=2", "warmup.seed=7"), small(t, "seed=7",
		"warmup.seed=own")
	s := expected(t, first, second, third)
	a, _ := startOf(t, s, first)
	for _, c := range []Config{second, third} {
		if b, fresh := startOf(t, s, c); fresh || a != b {
			t.Errorf("seed %d, warmup.seed %s: made anew %t, the same start %t", c.Seed, c.Warmup.Seed, fresh, a == b)
		}
	}
}

func TestTheSeedOfAStartIsANumberOrOwn(t *testing.T) {
	for text, want := range map[string]BaseSeed{"own": OwnSeed, "0": OwnSeed, "12": 12} {
		if got := small(t, "warmup.seed="+text).Warmup.Seed; got != want {
			t.Errorf("%s is read as %s", text, got)
		}
	}
	for _, text := range []string{"mine", "-1", "1.5"} {
		if _, err := Load("", []string{"warmup.seed=" + text}); err == nil ||
			!strings.Contains(err.Error(), "warmup.seed: "+text+": want a whole number, or own for the run's seed") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOwnTasksOfOneNameDoNotShareAStart(t *testing.T) {
	made := func(max string) Config {
		return small(t).WithTask("sums", func(seed uint64) (task.Task, error) {
			return NewTask("arithmetic", []string{"held_out=20", "max=" + max}, seed)
		})
	}
	a, b := made("10"), made("20")
	s := expected(t, a, a, b)
	first, _ := startOf(t, s, a)
	if again, fresh := startOf(t, s, a); fresh || again != first {
		t.Error("copies of one configuration do not share a start")
	}
	if _, fresh := startOf(t, s, b); !fresh {
		t.Error("another task got the first one's start")
	}
}

func TestASharedStartGivesTheSameBytes(t *testing.T) {
	tests.LongShared(t)
	c, other := small(t), small(t, "learner.learning_rate=0.01", "replay.sampler=uniform")
	s := expected(t, other, c)
	for _, x := range []Config{other, c} { // the second run starts from what the first has used
		start, _ := startOf(t, s, x)
		dir := filepath.Join(t.TempDir(), "shared")
		if _, err := Train(context.Background(), x, start, dir, Hooks{}); err != nil {
			t.Fatal(err)
		}
		alone := filepath.Join(t.TempDir(), "alone")
		train(t, x, alone)
		sameRuns(t, dir, alone)
	}
}

func TestAStartIsDroppedWithTheLastRunThatNeedsIt(t *testing.T) {
	c := small(t)
	s := expected(t, c, c)
	startOf(t, s, c)
	for i, want := range []bool{false, true} { // made anew after the release
		if err := s.Release(c); err != nil {
			t.Fatal(err)
		}
		if _, fresh := startOf(t, s, c); fresh != want {
			t.Errorf("after %d of 2 runs: made anew %t, want %t", i+1, fresh, want)
		}
	}
	if len(s.shared) != 0 {
		t.Errorf("%d starts are kept for no run", len(s.shared))
	}
}

func TestOneOfManyConcurrentCallersMakesTheStart(t *testing.T) {
	c := small(t)
	const runs = 8
	list := make([]Config, runs)
	for i := range list {
		list[i] = c
	}
	s := expected(t, list...)
	var steps atomic.Int64
	var wait sync.WaitGroup
	for range runs {
		wait.Go(func() {
			if _, err := s.Begin(context.Background(), c, func(int, float64) { steps.Add(1) }); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if got := steps.Load(); got != int64(c.Warmup.Steps) {
		t.Errorf("%d steps of warm-up, want those of one: %d", got, c.Warmup.Steps)
	}
}

func TestAFailedStartIsTriedAgain(t *testing.T) {
	c := small(t)
	s := expected(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := s.Begin(ctx, c, func(int, float64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if _, fresh := startOf(t, s, c); !fresh {
		t.Error("nobody made the start")
	}
}

// pretrained writes the folder of a tiny model that knows ASCII, for tasks that begin from one.
func pretrained(t *testing.T) string { return modelFolder(t, 256) }

// instruct writes the folder of a tiny model that knows ASCII and a chat template.
func instruct(t *testing.T) string {
	t.Helper()
	dir := modelFolder(t, 2048, "<e>")
	template := "{% for m in messages %}{{ '<u>' if m.role == 'user' else '<a>' }}{{ m.content }}<e>\n{% endfor %}" +
		"{% if add_generation_prompt %}<a>{% endif %}"
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// modelFolder writes the folder of a tiny model that knows ASCII and special tokens.
func modelFolder(t *testing.T, positions int, special ...string) string {
	t.Helper()
	var ascii strings.Builder
	ascii.WriteByte('\n')
	for c := ' '; c <= '~'; c++ {
		ascii.WriteRune(c)
	}
	tokenizer, err := hf.NewCharTokenizer(ascii.String(), special...)
	if err != nil {
		t.Fatal(err)
	}
	model, err := policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: tokenizer.VocabSize(), HiddenSize: 16, IntermediateSize: 32, NumHiddenLayers: 1,
		NumAttentionHeads: 2, MaxPositionEmbeddings: positions, BOSTokenID: hf.NoToken, PadTokenID: tokenizer.Pad(),
		EOSTokenIDs: []int{1},
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

// long trains on a file of 20 short problems and three of 300 characters, with assignments.
func long(t *testing.T, assignments ...string) (*results.Summary, []results.TooLong, error) {
	t.Helper()
	file := sums(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		text = fmt.Appendf(text, "{\"problem\": \"%s\", \"answer\": \"1\"}\n", strings.Repeat(fmt.Sprint(n), 300))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load("../../configs/math.yaml", append([]string{"policy.init=" + pretrained(t), "generate.max_tokens=8",
		"task={name: math, train_file: " + file + ", template: '{problem}', held_out: 0, held_out_fraction: 0.5}",
		"budget.compute=0", "budget.updates=12", "pipeline.batch=16", "pipeline.group=8", "replay.capacity=64",
		"evaluate.every=100"}, assignments...))
	if err != nil {
		t.Fatal(err)
	}
	start, err := Begin(context.Background(), c, nil)
	if err != nil {
		return nil, nil, err
	}
	var said []results.TooLong
	sum, err := Train(context.Background(), c, start, filepath.Join(t.TempDir(), "run"),
		Hooks{OnTooLong: func(l results.TooLong) { said = append(said, l) }})
	return sum, said, err
}

func TestPromptsThatThePolicyCannotReadAreLeftOutAndCounted(t *testing.T) {
	tests.Long(t)
	for _, c := range []struct {
		set, limit, out int
	}{
		{0, 248, 3}, // 256 positions less 8 tokens
		{9, 9, 3},   // "Halve 10." has 9 characters
		{8, 8, 13},
	} {
		sum, said, err := long(t, fmt.Sprint("task.max_prompt_tokens=", c.set))
		if err != nil {
			t.Fatal(err)
		}
		if sum.TooLong == nil || len(said) != 1 || said[0] != *sum.TooLong {
			t.Fatalf("limit %d: the run said %v and its summary %v", c.set, said, sum.TooLong)
		}
		got := *sum.TooLong
		if got.Limit != c.limit || got.Longest != 300 || got.Training+got.HeldOut != c.out ||
			got.AllTraining+got.AllHeldOut != 23 || sum.Updates != 12 {
			t.Errorf("limit %d: %+v after %d updates, want %d left out of 23", c.set, got, sum.Updates, c.out)
		}
	}
}

func TestALimitOfPromptsThatLeavesNothingIsRefusedBeforeTheRun(t *testing.T) {
	for set, want := range map[string]string{
		"task.max_prompt_tokens=7":   "task.max_prompt_tokens: 7: want 8 or more, the tokens of the shortest",
		"task.max_prompt_tokens=256": "task.max_prompt_tokens: 256: want less than the policy's 256 positions",
		"generate.max_tokens=256":    "generate.max_tokens: 256: want less than the policy's 256 positions",
	} {
		if _, _, err := long(t, set); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", set, err, want)
		}
	}
}

func TestDemonstrationsThatThePolicyCannotHoldAreNotImitated(t *testing.T) {
	tests.Long(t)
	// With 228 characters before it, "Halve 9." and its answer take the 256 positions, "Halve 10." needs 258.
	if _, _, err := long(t, "warmup={steps: 2, batch: 32}", "task.template="+strings.Repeat("x", 228)+"{problem}",
		"task.max_prompt_tokens=255", "generate.max_tokens=20"); err != nil {
		t.Error(err)
	}
}

// Problems that stopped a run in its middle are left out of public ones.
func TestPublicProblemsThatAreTooLongAreLeftOut(t *testing.T) {
	tests.Long(t)
	model, problems := "../../../shared/data/TinyStories-656K", "../../../shared/data/math/rllm_train_math.json"
	for _, path := range []string{model, problems} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("%v: copy it there to run this test", err)
		}
	}
	c, err := Load("../../configs/math.yaml", []string{"policy.init=" + model, "task.train_file=" + problems,
		"generate.max_tokens=64"})
	if err != nil {
		t.Fatal(err)
	}
	start, err := Begin(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	kept, out, err := start.fit(c, all)
	if err != nil {
		t.Fatal(err)
	}
	if out == nil || out.Limit != 448 || out.Longest != 3031 || out.Training != 286 || out.AllTraining != 6722 {
		t.Errorf("left out: %+v, want 286 of 6722 training prompts", out)
	}
	for i := range uint64(6722) {
		if _, err := start.encodePrompt(kept.Train(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryShippedConfigurationTrainsForAFewUpdates(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			tests.Long(t)
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set := []string{"budget.compute=0", "budget.updates=3", "pipeline.batch=32", "pipeline.trainers=2",
				"replay.capacity=192", "evaluate.every=100", "evaluate.samples=0", "checkpoint.every=100"}
			switch {
			case strings.Contains(string(text), "{name: words}"):
				set = append(set, "policy.init="+pretrained(t), "pipeline.group=8")
			case strings.Contains(string(text), "name: math"):
				set = append(set, "policy.init="+pretrained(t), "generate.max_tokens=8", "task.train_file="+sums(t))
			default:
				set = append(set, "warmup.steps=3", "warmup.until=0", "task.held_out=8")
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
