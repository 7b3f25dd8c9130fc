package study

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
)

// opponents are the tournaments, one for each task.
func opponents() (list []Study) {
	for _, t := range opponentTasks() {
		list = append(list, t.tournament())
	}
	return list
}

func (t opponentTask) tournament() Study {
	return Study{
		Name: t.study, Title: "Does replay beat the best training without a buffer on " + t.name + "?", Source: "our own",
		Lead: []string{
			"Training without a buffer has two ways to learn more from the same compute: smaller batches, and several " +
				"updates on a batch. This study gives both their best settings, and asks what a buffer adds: a plain one, and " +
				"a recipe that keeps right answers, a few of each prompt, and draws a share of each batch from them.",
			"Five families of configurations are tuned in the same stages: the batch (240 to 3,840 first, later half and " +
				"twice what was chosen), each with a learning rate that goes with it, the size of groups, the weight decay, the " +
				"loss, what the family alone can vary, and the rate; then all of them again, near what was chosen. Some trials of some " +
				"families are alike, where a choice leaves an option without effect: how many differ is said below. On tasks " +
				"other than addition every family starts from its settings there, and tunes the batch, the loss, its own " +
				"options, the rate, and the batch again; where right answers are rare at first, the groups too. A batch at an " +
				"end of those tried has a trial beyond it, up to three times, and so has the largest share of right answers. " +
				"Tuning has base models and held-out problems of its own.",
			"Compute is counted by formula, and by the clock of all GPUs with rollouts of uneven lengths (length_sigma 1). " +
				"Workers and trainers have GPUs of their own here, so in turns one part of them waits; GPUs that did both would " +
				"wait less.",
		},
		Blocks: 2, PilotRuns: 2, Pilots: t.pilots, Arms: t.arms, Judge: t.judge,
	}
}

// opponentTask is a task on which the families compete.
type opponentTask struct {
	name    string
	study   string // its study
	base    func(Options) run.Config
	compute float64   // the budget: rollouts that a queue could use once
	rate    float64   // of a batch of rateBatch; that of another is in proportion to the root of its size
	levels  []float64 // of pass@1, ascending, whose compute is compared; fixed before the runs
	// Every family begins with what it had chosen on addition before its last stage, but for the batch and the rate, and
	// has one round of stages.
	transfer bool
	rare     bool // right answers are rare at first: larger groups, which hold one more often, are tried as well
}

// Sizes of the tournament.
const (
	rateBatch      = 960
	opponentSteps  = 20 // evaluations over a budget
	opponentBuffer = 7680
	lastShare      = 0.95 // of right answers, before those beyond it
)

func opponentBatches() []int { return []int{240, 480, 960, 1920, 3840} }

func opponentTasks() []opponentTask {
	return []opponentTask{
		{name: "addition", study: "opponent", base: additionBase, compute: labBatch * labCompute, rate: 1.4e-3,
			levels: []float64{0.18, 0.25, 0.35}},
		{name: "search", study: "opponent-search", base: searchBase, compute: labBatch / 2 * 10, rate: 1e-3,
			levels:   []float64{0.18, 0.35, 0.5},
			transfer: true},
		{name: "countdown", study: "opponent-countdown", base: countdownBase, compute: labBatch * labCompute, rate: 5e-4,
			levels: []float64{0.04, 0.08, 0.12}, transfer: true, rare: true},
	}
}

// countdownBase is the numbers game with three numbers, from a warm-up that ends when 1 to 3 of 100 answers are right.
func countdownBase(o Options) run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "countdown", "min_numbers": 3, "max_numbers": 3, "max": 20, "max_target": 60,
		"held_out": 1000, "format_reward": -1}
	c.Policy.Positions, c.Generate.MaxTokens = 48, 16
	c.Warmup.Steps, c.Warmup.Until = 90, 0
	c.Pipeline.Group = labGroup
	skipZeroVariance(&c)
	c.Learner.Warmup = 5
	c.Evaluate.Samples = 0
	c.Checkpoint.Every = 1000
	if o.Quick {
		c.Task["held_out"] = 40
	}
	return c
}

// rateOf is the learning rate that a batch begins with.
func (t opponentTask) rateOf(batch int) float64 {
	return roundRate(t.rate * math.Sqrt(float64(batch)/rateBatch))
}

