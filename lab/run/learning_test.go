package run

import (
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
)

func TestEachObjectiveHasItsOwnDefaultsWrittenOut(t *testing.T) {
	for name, want := range map[string]Learner{
		"grpo":                 {Advantage: "group", Normalisation: "sequence"},
		"grpo_off":             {Advantage: "group", Normalisation: "sequence"},
		"asymre":               {Advantage: "group", Normalisation: "sequence"},
		"raft":                 {Advantage: "group", Normalisation: "sequence"},
		"ppo":                  {Advantage: "gae", Normalisation: "sequence"},
		"reinforce++":          {Advantage: "batch", Normalisation: "sequence"},
		"reinforce++-baseline": {Advantage: "group_batch", Normalisation: "sequence"},
		"rloo":                 {Advantage: "leave_one_out", Normalisation: "sequence"},
		"dr_grpo":              {Advantage: "no_std", Normalisation: "constant", ConstantLength: 4},
		"cispo":                {Advantage: "group", Normalisation: "token"},
		"oapl":                 {Advantage: "log_mean_exp", Normalisation: "sequence"},
		"trajectory_balance":   {Advantage: "no_std", Normalisation: "sequence"},
	} {
		c, err := Load("", []string{"learner.objective=" + name})
		if err != nil {
			t.Fatal(err)
		}
		written, err := c.resolved()
		if err != nil {
			t.Fatal(err)
		}
		if l := written.Learner; l.Advantage != want.Advantage || l.Normalisation != want.Normalisation ||
			l.ConstantLength != want.ConstantLength {
			t.Errorf("%s: advantage %s, normalisation %s, constant length %d, want %+v", name, l.Advantage,
				l.Normalisation, l.ConstantLength, want)
		}
		if got := c.pipelineOptions().Advantage; string(got) != want.Advantage || c.replayOptions(0).Advantage != got {
			t.Errorf("%s: the pipeline takes %s, the table %s", name, got, c.replayOptions(0).Advantage)
		}
		// What is written out means the same.
		first, err := c.policyLearning()
		if err != nil {
			t.Fatal(err)
		}
		second, err := written.policyLearning()
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%s: written out it is\n%+v (%v), was\n%+v", name, second, err, first)
		}
		if err := written.Validate(); err != nil {
			t.Errorf("%s: written out it is refused: %v", name, err)
		}
		if first.Objective.Name() != name || string(first.Advantage) != want.Advantage {
			t.Errorf("%s: the learner gets %s with advantage %s", name, first.Objective.Name(), first.Advantage)
		}
	}
	if len(objective.Names()) != 12 {
		t.Errorf("objectives are %v: the table above misses some", objective.Names())
	}
}

