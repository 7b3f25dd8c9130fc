package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
)

func freshness() Study {
	return Study{
		Name: "freshness", Title: "Do old rollouts lose their worth, and does it help to forget them?",
		Source: "[FP] table 1, figs. 3 to 7",
		Lead: []string{
			"Three ways to train on four tasks and an easy one: on-policy; standard prioritized replay, which draws " +
				"rollouts with a reward more often however old they are; and freshness-aware replay, whose " +
				"priorities fade with age, exp(−age/τ). Each batch of fresh rollouts is used for one update, and " +
				"with replay for one more update on replayed rollouts ([FP] algorithm 1, K = 1).",
			"[FP] compares after the same number of iterations, that is, of fresh rollouts; here this is shown with " +
				"equal compute, in which an iteration with replay costs (2 + μ)/(1 + μ) = 1.16 of one without. τ is " +
				"in versions, two to an iteration: [FP]'s 500 iterations are 1,000 versions. A run has some hundred " +
				"versions here, so freshness-aware replay has a τ of " + freshTau.String() +
				" unless the ablation changes it.",
			"[FP] trains models of 0.5 to 7 billion parameters with REINFORCE++; here a small policy learns by GRPO, " +
				"whose clip takes tokens that have left the behaviour policy out of the gradient. All arms of a task have the " +
				"learning rate that was best for on-policy training. [FP] also trains on CliffWalking, whose scores are " +
				"negative, and on images: neither is here.",
		},
		Pilots: freshPilots, Arms: freshnessArms, Judge: judgeFreshness,
	}
}

// The arms of a task, and those of the ablations of its freshness-aware arm.
const (
	onPolicy    = "on-policy"
	standardPER = "standard PER"
	freshPER    = "freshness-aware"

	uniformPER = "uniform replay"
	noWeights  = "no importance weights" // the freshness-aware arm anneals their exponent from 0.4 to 1
)

// freshTau is the age decay of the freshness-aware arms, in versions.
const freshTau replay.Versions = 100

// freshTaus returns the age decays of the ablation, ascending, in versions; a run has about 350. inf is none.
func freshTaus() []replay.Versions {
	return []replay.Versions{10, freshTau, 1000, replay.Versions(math.Inf(1))}
}

// freshTask is a task of the study.
type freshTask struct {
	name   string
	easy   bool // a control: there is nothing to gain
	config func() run.Config
}

// freshTasks returns the tasks in the order of the page. The ablations are on the first.
func freshTasks() []freshTask {
	return []freshTask{
		{"arithmetic", false, freshArithmetic},
		{"frozenlake", false, freshLake},
		{"sokoban", false, freshSokoban},
		{"search", false, freshSearch},
		{"easy arithmetic", true, freshEasy},
	}
}

// freshName names an arm, tauArmName that of an age decay on the first task.
func freshName(task, method string) string { return task + ": " + method }

func tauName(tau replay.Versions) string { return "tau " + tau.String() }

func tauArmName(tau replay.Versions) string {
	if tau == freshTau {
		return freshName(freshTasks()[0].name, freshPER)
	}
	return freshName(freshTasks()[0].name, tauName(tau))
}

// freshBase is common to the tasks: [FP] algorithm 1 with one replayed update to each fresh one, from a policy that has
// begun to imitate.
func freshBase() run.Config {
	c := run.Default()
	c.Pipeline.Mode, c.Pipeline.Batch, c.Pipeline.Group = "sync", 256, 8
	c.Replay.Sampler, c.Replay.Mix, c.Replay.Capacity = "prioritized", 1, 1<<16
	c.Replay.PriorityBase, c.Replay.AgeDecay = replay.BaseReward, freshTau
	// FreshPER's code stores rollouts at the largest priority; with age decay it recomputes all at the next iteration.
	c.Replay.Entry, c.Replay.EntryUntil = replay.EnterMax, replay.UntilRefresh
	c.Evaluate.Samples = 0
	skipZeroVariance(&c)
	return c
}

// freshArithmetic is additions below 50 from a weak warm start.
func freshArithmetic() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "arithmetic", "operations": []any{"add"}, "max": 50, "held_out": labHeldOut}
	c.Warmup.Until = 0.2
	c.Pipeline.Batch = 512
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = 10, 0.5, 200
	return c
}

