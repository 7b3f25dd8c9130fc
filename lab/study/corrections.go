package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func corrections() Study {
	return Study{
		Name: "corrections", Title: "What makes old rollouts and rounded engines safe to learn from?",
		Source: "METHODS section 8",
		Lead: []string{
			"Workers get new weights 0, 32 or 256 updates late, or rounded to int8. Each rollout is used once, so that " +
				"nothing but its age and its precision differs; by the queue alone it is 1.4 versions old. At 256 the first " +
				"256 of 512 updates learn from rollouts of the base model. Each correction is tried by itself: GRPO's clip on " +
				"π/b; the log-probs recomputed by the trainer and nothing corrected (“unweighted”, the default of several " +
				"trainers); the same, each token weighted by p/b, truncated; and masks, OPSM, M2PO and DPPO. M2PO, DPPO " +
				"and the token mask are tried without GRPO's clip, which they replace. With one update on each batch, as here, " +
				"CISPO's gradient is that of truncated weights: the two count as one. M2PO's forward pass costs nothing here, " +
				"so that all arms make the same number of updates.",
			"The task is additions below 50, from a warm start at pass@1 0.3. The clip, the unweighted loss, truncated " +
				"weights, M2PO and DPPO are tuned at staleness 256, by three learning rates at the default bound and " +
				"by two other bounds at the first rate. The masks and OPSM have the clip's settings.",
		},
		Pilots: correctionPilots, Arms: correctionArms, Judge: judgeCorrections,
	}
}

// method is a way to learn from rollouts of other policies.
type method struct {
	name   string
	bounds []float64 // to choose from, the default first; empty: it has the settings of the clip
	change func(l *run.Learner, bound float64)
	step   string // the name of its correction in metrics; empty: it has none
}

// The methods that claims compare.
const (
	clipped      = "clip"
	unweighted   = "unweighted"
	truncated    = "truncate"
	maskSequence = "mask sequence"
	m2po         = "m2po"
)

func methods() []method {
	correct := func(l *run.Learner, c objective.Correction) { l.Correction = []objective.Correction{c} }
	instead := func(l *run.Learner, c objective.Correction) {
		l.ClipLow, l.ClipHigh = 1, 1e6 // no ratio gets there
		correct(l, c)
	}
	return []method{
		{clipped, []float64{0.2, 0.1, 0.4}, func(l *run.Learner, e float64) { l.ClipLow, l.ClipHigh = e, e }, ""},
		{unweighted, []float64{0}, func(l *run.Learner, _ float64) { l.Proximal = string(objective.ProximalUnweighted) }, ""},
		{truncated, []float64{2, 1.2, 5}, func(l *run.Learner, high float64) {
			l.Proximal = string(objective.ProximalRecompute)
			correct(l, objective.Correction{Kind: objective.Truncate, High: high})
		}, "truncate"},
		{"mask token", nil, func(l *run.Learner, _ float64) {
			instead(l, objective.Correction{Kind: objective.MaskRatio})
		}, "mask_token"},
		{maskSequence, nil, func(l *run.Learner, _ float64) {
			correct(l, objective.Correction{Kind: objective.MaskRatio, Level: objective.LevelSequence, Low: 0.5, High: 2})
		}, "mask_sequence"},
		{"opsm", nil, func(l *run.Learner, _ float64) { correct(l, objective.Correction{Kind: objective.OPSM}) }, "opsm"},
		{m2po, []float64{0.04, 0.01, 0.16}, func(l *run.Learner, limit float64) {
			instead(l, objective.Correction{Kind: objective.M2PO, Limit: limit})
		}, "m2po"},
		{"dppo", []float64{0.2, 0.1, 0.4}, func(l *run.Learner, by float64) {
			instead(l, objective.Correction{Kind: objective.DPPO, Low: by, High: by})
		}, "dppo"},
	}
}

// condition is how far the workers' policy is from the trainer's.
type condition struct {
	staleness int // in versions, beyond what the queue has by itself
	precision policy.Precision
}

func (c condition) String() string {
	if c.precision == policy.Full {
		return fmt.Sprintf("staleness %d", c.staleness)
	}
	return fmt.Sprintf("staleness %d, %s", c.staleness, c.precision)
}

func (c condition) arm(method string) string { return c.String() + ": " + method }

// stale lists the float32 conditions by rising staleness; rounded is the one whose engine differs from the trainer.
func stale() []condition { return []condition{{0, policy.Full}, {32, policy.Full}, {256, policy.Full}} }

func rounded() condition { return condition{0, policy.Int8} }

// oldest is the stalest condition. Methods are tuned there, and all of them run there.
func oldest() condition { return stale()[len(stale())-1] }