func TestEveryKeyOfTheLearnerReachesIt(t *testing.T) {
	shift, plain := -0.25, objective.Corrections{}
	for set, want := range map[string]func(l policy.Learning) bool{
		"learner.objective=grpo,learner.ratio=sequence,learner.clip_low=0.1,learner.clip_high=0.3,learner.dual_clip=2,learner.normalisation=token": func(l policy.Learning) bool {
			return reflect.DeepEqual(l.Objective, objective.GRPO{Method: "grpo", Ratio: objective.SequenceRatio,
				ClipLow: 0.1, ClipHigh: 0.3, DualClip: 2, Normalisation: objective.PerToken, Corrections: plain})
		},
		"learner.proximal=recompute,learner.correction=[{kind: truncate, level: sequence, high: 3}, {kind: mask, low: 0.25, high: 4}, {kind: m2po, limit: 0.1}]": func(l policy.Learning) bool {
			return reflect.DeepEqual(l.Objective.(objective.GRPO).Corrections, objective.Corrections{
				Proximal: objective.ProximalRecompute, Steps: []objective.Correction{
					{Kind: objective.Truncate, Level: objective.LevelSequence, High: 3},
					{Kind: objective.MaskRatio, Level: objective.LevelToken, Low: 0.25, High: 4}, {Kind: objective.M2PO, Limit: 0.1}}})
		},
		"learner.objective=cispo": func(l policy.Learning) bool {
			return reflect.DeepEqual(l.Objective, objective.GRPO{Method: "cispo", Ratio: objective.TokenRatio, ClipLow: 1,
				ClipHigh: 4, Normalisation: objective.PerToken, Corrections: plain})
		},
		"learner.objective=grpo_off,learner.clip=0.1,learner.r_prime=exact,learner.kl_coef=0.5,learner.kl_weighted=true,learner.kl_anchor=0.25,learner.reference_every=7,learner.reference_swaps=3": func(l policy.Learning) bool {
			return reflect.DeepEqual(l.Objective, objective.OffPolicyGRPO{Clip: 0.1, RPrime: objective.RPrimeExact,
				KLCoef: 0.5, KLWeighted: true, KLAnchor: 0.25, Normalisation: objective.PerSequence, Corrections: plain}) &&
				l.Reference == policy.Reference{Every: 7, Swaps: 3}
		},
		"learner.objective=asymre,learner.shift=-0.25": func(l policy.Learning) bool {
			return reflect.DeepEqual(l.Objective, objective.AsymRE{Shift: &shift})
		},
		"learner.experts=shaped,learner.expert_gamma=0.3,learner.expert_weight=0.5 - version / 10": func(l policy.Learning) bool {
			return l.Objective.(objective.GRPO).Experts == objective.Experts{Term: objective.ExpertShaped, Gamma: 0.3} &&
				l.ExpertWeight(2) == 0.3
		},
		"learner.objective=oapl,learner.beta=0.5": func(l policy.Learning) bool {
			return l.Objective == objective.OAPL{Beta: 0.5} && l.Advantage == advantage.LogMeanExp
		},
		"learner.objective=trajectory_balance,learner.reference_every=9": func(l policy.Learning) bool {
			return l.Objective == objective.TrajectoryBalance{Beta: 0.012} && l.Reference.Every == 9
		},
		"learner.objective=ppo,learner.value_coef=0.5,learner.value_clip=0.3,learner.gamma=0.9,learner.lambda=0,learner.values=stored,learner.ratio=sequence": func(l policy.Learning) bool {
			p, ok := l.Objective.(objective.PPO)
			return ok && p.ValueCoef == 0.5 && p.ValueClip == 0.3 && p.Surrogate.Ratio == objective.SequenceRatio &&
				l.GAE == advantage.GAE{Gamma: 0.9} && l.StoredValues
		},
		"learner.objective=reinforce++,learner.kl_penalty=0.5,learner.reference_every=2": func(l policy.Learning) bool {
			return l.KLPenalty == 0.5 && l.Reference.Every == 2 &&
				l.Objective.(objective.GRPO).Method == objective.ReinforcePP
		},
		"learner.objective=dr_grpo,learner.constant_length=9": func(l policy.Learning) bool {
			s := l.Objective.(objective.GRPO)
			return s.ConstantLength == 9 && s.Normalisation == objective.PerConstant
		},
		"learner.max_log_ratio=3,pipeline.batch_updates=4,evaluate.bound_every=8": func(l policy.Learning) bool {
			return l.MaxLogRatio == 3 && l.Updates == 4 && l.BoundEvery == 8
		},
		"learner.mask_zero_variance=true,learner.masked_denominator=all": func(l policy.Learning) bool {
			return l.MaskZeroVariance && l.MaskedInDenominator
		},
		"learner.advantage=no_std": func(l policy.Learning) bool { return l.Advantage == advantage.NoStd },
	} {
		c, err := Load("", regexp.MustCompile(`,\b`).Split(set, -1))
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		if l, err := c.policyLearning(); err != nil || !want(l) {
			t.Errorf("%s gave %+v, %v", set, l, err)
		}
	}
}