// freshEasy is nearly solved at the start, as GSM8K is for [FP].
func freshEasy() run.Config {
	c := freshBase()
	c.Warmup.Steps, c.Warmup.Until = 5000, 0.9
	c.Learner.LearningRate = 2e-4
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = 5, 0.95, 100
	return c
}

// freshLake is a new frozen lake in every episode, as text.
func freshLake() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "frozenlake", "map": "random", "slippery": false, "max_steps": 8,
		"held_out": 500}
	c.Policy.Positions, c.Generate.MaxTokens = 192, 2
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.Until = 400, 32, 0.3
	c.Pipeline.Batch = 128
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = 5, 0.7, 50
	return c
}

// freshSokoban is rooms with one box, as text.
func freshSokoban() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "sokoban", "difficulty": "simple", "min_pushes": 1, "max_steps": 10,
		"held_out": 500}
	c.Policy.Positions, c.Generate.MaxTokens = 240, 2
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.LearningRate, c.Warmup.Until = 600, 32, 2e-3, 0.3
	c.Pipeline.Batch = 128
	c.Learner.Warmup = 10
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = 5, 0.5, 40
	return c
}

// freshSearch is questions about made-up facts, answered by searching for them.
func freshSearch() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "search", "held_out": 250}
	c.Policy.Positions, c.Generate.MaxTokens = 192, 14
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.Until = 1000, 32, 0.3
	c.Pipeline.Batch = 128
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = 10, 0.7, 140
	return c
}

// ratePilot chooses the learning rate of a task, for on-policy training.
func (t freshTask) ratePilot(o Options) Pilot {
	c := t.config()
	c.Replay = run.Default().Replay
	c.Replay.Sampler, c.Replay.Capacity = "fifo", 0
	c = rehearsed(o, c)
	p := ratePilot(freshName(t.name, onPolicy), c, halfToTwice(c)...)
	p.of, p.by = lastThree, settled // as in the claims
	return p
}

func freshPilots(o Options) (list []Pilot) {
	for _, t := range freshTasks() {
		list = append(list, t.ratePilot(o))
	}
	return append(list, tauPilot(o))
}

func freshnessArms(o Options) []Arm {
	var arms []Arm
	add := func(t freshTask, method string, change func(*run.Replay)) {
		c := withRate(t.config(), o.rate(t.ratePilot(o)))
		change(&c.Replay)
		arms = append(arms, Arm{freshName(t.name, method), rehearsed(o, c)})
	}
	for _, t := range freshTasks() {
		arms = append(arms, Arm{freshName(t.name, onPolicy), o.choice(t.ratePilot(o)).Config})
		add(t, standardPER,
			func(r *run.Replay) { r.AgeDecay, r.EntryUntil = replay.Versions(math.Inf(1)), replay.UntilReplay })
		add(t, freshPER, func(*run.Replay) {})
	}
	t := freshTasks()[0]
	add(t, uniformPER, func(r *run.Replay) {
		mix, capacity := r.Mix, r.Capacity
		*r = run.Default().Replay
		r.Sampler, r.Mix, r.Capacity = uniform, mix, capacity
	})
	for _, tau := range freshTaus() {
		if tau != freshTau {
			add(t, tauName(tau), func(r *run.Replay) { r.AgeDecay = tau })
		}
	}
	add(t, noWeights, func(r *run.Replay) { r.ImportanceBeta, r.ImportanceAnneal = new(0.0), new(0) })
	return arms
}

// freshRuns is the runs of a task.
type freshRuns struct {
	freshTask
	on, standard, fresh Runs
}

// freshRuns returns the runs of the easy tasks, or of the others.
func (f *Found) freshRuns(easy bool) []freshRuns {
	var list []freshRuns
	for _, t := range freshTasks() {
		if t.easy == easy {
			list = append(list, freshRuns{t, f.Of(freshName(t.name, onPolicy)), f.Of(freshName(t.name, standardPER)),
				f.Of(freshName(t.name, freshPER))})
		}
	}
	return list
}

// tauPilot chooses between the two τ in the middle.
func tauPilot(o Options) Pilot {
	p := Pilot{Name: "age decay τ", of: lastThree, by: settled, stage: 1}
	for _, a := range freshnessArms(o) {
		if a.Name == tauArmName(freshTaus()[1]) || a.Name == tauArmName(freshTaus()[2]) {
			p.Arms = append(p.Arms, a)
		}
	}
	return p
}

