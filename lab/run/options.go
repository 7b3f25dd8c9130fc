package run

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout/option"
)

// pipelineOptions returns the configuration's part for package pipeline. Compute is counted with replay unless the
// table is a queue.
func (c Config) pipelineOptions() pipeline.Options {
	p := c.Pipeline
	o := p.Options
	o.RewardLatency, o.MaxTokens, o.Advantage, o.Updates = c.rewardLatency(), c.Generate.MaxTokens, c.advantageKind(),
		c.Budget.Updates
	o.GroupTiming = c.groupTiming()
	o.Mix, o.FreshShare = c.Replay.Mix, c.Replay.FreshShare
	c.composeFresh(&o)
	o.ForwardPasses = c.Learner.forwardPasses(o.BatchUpdates)
	training := o.TrainingCost()
	if o.WeightSync == pipeline.ByToken {
		o.MaxTokens *= c.turns()
	}
	o.ComputeBudget = c.Budget.Compute * o.QueueCompute()
	updates := float64(max(1, o.BatchUpdates)) // on each batch, whose rollouts cost as much whatever their number
	updates /= c.generatedPerEntered()
	switch {
	case o.Mode == pipeline.Sync: // what the turn costs, over its updates
		turn := o.WithDefaults()
		o.UpdateCompute = float64(float64(o.Batch)*training) + o.RolloutCost*float64(turn.SyncRollouts)/float64(turn.SyncUpdates)
	case !c.Replays():
		o.UpdateCompute = float64(float64(o.Batch) * (training + o.RolloutCost/updates))
	case o.Mix > 0 || o.FreshShare > 0: // the fresh rollouts that an update waits for may take more workers than there are
		fresh := o.FreshShare
		if o.Mix > 0 {
			fresh = 1 / float64(1+o.Mix)
		}
		share := max(float64(training*float64(o.Workers)/float64(o.Trainers)), float64(fresh*o.RolloutCost/updates))
		o.UpdateCompute = float64(float64(o.Batch) * (training + share))
	} // else the pipeline's default, ReplayCompute
	return o
}

// composeFresh sets what the fresh sources of a table take of each batch, which the trainers wait for.
func (c Config) composeFresh(o *pipeline.Options) {
	size, table := o.Batch/max(o.Trainers, 1), c.Replay.Options
	table.GroupSize = o.Group
	at, differs := table.FreshDraws(size)
	switch {
	case at == nil || size < 1 || o.Mix > 0 || o.FreshShare > 0:
		return
	case differs:
		o.FreshAt = at
	default:
		o.FreshShare = float64(at(0)) / float64(size)
	}
	o.Composed = true
}

// drawsFresh reports whether part of some batches is of rollouts never handed out as fresh before.
func (c Config) drawsFresh() bool {
	o := c.pipelineOptions()
	return o.Mix > 0 || o.FreshShare > 0 || o.FreshAt != nil
}

// Schedule returns what package sim needs to run the configuration's schedule without a model.
func (c Config) Schedule() (pipeline.Options, replay.Options) {
	o, table := c.pipelineOptions(), c.replayOptions(0)
	o.RewardLatency, o.GroupTiming = nil, nil
	return o, table
}

// Replays reports whether rollouts can be used more than once.
func (c Config) Replays() bool { return !c.Replay.Sampler.Consumes() }

// replayOptions returns the configuration's part for package replay; vocab bounds the tokens.
func (c Config) replayOptions(vocab int) replay.Options {
	o := c.Replay.Options
	o.Shards, o.Advantage, o.Vocab, o.Seed = c.Pipeline.Trainers, c.advantageKind(), vocab, c.Seed
	o.UnknownLogprobs = o.UnknownLogprobs || c.Generate.Experts > 0
	if o.Unit == replay.UnitGroup {
		o.GroupSize = c.Pipeline.Group
	}
	if o.Capacity == 0 {
		o.Capacity = 2 * c.Pipeline.Batch
	}
	// Samplers with replacement are content with one rollout, and would train on copies of it while workers go on
	// generating. In synchronous mode a turn's batch is there at the first draw; a limit of bytes may leave less room
	// than a batch takes.
	if o.MinSize == 0 && o.Sampler.Replaces() && c.Pipeline.Mode != pipeline.Sync && o.CapacityBytes == 0 {
		o.MinSize = c.Pipeline.Batch / max(o.Shards, 1)
	}
	o = o.WithoutOthers() // so that --set replay.sampler compares samplers with the rest as it is
	if o.Sampler == replay.Prioritized && o.ImportanceAnneal == nil {
		o.ImportanceAnneal = new(c.budgetVersions())
	}
	return o
}