func TestWhatContradictsTheObjectiveIsRefusedByItsKey(t *testing.T) {
	for set, want := range map[string]string{
		"learner.objective=sarsa":                       `learner.objective: "sarsa": want one of grpo, grpo_off, asymre, raft, ppo, reinforce++, reinforce++-baseline, rloo, dr_grpo, cispo, oapl, trajectory_balance`,
		"learner.objective=ppo,learner.advantage=group": "learner.advantage: group: want gae",
		"learner.advantage=gae": "learner.advantage: gae: want group " +
			"or no_std or leave_one_out or batch or group_batch for objective grpo",
		"learner.objective=rloo,learner.advantage=group": "learner.advantage: group: want " +
			"leave_one_out",
		"learner.advantage=mean": "learner.advantage: mean: want",
		"learner.kl_coef=0.1": "learner.kl_coef: 0.1: want 0, its " +
			"default: objective grpo does not read it",
		"learner.objective=grpo_off,learner.clip_low=0.1": "learner.clip_low: 0.1: want 0, its " +
			"default: objective grpo_off does not read it",
		"learner.clip=0.1": "learner.clip: 0.1: want 0.2, its " +
			"default: objective grpo does not read it",
		"learner.r_prime=exact": "learner.r_prime: exact: want one, " +
			"its default",
		"learner.objective=grpo_off,learner.r_prime=two": "learner.r_prime: two: want",
		"learner.objective=grpo_off,learner.kl_coef=-1":  "learner.kl_coef: -1: want",
		"learner.objective=grpo_off,learner.kl_weighted=true": "learner.kl_weighted: true: want " +
			"false, or a kl_coef above 0",
		"learner.objective=grpo_off,learner.reference_every=5": "learner.reference_every: 5: want 0, " +
			"or a kl_coef of grpo_off, or a kl_penalty",
		"learner.objective=reinforce++,learner.reference_swaps=5": "learner.reference_swaps: 5: want 0, " +
			"or a reference_every",
		"learner.kl_penalty=0.1": "learner.kl_penalty: 0.1: want 0, or " +
			"advantage",
		"learner.value_coef=0.5": "learner.value_coef: 0.5: want 0.1, " +
			"its default",
		"learner.gamma=0.5": "learner.gamma: 0.5: want 1, its " +
			"default",
		"learner.values=stored": "learner.values: stored: want " +
			"recompute, its default",
		"learner.beta=0.5":                                         "learner.beta: 0.5: want 0, its default: objective grpo does not read it",
		"learner.objective=oapl,learner.beta=-1":                   "learner.beta: -1: want a finite number above 0",
		"learner.objective=oapl,learner.correction=[{kind: mask}]": "want none: objective oapl has no ratio",
		"learner.objective=oapl,learner.clip_low=0.1":              "learner.clip_low: 0.1: want 0, its default: objective oapl does",
		"learner.objective=ppo,learner.values=new":                 "learner.values: new: want recompute",
		"learner.objective=ppo,learner.gamma=0":                    "learner.gamma: 0: want above 0, to 1",
		"learner.objective=ppo,learner.lambda=2":                   "learner.lambda: 2: want",
		"learner.objective=ppo,learner.value_clip=-1":              "learner.value_clip: -1: want",
		"learner.objective=asymre,learner.expert_gamma=0.3":        "learner.expert_gamma: 0.3: want 0, its default: objective asymre",
		"learner.expert_gamma=0.3":                                 "learner.expert_gamma: 0.3: want 0, or experts: shaped",
		"learner.shift=0": "learner.shift: 0: want -0.1, its " +
			"default: objective grpo does not read it",
		"learner.objective=asymre,learner.normalisation=token": "learner.normalisation: token: want " +
			"nothing, its default",
		"learner.objective=dr_grpo,learner.normalisation=token": "learner.normalisation: token: want " +
			"constant",
		"learner.constant_length=4": "learner.constant_length: 4: want 0",
		"learner.max_log_ratio=-1":  "learner.max_log_ratio: -1: want",
		"learner.masked_denominator=some": "learner.masked_denominator: some: " +
			"want kept or all",
		"evaluate.bound_every=-1": "evaluate.bound_every: -1: want " +
			"updates, or 0 for never",
		"pipeline.batch_updates=0": "pipeline.batch_updates: 0: want 1 or " +
			"more updates",
		"pipeline.batch_updates=-1": "pipeline.batch_updates: -1: want 1 to",
		"pipeline.mode=sync,pipeline.batch_updates=2,pipeline.sync_updates=3": "pipeline.sync_updates: 3: want a " +
			"multiple of batch_updates (2)",
		"pipeline.mode=sync,pipeline.batch_updates=2,pipeline.sync_updates=4,pipeline.sync_rollouts=1024,replay.sampler=fifo": "pipeline.sync_rollouts: 1024: want sync_updates / batch_updates x batch (2048)",
		"replay.step_returns=2": "replay.step_returns: 2: want 0 with unit rollout",
		"replay.unit=step,replay.step_discount=0.5": "replay.step_discount: 0.5: want 1 with " +
			"step_returns 0",
		"replay.sampler=prioritized,replay.priority_base=td_error": "replay.priority_base: td_error: want advantage, " +
			"reward, gradient_norm or recency, or td_error with learner.objective ppo",
		"replay.sampler=prioritized,learner.objective=ppo": "replay.entry: own: want max with priority_base " +
			"advantage and advantage gae",
	} {
		_, err := Load("", strings.Split(set, ","))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %s", set, err, want)
			continue
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if n := strings.Count(err.Error(), line); n != 1 {
				t.Errorf("%s: said %d times: %s", set, n, line)
			}
		}
	}
}