// roundRate keeps two digits of a learning rate.
func roundRate(rate float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(rate))-1)
	return math.Round(rate/unit) * unit
}

// config is what a family begins with at a batch and a learning rate.
func (t opponentTask) config(o Options, f family, batch int, rate float64) run.Config {
	c := withRate(t.base(o), rate)
	c.Learner.ClipLow, c.Learner.ClipHigh = 0.4, 0.4
	f.start(&c)
	if t.transfer {
		f.chose(&c)
	}
	if o.Quick {
		batch /= 2 // still whole groups for each trainer
	}
	return t.resized(o, f, c, batch)
}

// resized gives a family's configuration another batch, with the same budget in rollouts.
func (t opponentTask) resized(o Options, f family, c run.Config, batch int) run.Config {
	c.Pipeline.Batch = batch
	c.Budget.Compute = t.compute / float64(batch)
	if o.Quick {
		c.Budget.Compute = 2
	}
	c.Evaluate.Every = c.Budget.Compute / opponentSteps
	if o.Quick {
		c.Evaluate.Every = c.Budget.Compute / 4
	}
	f.fit(&c)
	return c
}

// family is a way to use rollouts.
type family struct {
	name   string
	buffer bool
	start  func(*run.Config) // sets what the family is
	fit    func(*run.Config) // sets what depends on the batch and on how often it is used
	own    []variant         // what this family alone can vary
	last   []variant         // two more trials at the end: beyond what own reached, or near the rate

	// what it had chosen on addition, by the study opponent before its last stage, and its rate there over that which
	// goes with the batch
	chose func(*run.Config)
	times float64
}

// families are the ways that compete, the recipe last.
func families() []family {
	return []family{
		{
			name: "queue", last: nearRate(), start: asQueue(1), fit: fitQueue,
			times: 1, chose: func(c *run.Config) { small(c, 1); narrowClip(c) },
			own: []variant{
				{name: "filled batches", change: func(c *run.Config) { *c = filled(*c) },
					clashes: func(c run.Config) bool { return c.Learner.Objective == asymre }},
				{name: "the oldest first", change: func(c *run.Config) { c.Replay.Sampler = replay.FIFO }},
				{name: "prompts of medium difficulty again", change: func(c *run.Config) { *c = promptDefaults().set(*c) }},
				{name: "mean by token", change: func(c *run.Config) { c.Learner.Normalisation = "token" },
					clashes: func(c run.Config) bool { return c.Learner.Objective != "grpo" }},
			},
		},
		{
			name: "reuse, async", last: nearRate(), start: asQueue(3), fit: fitQueue, own: updatesOnABatch(2, 4, 6, 8),
			times: 1, chose: func(c *run.Config) { small(c, 1); narrowClip(c); c.Pipeline.BatchUpdates = 2 },
		},
		{
			name: "reuse, sync", last: nearRate(), start: inTurns(asQueue(3)), fit: fitQueue, own: updatesOnABatch(2, 4, 6, 8),
			times: 1, chose: func(c *run.Config) { small(c, 1); withoutClip(c) },
		},
		{
			name: "plain buffer", last: nearRate(), buffer: true,
			times: 1, chose: func(c *run.Config) { small(c, 2); withoutClip(c) },
			start: func(c *run.Config) {
				*c = split{5, 3}.set(*c)
				c.Replay.Sampler, c.Replay.Capacity = unseen, opponentBuffer
			},
			fit: func(c *run.Config) { c.Replay.Capacity = max(c.Replay.Capacity, c.Pipeline.Batch) },
			own: []variant{
				withSplit(split{6, 2}), withSplit(split{4, 4}),
				{name: "half the buffer", change: func(c *run.Config) {
					c.Replay.Capacity = max(c.Replay.Capacity/2, c.Pipeline.Batch)
				}},
				{name: "twice the buffer", change: func(c *run.Config) { c.Replay.Capacity *= 2 }},
			},
		},
		{
			name: "recipe", buffer: true, last: []variant{rightAnswers(0.85), rightAnswers(lastShare)},
			times: 2.8, chose: func(c *run.Config) {
				small(c, 3)
				withoutClip(c)
				c.Learner.Advantage, c.Replay.PositiveShare = "no_std", 0.75
			},
			start: func(c *run.Config) {
				*c = split{5, 3}.set(*c)
				c.Replay.Sampler, c.Replay.PositiveShare = unseen, 0.5
			},
			fit: func(c *run.Config) { keepRightAnswers(c, max(c.Pipeline.Batch, opponentBuffer/4)) },
			own: []variant{
				withSplit(split{6, 2}), withSplit(split{4, 4}),
				rightAnswers(0.75), rightAnswers(0.25),
			},
		},
	}
}