// generatedPerEntered is how many rollouts are generated for each that enters the table, which may select some of each
// group.
func (c Config) generatedPerEntered() float64 {
	if n := c.Replay.Select; n > 0 && n < c.Pipeline.Group {
		return float64(c.Pipeline.Group) / float64(n)
	}
	return 1
}

// budgetVersions returns the number of updates that the budget pays for.
func (c Config) budgetVersions() int {
	updates := c.Budget.Updates
	if o := c.pipelineOptions().WithDefaults(); o.ComputeBudget > 0 {
		if n := int(math.Ceil(o.ComputeBudget / o.UpdateCompute)); updates == 0 || n < updates {
			updates = n
		}
	}
	return updates
}

// decidedElsewhere returns the keys of a table that a run's replay section does not set, and what decides them.
func decidedElsewhere() map[string]string {
	return map[string]string{
		"replay.shards": "pipeline.trainers", "replay.group_size": "pipeline.group",
		"replay.advantage": "learner.advantage",
		"replay.vocab":     "the policy", "replay.max_tokens": "policy.positions", "replay.seed": "seed",
		"replay.lease_seconds": "the run, which settles every batch",
	}
}

// validateReplay checks what package replay does not: what other sections decide, and what only a critic or a program
// can give.
func (c Config) validateReplay() error {
	var problems option.Problems
	check := problems.Check
	o := c.Replay.Options
	for f := range option.Fields(reflect.ValueOf(o)) {
		by := decidedElsewhere()["replay."+f.Key]
		check(by == "" || f.Value.IsZero(), "replay."+f.Key, f.Value, "none: it follows from %s", by)
	}
	critic := o.PriorityBase != replay.BaseTDError || c.needsCritic()
	check(critic && o.PriorityBase != replay.BaseFunction, "replay.priority_base", o.PriorityBase,
		"advantage, reward, gradient_norm or recency, or td_error with learner.objective ppo")
	return problems.Err()
}

// InWords says what a run learns from, for whoever starts it. [Config.Sampling] has the terms.
func (c Config) InWords() string {
	batches := "batches of " + words.Thousands(c.Pipeline.Batch)
	if i := c.Pipeline.BatchUpdates; i > 1 {
		batches += fmt.Sprintf(", with %d updates on each", i)
	}
	if !c.Replays() {
		return "learns from each rollout once, in " + batches
	}
	o, p := c.replayOptions(0).WithDefaults(), c.pipelineOptions()
	kept := fmt.Sprintf("the newest %s rollouts", words.Thousands(o.Capacity))
	switch o.Retention {
	case replay.KeepScored:
		kept = fmt.Sprintf("the %s rollouts of the largest %s", words.Thousands(o.Capacity), o.Score)
	case replay.KeepPositive:
		kept = fmt.Sprintf("%s rollouts, the newest and older right answers", words.Thousands(o.Capacity))
	}
	text := fmt.Sprintf("learns in %s, drawn from %s", batches, kept)
	switch {
	case p.Mix > 0:
		text += fmt.Sprintf("; after each batch of new ones %s", words.Plural(p.Mix, "batch", "batches"))
	case p.FreshAt != nil:
		text += "; the share of new ones follows the version"
	case p.FreshShare > 0:
		text += fmt.Sprintf("; %.0f%% of each batch are new", 100*p.FreshShare)
	}
	return text
}