// of returns the methods tried in a condition.
func (c condition) of() []method {
	tried := []string{clipped, unweighted, truncated}
	switch {
	case c == oldest():
		return methods()
	case c == rounded():
	case c.staleness == 0:
		tried = append(tried, m2po)
	default:
		tried = append(tried, maskSequence)
	}
	return slices.DeleteFunc(methods(), func(m method) bool { return !slices.Contains(tried, m.name) })
}

// After the first weights that are 256 versions late 256 updates remain.
const (
	correctionBatch   = 128
	correctionUpdates = 512
)

// correctionConfig is the configuration of a learner in a condition.
func correctionConfig(o Options, at condition, l run.Learner) run.Config {
	c := queueSplit().set(run.Default())
	c.Task = map[string]any{"name": "arithmetic", "operations": []any{"add"}, "max": 50, "held_out": labHeldOut}
	c.Warmup.Until = 0.3
	c.Pipeline.Batch, c.Pipeline.Group = correctionBatch, labGroup
	c.Pipeline.ForwardCost = new(0.0)
	c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*correctionBatch
	c.Generate.Precision = at.precision
	c.Learner = l
	c.Evaluate.Every, c.Evaluate.Target, c.Evaluate.Samples = correctionUpdates/16, 0.4, 0
	c.Budget.Compute = correctionUpdates
	c.Checkpoint.Every = 1000
	c = rehearsed(o, c)
	// workers set the pace of all arms: an update takes B mu/W
	c.Pipeline.WeightTransfer = float64(at.staleness*c.Pipeline.Batch) * c.Pipeline.RolloutCost /
		float64(c.Pipeline.Workers)
	return c
}

// pilot tries other learning rates and other bounds of a method, one at a time.
func (m method) pilot(o Options) Pilot {
	p := Pilot{Name: m.name + " at " + oldest().String(), of: lastThree, by: settled}
	add := func(name string, rate, bound float64) {
		l := run.Default().Learner
		l.LearningRate = rate
		m.change(&l, bound)
		p.Arms = append(p.Arms, Arm{m.name + ", " + name, correctionConfig(o, oldest(), l)})
	}
	for _, rate := range []float64{3e-4, 1.5e-4, 6e-4} {
		add(fmt.Sprintf("rate %g", rate), rate, m.bounds[0])
	}
	for _, bound := range m.bounds[1:] {
		add(fmt.Sprintf("bound %g", bound), 3e-4, bound)
	}
	return p
}

// learner returns what the method's pilot chose. A method without a pilot changes what the clip's chose.
func (m method) learner(o Options) run.Learner {
	if len(m.bounds) > 0 {
		return o.choice(m.pilot(o)).Config.Learner
	}
	clip := methods()[0]
	l := clip.learner(o)
	m.change(&l, 0)
	return l
}

func correctionPilots(o Options) (list []Pilot) {
	for _, m := range methods() {
		if len(m.bounds) > 0 {
			list = append(list, m.pilot(o))
		}
	}
	return list
}

func correctionArms(o Options) (arms []Arm) {
	for _, at := range append(stale(), rounded()) {
		for _, m := range at.of() {
			arms = append(arms, Arm{at.arm(m.name), correctionConfig(o, at, m.learner(o))})
		}
	}
	return arms
}