// keepRightAnswers keeps right answers, four of a prompt, beside the most recent rollouts.
func keepRightAnswers(c *run.Config, recent int) {
	c.Replay.Retention, c.Replay.Capacity = replay.KeepPositive, recent+opponentBuffer
	c.Replay.PositiveFraction = float64(opponentBuffer) / float64(c.Replay.Capacity)
	c.Replay.PositiveThreshold, c.Replay.PositivesPerPrompt = new(float32(0.5)), 4
}

// rightAnswers makes a share of each batch right answers that were kept.
func rightAnswers(share float64) variant {
	return variant{name: percent(share) + " right answers",
		change: func(c *run.Config) { c.Replay.PositiveShare = share }}
}

// nearRate are learning rates between those of the other stages.
func nearRate() []variant { return timesRate(0.85, 1.2) }

func withSplit(s split) variant {
	return variant{name: s.String(), change: func(c *run.Config) { *c = s.set(*c) }}
}

// updatesOnABatch are numbers of updates on each batch.
func updatesOnABatch(list ...int) (variants []variant) {
	for _, i := range list {
		variants = append(variants, variant{name: fmt.Sprintf("%d updates", i), change: func(c *run.Config) {
			c.Pipeline.BatchUpdates = i
			fitQueue(c)
		}})
	}
	return variants
}

func asQueue(updates int) func(*run.Config) {
	return func(c *run.Config) { c.Pipeline.BatchUpdates, c.Replay.Sampler = updates, replay.LIFO }
}

// inTurns lets workers and trainers take turns.
func inTurns(set func(*run.Config)) func(*run.Config) {
	return func(c *run.Config) {
		c.Pipeline.Mode = "sync"
		set(c)
	}
}

// fitQueue sets the bound of a queue, a group for each trainer beside the batch at least, and the split of at most eight
// GPUs at which workers and trainers keep up with each other.
func fitQueue(c *run.Config) {
	splits := map[int]split{1: queueSplit(), 2: {5, 2}, 3: {5, 3}, 4: {4, 3}, 6: {4, 4}, 8: {3, 4}}
	*c = splits[c.Pipeline.BatchUpdates].set(*c)
	c.Replay.Capacity = c.Pipeline.Batch + max(c.Pipeline.Batch, c.Pipeline.Group*c.Pipeline.Trainers)
}

// contest is the tuning of one family on one task.
type contest struct {
	task   opponentTask
	family family
	o      Options
	stages func(contest) []stage
	after  int // stages of the contest whose choice it begins with; 0: it begins by itself
}

func (t opponentTask) contests(o Options) (list []contest) {
	for _, f := range families() {
		list = append(list, contest{task: t, family: f, o: o, stages: contest.opponentStages})
	}
	return list
}

// pilots are the stages in which a family is tuned. Each begins with what the one before chose.
func (c contest) pilots() []Pilot {
	list := c.o.inStages(c.family.name, c.stages(c))
	for i := range list {
		list[i].stage += c.after
	}
	return list
}