// Sampling says in words how a run draws what it learns from, the effective half-life included.
func (c Config) Sampling() string {
	updates := ""
	if i := c.Pipeline.BatchUpdates; i > 1 {
		updates = fmt.Sprintf("; %d updates on each batch", i)
	}
	if !c.Replays() {
		return fmt.Sprintf("%s queue: each rollout once", c.Replay.Sampler) + updates
	}
	o := c.replayOptions(0).WithDefaults()
	text := fmt.Sprintf("%s, by %s, from %d", o.Sampler, o.Unit, o.Capacity)
	switch p := c.pipelineOptions(); {
	case p.Mix > 0:
		text += fmt.Sprintf("; %s to each on fresh rollouts", words.Plural(p.Mix, "replay update"))
	case p.FreshAt != nil:
		text += "; the share of fresh rollouts follows the version"
	case p.FreshShare > 0:
		text += fmt.Sprintf("; %.0f%% of each batch fresh", 100*p.FreshShare)
	}
	text += updates
	if o.Sampler == replay.Ordered {
		text += "; the largest " + o.Order + " first"
		if o.Cooldown > 0 {
			text += fmt.Sprintf(", with %s between uses", words.Plural(o.Cooldown, "version"))
		}
	}
	if o.Sampler != replay.Prioritized {
		return text
	}
	base := strings.ReplaceAll(string(o.PriorityBase), "_", " ")
	if o.Priority != "" {
		base = "(" + o.Priority + ")"
	}
	return text + fmt.Sprintf("; priority %s^%g, %s", base, o.PriorityExponent, halfLife(o))
}

// halfLife describes the age decay and the half-life that follows from it.
func halfLife(o replay.Options) string {
	half := o.HalfLife(float64(o.AgeDecay))
	if math.IsInf(half, 1) {
		return "no age decay (standard PER)"
	}
	formula := "(tau/alpha) ln 2"
	if o.DecayOrder == replay.AfterExponent {
		formula = "tau ln 2"
	}
	from := ""
	if o.TargetESS > 0 {
		from = fmt.Sprintf("automatic for ESS %g, at first ", o.TargetESS)
	}
	return fmt.Sprintf("age decay %s%s: effective half-life %s = %.0f versions", from, o.AgeDecay, formula, half)
}

// sampling is that of rollouts, without what ends a turn.
func (c Config) sampling() policy.Sampling {
	return policy.Sampling{
		Temperature: c.Generate.Temperature, TopP: cmp.Or(c.Generate.TopP, 1), MaxTokens: c.Generate.MaxTokens,
		RecomputeCache: c.Generate.KVCache == "recompute",
	}
}

// Validate reports every problem of the configuration at once, each with its key, its value and what is allowed. What
// follows from a key that is out of its range by itself is left out.
func (c Config) Validate() error {
	var problems option.Problems
	c.check(&problems)
	return problems.Err()
}

// check adds the problems of a configuration to those of reading it.
func (c Config) check(problems *option.Problems) {
	check := func(ok bool, key string, value any, want string, args ...any) {
		problems.CheckWith("", ok, key, value, want, args...)
	}
	p := c.Pipeline
	problems.AddNew(c.validateTask())
	problems.AddNew(under("warmup", c.Warmup.validate()), under("generate", c.sampling().Validate()))
	check(c.Generate.Temperature > 0, "generate.temperature", c.Generate.Temperature,
		"more than 0: greedy rollouts of a group are all alike")
	check(c.Generate.KVCache == "keep" || c.Generate.KVCache == "recompute", "generate.kv_cache", c.Generate.KVCache,
		"keep or recompute")
	problems.AddNew(under("generate", c.Generate.Precision.Validate()))
	check(c.Generate.Experts >= 0 && c.Generate.Experts < max(p.Group, 1), "generate.experts", c.Generate.Experts,
		"0 to %d, one less than pipeline.group", p.Group-1)
	problems.AddNew(under("generate.prefix", c.validatePrefix()))
	check(c.Generate.Experts <= 0 || !c.Prompts.chooses(), "generate.experts", c.Generate.Experts,
		"0 with prompts.fraction or prompts.skip, which would count them as right answers of the policy")
	// Package pipeline takes 0 for a default; here the defaults are written out.
	check(p.Workers != 0, "pipeline.workers", p.Workers, "1 or more")
	check(p.Trainers != 0, "pipeline.trainers", p.Trainers, "1 or more")
	check(p.Batch != 0, "pipeline.batch", p.Batch, "1 or more rollouts")
	check(p.RolloutCost != 0, "pipeline.rollout_cost", p.RolloutCost, "more than 0")
	check(p.Group != 0, "pipeline.group", p.Group, "1 or more rollouts")
	check(p.BatchUpdates != 0, "pipeline.batch_updates", p.BatchUpdates, "1 or more updates on each batch")
	problems.AddNew(c.Policy.validate())
	problems.CheckWith("policy.positions policy.init", c.Policy.Init != "" || c.Generate.MaxTokens < c.Policy.Positions,
		"generate.max_tokens", c.Generate.MaxTokens, "less than policy.positions (%d), which the prompt shares",
		c.Policy.Positions)
	problems.AddNew(under("pipeline", c.pipelineOptions().Validate())) // which has defaults stand in for 0
	problems.AddNew(under("pipeline.reward_latency", c.Pipeline.RewardLatency.Validate()))
	check(p.LengthSigma >= 0 && p.LengthSigma <= 4, "pipeline.length_sigma", p.LengthSigma, "0 (all alike) to 4")
	c.checkTable(problems)
	check(!p.FilterGroups || !c.Learner.learnsFromEqualRewards(), "pipeline.filter_groups", p.FilterGroups,
		"false with learner.objective %s, which learns from groups whose rewards are all equal too",
		c.Learner.Objective)
	problems.AddNew(c.validateLearner(), c.validateReplay(), c.validatePrompts(), c.Evaluate.validate(),
		c.Budget.validate(), c.Baseline.validate())
	check(c.Checkpoint.Every >= 1, "checkpoint.every", c.Checkpoint.Every, "1 or more updates")
	problems.AddNew(under("live", c.Live.validate()), c.validateLive())
}

