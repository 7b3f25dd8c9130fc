package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func corrections() Study {
	return Study{
		Name: "corrections", Title: "What makes old rollouts and rounded engines safe to learn from?",
		Source: "METHODS section 8",
		Lead: []string{
			"Workers get new weights 0, 8, 32 or 256 updates late, or rounded to bfloat16 or int8. Each rollout is " +
				"used once, so that nothing but its age and its precision differs; by the queue alone it is 1.4 versions " +
				"old. At 256 the first 256 of 640 updates learn from rollouts of the base model. Each correction is tried " +
				"by itself: GRPO's clip on π/b; the log-probs recomputed by the trainer and nothing corrected " +
				"(“unweighted”, the default of several trainers); these weighted by min(k, 2); and masks, OPSM, M2PO, DPPO " +
				"and CISPO. M2PO, DPPO and the token mask are tried without GRPO's clip, which they replace. M2PO's " +
				"forward pass costs nothing here, so that all arms have as many updates.",
			"The task is additions below 50. The policy is warmed up to pass@1 0.3 on training problems, and seeds are " +
				"paired. The bounds are the defaults. The learning rate, 3e-4 for all, is the " +
				"better of two for the clip at staleness 0, 32 and 256, on another base model and seed.",
		},
		Arms: correctionArms, Judge: judgeCorrections,
	}
}

// method is a way to learn from rollouts of other policies.
type method struct {
	name   string
	change func(*run.Learner)
	step   string // the name of its correction in metrics; empty: it has none
}

// The methods that claims compare.
const (
	clipped      = "clip"
	unweighted   = "unweighted"
	truncated    = "truncate"
	maskSequence = "mask sequence"
	m2po         = "m2po"
	cispo        = "cispo"
)

func methods() []method {
	only := func(c objective.Correction) func(*run.Learner) {
		return func(l *run.Learner) { l.Correction = []objective.Correction{c} }
	}
	instead := func(c objective.Correction) func(*run.Learner) {
		return func(l *run.Learner) {
			l.ClipLow, l.ClipHigh = 1, 1e6 // no ratio gets there
			l.Correction = []objective.Correction{c}
		}
	}
	return []method{
		{clipped, func(*run.Learner) {}, ""},
		{unweighted, func(l *run.Learner) { l.Proximal = string(objective.ProximalUnweighted) }, ""},
		{truncated, func(l *run.Learner) {
			l.Proximal = string(objective.ProximalRecompute)
			l.Correction = []objective.Correction{{Kind: objective.Truncate}}
		}, "truncate"},
		{"mask token", instead(objective.Correction{Kind: objective.MaskRatio}), "mask_token"},
		{maskSequence, only(objective.Correction{Kind: objective.MaskRatio, Level: objective.LevelSequence, Low: 0.5,
			High: 2}), "mask_sequence"},
		{"opsm", only(objective.Correction{Kind: objective.OPSM}), "opsm"},
		{m2po, instead(objective.Correction{Kind: objective.M2PO}), "m2po"},
		{"dppo", instead(objective.Correction{Kind: objective.DPPO}), "dppo"},
		{cispo, func(l *run.Learner) { // with the mean of the others
			l.Objective, l.Normalisation = objective.CISPO, string(objective.PerSequence)
		}, ""},
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

// stale are the conditions without mismatch, rounded those with it.
func stale() []condition {
	var list []condition
	for _, s := range []int{0, 8, 32, 256} {
		list = append(list, condition{s, policy.Full})
	}
	return list
}

func rounded() []condition { return []condition{{0, policy.BFloat16}, {0, policy.Int8}} }

// of returns the methods tried in a condition.
func (c condition) of() []method {
	tried := []string{clipped, unweighted, truncated, m2po, cispo} // a point between 0 and 32 for the claims
	if c.precision != policy.Full {
		tried = []string{clipped, unweighted, truncated, "mask token", maskSequence}
	}
	return slices.DeleteFunc(methods(), func(m method) bool {
		return (c.staleness == 8 || c.precision != policy.Full) && !slices.Contains(tried, m.name)
	})
}

// After the first weights that are 256 versions late 384 updates remain.
const (
	correctionBatch   = 128
	correctionUpdates = 640
)

func correctionArms(o Options) []Arm {
	var arms []Arm
	for _, at := range append(stale(), rounded()...) {
		for _, m := range at.of() {
			c := queueSplit().set(run.Default())
			c.Task = map[string]any{"name": "arithmetic", "operations": []any{"add"}, "max": 50,
				"held_out": labHeldOut}
			c.Warmup.Until = 0.3
			c.Pipeline.Batch, c.Pipeline.Group = correctionBatch, labGroup
			c.Pipeline.ForwardCost = new(0.0)
			c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*correctionBatch
			c.Generate.Precision = at.precision
			c.Learner.LearningRate = 3e-4
			c.Evaluate.Every, c.Evaluate.Target, c.Evaluate.Samples = correctionUpdates/20, 0.4, 0
			c.Budget.Compute = correctionUpdates
			c.Checkpoint.Every = 1000
			c = rehearsed(o, c)
			// workers set the pace of all arms: an update takes B mu/W
			c.Pipeline.WeightTransfer = float64(at.staleness*c.Pipeline.Batch) * c.Pipeline.RolloutCost /
				float64(c.Pipeline.Workers)
			m.change(&c.Learner)
			arms = append(arms, Arm{at.arm(m.name), c})
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
	fresh, oldest := stale()[0], stale()[len(stale())-1]
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
			by:       difference(f.Of(oldest.arm(m2po)), f.Of(fresh.arm(m2po)), settled).is(atLeast(-alike)),
			measured: settledMean + "of M2PO at staleness 256 less that at 0",
			more: fmt.Sprintf("With GRPO's clip: %s. M2PO less the clip, both at 256: %s.",
				difference(f.Of(oldest.arm(clipped)), f.Of(fresh.arm(clipped)), settled),
				difference(f.Of(oldest.arm(m2po)), f.Of(oldest.arm(clipped)), settled)),
		},
		{
			source: "TIS", text: "A rounded engine costs a trainer that corrects nothing, and truncated weights repair it.",
			by:       append(fromFresh(rounded(), below(0), unweighted), fromFresh(rounded(), atLeast(-alike), truncated)...),
			measured: settledMean + "with a rounded copy less that at staleness 0 with float32, unweighted and with min(k, 2)",
		},
		{
			source: "AReaL",
			text:   "Staleness costs a trainer that corrects nothing, and truncated weights get more at each.",
			by: append(fromFresh(stale()[1:], below(0), unweighted),
				each(stale()[1:], above(0), settled, truncated, unweighted)...),
			measured: settledMean + "unweighted less that at staleness 0, and with min(k, 2) less that unweighted",
		},
		{
			source: "GSPO, DeepSeek-V3.2", text: "Sequence masks prevent falls that clipping by token allows.",
			by:       each(stale()[2:], above(0), unsteady, clipped, maskSequence),
			measured: "How unsteady a run is, with the clip alone less with the clip and a sequence mask",
			more: fmt.Sprintf("Runs that ended below half of their best: %s.", f.crashed(stale()[2:], clipped,
				maskSequence)),
		},
		{
			source: "CISPO", text: "CISPO keeps what PPO's clipping loses.",
			by:       each(stale(), above(0), settled, cispo, clipped),
			measured: settledMean + "of CISPO less that with the clip",
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
	for _, c := range append(stale(), rounded()...) {
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
		medianOf("unsteady by", unsteady, points),
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