func (c contest) opponentStages() []stage {
	stages := []stage{{"batch", always(c.batches(opponentBatches()...)...)}}
	if !c.task.transfer {
		stages = append(stages, stage{"groups", always(groupSizes(2, 4, 16)...)},
			stage{"weight decay", always(weightDecays(1, 3, 10)...)})
	} else if c.task.rare {
		stages = append(stages, stage{"groups", always(groupSizes(8, 16, 32)...)})
	}
	stages = append(stages, []stage{
		{"loss", always(c.task.losses()...)},
		{"the family's own", always(c.family.own...)},
		{"rate", always(timesRate(minRate, 0.7, 1.4, maxRate)...)},
		{"beyond", beyondRates},
		{"batch again", c.halfAndTwice},
	}...)
	if !c.task.transfer {
		stages = append(stages, []stage{
			{"loss again", always(atTwiceTheRate(opponentLosses())...)},
			{"the family's own again", always(c.family.own...)},
			{"groups again", halfAndTwiceTheGroup},
			{"weight decay again", func(chosen Arm, _ []Pilot) []variant {
				d := cmp.Or(chosen.Config.Learner.WeightDecay, 0.5)
				return weightDecays(d/2, 2*d)
			}},
			{"rate again", always(timesRate(minRate, 0.7, 1.4, maxRate)...)},
			{"batch once more", c.halfAndTwice},
		}...)
	}
	return append(stages, stage{"last", always(c.family.last...)}, stage{"batch beyond", c.batchBeyond},
		stage{"batch further beyond", c.batchBeyond}, stage{"batch furthest beyond", c.batchBeyond},
		stage{"share beyond", shareBeyond})
}

// shareBeyond are shares of right answers beyond the largest if that was chosen.
func shareBeyond(chosen Arm, _ []Pilot) []variant {
	if chosen.Config.Replay.PositiveShare < lastShare {
		return nil
	}
	return []variant{rightAnswers(0.98), rightAnswers(1)}
}

// beyondRates are rates beyond the least or the greatest if that was chosen.
func beyondRates(chosen Arm, _ []Pilot) []variant {
	switch {
	case strings.HasSuffix(chosen.Name, timesRateName(minRate)):
		return timesRate(minRate, 0.7)
	case strings.HasSuffix(chosen.Name, timesRateName(maxRate)):
		return timesRate(1.4, maxRate)
	}
	return nil
}

func (c contest) halfAndTwice(chosen Arm, _ []Pilot) []variant {
	return c.batchTimes(chosen.Config, 0.5, 2)
}

func halfAndTwiceTheGroup(chosen Arm, _ []Pilot) []variant {
	g := chosen.Config.Pipeline.Group
	return groupSizes(g/2, 2*g)
}

// Rates are tried from half of the one before to twice that, and once more beyond an edge that was chosen.
const minRate, maxRate = 0.5, 2

func timesRateName(by float64) string { return fmt.Sprintf("rate × %g", by) }

// batches are batches at the rates that go with their sizes.
func (c contest) batches(sizes ...int) (list []variant) {
	for _, batch := range sizes {
		rate := c.task.rateOf(batch)
		if c.task.transfer {
			rate = roundRate(c.family.times * rate)
		}
		list = append(list, variant{name: fmt.Sprintf("%d at rate %.2g", batch, rate),
			change: func(to *run.Config) { *to = c.task.config(c.o, c.family, batch, rate) }})
	}
	return list
}

func groupSizes(list ...int) (variants []variant) {
	for _, n := range list {
		variants = append(variants, variant{name: fmt.Sprintf("groups of %d", n),
			change: func(c *run.Config) { c.Pipeline.Group = n },
			clashes: func(c run.Config) bool {
				return n < smallestGroup(c) || c.Pipeline.Batch%(n*c.Pipeline.Trainers) != 0
			}})
	}
	return variants
}

// smallestGroup is one where the loss compares no rollouts.
func smallestGroup(c run.Config) int {
	if c.Learner.Objective == (objective.RAFT{}).Name() {
		return 1
	}
	return 2
}

func weightDecays(list ...float64) (variants []variant) {
	for _, d := range list {
		variants = append(variants, variant{name: fmt.Sprintf("weight decay %g", d),
			change: func(c *run.Config) { c.Learner.WeightDecay = d }})
	}
	return variants
}

// batchTimes are multiples of the chosen batch, with rates that go with them. One that has no whole groups is made
// smaller, until each trainer has.
func (c contest) batchTimes(chosen run.Config, multiples ...float64) (list []variant) {
	for _, by := range multiples {
		batch := int(by * float64(chosen.Pipeline.Batch))
		if batch%chosen.Pipeline.Group != 0 || batch%chosen.Pipeline.Trainers != 0 {
			batch -= batch % (chosen.Pipeline.Group * chosen.Pipeline.Trainers)
		}
		if batch > 0 {
			by := float64(batch) / float64(chosen.Pipeline.Batch)
			list = append(list, variant{name: fmt.Sprintf("batch of %d", batch), change: func(to *run.Config) {
				rate := roundRate(to.Learner.LearningRate * math.Sqrt(by))
				*to = c.task.resized(c.o, c.family, withRate(*to, rate), batch)
			}})
		}
	}
	return list
}

