package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
)

// competition compares published methods with the best training without a buffer.
type competition struct {
	methods  []configs.Method
	families []family // beside them; those without a buffer are the opponents
	tasks    []opponentTask
}

func publishedMethods() Study {
	var x competition
	for _, m := range configs.Methods() {
		if m.Needs == "" {
			x.methods = append(x.methods, m)
		}
	}
	for _, f := range families() {
		if f.name != "plain buffer" {
			x.families = append(x.families, f)
		}
	}
	for _, t := range opponentTasks() {
		if t.name != "search" {
			x.tasks = append(x.tasks, t)
		}
	}
	return x.study()
}

func (x competition) study() Study {
	const seeds, pilots, trials = 12, 2, 13
	entrants := (len(x.methods) + len(x.families)) * len(x.tasks)
	return Study{
		Name: "methods", Title: "Which published method learns fastest, each at its best?", Source: "our own",
		Lead: []string{
			"Every method of `reprise methods` that is a configuration runs with the same compute and the same tuning, on " +
				"addition and on countdown, where two answers of a hundred are right at first. Their opponents have no buffer: " +
				"each rollout used once, or several updates on each batch, with what the study opponent chose for them on " +
				"addition. The stronger one by pilots is what methods are compared with. The house recipe runs beside them. It " +
				"and the opponents were tuned before, on addition; methods begin as their files have them, with the opponents' " +
				"weight decay.",
			fmt.Sprintf("Each has up to %d trials of %d runs, on base models and held-out problems of their own: four batches "+
				"from 120 to 960, each with a learning rate that goes with it; half and twice the group; four rates, and two "+
				"beyond the least or the greatest of them if that is best; a batch beyond the smallest or the largest likewise. "+
				"A trial that a method cannot run is left out. Workers and trainers are those of the method's file. Where it "+
				"has none, a buffer has five and three, and a queue those that stall least. Capacities in the files are for "+
				"batches of %d: a table of up to four of these holds as many of any size, at least two, and a larger table "+
				"as many rollouts.", trials, pilots, methodBatch),
			"Methods with the task's own answers know more than the others and have no rank. All comparisons of both tasks " +
				"are decided together (Holm).",
			fmt.Sprintf("With %d seeds these are up to %s runs, about %d hours of one core.", seeds,
				words.Thousands(entrants*(trials*pilots+seeds)), methodHours),
		},
		Blocks: 2, PilotRuns: pilots, Pilots: x.pilots, Arms: x.arms, Judge: x.judge,
	}
}

const (
	methodBatch = 480 // of configs.Bare, for which the files of methods are written
	methodDecay = 1   // weight decay, which the families without a buffer chose and configs.Bare has
	methodHours = 25  // of one core: 12 to 28 s a run on addition, 32 to 50 on countdown
)

// methodBatches are those of the first trials.
func methodBatches() []int { return []int{120, 240, 480, 960} }

// methodFamily is a published method as a way to use rollouts.
func methodFamily(m configs.Method) family {
	over := func(c run.Config) run.Config {
		c, err := c.WithMethod(m.Text)
		if err != nil {
			panic(fmt.Sprintf("study: method %s: %v", m.Name, err)) // it is embedded
		}
		return c
	}
	file := over(split{}.set(run.Default()))
	named := file.Pipeline.Trainers > 0 // of the split
	return family{
		name: m.Name, buffer: file.Replays(), times: 1, chose: func(*run.Config) {},
		start: func(c *run.Config) {
			c.Learner.WeightDecay = methodDecay
			*c = over(split{5, 3}.set(*c))
			if c.Pipeline.FilterGroups { // where hardly any answer is right, most groups are dropped
				*c = filled(*c)
			}
		},
		fit: func(c *run.Config) {
			if !file.Replays() && !named {
				fitQueue(c)
				return
			}
			c.Replay.Capacity = capacityFor(file.Replay.Capacity, c.Pipeline.Batch)
		},
	}
}

// capacityFor is the capacity for a batch of a file that is written for methodBatch.
func capacityFor(file, batch int) int {
	if file <= 4*methodBatch {
		return max(2*batch, file*batch/methodBatch)
	}
	return max(2*batch, file)
}

// entrant is a method or a family on one task.
type entrant struct {
	contest
	name   string // without the task's
	method bool
}

