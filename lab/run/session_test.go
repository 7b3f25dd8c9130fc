package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
)

// small is a run that takes a fraction of a second and yet passes through every part.
func small(t testing.TB, assignments ...string) Config {
	t.Helper()
	c, err := Load("", append([]string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
		"policy.positions=32",
		"task.max=10", "task.held_out=20", "warmup.steps=5", "warmup.batch=8", "generate.max_tokens=4",
		"pipeline.batch=16", "pipeline.group=4", "pipeline.workers=3", "replay.capacity=48",
		"learner.learning_rate=0.001",
		"evaluate.every=4", "evaluate.samples=2", "evaluate.pass_at=[1, 2]", "budget.compute=0", "budget.updates=20",
		"checkpoint.every=7",
	}, assignments...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// warmStarts shares the warm starts, and the compiled programs of their models, among tests whose runs begin alike.
var warmStarts Starts

func begin(t testing.TB, c Config) *Start {
	t.Helper()
	if err := warmStarts.Expect(c); err != nil { // never released
		t.Fatal(err)
	}
	s, err := warmStarts.Begin(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := *s
	return &own
}

// beginAnew makes a start of its own.
func beginAnew(t testing.TB, c Config) *Start {
	t.Helper()
	s, err := Begin(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func train(t testing.TB, c Config, dir string) *results.Summary {
	t.Helper()
	sum, err := Train(context.Background(), c, begin(t, c), dir, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// written are the files of a run that two runs of one configuration share to the byte.
func written(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for _, name := range []string{
		results.MetricsFile, results.EvalFile, results.ProblemsFile, results.SummaryFile, results.ConfigFile,
		"checkpoint/model.safetensors", "checkpoint/tokenizer.json",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}

func sameRuns(t *testing.T, got, want string) {
	t.Helper()
	a, b := written(t, got), written(t, want)
	for name, text := range b {
		if a[name] != text {
			t.Errorf("%s differs from the uninterrupted run's:\n%.600s\nwant\n%.600s", name, a[name], text)
		}
	}
}

// modes are runs of every kind of schedule, table and loss.
func modes() map[string][]string {
	return map[string][]string{
		"default": nil,
		"queue":   {"replay.sampler=lifo", "replay.capacity=0", "pipeline.workers=5", "pipeline.trainers=1"},
		"chunks of tokens": {"pipeline.weight_sync=token", "pipeline.chunk=1", "pipeline.weight_transfer=3",
			"generate.kv_cache=recompute"},
		"slow rewards": {"pipeline.reward_latency={distribution: lognormal, mean: 40}", "replay.sampler=epoch"},
		"turns":        {"pipeline.mode=sync", "pipeline.sync_updates=2", "pipeline.publish_every=2"},
		"positive": {"replay.retention=positive", "replay.positive_fraction=0.5", "replay.positive_threshold=0.5",
			"replay.sampler=unseen",
			"replay.max_uses=3", "replay.max_staleness=9", "learner.objective=asymre",
			"learner.mask_zero_variance=true"},
		"a line for a full queue": {"replay.sampler=fifo", "replay.capacity=32", "pipeline.workers=12",
			"pipeline.trainers=1", "replay.max_staleness=2"},
		"a window": {"replay.sampler=fifo", "replay.capacity=48", "pipeline.window=2", "pipeline.length_sigma=1"},
		"parked between turns": {"pipeline.mode=sync", "pipeline.over_provision=0.5", "pipeline.token_budget=2",
			"pipeline.weight_sync=token", "pipeline.chunk=1", "generate.kv_cache=recompute", "pipeline.length_sigma=1",
			"pipeline.reward_latency={distribution: lognormal, mean: 5}", "prompts.fraction=0.5", "prompts.cooldown=1",
			"prompts.band=0.5"},
		"filled in turns": {"task.random_rewards=0.5", "pipeline.mode=sync", "pipeline.filter_groups=true",
			"pipeline.max_gen_batches=30", "pipeline.length_sigma=0.7", "replay.sampler=fifo", "replay.capacity=0",
			"prompts.fraction=0.5", "prompts.cooldown=1", "prompts.band=0.5"},
		"filled at the same time": {"task.random_rewards=0.5", "pipeline.filter_groups=true",
			"pipeline.max_gen_batches=30", "replay.sampler=distinct", "pipeline.length_sigma=1",
			"prompts.fraction=0.5", "prompts.band=0.5"},
		"four trainers": {"pipeline.workers=4", "pipeline.trainers=4", "replay.sampler=uniform", "learner.dual_clip=3",
			"learner.warmup=5",
			"pipeline.weight_sync=token", "pipeline.chunk=2", "replay.capacity_bytes=100000"},
		"priorities, mixed": {"pipeline.mode=sync", "replay.sampler=prioritized", "replay.mix=2",
			"replay.priority_base=reward",
			"replay.age_decay=6", "replay.entry=max", "replay.importance_norm=table", "replay.max_uses=4"},
		"groups by priority": {"replay.sampler=prioritized", "replay.unit=group", "replay.decay=after_exponent",
			"replay.draws=independent", "replay.fresh_share=0.5"},
		"gradient norms": {"replay.sampler=prioritized", "replay.priority_base=gradient_norm", "replay.entry=max",
			"replay.age_decay=inf", "replay.importance_anneal=0"},
		"ESS held": {"replay.sampler=prioritized", "replay.target_ess=0.99", "budget.updates=120",
			"evaluate.every=40"},
		"prompts replayed": {"prompts.fraction=0.5", "prompts.cooldown=2", "prompts.band=0.5",
			"replay.sampler=least_used", "replay.fresh_share=0.25"},
		"workers in bfloat16": {"generate.precision=bfloat16", "pipeline.weight_sync=token", "pipeline.chunk=1",
			"generate.kv_cache=recompute", "pipeline.weight_transfer=3"},
		"workers in int8": {"generate.precision=int8", "learner.proximal=recompute", "pipeline.batch_updates=2",
			"pipeline.publish_every=2"},
		"distinct": {"replay.sampler=distinct", "learner.advantage=leave_one_out",
			"learner.normalisation=constant", "learner.constant_length=4"},
		"off-policy, reference swapped": {"pipeline.mode=sync", "pipeline.batch_updates=3", "pipeline.publish_every=6",
			"learner.objective=grpo_off", "learner.r_prime=exact",
			"learner.kl_coef=0.1", "learner.kl_weighted=true", "learner.kl_anchor=0.5", "learner.reference_every=4", "learner.reference_swaps=2",
			"learner.mask_zero_variance=true", "evaluate.bound_every=2"},
		"prefixes of answers": {"generate.prefix={share: 0.7, of: replayed}", "task.max=1000", "prompts.fraction=0.5",
			"prompts.cooldown=1", "prompts.keep=pass_rate == 0", "pipeline.weight_sync=token", "pipeline.chunk=1"},
		"prefixes of earlier answers": {"generate.prefix={share: 0.7, source: replay}", "task.max=1000", "prompts.limit=12",
			"task.random_rewards=0.5", "pipeline.mode=sync", "pipeline.over_provision=0.5", "pipeline.length_sigma=1",
			"pipeline.weight_sync=token", "pipeline.chunk=1"},
		"experts, interpolated": {"generate.experts=2", "learner.experts=shaped", "learner.expert_weight=0.8 - version / 20",
			"learner.proximal=interpolate", "pipeline.batch_updates=2"},
		"trajectory balance": {"learner.objective=trajectory_balance", "learner.reference_every=3", "replay.unit=group"},
		"critic": {"learner.objective=ppo", "pipeline.batch_updates=2", "replay.sampler=prioritized",
			"replay.priority_base=td_error", "learner.normalisation=token", "evaluate.bound_every=3"},
		"critic's stored values": {"learner.objective=ppo", "learner.values=stored", "learner.gamma=0.9",
			"learner.lambda=0.5",
			"replay.sampler=prioritized", "replay.entry=max"},
		"reinforce++": {"learner.objective=reinforce++", "learner.kl_penalty=0.05",
			"learner.reference_every=5", "learner.max_log_ratio=0.3"},
		"reinforce++-baseline": {"learner.objective=reinforce++-baseline", "learner.kl_penalty=0.05",
			"pipeline.batch_updates=4", "replay.sampler=lifo", "replay.capacity=0"},
		"rloo":    {"learner.objective=rloo", "learner.dual_clip=2"},
		"dr_grpo": {"learner.objective=dr_grpo", "pipeline.weight_sync=token", "pipeline.chunk=2"},
		"fresh by version": {"task.random_rewards=0.5", "replay.sampler=distinct", "pipeline.batch_updates=2",
			"replay.sources=[{name: new, pool: fresh, share: 0.75 - version / 40, where: group_std > 0, wait: true, " +
				"backfill: kept}, {name: kept, where: age > 0, weight: 1 / (1 + uses)}]"},
		"old rollouts of prompts": {"task.random_rewards=0.5", "replay.sampler=unseen", "replay.max_uses=5",
			"prompts.fraction=0.5", "prompts.cooldown=1", "prompts.band=0.5", "replay.draw_advantage=split",
			"learner.mask_zero_variance=true",
			"replay.sources=[{name: new, pool: fresh, share: 0.5, wait: true}, {name: swap, pool: prompts, per_prompt: 1, " +
				"where: reward > 0, order: mean_logprob, fresh_where: group_std > 0, replace: true}, " +
				"{name: old, pool: prompts, share: 0.25, per_prompt: 2}]"},
		"batch advantages": {"learner.advantage=batch", "learner.ratio=sequence", "learner.normalisation=token",
			"generate.top_p=0.9"},
	}
}

// A run writes the same bytes on any number of cores and whether or not it is interrupted, more than once too. An
// interruption at update n ends the run with a checkpoint, a crash leaves the one before.
func TestRunsOfOneConfigurationAndSeedWriteTheSameBytes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	concurrent := []string{"chunks of tokens", "filled in turns", "slow rewards", "groups by priority", "prompts replayed",
		"off-policy, reference swapped", "critic"} // one of each way to be concurrent
	for name, assignments := range modes() {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(concurrent, name) {
				tests.LongShared(t)
			} else if name != "default" {
				tests.Long(t)
			}
			c := small(t, assignments...)
			whole, stopped := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "stopped")
			runtime.GOMAXPROCS(1)
			if _, err := Train(t.Context(), c, beginAnew(t, c), whole, Hooks{}); err != nil {
				t.Fatal(err)
			}
			runtime.GOMAXPROCS(4)
			trainInterrupted(t, c, beginAnew(t, c), stopped)
			tests.SameFiles(t, stopped, whole, results.TimingFile)
		})
	}
}

// trainInterrupted trains a run that is interrupted at updates 1 and 13 and crashes at update 17.
func trainInterrupted(t *testing.T, c Config, start *Start, dir string) {
	t.Helper()
	resumed := func(ctx context.Context, hooks Hooks) (*results.Summary, error) { return Resume(ctx, c, dir, hooks) }
	for _, at := range []int{1, 13} {
		sum := stop(t, at, func(ctx context.Context, hooks Hooks) (*results.Summary, error) {
			if at == 1 {
				return Train(ctx, c, start, dir, hooks)
			}
			return resumed(ctx, hooks)
		})
		if sum.Ended != "interrupted" || sum.Updates < at {
			t.Fatalf("stopped at update %d: ended %q after %d updates", at, sum.Ended, sum.Updates)
		}
	}
	die(t, dir, 17, resumed)
	resume(t, c, dir)
}

// stop ends what trains at an update.
func stop(t *testing.T, at int, train func(context.Context, Hooks) (*results.Summary, error)) *results.Summary {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sum, err := train(ctx, Hooks{OnUpdate: func(u results.Update) {
		if u.Update == at {
			// the machine stops at this update's end or, as it is told from another goroutine, at one soon after
			cancel()
			runtime.Gosched()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func interrupt(t *testing.T, c Config, dir string, at int) *results.Summary {
	t.Helper()
	return stop(t, at, func(ctx context.Context, hooks Hooks) (*results.Summary, error) {
		return Train(ctx, c, begin(t, c), dir, hooks)
	})
}

// die ends what trains as kill -9 would: in the middle, without a word, with half a line in its log.
func die(t *testing.T, dir string, at int, train func(context.Context, Hooks) (*results.Summary, error)) {
	t.Helper()
	died := errors.New("died")
	func() {
		defer func() {
			if recover() != died { //nolint:errorlint // the very value that was thrown
				t.Fatal("the run did not die where it should")
			}
		}()
		_, err := train(context.Background(), Hooks{OnUpdate: func(u results.Update) {
			if u.Update == at {
				panic(died)
			}
		}})
		t.Fatalf("it did not die at update %d: %v", at, err)
	}()
	f, err := os.OpenFile(filepath.Join(dir, results.MetricsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"update":18,"ver`); err != nil {
		t.Fatal(err)
	}
}

func resume(t *testing.T, c Config, dir string) {
	t.Helper()
	if _, err := Resume(context.Background(), c, dir, Hooks{}); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheBudgetMayChangeOnResume(t *testing.T) {
	tests.Long(t)
	grow(t, small(t))
	// The exponent of the importance weights rises as it was to rise when the run began.
	grow(t, small(t, "replay.sampler=prioritized"))
}

func grow(t *testing.T, c Config) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	train(t, c, dir)
	longer, err := LoadFolder(dir, []string{"budget.updates=25"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(context.Background(), longer, dir, Hooks{}); err != nil {
		t.Fatal(err)
	}
	straight := filepath.Join(t.TempDir(), "straight")
	train(t, longer, straight)
	sameRuns(t, dir, straight)
	for _, change := range []string{"replay.capacity=64", "task.max=11", "seed=2"} {
		if _, err := LoadFolder(dir, []string{change}); err == nil {
			t.Errorf("--resume took %s", change)
		}
	}
	changed := longer
	changed.Seed, changed.Learner.LearningRate = 2, 0.5
	_, err = Resume(context.Background(), changed, dir, Hooks{})
	for _, want := range []string{"seed: 2: want 1, as the run in " + dir + " has it", "learner.learning_rate: 0.5: want "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a program's configuration of another run: %v does not say %q", err, want)
		}
	}
}

func TestFolderOfARunIsNotOverwritten(t *testing.T) {
	c, dir := small(t, "budget.updates=1"), filepath.Join(t.TempDir(), "run")
	train(t, c, dir)
	if _, err := Train(context.Background(), c, begin(t, c), dir, Hooks{}); err == nil ||
		!strings.Contains(err.Error(), "--resume") {
		t.Errorf("a second run in one folder: %v", err)
	}
	if _, err := Resume(context.Background(), c, t.TempDir(), Hooks{}); err == nil ||
		!strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("resuming an empty folder: %v", err)
	}
}

func TestResolvedConfigurationReadsBackAsItself(t *testing.T) {
	c := small(t, "replay.max_uses=3", "pipeline.reward_latency={distribution: exponential, mean: 2}")
	dir := t.TempDir()
	if err := createFolder(filepath.Join(dir, "a"), c); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(dir, "a", results.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(filepath.Join(dir, "a", results.ConfigFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := createFolder(filepath.Join(dir, "b"), again); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(dir, "b", results.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) || !bytes.Contains(first, []byte("max_uses: 3")) {
		t.Errorf("config.yaml\n%s\nreads back as\n%s", first, second)
	}
}

func TestEveryProblemOfAConfigurationIsReportedAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.yaml")
	text := "replay: {capcity: 5, capacity: 100}\nlearner: {learning_rate: -1, objective: sarsa}\nevaluate: nothing\n" +
		"policy: {heads: 3}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file, []string{"pipeline.trainers=3", "task.max=5", "noequals", "pipeline.workers=1.5", "seed=x",
		"checkpoint.every=0"})
	if err == nil {
		t.Fatal("the configuration was taken")
	}
	for _, want := range []string{
		"replay.capcity: unknown key", "replay.capacity: 100: want at least pipeline.batch (1024)",
		"pipeline.workers: 1.5: want a whole number", "learner.learning_rate: -1",
		`learner.objective: "sarsa"`, "evaluate: nothing: want a mapping", "policy.heads: 3", "pipeline.batch: 1024: " +
			"want a multiple of the 3 trainers", "task.held_out",
		`--set "noequals"`, "seed: x: want a whole number", "checkpoint.every: 0",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestSizesAreBoundedBeforeMemoryIsTaken(t *testing.T) {
	for want, assignments := range map[string][]string{
		"policy.hidden: 4000000: want a policy that fits": {"policy.hidden=4000000", "policy.intermediate=4000000"},
		"pipeline.workers: 1000000: want 1 to":            {"pipeline.workers=1000000"},
		"pipeline.batch: 1000000000: want 1 to":           {"pipeline.batch=1000000000"},
	} {
		if _, err := Load("", assignments); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", assignments, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	if w := small(t).Warnings(); len(w) != 0 {
		t.Errorf("warnings of the default: %q", w)
	}
	w := small(t, "replay.age_decay=100", "replay.importance_beta=0").Warnings()
	if len(w) != 2 || !strings.Contains(w[0], "replay.age_decay has no effect with replay.sampler unseen") ||
		!strings.Contains(w[1], "replay.importance_beta") {
		t.Errorf("priority keys without the prioritized sampler give %q", w)
	}
	if got := small(t, "generate.top_p=0").sampling().TopP; got != 1 {
		t.Errorf("top_p 0 is %v", got)
	}
	lake, err := Load(filepath.Join("..", "..", "configs", "frozenlake.yaml"), nil) // slippery: false, by default true
	if err != nil || len(lake.Warnings()) != 0 {
		t.Errorf("warnings %q, %v", lake.Warnings(), err)
	}
	if w := small(t, "task.max=0").Warnings(); len(w) != 1 || w[0] != "task.max: 0: it means the default, 100" {
		t.Errorf("warnings %q", w)
	}
}

func TestBaselineStallsLeast(t *testing.T) {
	for _, c := range []struct {
		gpus, batch      int
		mu               float64
		workers, trainer int
	}{
		// W/T as near to mu as eight GPUs allow: 5/1 leaves trainers idle for 1 - 5/5.28.
		{8, 256, 5.28, 5, 1},
		{8, 256, 3, 6, 2}, // exact, and all GPUs rather than 3 and 1
		{8, 255, 3, 3, 1}, // two trainers would not divide the batch
		{25, 256, 5.28, 21, 4},
		{2, 256, 9, 1, 1},
	} {
		w, tr := leastStalling(pipeline.Options{Workers: c.gpus - 1, Trainers: 1, Batch: c.batch, RolloutCost: c.mu})
		if w != c.workers || tr != c.trainer {
			t.Errorf("%d GPUs, mu %v: %d workers and %d trainers, want %d and %d", c.gpus, c.mu, w, tr,
				c.workers, c.trainer)
		}
	}
}

// With three updates on each batch trainers keep up with a third as many workers.
func TestABaselineThatReusesBatchesStallsLeastWithMoreTrainers(t *testing.T) {
	w, tr := leastStalling(pipeline.Options{Workers: 7, Trainers: 1, Batch: 960, RolloutCost: 5.28, BatchUpdates: 3})
	if w != 5 || tr != 3 {
		t.Errorf("%d workers and %d trainers, want 5 and 3", w, tr)
	}
}

func TestComparisonRunsBothArmsFromOneWarmStart(t *testing.T) {
	tests.LongShared(t)
	c := small(t, "evaluate.target=0.9", "budget.updates=0", "budget.compute=8")
	dir := filepath.Join(t.TempDir(), "compare")
	comparison := Comparison{Config: c, Seeds: 2, Dir: dir}
	result, err := comparison.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Seeds) != 2 || result.Claim {
		t.Errorf("%d seeds, claim %v: want 2 and none", len(result.Seeds), result.Claim)
	}
	read, err := results.ReadComparison(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range read.Baseline {
		r := read.Replay[i]
		if b.Evals[0].Pass1 != r.Evals[0].Pass1 || b.Evals[0].PassAt[0] != r.Evals[0].PassAt[0] {
			t.Errorf("seed %d: the arms start at %v and %v", b.Seed, b.Evals[0], r.Evals[0])
		}
		if b.Summary.ReplayRatio.Float() > 1 || r.Summary.ReplayRatio.Float() <= 1 {
			t.Errorf("seed %d: replay ratios %v and %v", b.Seed, b.Summary.ReplayRatio.Float(),
				r.Summary.ReplayRatio.Float())
		}
	}
	comparison.Resume = true
	again, err := comparison.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(again) != fmt.Sprint(result) {
		t.Errorf("a finished comparison resumed says\n%v\nwant\n%v", again, result)
	}
}

// Displays count up to the share of the budget, whichever limit ends the run.
func TestARunEndsWhenItsBudgetIsUsed(t *testing.T) {
	tests.Long(t)
	for name, set := range map[string][]string{
		"updates with replay":    {"budget.updates=4", "budget.compute=400"},
		"updates of a queue":     {"budget.updates=4", "budget.compute=400", "replay.sampler=lifo"},
		"updates in turns":       {"budget.updates=4", "budget.compute=400", "pipeline.mode=sync"},
		"updates, fresh shares":  {"budget.updates=4", "budget.compute=400", "replay.fresh_share=0.5"},
		"updates alone":          {"budget.updates=4"},
		"updates, filled":        {"budget.updates=4", "task.random_rewards=0.4", "pipeline.filter_groups=true"},
		"compute":                {"budget.updates=0", "budget.compute=2"},
		"compute before updates": {"budget.updates=400", "budget.compute=2"},
		"compute, filled": {"budget.updates=0", "budget.compute=4", "task.random_rewards=0.4",
			"pipeline.filter_groups=true"},
	} {
		c := small(t, append([]string{"warmup.steps=0"}, set...)...)
		dir := filepath.Join(t.TempDir(), "run")
		train(t, c, dir)
		r, err := results.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range r.Updates {
			if share := c.BudgetShare(u); share <= 0 || (share > 1-1e-12) != (i == len(r.Updates)-1) {
				t.Errorf("%s: update %d of %d has used %g of the budget", name, u.Update, len(r.Updates), share)
			}
		}
	}
}

func TestSharesOfTimeSinceTheLastUpdateAddUpToOne(t *testing.T) {
	var m usage
	for _, u := range []pipeline.Update{
		{Time: 10, Workers: []pipeline.GPUTime{{Busy: 10}, {Busy: 4, Stalled: 6}},
			Trainer: pipeline.GPUTime{Busy: 5, Stalled: 5}},
		{Time: 20, Workers: []pipeline.GPUTime{{Busy: 15, Stalled: 5}, {Busy: 4, Stalled: 6, Idle: 10}},
			Trainer: pipeline.GPUTime{Busy: 5, Stalled: 5, Idle: 10}},
	} {
		l := m.line(u, 0)
		want := [6]float64{0.7, 0.3, 0, 0.5, 0.5, 0}
		if u.Time == 20 {
			want = [6]float64{0.25, 0.25, 0.5, 0, 0, 1}
		}
		for i, n := range []results.Number{l.WorkerBusy, l.WorkerStalled, l.WorkerIdle, l.TrainerBusy, l.TrainerStalled,
			l.TrainerIdle} {
			if math.Abs(n.Float()-want[i]) > 1e-12 {
				t.Errorf("at %g, share %d is %v, want %v", u.Time, i, n.Float(), want[i])
			}
		}
	}
}

func TestASummaryDistinguishesStalledFromIdleTime(t *testing.T) {
	tests.Long(t)
	for name, c := range map[string]struct {
		settings                  []string
		newPerUpdate, replayRatio float64
		stalled, idle             bool
	}{
		"workers outrun a queue": {[]string{"replay.sampler=fifo", "pipeline.workers=8", "pipeline.trainers=1",
			"pipeline.rollout_cost=2"}, 16, 1, true, false},
		"trainers outrun a queue": {[]string{"replay.sampler=lifo", "pipeline.workers=3", "pipeline.trainers=2",
			"pipeline.rollout_cost=4"}, 16, 1, true, false},
		"in turns with a queue": {[]string{"replay.sampler=fifo", "pipeline.mode=sync", "pipeline.sync_rollouts=32",
			"pipeline.sync_updates=2"}, 16, 1, false, true},
		"in turns with a table": {[]string{"pipeline.mode=sync", "pipeline.sync_rollouts=24",
			"pipeline.sync_updates=3", "pipeline.trainers=1"}, 8, 2, false, true},
		"at once with a table": {[]string{"pipeline.workers=3", "pipeline.trainers=2", "pipeline.rollout_cost=4"}, 6,
			8.0 / 3, true, false},
	} {
		config := small(t, append(c.settings, "evaluate.samples=0")...)
		s, err := Train(context.Background(), config, begin(t, config), filepath.Join(t.TempDir(), "run"), Hooks{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.NewPerUpdatePlanned != c.newPerUpdate || math.Abs(s.ReplayRatioPlanned-c.replayRatio) > 1e-12 {
			t.Errorf("%s: planned %g new rollouts per update and the replay ratio %g, want %g and %g", name,
				s.NewPerUpdatePlanned, s.ReplayRatioPlanned, c.newPerUpdate, c.replayRatio)
		}
		var sum results.GPU
		for _, g := range append(s.WorkerTimes, s.TrainerTimes...) {
			if all := g.Busy + g.Stalled + g.Idle; math.Abs(all-s.Clock) > 1e-9*s.Clock {
				t.Errorf("%s: a GPU accounts for %g of %g", name, all, s.Clock)
			}
			sum.Stalled += g.Stalled
			sum.Idle += g.Idle
		}
		if (sum.Stalled > 0) != c.stalled || (sum.Idle > 0) != c.idle {
			t.Errorf("%s: stalled for %g, idle for %g", name, sum.Stalled, sum.Idle)
		}
		if s.TokenStaleness.Count() != s.Used || s.UsesPresent.Count()+s.Uses.Count() != s.Inserted {
			t.Errorf("%s: staleness by token of %d uses of %d, uses of %d + %d rollouts of %d", name,
				s.TokenStaleness.Count(), s.Used, s.UsesPresent.Count(), s.Uses.Count(), s.Inserted)
		}
	}
}

// Samplers with replacement are content with one rollout; a run that is told nothing else waits for a batch.
func TestTrainersWaitForABatchOfDifferentRollouts(t *testing.T) {
	for _, sampler := range []string{"uniform", "prioritized"} {
		dir := t.TempDir()
		train(t, small(t, "pipeline.batch=48", "pipeline.trainers=2", "pipeline.workers=1", "budget.updates=2",
			"replay.sampler="+sampler, "replay.capacity=96"), dir)
		r, err := results.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		first := r.Updates[0]
		if drawn := (1 - first.NeverDrawn.Float()) * float64(first.TableSize); drawn < 20 {
			t.Errorf("%s: the first batch of 48 came from %.0f rollouts", sampler, drawn)
		}
	}
}

func TestTheLeastSizeOfATable(t *testing.T) {
	for set, want := range map[string]int{
		"replay.sampler=uniform":                            8, // a trainer's share of 16
		"replay.sampler=prioritized":                        8,
		"replay.sampler=uniform,replay.min_size=1":          1,
		"replay.sampler=uniform,pipeline.mode=sync":         0,
		"replay.sampler=uniform,replay.capacity_bytes=9999": 0,
		"replay.sampler=distinct":                           0,
		"replay.sampler=fifo":                               0,
	} {
		c := small(t, append(strings.Split(set, ","), "pipeline.trainers=2")...)
		if got := c.replayOptions(0).MinSize; got != want {
			t.Errorf("%s: %d, want %d", set, got, want)
		}
	}
}

// One mistake must not hide another, nor be followed by what only follows from it.
func TestEveryProblemIsReportedAndNothingThatFollowsFromOne(t *testing.T) {
	for _, c := range []struct{ assignments, want []string }{
		{[]string{"pipeline.batch=0", "replay.capacity=-1", "replay.sampler=x", "evaluate.every=-1"}, []string{
			"pipeline.batch: 0: want 1 or more", "replay.capacity: -1: want 1 or more", "replay.sampler: x: want lifo",
			"evaluate.every: -1: want more than 0"}},
		{[]string{"pipeline.batch=0"}, []string{"pipeline.batch: 0: want 1 or more"}},
		{[]string{"pipeline.trainers=-1", "replay.positive_share=2"}, []string{"pipeline.trainers: -1: want",
			"replay.positive_share: 2: want"}},
		{[]string{"replay.retention=positive", "replay.positive_fraction=0.5", "replay.capacity=90"},
			[]string{"replay.capacity: 90: want at least pipeline.batch"}},
		{[]string{"pipeline.trainers=3", "replay.capacity=99"}, []string{
			"pipeline.batch: 1024: want a multiple of the 3 trainers", "replay.capacity: 99: want at least pipeline.batch"}},
		{[]string{"replay.retention=positive", "replay.positive_fraction=0.5", "replay.capacity=7"},
			[]string{"replay.capacity: 7: want at least pipeline.batch"}},
		{[]string{"pipeline.batch=x", "replay.capacity=100", "replay.samplr=lifo", "replay.unit=group"}, []string{
			"pipeline.batch: x: want a whole number", "replay.samplr: unknown key: want replay.sampler"}},
		{[]string{"replay.sampler=[lifo]", "replay.mix=1", "replay.positive_share=2", "replay.max_uses=3"}, []string{
			"replay.sampler: [lifo]: want lifo, fifo", "replay.positive_share: 2: want 0 to 1"}},
		{[]string{"replay.sampler=prioritized", "replay.age_decay=soon", "replay.importance_beta=2", "policy.positions=x",
			"generate.max_tokens=99"}, []string{"replay.age_decay: soon: want versions, or inf for none",
			"replay.importance_beta: 2: want 0 to 1", "policy.positions: x: want a whole number"}},
	} {
		_, err := Load("", c.assignments)
		if err == nil {
			t.Errorf("%s: no error", c.assignments)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: lacks %q:\n%v", c.assignments, want, err)
			}
		}
		keys := make(map[string]bool)
		for line := range strings.Lines(err.Error()) {
			key, _, _ := strings.Cut(line, ":")
			keys[key] = true
		}
		if len(keys) != len(c.want) {
			t.Errorf("%s: problems of %d keys, want %d:\n%v", c.assignments, len(keys), len(c.want), err)
		}
	}
}