// tauRuns returns the arms of the ablation of tau, ascending.
func (f *Found) tauRuns() []Runs {
	var arms []Runs
	for _, tau := range freshTaus() {
		arms = append(arms, f.Of(tauArmName(tau)))
	}
	return arms
}

// atEqualRollouts compares two arms after the same number of fresh rollouts, that of the arm which generated fewer.
func atEqualRollouts(a, b Runs) estimate {
	return difference(a, b, settledAt(min(a.end(freshRollouts), b.end(freshRollouts)), freshRollouts))
}

func atEqualCompute(a, b Runs) estimate { return difference(a, b, settled) }

func judgeFreshness(f *Found) (Judgement, error) {
	tasks, easy, taus := f.freshRuns(false), f.freshRuns(true), f.tauRuns()
	task, none := tasks[0], f.Of(freshName(tasks[0].name, noWeights))
	last := len(taus) - 1
	middle := f.Of(f.choice(tauPilot(f.Options)).Name)
	// onTasks tests a comparison on each of the tasks that are not easy.
	onTasks := func(r rule, of func(freshRuns) estimate) []test {
		var list []test
		for _, t := range tasks {
			list = append(list, of(t).named(t.name, r))
		}
		return list
	}
	var eachTau []test
	for i, a := range taus {
		eachTau = append(eachTau, atEqualRollouts(a, task.on).named(tauName(freshTaus()[i]), above(0)))
	}
	const (
		table1       = "[FP] table 1, figs. 3 and 4"
		weights      = "[FP] figs. 7 and 9"
		equalFresh   = "Pass@1, the mean of the last three evaluations after the same number of fresh rollouts"
		equalCompute = "Pass@1, the mean of the last three evaluations at equal compute"
	)
	return f.judge([]claim{
		{
			source: table1, text: "Freshness-aware replay gets further than on-policy training with the same number " +
				"of fresh rollouts.", most: true,
			by:       onTasks(above(0), func(t freshRuns) estimate { return atEqualRollouts(t.fresh, t.on) }),
			measured: equalFresh + ", freshness-aware less on-policy",
		},
		{
			source: "[FP], at equal compute", text: "The same at equal compute, in which replay has fewer fresh " +
				"rollouts.",
			most:     true,
			by:       onTasks(above(0), func(t freshRuns) estimate { return atEqualCompute(t.fresh, t.on) }),
			measured: equalCompute + ", freshness-aware less on-policy",
		},
		{
			source: table1, text: "Freshness-aware replay gets further than standard prioritized replay.", most: true,
			by:       onTasks(above(0), func(t freshRuns) estimate { return atEqualRollouts(t.fresh, t.standard) }),
			measured: equalFresh + ", freshness-aware less standard",
		},
		{
			source: table1, text: "Standard prioritized replay, whose priorities never fade, is worse than on-policy " +
				"training.", most: true,
			by:       onTasks(below(0), func(t freshRuns) estimate { return atEqualRollouts(t.standard, t.on) }),
			measured: equalFresh + ", standard less on-policy",
		},
		{
			source: "[FP] figs. 6 and 10", text: "Where the policy nearly solves the task at the start, replay makes " +
				"no difference.", by: freshControls(easy),
			measured: equalFresh + ", replay less on-policy",
		},
		{
			source: "[FP] figs. 5 and 8", text: "There is a best τ in the middle: with too little decay replay " +
				"fails, with too much it gains less.",
			by: []test{
				difference(middle, taus[0], settled).named("less "+taus[0].Name, above(0)),
				difference(middle, taus[last], settled).named("less "+taus[last].Name, above(0)),
			},
			measured: fmt.Sprintf("%s on %s with τ = %s, chosen before between %s and %s", equalCompute, task.name,
				middle.Config.Replay.AgeDecay, freshTaus()[1], freshTaus()[2]),
		},
		{
			source: "[FP] fig. 5b", text: "Whatever the τ, replay is better than on-policy training.", by: eachTau,
			measured: equalFresh + " on " + task.name + ", less on-policy",
		},
		{
			source: weights, text: "Importance weights hardly change the best accuracy.",
			by:       difference(task.fresh, none, level).is(within(0, alike)),
			measured: fmt.Sprintf("Pass@1 reached on %s with β from 0.4 to 1, less that without weights", task.name),
		},
		{
			source: weights, text: "Importance weights make late training more stable.",
			by: unsteadier(none, task.fresh).is(above(0)), premise: wavers(none), note: samplingNote,
			measured: fmt.Sprintf("%s on %s, without weights less with", unsteadiness, task.name),
		},
	}, f.freshnessPage(append(tasks, easy...), taus)...)
}