// entrants are all that run on a task, and the methods that cannot, with the reason.
func (x competition) entrants(t opponentTask, o Options) (list []entrant, left []string) {
	base := t.base(o) // made once, with the task
	t.base, t.transfer = func(Options) run.Config { return base }, true
	enter := func(f family, method bool) {
		e := entrant{name: f.name, method: method}
		f.name = t.name + ": " + f.name
		e.contest = contest{task: t, family: f, o: o, stages: contest.methodStages}
		if err := t.config(o, f, methodBatch, t.rateOf(methodBatch)).Validate(); err != nil {
			left = append(left, fmt.Sprintf("%s: %v", e.name, err))
			return
		}
		list = append(list, e)
	}
	for _, f := range x.families {
		enter(f, false)
	}
	for _, m := range x.methods {
		enter(methodFamily(m), true)
	}
	return list, left
}

// methodStages are those in which every entrant is tuned.
func (c contest) methodStages() []stage {
	return stagesThatRun([]stage{{"batch", always(c.batches(methodBatches()...)...)}, {"groups", halfAndTwiceTheGroup},
		{"rate", always(timesRate(minRate, 0.7, 1.4, maxRate)...)}, {"beyond", beyondRates},
		{"batch beyond", c.batchBeyond}})
}

// stagesThatRun leaves out of stages what would make a configuration invalid.
func stagesThatRun(stages []stage) []stage {
	for i, s := range stages {
		stages[i].variants = func(chosen Arm, before []Pilot) []variant { return thatRun(s.variants(chosen, before)) }
	}
	return stages
}

// thatRun adds to what variants clash with: a configuration that they would make invalid.
func thatRun(list []variant) (variants []variant) {
	for _, v := range list {
		variants = append(variants, variant{name: v.name, change: v.change, clashes: func(c run.Config) bool {
			if v.clashes != nil && v.clashes(c) {
				return true
			}
			v.change(&c)
			return c.Validate() != nil
		}})
	}
	return variants
}

func (x competition) pilots(o Options) (list []Pilot) {
	for _, t := range x.tasks {
		entrants, _ := x.entrants(t, o)
		for _, e := range entrants {
			list = append(list, e.pilots()...)
		}
	}
	for i := range list {
		list[i].by = meanOverSteps
	}
	return list
}

func (x competition) arms(o Options) (list []Arm) {
	for _, t := range x.tasks {
		entrants, _ := x.entrants(t, o)
		for _, e := range entrants {
			c, _ := e.chosen()
			list = append(list, Arm{e.family.name, c})
		}
	}
	return list
}

// contender is an entrant with its runs, compared with the opponent of its task.
type contender struct {
	entrant
	Runs
	ahead   estimate // mean pass@1 over the budget, less the opponent's
	verdict results.Verdict
}

// ranked reports whether it competes: it has no more information than its opponent.
func (c contender) ranked() bool { return c.method && !c.Config.Generate.ShowsAnswers() }

// heat is the competition on one task.
type heat struct {
	task       opponentTask
	opponent   contender
	contenders []contender // all others
	left       []string
}

// heat compares the runs of a task.
func (x competition) heat(t opponentTask, f *Found) heat {
	entrants, left := x.entrants(t, f.Options)
	h, top, strongest := heat{task: t, left: left}, math.Inf(-1), 0
	for i, e := range entrants {
		if e.method || e.family.buffer {
			continue
		}
		pilots := e.pilots()
		last := f.choice(pilots[len(pilots)-1])
		if v := mean(f.pilot(last.Name).over(meanOverSteps)); v > top {
			top, strongest = v, i
		}
	}
	for i, e := range entrants {
		c := contender{entrant: e, Runs: f.Of(e.family.name)}
		if i == strongest {
			h.opponent = c
		} else {
			h.contenders = append(h.contenders, c)
		}
	}
	for i := range h.contenders {
		h.contenders[i].ahead = difference(h.contenders[i].Runs, h.opponent.Runs, meanOverSteps)
	}
	return h
}

func (x competition) judge(f *Found) (Judgement, error) {
	var heats []heat
	var claims []claim
	var of []*contender
	for _, t := range x.tasks {
		h := x.heat(t, f)
		heats = append(heats, h)
		for i, c := range h.contenders {
			if !c.ranked() && (c.method || !c.family.buffer) {
				continue
			}
			claims = append(claims, claim{
				source: "our own", by: c.ahead.is(above(0)),
				text: fmt.Sprintf("On %s %s learns faster than the best training without a buffer.", t.name, c.name),
				measured: fmt.Sprintf("Mean pass@1 over the budget, less that of “%s”, which is the best without by pilots",
					h.opponent.name),
			})
			of = append(of, &h.contenders[i])
		}
	}
	j, err := f.judge(claims)
	if err != nil {
		return j, err
	}
	for i, c := range of {
		c.verdict = j.Findings[i].Verdict
	}
	var sections []results.Section
	for _, h := range heats {
		sections = append(sections, h.section(len(claims)))
	}
	j.Sections = append(append(sections, ingredientSection(heats)), j.Sections...)
	return j, nil
}