func TestTDErrorsAreForCritics(t *testing.T) {
	for _, entry := range []string{"own", "max"} {
		if _, err := Load("", []string{"learner.objective=ppo", "replay.sampler=prioritized",
			"replay.priority_base=td_error", "replay.entry=" + entry}); err != nil {
			t.Errorf("entry %s: %v", entry, err)
		}
	}
}

func TestAnUpdateOnAUsedBatchCostsNoGeneration(t *testing.T) {
	const b, mu = 1024, 5.28
	updateCosts(t, map[string]float64{
		// with replay the workers work all the time
		"pipeline.batch_updates=1":                                 b * (1 + 6.0/2),
		"pipeline.batch_updates=4":                                 b * (1 + 6.0/2),
		"replay.sampler=fifo;pipeline.batch_updates=1":             b * (1 + mu),
		"replay.sampler=fifo;pipeline.batch_updates=4":             b * (1 + mu/4),
		"pipeline.mode=sync;pipeline.batch_updates=4":              b * (1 + mu/4),
		"replay.mix=1;pipeline.batch_updates=1;pipeline.workers=1": b * (1 + mu/2),
		"replay.mix=1;pipeline.batch_updates=2;pipeline.workers=1": b * (1 + mu/4),
	})
}

// A forward pass costs a third of an update unless forward_cost says otherwise.
func TestForwardPassesOfCorrectionsCostCompute(t *testing.T) {
	const (
		b, mu       = 1024, 5.28
		plain       = b * (1 + 6.0/2)
		recompute   = "learner.proximal=recompute;"
		m2po        = "learner.correction=[{kind: m2po}];"
		fourUpdates = "pipeline.batch_updates=4;"
	)
	updateCosts(t, map[string]float64{
		recompute:               plain, // p is pi itself
		recompute + fourUpdates: plain * (1 + 1.0/12),
		recompute + "replay.sampler=fifo;" + fourUpdates:    b * (1 + 1.0/12 + mu/4),
		recompute + fourUpdates + "pipeline.forward_cost=0": plain,
		"learner.proximal=unweighted;" + fourUpdates:        plain * (1 + 1.0/12),
		"learner.proximal=interpolate;" + fourUpdates:       plain,
		m2po:                                            plain * 4 / 3,
		m2po + fourUpdates:                              plain * 4 / 3,
		m2po + fourUpdates + recompute:                  plain * 4 / 3, // the first of its passes gives p too
		m2po + "pipeline.mode=sync":                     b * (4.0/3 + mu),
		m2po + "replay.mix=1;pipeline.workers=1":        b * (4.0/3 + mu/2), // waits for fresh rollouts
		m2po + "replay.mix=1;pipeline.forward_cost=0.5": plain * 1.5,
		// as before there were corrections
		"learner.proximal=behaviour;" + fourUpdates:                       plain,
		"learner.correction=[{kind: mask}];" + fourUpdates:                plain,
		"learner.objective=grpo_off;learner.r_prime=exact;" + fourUpdates: plain,
		"learner.objective=ppo;learner.max_log_ratio=3;" + fourUpdates:    plain,
	})
	with, err := Load("", []string{"learner.correction=[{kind: m2po}]"})
	if err != nil {
		t.Fatal(err)
	}
	if o, p := with.pipelineOptions(), Default().pipelineOptions(); o.QueueCompute() != p.QueueCompute() ||
		o.ComputeBudget != p.ComputeBudget {
		t.Errorf("a forward pass changes the unit of compute from %v to %v, and the budget from %v to %v",
			p.QueueCompute(), o.QueueCompute(), p.ComputeBudget, o.ComputeBudget)
	}
	// With mu 5.28/1.5 a split of 7 to 2 stalls least.
	with.Pipeline.ForwardCost, with.Baseline.Workers = new(0.5), 0
	with.Pipeline.Workers = 7
	if p := with.BaselineArm().Pipeline; p.Workers != 7 || p.Trainers != 2 {
		t.Errorf("the baseline has %d workers and %d trainers, want 7 and 2", p.Workers, p.Trainers)
	}
}