// freshControls test that replay changes nothing on tasks that the policy nearly solves at the start.
func freshControls(easy []freshRuns) (list []test) {
	for _, t := range easy {
		list = append(list, atEqualRollouts(t.standard, t.on).named(t.name+", "+standardPER, within(0, alike)),
			atEqualRollouts(t.fresh, t.on).named(t.name+", "+freshPER, within(0, alike)))
	}
	return list
}

func (f *Found) freshnessPage(tasks []freshRuns, taus []Runs) []results.Section {
	var sections []results.Section
	for _, t := range tasks {
		sections = append(sections, t.section())
	}
	task := tasks[0]
	x := inUpdates(task.fresh.Arm)
	weights := []Runs{f.Of(freshName(task.name, noWeights)), task.fresh}
	uniform := f.Of(freshName(task.name, uniformPER))
	drawn := append(namedLines(1, func(i int) string { return tauName(freshTaus()[i]) }, taus...),
		line{Runs: uniform, name: uniformPER, colour: 5, dashed: true}, line{Runs: task.on, name: onPolicy, colour: 0})
	all := slices.Concat([]Runs{task.on, task.standard, uniform}, taus, weights[:1])
	return append(sections,
		results.Section{
			Title: "How fast to forget",
			Text: []string{"The age decay τ, in versions, on " + task.name + "; nothing else differs. Uniform replay " +
				"draws all rollouts with equal chance."},
			Figures: []results.Figure{medianFigure("Accuracy against compute by τ", "", x, drawn...)},
			Grids:   []results.Grid{freshnessTable("By τ", task.on, append(taus, uniform)...)},
		},
		results.Section{
			Title: "Importance weights",
			Text: []string{"Weights (N P)^−β undo what drawing by priority changes in the mean; with β = 0 there " +
				"are none."},
			Figures: []results.Figure{seedFigure("Accuracy against compute by β", "", x, lines(1, weights...)...)},
			Grids: []results.Grid{freshnessTable("By β", task.on, weights...),
				armsTable("All arms of "+task.name, all...)},
		})
}

// section shows a task.
func (t freshRuns) section() results.Section {
	methods := []string{onPolicy, standardPER, freshPER}
	arms := []Runs{t.on, t.standard, t.fresh}
	drawn := namedLines(0, func(i int) string { return methods[i] }, arms...)
	target := t.on.Config.Evaluate.Target
	return results.Section{
		Title: "On " + t.name,
		Text: []string{fmt.Sprintf("τ of freshness-aware replay is %s versions. Thin lines are single runs, bands "+
			"quartiles.", freshTau)},
		Figures: []results.Figure{
			withTarget(seedFigure("Accuracy against compute", "", inUpdates(t.on.Arm), drawn...), target),
			withTarget(medianFigure("Accuracy against fresh rollouts", "", byRollouts(), drawn...), target),
		},
		Grids: []results.Grid{freshnessTable("Arms", t.on, arms...)},
	}
}

// freshnessTable compares arms with on-policy training.
func freshnessTable(title string, on Runs, arms ...Runs) results.Grid {
	return table(title, "Medians over seeds. Accuracy is the mean of the last three evaluations, quartiles in "+
		"brackets; differences are means with 95% intervals. ESS/n, staleness in versions and the share of "+
		"groups of zero variance are means over the updates.", arms,
		medianOf("pass@1", settled, points), medianOf("reached", level, points),
		compared("above on-policy, equal rollouts", on, atEqualRollouts),
		compared("above on-policy, equal compute", on, atEqualCompute),
		plainMedian("ESS/n", meanOf(effectiveSize, 1), times),
		plainMedian("staleness", meanOf(meanStaleness, 1), func(v float64) string { return words.Fixed(v, 1) }),
		plainMedian("zero variance", meanOf(zeroVariance, 1), times),
		column{"failed", func(a Runs) string { return fmt.Sprint(len(a.Failed)) }})
}