// section is the order of the methods on a task. among: how many comparisons are decided together.
func (h heat) section(among int) results.Section {
	slices.SortStableFunc(h.contenders, func(a, b contender) int { return cmp.Compare(b.effect(), a.effect()) })
	s := results.Section{Title: "The order on " + h.task.name}
	order := results.Grid{Title: "Methods by mean pass@1 over the budget", Columns: append([]string{"", "method"},
		contenderColumns()...), Note: "With 95% intervals of each alone; ahead and behind are said with all comparisons " +
		"of the study in mind, and the least effect is what these runs would have shown so. Compute is the method's over " +
		"the opponent's, to the accuracy at which that ended."}
	beside := results.Grid{Title: "Without a rank", Columns: append([]string{""}, contenderColumns()...),
		Note: "The house recipe and the families without a buffer were tuned before. Methods with experts have the task's " +
			"own answers."}
	beside.Rows = append(beside.Rows, append([]string{h.opponent.name}, h.opponent.cells(h.opponent.Runs, among)...))
	counts := make(map[results.Verdict]int)
	drawn := []contender{h.opponent}
	for _, c := range h.contenders {
		cells := c.cells(h.opponent.Runs, among)
		if !c.ranked() {
			beside.Rows = append(beside.Rows, append([]string{c.name}, cells...))
			if !c.method && c.family.buffer {
				drawn = append(drawn, c)
			}
			continue
		}
		counts[c.verdict]++
		order.Rows = append(order.Rows, append([]string{fmt.Sprint(len(order.Rows) + 1), c.name}, cells...))
		if len(order.Rows) <= 3 {
			drawn = append(drawn, c)
		}
	}
	s.Text = append(s.Text, fmt.Sprintf("The opponent is “%s”. Of %s %d learn faster, %d more slowly, and of %d it cannot be "+
		"told.", h.opponent.name, words.Plural(len(order.Rows), "method"), counts[results.Holds],
		counts[results.DoesNotHold], counts[results.Inconclusive]))
	if h.left != nil {
		s.Text = append(s.Text, "These cannot run on this task. "+strings.Join(h.left, ". ")+".")
	}
	s.Grids = []results.Grid{order, beside}
	var curves []line
	for i, c := range drawn {
		curves = append(curves, line{Runs: c.Runs, name: c.name, colour: i})
	}
	x := byCompute("compute, in rollouts generated and used once", 1+h.opponent.Config.Pipeline.RolloutCost)
	s.Figures = []results.Figure{medianFigure("The opponent, the house recipe and the first methods",
		"Lines are medians over seeds, bands quartiles.", x, curves...)}
	return s
}

// effect is how far it is ahead, negative infinity if it has no runs.
func (c contender) effect() float64 {
	v, _ := c.ahead.pairs.Mean()
	if math.IsNaN(v) {
		return math.Inf(-1)
	}
	return v
}

func contenderColumns() []string {
	return []string{"mean pass@1", "less the opponent's", "verdict", "compute", "least effect", "uses of a rollout",
		"fresh share", "loss", "what is in it", "batch, group and rate", "at an edge of the trials"}
}

func (c contender) cells(opponent Runs, among int) []string {
	verdict := map[results.Verdict]string{results.Holds: "ahead", results.DoesNotHold: "behind",
		results.Inconclusive: "inconclusive"}[c.verdict]
	ahead, compute, least := missing, missing, missing
	if c.Name != opponent.Name {
		ahead, compute = c.ahead.cell(), ratio(c.Runs, opponent, toLevelOf(opponent, computeTo)).cell()
		least = points(c.ahead.shown(among))
	}
	p := c.Config.Pipeline
	return []string{points(mean(c.over(meanOverSteps))), ahead, cmp.Or(verdict, missing), compute, least,
		times(c.median(inSummary(replayRatio))), freshShare(c.Config), c.Config.Learner.Objective,
		cmp.Or(strings.Join(methodIngredients(c.Config), ", "), "none of these"),
		fmt.Sprintf("%d, %d, %.2g", p.Batch, p.Group, c.Config.Learner.LearningRate), cmp.Or(c.atEdge(), missing)}
}