// checkTable checks the table's options, and those of the pipeline against them.
func (c Config) checkTable(problems *option.Problems) {
	// The table is checked whatever is wrong with the pipeline, of which the default then stands in.
	usual := Default().Pipeline
	for _, n := range []struct {
		value   *int
		instead int
	}{{&c.Pipeline.Batch, usual.Batch}, {&c.Pipeline.Group, usual.Group}, {&c.Pipeline.Trainers, usual.Trainers},
		{&c.Pipeline.BatchUpdates, usual.BatchUpdates}} {
		if *n.value < 1 {
			*n.value = n.instead
		}
	}
	const batch, group, trainers, capacity = "pipeline.batch", "pipeline.group", "pipeline.trainers", "replay.capacity"
	p, o := c.Pipeline, c.replayOptions(0)
	pipelineIsRight := !problems.Has(batch, group, trainers, "pipeline.batch_updates")
	for _, err := range option.Each(under("replay", o.Validate())) {
		var problem *option.Error // of a capacity that follows from the pipeline
		if pipelineIsRight || c.Replay.Capacity != 0 || !errors.As(err, &problem) || problem.Key != capacity {
			problems.AddNew(err)
		}
	}
	check := problems.CheckWith
	check(batch, o.Capacity >= p.Batch, capacity, o.Capacity, "at least pipeline.batch (%d)", p.Batch)
	if !pipelineIsRight {
		return
	}
	const sampler, unit = "replay.sampler", "replay.unit"
	check("", o.Unit != replay.UnitGroup || p.Batch/p.Trainers%p.Group == 0, unit, o.Unit,
		"rollout or step, or a batch per trainer (%d) that is a multiple of pipeline.group (%d)",
		p.Batch/p.Trainers, p.Group)
	fresh := int(math.Round(c.pipelineOptions().FreshPerUpdate()*float64(p.BatchUpdates))) / p.Trainers
	check(unit, o.Unit != replay.UnitGroup || fresh%p.Group == 0, "replay.fresh_share", c.Replay.FreshShare,
		"whole groups of each trainer's batch with replay.unit group, not %d of %d rollouts", fresh,
		p.Batch/p.Trainers)
	check(sampler, !o.Sampler.Consumes() || c.Replay.Mix == 0 && c.Replay.FreshShare == 0, "replay.mix", c.Replay.Mix,
		"0, and fresh_share 0, with sampler %s, of which every draw is fresh", o.Sampler)
	for i, s := range o.Sources {
		if s.Pool != replay.PoolFresh {
			continue
		}
		key := fmt.Sprintf("replay.sources[%d]", i)
		check("", c.Replay.Mix == 0 && c.Replay.FreshShare == 0, key+".pool", s.Pool, "another pool with "+
			"replay.mix or fresh_share, which say what is fresh of a batch")
		check("", s.Wait, key+".wait", s.Wait, "true in a run, whose trainers wait for what is fresh of a batch")
		check("", p.Mode != pipeline.Sync || c.pipelineOptions().FreshAt == nil, key+".share", s.Share, "a number with "+
			"pipeline.mode sync, whose turns all generate as much")
	}
	check("pipeline.publish_every", o.MaxStaleness == 0 || o.MaxStaleness >= p.PublishEvery, "replay.max_staleness",
		o.MaxStaleness, "at least pipeline.publish_every (%d), or rollouts are too old before they arrive",
		p.PublishEvery)
	sync := c.pipelineOptions().WithDefaults()
	turn := int(math.Round(float64(sync.SyncUpdates/max(1, sync.BatchUpdates)*p.Batch) * c.generatedPerEntered()))
	perGroup := ""
	if c.generatedPerEntered() > 1 {
		perGroup = " x group / replay.select"
	}
	check(sampler+" pipeline.mode pipeline.sync_updates",
		sync.Mode != pipeline.Sync || !o.Sampler.Consumes() || sync.SyncRollouts == turn,
		"pipeline.sync_rollouts", sync.SyncRollouts,
		"sync_updates / batch_updates x batch%s (%d) with sampler %s, which gives each rollout once", perGroup, turn,
		o.Sampler)
	least := p.Batch + p.Group*p.Trainers
	check(sampler, !o.Sampler.Consumes() || o.Capacity >= least, capacity, o.Capacity,
		"at least a batch and a group for each trainer (%d), or the queue fills up and the run deadlocks", least)
	if problems.Has(capacity) {
		return
	}
	check("", p.Group <= o.Capacity/p.Trainers, group, p.Group, "at most a trainer's share of replay.capacity, %d",
		o.Capacity/p.Trainers)
	recent := o.Capacity - int(math.Round(o.PositiveFraction*float64(o.Capacity)))
	check("replay.retention", o.Retention != replay.KeepPositive || recent >= p.Batch,
		"replay.positive_fraction", o.PositiveFraction,
		"at most %.3g, so that the rollouts kept whatever their reward fill a batch",
		1-float64(p.Batch)/float64(o.Capacity))
}