// batchBeyond is half of the smallest batch that was tried if that was chosen, or twice the largest.
func (c contest) batchBeyond(chosen Arm, tried []Pilot) []variant {
	batch := chosen.Config.Pipeline.Batch
	least, most := batch, batch
	for _, p := range tried {
		for _, a := range p.Arms {
			least, most = min(least, a.Config.Pipeline.Batch), max(most, a.Config.Pipeline.Batch)
		}
	}
	switch {
	case least == most:
		return nil
	case batch == least:
		return c.batchTimes(chosen.Config, 0.5)
	case batch == most:
		return c.batchTimes(chosen.Config, 2)
	}
	return nil
}

// What families had chosen on addition before their last stage.
func small(c *run.Config, decay float64) { c.Pipeline.Group, c.Learner.WeightDecay = 4, decay }

func narrowClip(c *run.Config) { c.Learner.ClipLow, c.Learner.ClipHigh = 0.2, 0.2 }

func withoutClip(c *run.Config) {
	withAsymRE(c)
	c.Learner.ClipLow, c.Learner.ClipHigh = 0, 0
}

// losses are tried once. Those of addition change what was chosen before, which may leave a clip or an advantage
// without effect; on other tasks, where families begin with different ones, each is whole.
func (t opponentTask) losses() []variant {
	if !t.transfer {
		return opponentLosses()
	}
	clip := func(name string, by float64) variant {
		return variant{name: name, change: func(c *run.Config) {
			c.Learner.Objective, c.Learner.Advantage, c.Learner.MaskZeroVariance = "grpo", "", true
			c.Learner.ClipLow, c.Learner.ClipHigh = by, by
		}}
	}
	cispo, asymRE := opponentLosses()[0], opponentLosses()[1]
	return []variant{clip("GRPO, clip of 0.2", 0.2), clip("GRPO, clip of 0.4", 0.4), cispo, asymRE}
}

func opponentLosses() []variant {
	return []variant{
		{name: "CISPO", change: func(c *run.Config) {
			c.Learner.Objective, c.Learner.ClipLow, c.Learner.ClipHigh = objective.CISPO, 0, 0
		}},
		{name: "AsymRE", change: withoutClip, clashes: func(c run.Config) bool { return c.Pipeline.FilterGroups }},
		{name: "clip of 0.2", change: narrowClip},
		{name: "advantages not divided", change: func(c *run.Config) { c.Learner.Advantage = "no_std" }},
	}
}

// atTwiceTheRate are variants with twice the learning rate.
func atTwiceTheRate(list []variant) (variants []variant) {
	for _, v := range list {
		twice := variant{name: v.name + " at twice the rate", clashes: v.clashes}
		twice.change = func(c *run.Config) {
			v.change(c)
			c.Learner.LearningRate *= 2
		}
		variants = append(variants, twice)
	}
	return variants
}

// timesRate are learning rates relative to the chosen one.
func timesRate(list ...float64) (variants []variant) {
	for _, by := range list {
		variants = append(variants, variant{name: timesRateName(by),
			change: func(c *run.Config) { c.Learner.LearningRate = roundRate(c.Learner.LearningRate * by) }})
	}
	return variants
}

// chosen returns the configuration that the stages chose, and what they chose in words.
func (c contest) chosen() (run.Config, string) {
	var words []string
	pilots := c.pilots()
	for _, p := range pilots {
		if name := strings.TrimPrefix(c.o.choice(p).Name, p.Name+": "); name != "as before" {
			words = append(words, name)
		}
	}
	return c.o.choice(pilots[len(pilots)-1]).Config, strings.Join(words, ", ")
}