func judgeCorrections(f *Found) (Judgement, error) {
	// each compares two methods in several conditions.
	each := func(at []condition, r rule, m measure, a, b string) []test {
		var list []test
		for _, c := range at {
			list = append(list, difference(f.Of(c.arm(a)), f.Of(c.arm(b)), m).named(c.arm(a+" less "+b), r))
		}
		return list
	}
	fresh, old := stale()[0], oldest()
	var falls []test
	var clips []Runs
	for _, c := range stale()[1:] {
		clip := f.Of(c.arm(clipped))
		falls = append(falls, unsteadier(clip, f.Of(c.arm(maskSequence))).named(c.String(), above(0)))
		clips = append(clips, clip)
	}
	// fromFresh compares a method in several conditions with itself at staleness 0.
	fromFresh := func(at []condition, r rule, method string) []test {
		var list []test
		for _, c := range at {
			list = append(list, difference(f.Of(c.arm(method)), f.Of(fresh.arm(method)), settled).named(c.arm(method), r))
		}
		return list
	}
	const settledMean = "Pass@1, the mean of the last three evaluations, "
	return f.judge([]claim{
		{
			source: "M2PO", text: "With M2PO rollouts of 256 versions ago train as well as fresh ones.",
			by:       difference(f.Of(old.arm(m2po)), f.Of(fresh.arm(m2po)), settled).is(atLeast(-alike)),
			measured: settledMean + "of M2PO at staleness 256, where it was tuned, less that at 0",
			more: fmt.Sprintf("With GRPO's clip: %s. M2PO less the clip, both at 256: %s.",
				difference(f.Of(old.arm(clipped)), f.Of(fresh.arm(clipped)), settled),
				difference(f.Of(old.arm(m2po)), f.Of(old.arm(clipped)), settled)),
		},
		{
			source: "TIS", text: "A rounded engine costs a trainer that corrects nothing, and truncated weights repair it.",
			by: append(fromFresh([]condition{rounded()}, below(0), unweighted),
				fromFresh([]condition{rounded()}, atLeast(-alike), truncated)...),
			measured: settledMean + "with a rounded copy less that at staleness 0 with float32, unweighted and truncated",
		},
		{
			source: "AReaL",
			text:   "Staleness costs a trainer that corrects nothing, and truncated weights get more at each.",
			by: append(fromFresh(stale()[1:], below(0), unweighted),
				each(stale()[1:], above(0), settled, truncated, unweighted)...),
			measured: settledMean + "unweighted less that at staleness 0, and truncated less unweighted",
		},
		{
			source: "GSPO, DeepSeek-V3.2", text: "Sequence masks prevent falls that clipping by token allows.",
			by: falls, premise: wavers(clips...), note: samplingNote,
			measured: unsteadiness + ", with the clip alone less with the clip and a sequence mask",
			more: fmt.Sprintf("Runs that ended below half of their best: %s.", f.crashed(stale()[1:], clipped,
				maskSequence)),
		},
		{
			source: "CISPO", text: "CISPO keeps what PPO's clipping of stale tokens loses.",
			by:       each(stale()[1:], above(0), settled, truncated, clipped),
			measured: settledMean + "of truncated weights, which are CISPO here, less that with the clip",
		},
	}, f.correctionPage()...)
}

// crashed counts the crashed runs of methods over conditions, in words.
func (f *Found) crashed(at []condition, methods ...string) string {
	var list []string
	for _, m := range methods {
		n, of := 0, 0
		for _, c := range at {
			a := f.Of(c.arm(m))
			n, of = n+a.crashes(), of+len(a.Runs)
		}
		list = append(list, fmt.Sprintf("%s %d of %d", m, n, of))
	}
	return sortedNames(list)
}

func (f *Found) correctionPage() []results.Section {
	var sections []results.Section
	for _, c := range append(stale(), rounded()) {
		var arms []Runs
		for _, m := range c.of() {
			arms = append(arms, f.Of(c.arm(m.name)))
		}
		drawn := namedLines(0, func(i int) string { return c.of()[i].name }, arms...)
		sections = append(sections, results.Section{
			Title: "At " + c.String(),
			Figures: []results.Figure{withTarget(medianFigure("Accuracy against compute", "", inUpdates(arms[0].Arm),
				drawn...), arms[0].Config.Evaluate.Target)},
			Grids: []results.Grid{correctionTable(c, arms)},
		})
	}
	return sections
}

// late is the mean of a metric over the second half of a run's compute.
func late(of metric) measure {
	return func(a Runs, r *results.Run) float64 {
		return meanBetween(r, of, 0.5*a.Config.Budget.Compute*unit(a.Config), math.Inf(1))
	}
}

func correctionTable(at condition, arms []Runs) results.Grid {
	corrected := func(a Runs) string {
		tried := at.of()
		i := slices.IndexFunc(tried, func(m method) bool { return at.arm(m.name) == a.Name })
		if tried[i].step == "" {
			return missing
		}
		share := func(u *results.Update) results.Number { return u.Other["corrected_"+tried[i].step] }
		return percentFine(a.median(late(share)))
	}
	columns := []column{
		medianOf("pass@1", settled, points),
		compared("above the clip", arms[0], atEqualCompute),
		medianOf("wavers by", wavering, points),
		{"crashed", func(a Runs) string { return fmt.Sprint(a.crashes()) }},
		plainMedian("staleness", late(meanStaleness), whole),
		plainMedian("ESS/n", late(effectiveSize), times),
		plainMedian("clipped", late(func(u *results.Update) results.Number { return u.ClipFraction }), percentFine),
		{"corrected", corrected},
	}
	if at.precision != policy.Full {
		columns = append(columns, plainMedian("mean |log k|", inSummary(func(s *results.Summary) float64 {
			if s.Mismatch == nil {
				return math.NaN()
			}
			return s.Mismatch.AbsLog.Float()
		}), number))
	}
	return table("Methods", "Medians over seeds. Accuracy is the mean of the last three evaluations, quartiles in "+
		"brackets; differences are means with 95% intervals. "+
		"Clipped and corrected are shares of tokens. They, staleness in versions and ESS/n are means over the "+
		"second half. |log k| is the mismatch at the end, in nats. A run crashed if it failed or ended with less than half of "+
		"its best accuracy.", arms, columns...)
}