// updateCosts checks the compute of an update by formula with keys set, separated by semicolons.
func updateCosts(t *testing.T, cases map[string]float64) {
	t.Helper()
	for set, want := range cases {
		c, err := Load("", strings.Split(strings.TrimSuffix(set, ";"), ";"))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.pipelineOptions().WithDefaults().UpdateCompute; !near(got, want) {
			t.Errorf("%s: an update costs %v, want %v", set, got, want)
		}
	}
}

func near(a, b float64) bool { return a-b < 1e-9*b && b-a < 1e-9*b }

// The arm without replay uses each rollout once, and gets weights after as many batches.
func TestTheBaselineUsesEachBatchOnce(t *testing.T) {
	c, err := Load("", []string{"pipeline.mode=sync", "pipeline.batch_updates=5", "pipeline.publish_every=10"})
	if err != nil {
		t.Fatal(err)
	}
	arm := c.BaselineArm()
	if p := arm.Pipeline; p.BatchUpdates != 1 || p.PublishEvery != 2 {
		t.Errorf("the baseline has %d updates on each batch and publishes every %d", p.BatchUpdates, p.PublishEvery)
	}
	if err := arm.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTheBaselineLearnsInItsOwnWay(t *testing.T) {
	c, err := Load("", []string{"learner.objective=asymre", "baseline.learning_rate=0.001",
		"baseline.learner={objective: grpo, clip_high: 0.4}"})
	if err != nil {
		t.Fatal(err)
	}
	arm := c.BaselineArm()
	if l := arm.Learner; l.Objective != "grpo" || l.ClipHigh != 0.4 || l.LearningRate != 0.001 {
		t.Errorf("the baseline learns by %+v", l)
	}
	if c.Learner.Objective != "asymre" || c.Learner.ClipHigh != 0 {
		t.Errorf("the run learns by %+v", c.Learner)
	}
	if err := arm.Validate(); err != nil {
		t.Error(err)
	}
	for wrong, want := range map[string]string{
		"baseline.learner={clip: {}}":              "clip: ",
		"baseline.learner={clip_hihg: 0.4}":        "clip_hihg: unknown key: want ",
		"baseline.learner={learning_rate: 0.0004}": "learning_rate: 0.0004: want none: set baseline.learning_rate",
	} {
		want = "baseline.learner." + want
		if _, err := Load("", []string{wrong}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
}

// A baseline of other batches, each used several times, has the run's compute and is evaluated where the run is.
func TestTheBaselineMayHaveItsOwnBatches(t *testing.T) {
	c, err := Load("", []string{"pipeline.batch=1920", "evaluate.every=2", "budget.compute=40",
		"baseline.pipeline={batch: 480, group: 4, batch_updates: 3, mode: sync}"})
	if err != nil {
		t.Fatal(err)
	}
	arm := c.BaselineArm()
	if p := arm.Pipeline; p.Batch != 480 || p.Group != 4 || p.BatchUpdates != 3 || p.SyncRollouts != 480 ||
		p.SyncUpdates != 3 {
		t.Errorf("the baseline's pipeline is %+v", p.Options)
	}
	if arm.Budget.Compute != 160 || arm.Evaluate.Every != 8 {
		t.Errorf("the baseline's compute is %v updates, evaluated every %v; want 160 and 8", arm.Budget.Compute,
			arm.Evaluate.Every)
	}
	if c.Pipeline.Batch != 1920 || c.Pipeline.BatchUpdates != 1 || c.Budget.Compute != 40 {
		t.Errorf("the run's pipeline is %+v", c.Pipeline.Options)
	}
	if err := arm.Validate(); err != nil {
		t.Error(err)
	}
	for wrong, want := range map[string]string{
		"baseline.pipeline={btach: 480}":      "baseline.pipeline.btach: unknown key: want ",
		"baseline.pipeline={workers: 4}":      "baseline.pipeline.workers: 4: want none: set baseline.workers",
		"baseline.pipeline={batch: 0}":        "baseline.pipeline.batch: 0: want 1 or more",
		"baseline.pipeline={sync_updates: 2}": "baseline.pipeline.sync_updates: 2: want none",
	} {
		if _, err := Load("", []string{wrong}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
}

// The three schedules of [OG], scaled down: the versions of what each update learned from.
func TestTheSchedulesOfTheShippedConfigurationsAreThoseOfAlgorithmOne(t *testing.T) {
	tests.Long(t)
	for name, want := range map[string]struct {
		v, i  int
		stale []float64 // of the first twelve updates, by hand
	}{
		"og-1-1.yaml":  {1, 1, []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"og-10-1.yaml": {10, 1, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}},
		"og-1-10.yaml": {1, 10, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}},
	} {
		c, err := Load(filepath.Join("..", "..", "configs", name), []string{
			"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
			"policy.positions=32",
			"task.max=10", "task.held_out=20", "warmup.steps=5", "pipeline.batch=16", "evaluate.every=4",
			"budget.compute=0", "budget.updates=12",
		})
		if err != nil {
			t.Fatal(err)
		}
		if p := c.Pipeline; p.BatchUpdates != want.i || p.PublishEvery != want.v*want.i || p.Mode != pipeline.Sync ||
			!c.Learner.MaskZeroVariance {
			t.Errorf("%s: %+v", name, p)
		}
		dir := filepath.Join(t.TempDir(), "run")
		train(t, c, dir)
		r, err := results.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		for u, line := range r.Updates {
			if line.StalenessMean.Float() != want.stale[u] || line.StalenessMax.Float() != want.stale[u] {
				t.Errorf("%s: update %d learns from rollouts of staleness %v to %v, want %v", name, u+1,
					line.StalenessMean, line.StalenessMax, want.stale[u])
			}
		}
		if got := r.Summary.ReplayRatio.Float(); len(r.Updates) != 12 || got != map[int]float64{1: 1, 10: 6}[want.i] {
			// (1, 10): two batches for twelve updates
			t.Errorf("%s: replay ratio %v after %d updates", name, got, len(r.Updates))
		}
		if r.Summary.Used != 12*16 {
			t.Errorf("%s: %d uses, want those of 12 updates", name, r.Summary.Used)
		}
	}
}