// atEdge tells where the choice lies at an edge of what was tried, and not of what there can be; "" if nowhere.
func (c contest) atEdge() string {
	pilots := c.pilots()
	config := c.o.choice(pilots[len(pilots)-1]).Config
	last := "" // choice of a rate
	for _, p := range pilots {
		if strings.Contains(p.Name, ": rate") || strings.HasSuffix(p.Name, ": beyond") {
			last = c.o.choice(p).Name
		}
	}
	var edges []string
	if strings.HasSuffix(last, timesRateName(minRate)) || strings.HasSuffix(last, timesRateName(maxRate)) {
		edges = append(edges, fmt.Sprintf("the rate %.2g", config.Learner.LearningRate))
	}
	for _, k := range []struct {
		words string
		of    func(run.Config) float64
		ends  [2]float64 // of what there can be
	}{
		{"the batch %g", func(c run.Config) float64 { return float64(c.Pipeline.Batch) }, [2]float64{0, math.Inf(1)}},
		{"groups of %g", func(c run.Config) float64 { return float64(c.Pipeline.Group) },
			[2]float64{float64(smallestGroup(config)), math.Inf(1)}},
		{"weight decay %g", func(c run.Config) float64 { return c.Learner.WeightDecay }, [2]float64{0, math.Inf(1)}},
		{"%g updates", func(c run.Config) float64 { return float64(c.Pipeline.BatchUpdates) }, [2]float64{2, math.Inf(1)}},
		{"a share of %g", func(c run.Config) float64 { return c.Replay.PositiveShare }, [2]float64{0, 1}},
	} {
		value := k.of(config)
		least, most := value, value
		for _, p := range pilots {
			for _, a := range p.Arms {
				least, most = min(least, k.of(a.Config)), max(most, k.of(a.Config))
			}
		}
		if least < most && (value == most && value < k.ends[1] || value == least && value > k.ends[0]) {
			edges = append(edges, fmt.Sprintf(k.words, value))
		}
	}
	return strings.Join(edges, ", ")
}

func (t opponentTask) pilots(o Options) (list []Pilot) {
	for _, c := range t.contests(o) {
		list = append(list, c.pilots()...)
	}
	return list
}

// uneven is behind the names of arms whose rollouts have uneven lengths.
const uneven = ", uneven lengths"

func (t opponentTask) arms(o Options) []Arm { return armsOf(t.contests(o)) }

// armsOf are what each family chose, with rollouts of even and of uneven lengths.
func armsOf(contests []contest) (arms []Arm) {
	for _, c := range contests {
		even, _ := c.chosen()
		long := even
		long.Pipeline.LengthSigma = 1
		arms = append(arms, Arm{c.family.name, even}, Arm{c.family.name + uneven, long})
	}
	return arms
}

// computeTo is the compute at which a run reached an accuracy, by formula; infinite if it did not. clockTo is that of
// all GPUs by the clock, stalls included.
func computeTo(accuracy float64) measure {
	return reaching(accuracy, func(x results.Reach) results.Number { return x.Compute })
}

func clockTo(accuracy float64) measure {
	return reaching(accuracy, func(x results.Reach) results.Number { return x.ComputeAll })
}

func reaching(accuracy float64, of func(results.Reach) results.Number) measure {
	return func(a Runs, r *results.Run) float64 {
		if len(r.Evals) == 0 {
			return math.NaN()
		}
		where := results.ReachOf(a.evalsOf(r), accuracy)
		if !where.Reached {
			return math.Inf(1)
		}
		return of(where).Float()
	}
}

// toLevelOf is what it took a run to reach the accuracy at which another arm's run of the same seed ended.
func toLevelOf(other Runs, to func(accuracy float64) measure) measure {
	return func(a Runs, r *results.Run) float64 {
		opponent := other.Seed(r.Seed)
		if opponent == nil {
			return math.NaN()
		}
		return to(level(other, opponent))(a, r)
	}
}

// opponentGoal is the ratio of compute that the recipe is to reach against every opponent.
const opponentGoal = 0.5

func (t opponentTask) judge(f *Found) (Judgement, error) {
	return f.judgeContests(t.contests(f.Options), t.predicted(f))
}