func (e Evaluate) validate() error {
	var problems option.Problems
	check := problems.Check
	check(e.Every > 0 && !math.IsInf(e.Every, 0), "evaluate.every", e.Every, "more than 0 updates' compute")
	check(e.Target >= 0 && e.Target <= 1, "evaluate.target", e.Target, "an accuracy in (0, 1], or 0 for none")
	check(e.BoundEvery >= 0, "evaluate.bound_every", e.BoundEvery, "updates, or 0 for never")
	check(e.Temperature >= 0 && !math.IsInf(e.Temperature, 0), "evaluate.temperature", e.Temperature,
		"0 (greedy) or more")
	check(slices.Contains([]string{"", "all", "choose", "judge"}, e.Problems), "evaluate.problems", e.Problems,
		"all, choose or judge")
	check(e.Samples >= 0, "evaluate.samples", e.Samples, "0 or more")
	check(e.Samples <= 0 || len(e.PassAt) > 0, "evaluate.pass_at", "none", "the k to report of evaluate.samples (%d), or "+
		"0 samples", e.Samples)
	for _, k := range e.PassAt {
		check(e.Samples <= 0 || k >= 1 && k <= e.Samples, "evaluate.pass_at", k, "1 to evaluate.samples (%d)", e.Samples)
	}
	return problems.Err()
}

func (b Budget) validate() error {
	if b.Updates < 0 || !(b.Compute >= 0) || (b.Updates == 0 && b.Compute == 0) || math.IsInf(b.Compute, 0) {
		return fmt.Errorf("budget: compute %g, updates %d: want at least one of them above 0, neither below", b.Compute,
			b.Updates)
	}
	return nil
}

// BudgetShare returns the share of the budget, in [0, 1], that a run has used at the end of an update.
func (c Config) BudgetShare(u results.Update) float64 {
	share := 0.0
	if limit := c.Budget.Updates; limit > 0 {
		share = float64(u.Update) / float64(limit)
	}
	if limit := c.pipelineOptions().ComputeBudget; limit > 0 {
		share = max(share, u.Compute/limit)
	}
	return min(share, 1)
}

