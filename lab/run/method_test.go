package run_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

func method(t *testing.T, name string, assignments ...string) run.Config {
	t.Helper()
	m, err := configs.MethodByName(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := run.ParseMethod(configs.Bare, m.Text, assignments)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

func TestEveryMethodTrains(t *testing.T) {
	tests.Long(t)
	for _, m := range configs.Methods() {
		if m.Needs != "" {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			c := method(t, m.Name, "budget.compute=0", "budget.updates=4", "evaluate.every=100", "task.held_out=10",
				"task.max=6", "warmup.steps=60", "pipeline.batch=96", "policy.hidden=16", "policy.intermediate=32",
				"learner.warmup=0")
			start, err := run.Begin(t.Context(), c, nil)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "run")
			summary, err := run.Train(t.Context(), c, start, dir, run.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			if summary.Updates != 4 {
				t.Errorf("%d updates", summary.Updates)
			}
			done, err := results.ReadRun(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.Replay.Sources {
				gave := func(u results.Update) bool { return u.Other["source_"+s.Name].Float() > 0 }
				if !slices.ContainsFunc(done.Updates, gave) {
					t.Errorf("source %s never gave anything", s.Name)
				}
			}
		})
	}
}

// Rules of prompts, by hand. A prompt is named by its right answers of eight; results come at version 0, and a name
// that comes again is its next result.
func TestMethodsChooseThePromptsThatTheirPapersName(t *testing.T) {
	for _, c := range []struct {
		method, results string
		want            map[rollout.Version]string // handed out at versions in turn, for a batch of 8
	}{
		{"prompt-replay", "0 1 3 4 6 8", map[rollout.Version]string{4: "", 5: "4 3 6"}},
		{"exgrpo", "0 1 3 4 6 8", map[rollout.Version]string{1: "4 3 6 1"}},                     // of all that vary
		{"vcrl", "0 1 2 4 7 8", map[rollout.Version]string{5: "4 2 1 7"}},                       // 4p(1-p): .44 .75 1 .44
		{"srpo", "8 0 4", map[rollout.Version]string{19: "", 20: "0"}},                          // all wrong, later
		{"bapo", "4 2 0 1", map[rollout.Version]string{5: "2 1"}},                               // the easier first
		{"recall", "8 4", map[rollout.Version]string{9: "", 10: "8", 19: "", 20: "8"}},          // mastered
		{"problem-priority", "0 1 4", map[rollout.Version]string{5: "4 1", 9: "", 50: "4 0 1"}}, // and the dull at 50
	} {
		b, err := prompts.New(method(t, c.method).Prompts.Options)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(c.results) {
			var right int
			fmt.Sscan(name, &right) //nolint:errcheck // it is a number
			err := b.Report(0, prompts.Result{Prompt: prompts.Prompt{ID: name}, Correct: right, Total: 8})
			if err != nil {
				t.Fatal(err)
			}
		}
		for v := range rollout.Version(60) {
			want, asked := c.want[v]
			if !asked {
				continue
			}
			var got []string
			for _, p := range b.Next(v, 8) {
				got = append(got, p.ID)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s hands out %q at version %d, want %q", c.method, got, v, want)
			}
		}
	}
}

// GRESO: the third dull result in a row leaves an eighth of the probability. SRPO never asks what was all right.
func TestMethodsPassOverThePromptsThatTheirPapersName(t *testing.T) {
	for name, want := range map[string][]float64{"greso": {0.5, 0.75, 0.875, 0}, "srpo": {1, 1, 0, 0}} {
		b, err := prompts.New(method(t, name).Prompts.Options)
		if err != nil {
			t.Fatal(err)
		}
		for i, right := range []int{8, 8, 0, 4} {
			p := prompts.Prompt{ID: "p"}
			if err := b.Report(0, prompts.Result{Prompt: p, Correct: right, Total: 8}); err != nil {
				t.Fatal(err)
			}
			if got := b.Skip("p"); got != want[i] {
				t.Errorf("%s passes it over with probability %g after %d results, want %g", name, got, i+1, want[i])
			}
		}
	}
}

// BAPO: of a batch of 8, at least 4 come from groups whose rewards differ, though they are one group of 9.
func TestBAPODrawsHalfOfABatchFromGroupsThatVary(t *testing.T) {
	o := method(t, "bapo").Replay.Options
	o.Capacity, o.Shards, o.Seed = 64, 1, 3
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for g := range 9 {
		var group rollout.Group
		for i := range 4 {
			r := rollout.New("p", []int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-1}})
			if r.Reward = 1; g == 4 && i > 0 {
				r.Reward = 0
			}
			group.Rollouts = append(group.Rollouts, r)
		}
		if _, err := table.Insert(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := table.Sample(t.Context(), rollout.Request{Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	varied := 0
	for _, d := range batch.Draws {
		if d.GroupStd > 0 {
			varied++
		}
	}
	if varied != 4 {
		t.Errorf("%d of 8 draws are of the group that varies, want its 4", varied)
	}
}

// TRL's buffer, by hand: groups of 4 with 1, 2, 0 and 4 right answers, two to a batch. In the second batch both have no
// variance, and the kept groups take their places: sums of |advantage| x deviation, which are those of |reward - mean|,
// are 1.5 and 2, so that the second group comes first with probability 4/7.
func TestTRLReplayFillsPlacesInProportionToAdvantageTimesDeviation(t *testing.T) {
	tests.Long(t)
	o := method(t, "trl-replay").Replay.Options
	o.Capacity, o.Shards, o.GroupSize, o.MinSize = 64, 1, 4, 0
	const trials = 2000
	first := 0
	for seed := range uint64(trials) {
		o.Seed = seed
		table, err := replay.New(o)
		if err != nil {
			t.Fatal(err)
		}
		insertGroups(t, table, "a 1 0 0 0", "b 1 1 0 0")
		if batch := sample(t, table, 8); batch.SourceCounts[0] != 8 {
			t.Fatalf("the sources gave %v", batch.SourceCounts)
		}
		if _, err := table.Sample(t.Context(), rollout.Request{Size: 8}); !errors.Is(err, rollout.ErrStarved) {
			t.Fatalf("a batch without fresh rollouts gave %v", err)
		}
		insertGroups(t, table, "c 0 0 0 0", "d 1 1 1 1")
		batch := sample(t, table, 8)
		if got := promptsOf(batch); got != "a a a a b b b b" && got != "b b b b a a a a" || batch.SourceCounts[1] != 8 {
			t.Fatalf("drew %s, the sources gave %v", got, batch.SourceCounts)
		}
		if batch.Draws[0].Rollout.PromptID == "b" {
			first++
			if p := batch.Draws[0].Probability; math.Abs(p-4.0/7) > 1e-6 {
				t.Fatalf("the second group has probability %g", p)
			}
		}
	}
	if mean, sd := trials*4.0/7, math.Sqrt(trials*4.0/7*3/7); math.Abs(float64(first)-mean) > 4*sd {
		t.Errorf("the second group came first %d times of %d, want %.0f within 4 x %.0f", first, trials, mean, sd)
	}
}

// Rollouts of a prompt beside or among its fresh ones, by hand: each step inserts groups of a prompt and its rewards,
// whose log-probs are -1, -2, …, and draws a batch. Rollouts are a prompt and their number.
func TestMethodsDrawTheOldRolloutsThatTheirPapersName(t *testing.T) {
	type steps []struct{ groups, want, advantages string }
	for name, c := range map[string]struct {
		size  int
		steps steps
	}{
		// The newest of equal rewards first. Fresh ones have mean 1/2 and deviation 1/2, replayed ones 1/4 and 0.433.
		"repo": {8, steps{
			{"a 0 1 0 0, b 0 0 0 0", "", ""},
			{"", "", ""},
			{"a 1 1 0 0", "a5 a6 a7 a8 a2 a4 a3 a1", "1 1 -1 -1 1.73 -0.58 -0.58 -0.58"},
		}},
		// Two successes join eight failures: mean 1/5, deviation 2/5.
		"rlep": {10, steps{
			{"a 1 0 0 0 0 0 0 1, b 0 0 0 0 0 0 0 0", "", ""},
			{"", "", ""},
			{"a 0 0 0 0 0 0 0 0", "a9 a10 a11 a12 a13 a14 a15 a16 a1+a8",
				"-0.5 -0.5 -0.5 -0.5 -0.5 -0.5 -0.5 -0.5 2 2"},
		}},
		// A success takes a place in a group that failed, not in one that has a success, and there is none of b.
		"arpo": {4, steps{
			{"a 0 1 0 0", "a1 a2 a3 a4", "-0.58 1.73 -0.58 -0.58"},
			{"a 0 0 0 0", "a6 a7 a8 a2", "-0.58 -0.58 -0.58 1.73"},
			{"a 0 0 1 0", "a9 a10 a11 a12", "-0.58 -0.58 1.73 -0.58"},
			{"b 0 0 0 0", "b1 b2 b3 b4", "0 0 0 0"},
		}},
		// The surest success of groups that vary, whatever the fresh ones are; advantages without the deviation.
		"exgrpo": {4, steps{
			{"a 0 1 0 1", "a1 a2 a3 a4", "-0.5 0.5 -0.5 0.5"},
			{"a 0 0 1 0", "a6 a7 a8 a2", "-0.5 0.5 -0.5 0.5"},
			{"a 1 1 1 1", "a10 a11 a12 a2", "0 0 0 0"},
			{"a 0 0 0 0", "a14 a15 a16 a2", "-0.25 -0.25 -0.25 0.75"},
			{"b 1 1 1 1", "b1 b2 b3 b4", "0 0 0 0"},
			{"b 0 0 0 0", "b5 b6 b7 b8", "0 0 0 0"},
		}},
	} {
		_, o := method(t, name).Schedule()
		o.Capacity, o.Shards, o.MinSize = 1000, 1, 0
		table, err := replay.New(o)
		if err != nil {
			t.Fatal(err)
		}
		numbers := make(map[rollout.ID]string) // of the rollouts, within their prompt
		count, next := make(map[string]int), rollout.ID(1)
		for _, s := range c.steps {
			for _, group := range strings.FieldsFunc(s.groups, func(r rune) bool { return r == ',' }) {
				insertGroups(t, table, group)
				words := strings.Fields(group)
				for range words[1:] {
					count[words[0]]++
					numbers[next] = fmt.Sprint(words[0], count[words[0]])
					next++
				}
			}
			var drawn, advantages []string
			for _, d := range sample(t, table, c.size).Draws {
				drawn = append(drawn, numbers[d.ID])
				advantages = append(advantages, strconv.FormatFloat(math.Round(100*float64(d.Advantage))/100, 'f', -1, 64))
			}
			got := strings.Join(drawn, " ")
			if name == "rlep" { // its two come in any order
				got = strings.NewReplacer("a1 a8", "a1+a8", "a8 a1", "a1+a8").Replace(got)
			}
			if s.want != "" && (got != s.want || strings.Join(advantages, " ") != s.advantages) {
				t.Errorf("%s: after %s drew %s with advantages %s, want %s with %s", name, s.groups, got,
					strings.Join(advantages, " "), s.want, s.advantages)
			}
		}
	}
}

// insertGroups inserts groups of a prompt and its rewards, the rollouts with ever smaller log-probs.
func insertGroups(t *testing.T, table *replay.Table, groups ...string) {
	t.Helper()
	for _, text := range groups {
		var g rollout.Group
		words := strings.Fields(text)
		for i, word := range words[1:] {
			reward, err := strconv.ParseFloat(word, 32)
			if err != nil {
				t.Fatal(err)
			}
			g.Rollouts = append(g.Rollouts, rollout.New(words[0], []int32{1}, rollout.Completion{Tokens: []int32{2},
				Logprobs: []float32{-float32(i + 1)}, Reward: float32(reward), Version: table.Version()}))
		}
		if _, err := table.Insert(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
}

func sample(t *testing.T, table *replay.Table, size int) *rollout.Batch {
	t.Helper()
	batch, err := table.Sample(t.Context(), rollout.Request{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// promptsOf lists the prompts of a batch's draws.
func promptsOf(b *rollout.Batch) string {
	var list []string
	for _, d := range b.Draws {
		list = append(list, d.Rollout.PromptID)
	}
	return strings.Join(list, " ")
}

// Trinity-RFT: a group that was used is worth two versions less, and rests for one.
func TestTrinityDrawsTheNewestLessTheirUses(t *testing.T) {
	o := method(t, "trinity").Replay.Options
	o.Capacity, o.GroupSize = 64, 2
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for v := range rollout.Version(7) { // a group and a batch of a group at each version, but none at 4 and 5
		if err := table.Advance(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if v < 4 || v > 5 {
			r := rollout.New("p", []int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-1}, Version: v})
			if _, err := table.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{r, r}}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := table.Sample(t.Context(), rollout.Request{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, int(b.Draws[0].Group))
	}
	// New ones as they come; then, of groups made at 0 to 3 and used once, that of 3, and that of 2, whose score is 0.
	if want := []int{1, 2, 3, 4, 4, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("it draws groups %v, want %v", got, want)
	}
}

// PODS: of 16 answers with 3 right, 4 enter, 2 of each, and are compared with one another.
func TestPODSLearnsFromTheAnswersThatVaryMost(t *testing.T) {
	o := method(t, "pods").Replay.Options
	o.Capacity = 64
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var group rollout.Group
	for i := range 16 {
		r := rollout.New("p", []int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-1}})
		r.Reward = []float32{0, 1}[min(i%5/4, 1)]
		group.Rollouts = append(group.Rollouts, r)
	}
	if _, err := table.Insert(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	b, err := table.Sample(t.Context(), rollout.Request{Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	right := float32(0)
	for _, d := range b.Draws {
		if right += d.Rollout.Reward; d.GroupMean != 0.5 || math.Abs(float64(d.Advantage-2*d.Rollout.Reward+1)) > 1e-6 {
			t.Errorf("%+v", d)
		}
	}
	if n := table.Inspect().Held(); right != 2 || len(n) != 0 {
		t.Errorf("%g of 4 are right, and %d are left", right, len(n))
	}
}

func TestAMethodDecidesReplayAndTheLossAndNothingElse(t *testing.T) {
	m, err := configs.MethodByName("cispo")
	if err != nil {
		t.Fatal(err)
	}
	c, err := run.ParseMethod(configs.Addition, m.Text, []string{"replay.capacity=960"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Parse(configs.Addition, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Learner.Objective != "cispo" || c.Replay.Capacity != 960 || c.Replay.PositiveShare != 0 ||
		c.Learner.Adam != a.Learner.Adam || c.Pipeline.Batch != a.Pipeline.Batch {
		t.Errorf("cispo over the built-in configuration is %+v, %+v", c.Replay, c.Learner)
	}
}

func TestAMethodThatIsNoConfigurationIsRefusedWithWhatItNeeds(t *testing.T) {
	for name, want := range map[string]string{
		"rrl":  "rrl (arXiv 2504.14363) is not a configuration yet: it needs a score of unfinished answers",
		"ppo2": "ppo2: want one of a-3po, advantage-replay, a",
	} {
		if _, err := configs.MethodByName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for _, m := range configs.Methods() {
		if m.Title == "" || m.Source == "" || m.Needs == "" && (m.Read == "" || m.Here == "") {
			t.Errorf("%s does not say what it is: %+v", m.Name, m)
		}
	}
}