// judgeContests compares the last family of a task, the recipe, with each of the others.
func (f *Found) judgeContests(contests []contest, more ...results.Section) (Judgement, error) {
	var arms, long []Runs
	var names, chosen []string
	for _, c := range contests {
		names = append(names, c.family.name)
		arms, long = append(arms, f.Of(c.family.name)), append(long, f.Of(c.family.name+uneven))
		chosen = append(chosen, c.told())
	}
	n := len(arms) - 1
	recipe, t := arms[n], contests[n].task
	middle := t.levels[len(t.levels)/2]
	var ahead, goal, buffer, waiting []test
	for i, c := range contests {
		if c.family.buffer {
			continue
		}
		name, a := names[i], arms[i]
		level := fmt.Sprintf("%s, to %g", name, middle)
		ahead = append(ahead, difference(recipe, a, meanOver(1)).named(name, above(0)))
		goal = append(goal, ratio(recipe, a, toLevelOf(a, computeTo)).named(name, atMost(opponentGoal)))
		if plain := n - 1; contests[plain].family.buffer {
			buffer = append(buffer, difference(arms[plain], a, meanOver(1)).named(name, above(0)))
		}
		waiting = append(waiting, ratio(long[n], long[i], clockTo(middle)).named(level, below(1)))
	}
	drawn := namedLines(0, func(i int) string { return names[i] }, arms...)
	x := byCompute("compute, in rollouts generated and used once", 1+recipe.Config.Pipeline.RolloutCost)
	const source = "our own"
	claims := []claim{
		{
			source: source, by: ahead, measured: "Mean pass@1 over the budget, the recipe less each family without a buffer",
			text: "The recipe learns faster than every family without a buffer, each at its best.",
		},
		{
			source: source, by: goal,
			measured: "Compute to the accuracy at which each family without a buffer ended, the recipe over that family",
			text:     fmt.Sprintf("It gets as far as each with at most %s of the compute.", percent(opponentGoal)),
		},
		{
			source: source, by: buffer, measured: "Mean pass@1 over the budget, the plain buffer less each family without one",
			text: "A plain buffer learns faster than every family without one.",
		},
		{
			source: source, by: waiting, measured: "Time of all GPUs, the recipe over each family without a buffer",
			text: "By the clock, with rollouts of uneven lengths, the recipe is faster than each.",
		},
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return len(c.by) == 0 })
	return f.judge(claims, append([]results.Section{{
		Title: "Accuracy against compute", Text: []string{"Lines are medians over seeds, bands quartiles."},
		Figures: []results.Figure{medianFigure("Each family at its best", "", x, drawn...),
			seedFigure("Every seed", "", x, drawn...)},
		Grids: []results.Grid{
			t.ratios("Compute of the recipe over that of each family", names, arms, computeTo),
			t.ratios("The same by the clock of all GPUs, with rollouts of uneven lengths", names, long, clockTo),
		},
	}, {Title: "What each family chose", Text: chosen}}, more...)...)
}

// told is what a family chose, in words.
func (c contest) told() string {
	config, words := c.chosen()
	var tried []run.Config
	for _, p := range c.pilots() {
		for _, a := range p.Arms {
			if !slices.ContainsFunc(tried, func(c run.Config) bool { return reflect.DeepEqual(c, a.Config) }) {
				tried = append(tried, a.Config)
			}
		}
	}
	text := fmt.Sprintf("%s: a batch of %d, rate %.2g", c.family.name, config.Pipeline.Batch, config.Learner.LearningRate)
	if words != "" {
		text += " (" + words + ")"
	}
	if edge := c.atEdge(); edge != "" {
		text += "; at the edge of what was tried: " + edge
	}
	return fmt.Sprintf("%s. %d configurations were tried.", text, len(tried))
}

// ratios compares the last of the families' arms with each of the others.
func (t opponentTask) ratios(title string, names []string, arms []Runs, to func(accuracy float64) measure) results.Grid {
	winner := arms[len(arms)-1]
	g := results.Grid{Title: title, Columns: []string{"over", "mean pass@1 over compute by formula, the difference"}}
	for _, accuracy := range t.levels {
		g.Columns = append(g.Columns, fmt.Sprintf("to %g", accuracy))
	}
	g.Columns = append(g.Columns, "to where it ends")
	for i, a := range arms[:len(arms)-1] {
		row := []string{names[i], difference(winner, a, meanOver(1)).cell()}
		for _, accuracy := range t.levels {
			row = append(row, ratio(winner, a, to(accuracy)).cell())
		}
		g.Rows = append(g.Rows, append(row, ratio(winner, a, toLevelOf(a, to)).cell()))
	}
	return g
}