// freshShare is the part of each batch that is for rollouts never drawn before.
func freshShare(c run.Config) string {
	o, _ := c.Schedule()
	switch {
	case !c.Replays():
		return percent(1)
	case o.Mix > 0:
		return percent(1 / float64(1+o.Mix))
	case o.FreshAt != nil:
		return "by version"
	case o.FreshShare > 0:
		return percent(o.FreshShare)
	}
	return missing
}

// methodPart is an ingredient that a method has or has not.
type methodPart struct {
	name string
	in   func(run.Config) bool
}

func methodParts() []methodPart {
	source := func(is func(replay.Source) bool) func(run.Config) bool {
		return func(c run.Config) bool { return slices.ContainsFunc(c.Replay.Sources, is) }
	}
	return []methodPart{
		{"a buffer", run.Config.Replays},
		{"right answers kept", func(c run.Config) bool { return c.Replay.Retention == replay.KeepPositive }},
		{"old rollouts by prompt", source(func(s replay.Source) bool { return s.Pool == replay.PoolPrompts })},
		{"a share of fresh rollouts beside old ones", func(c run.Config) bool {
			return c.Replays() && freshShare(c) != missing
		}},
		{"priority", func(c run.Config) bool {
			weighed := source(func(s replay.Source) bool { return s.Weight != "" })
			return c.Replay.Sampler == replay.Prioritized || c.Replay.Sampler == replay.Ordered || weighed(c)
		}},
		{"prompts chosen", func(c run.Config) bool { return c.Prompts.Fraction > 0 || c.Prompts.Skip != "" }},
		{"groups or rollouts left out", func(c run.Config) bool {
			return c.Pipeline.FilterGroups || c.Replay.Select > 0 || source(func(s replay.Source) bool {
				return s.Pool == replay.PoolFresh && s.Where != ""
			})(c)
		}},
		{"a loss without a ratio", func(c run.Config) bool {
			return slices.Contains([]string{asymre, objective.OAPL{}.Name(), objective.TrajectoryBalance{}.Name()},
				c.Learner.Objective)
		}},
		{"a correction of staleness", func(c run.Config) bool {
			return len(c.Learner.Correction) > 0 || c.Learner.Proximal != "" || c.Learner.Objective == objective.CISPO
		}},
		{"experts", func(c run.Config) bool { return c.Generate.ShowsAnswers() }},
	}
}

func methodIngredients(c run.Config) (list []string) {
	for _, p := range methodParts() {
		if p.in(c) {
			list = append(list, p.name)
		}
	}
	return list
}

// ingredientSection tells which ingredients the methods have in common that are ahead.
func ingredientSection(heats []heat) results.Section {
	s := results.Section{Title: "What goes with the order", Text: []string{"Mean over the methods with an ingredient of how " +
		"far they are ahead, less that over the methods without, with the 95% interval of a difference of means over " +
		"methods (Welch). This is correlation, not cause: methods differ in several ingredients at once, some are in few " +
		"methods, and of twenty such intervals one leaves out 0 by chance. Methods with experts are left out."}}
	g := results.Grid{Title: "Ingredients", Columns: []string{"ingredient"}}
	for _, h := range heats {
		g.Columns = append(g.Columns, "methods on "+h.task.name, "more with it")
	}
	for _, p := range methodParts() {
		row, any := []string{p.name}, false
		for _, h := range heats {
			var with, without []float64
			for _, c := range h.contenders {
				switch v := c.effect(); {
				case !c.ranked() || math.IsInf(v, 0):
				case p.in(c.Config):
					with = append(with, v)
				default:
					without = append(without, v)
				}
			}
			more := missing
			if len(with) > 0 && len(without) > 0 {
				gain, low, high := results.MeanDifference(with, without, intervalLevel)
				more = fmt.Sprintf("%s (%s)", change(gain), cmp.Or(results.IntervalText(low, high, change), "too few"))
			}
			row, any = append(row, fmt.Sprintf("%d of %d", len(with), len(with)+len(without)), more), any || len(with) > 0
		}
		if any {
			g.Rows = append(g.Rows, row)
		}
	}
	s.Grids = []results.Grid{g}
	return s
}