// Warnings returns what a valid configuration does that its user may not want.
func (c Config) Warnings() []string {
	var list []string
	keys, of := c.Replay.OtherKeys()
	for i, key := range keys {
		list = append(list, fmt.Sprintf("replay.%s has no effect with replay.sampler %s: only %s uses it", key,
			c.Replay.Sampler, of[i]))
	}
	if c.Replay.History > 0 && c.remote == nil {
		list = append(list, fmt.Sprintf("replay.history: %d: nobody can look at the lives in a run's own table: give "+
			"--buffer, or leave it out", c.Replay.History))
	}
	if o := c.replayOptions(0).WithDefaults(); o.ImportanceNorm == replay.ByTable &&
		o.PriorityBase != replay.BaseRecency && o.PriorityBase != replay.BaseGradNorm {
		list = append(list, fmt.Sprintf("replay.importance_norm: table: a rollout whose %s is 0 has the largest "+
			"weight by far, which scales the others to almost nothing; batch does not", o.PriorityBase))
	}
	return append(append(list, c.dividedPrompts()...), c.zerosOfTask()...)
}

// dividedPrompts warns of rollouts of a prompt that do not meet although the table compares or draws them together.
func (c Config) dividedPrompts() (list []string) {
	together := c.Replay.DrawAdvantage == replay.AdvantageRegrouped || c.Replay.DrawAdvantage == replay.AdvantageSplit
	old := slices.ContainsFunc(c.Replay.Sources, func(s replay.Source) bool { return s.Pool == replay.PoolPrompts })
	o := c.pipelineOptions()
	if o.Trainers > 1 && old {
		list = append(list, fmt.Sprintf("replay.sources: pool prompts draws from a trainer's own shard, which has one in %d "+
			"of a prompt's earlier groups: use pipeline.trainers 1", o.Trainers))
	}
	fresh := int(math.Round(o.FreshShare * float64(o.Batch/max(o.Trainers, 1))))
	key, group := "replay.sources", int(math.Round(float64(o.Group)/c.generatedPerEntered()))
	if c.Replay.FreshShare > 0 {
		key = "replay.fresh_share"
	}
	if (together || old) && o.FreshAt == nil && o.Mix == 0 && fresh%group != 0 {
		list = append(list, fmt.Sprintf("%s: the %d fresh rollouts of a batch are no whole groups of %d: what is left of a "+
			"group comes in the next batch, apart from it", key, fresh, group))
	}
	return list
}

// zerosOfTask warns of settings that were given as 0, which means a default.
func (c Config) zerosOfTask() (list []string) {
	resolved, err := c.resolved()
	if err != nil || c.own != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.Task)) {
		given, used := c.Task[key], resolved.Task[key]
		if given != nil && used != nil && reflect.ValueOf(given).IsZero() &&
			!reflect.Indirect(reflect.ValueOf(used)).IsZero() {
			list = append(list, fmt.Sprintf("task.%s: %v: it means the default, %v", key, given, used))
		}
	}
	return list
}

// under names the problems that a part found in its options as the configuration does: the section before the key, or
// the key of another section where the configuration keeps the option there.
func under(section string, err error) error {
	var all []error
	for _, e := range option.Each(err) {
		var problem *option.Error
		switch {
		case errors.As(e, &problem):
			e = problem.At(configurationKey(section + "." + problem.Key))
		case !strings.HasPrefix(e.Error(), section+"."): // this package decodes some parts, with their full keys
			e = fmt.Errorf("%s.%w", section, e)
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}

// configurationKey returns the key under which the configuration keeps an option that a part knows by another.
func configurationKey(key string) string {
	switch key {
	case "pipeline.max_tokens":
		return "generate.max_tokens"
	case "pipeline.updates":
		return "budget.updates"
	case "pipeline.compute_budget":
		return "budget.compute"
	case "pipeline.mix":
		return "replay.mix"
	case "pipeline.fresh_share":
		return "replay.fresh_share"
	case "replay.shards":
		return "pipeline.trainers"
	case "replay.group_size":
		return "pipeline.group"
	case "replay.advantage":
		return "learner.advantage"
	}
	return key
}
