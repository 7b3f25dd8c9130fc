package results

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
)

// NamedRuns is an arm of a [Table]: the runs of one configuration, a seed each.
type NamedRuns struct {
	Name string
	Runs []*Run
}

// Table compares any number of arms with the first.
type Table struct {
	Target    Number   `json:"target"`    // held-out pass@1 fixed before the runs; none if they have different targets
	Claim     bool     `json:"claim"`     // every other arm shares ClaimRuns or more ended seeds with the first
	Statement string   `json:"statement"` // Caution and Findings in one
	Caution   string   `json:"caution"`   // why there is no claim; empty if there is one
	Findings  []string `json:"findings"`  // the result in words, a sentence or two for each arm
	Warnings  []string `json:"warnings"`  // what is not comparable between the arms
	Arms      []ArmRow `json:"arms"`
}

// ArmRow is an arm over its seeds. Runs that failed or have not ended count as far as they came.
type ArmRow struct {
	Name       string   `json:"name"`
	Task       string   `json:"task"`
	Seeds      []uint64 `json:"seeds"`      // ascending, as far as known
	Runs       int      `json:"runs"`       // with or without a known seed
	Unfinished int      `json:"unfinished"` // runs that were interrupted, or have no summary

	First Range `json:"pass1_first"`
	Level Range `json:"pass1_level"` // reached
	Last  Range `json:"pass1_last"`

	Reached  int   `json:"reached"`           // runs that reached the target
	ToTarget Range `json:"compute_to_target"` // infinite if not reached, and then null

	MeanAbsAdvantage Number `json:"mean_abs_advantage"` // medians over the seeds of the mean over a run
	ZeroVariance     Number `json:"zero_variance"`
	ESS              Number `json:"ess"`
	ReplayRatio      Number `json:"replay_ratio"` // medians over the seeds, at the end
	NeverDrawn       Number `json:"never_drawn"`

	Against *Against `json:"against,omitempty"` // the first arm; nil if the two cannot be compared
}

// Range is a quantity over seeds: its median between the least and the greatest.
type Range struct {
	Runs   int    `json:"runs"` // that have it
	Median Number `json:"median"`
	Low    Number `json:"low"`
	High   Number `json:"high"`
}

// RangeOf returns the range of values. NaN is left out; infinity is null.
func RangeOf(values []float64) Range {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	r := Range{Runs: len(known)}
	if r.Runs > 0 {
		r.Median, r.Low, r.High = Num(Median(known)), Num(slices.Min(known)), Num(slices.Max(known))
	}
	return r
}

// Against compares an arm with another on the seeds that they share.
type Against struct {
	Arm        string   `json:"arm"`        // the other
	Seeds      []uint64 `json:"seeds"`      // ascending
	Unfinished int      `json:"unfinished"` // shared seeds on which one of the two has not ended
	Difference Effect   `json:"difference"` // of pass@1 at the last step of the evaluation grid that both reached
	Ratio      Effect   `json:"ratio"`      // of compute to the target, by formula; no seeds without a target
}

// NewTable summarizes the arms and compares each with the first, seed by seed.
func NewTable(arms []NamedRuns) *Table {
	t := &Table{Target: commonTarget(arms)}
	for _, a := range arms {
		t.Arms = append(t.Arms, newArmRow(a, t.Target))
	}
	if len(arms) > 1 {
		t.Claim = true
		for i := range arms[1:] {
			pair := newAgainst(arms[0], arms[i+1], t.Target)
			t.Arms[i+1].Against = pair
			t.Claim = t.Claim && pair != nil && len(pair.Seeds) >= ClaimRuns && pair.Unfinished == 0
		}
	}
	t.Warnings = warnings(arms)
	t.word()
	return t
}

func newArmRow(a NamedRuns, target Number) ArmRow {
	row := ArmRow{Name: a.Name, Runs: len(a.Runs)}
	var first, level, last, reach, ratio, never []float64
	for _, r := range a.Runs {
		if seed, ok := r.seed(); ok && !slices.Contains(row.Seeds, seed) {
			row.Seeds = append(row.Seeds, seed)
		}
		if !r.ended() {
			row.Unfinished++
		}
		if r.Summary != nil {
			row.Task = r.Summary.Task
		}
		if n := len(r.Evals); n > 0 {
			first, last = append(first, r.Evals[0].Pass1), append(last, r.Evals[n-1].Pass1)
			level = append(level, Level(r.Evals).Float())
		}
		if target.Known() {
			to := math.Inf(1)
			if where := ReachOf(r.Evals, target.Float()); where.Reached {
				row.Reached++
				to = where.Compute.Float()
			}
			reach = append(reach, to)
		}
		ratio = append(ratio, r.Final(func(u *Update) Number { return u.ReplayRatio }).Float())
		never = append(never, r.neverDrawn().Float())
	}
	slices.Sort(row.Seeds)
	row.First, row.Level, row.Last, row.ToTarget = RangeOf(first), RangeOf(level), RangeOf(last), RangeOf(reach)
	row.ReplayRatio, row.NeverDrawn = RangeOf(ratio).Median, RangeOf(never).Median
	row.MeanAbsAdvantage = medianMean(a.Runs, func(u *Update) Number { return u.MeanAbsAdvantage })
	row.ZeroVariance = medianMean(a.Runs, func(u *Update) Number { return u.ZeroVariance })
	row.ESS = medianMean(a.Runs, func(u *Update) Number { return u.ESS })
	return row
}

// newAgainst compares an arm with the reference, nil if their tasks or evaluation sets differ.
func newAgainst(reference, arm NamedRuns, target Number) *Against {
	if both := []NamedRuns{reference, arm}; len(tasks(both)) > 1 || len(problems(both)) > 1 {
		return nil
	}
	others := seeded(reference)
	own := seeded(arm)
	a := &Against{Arm: reference.Name}
	var differences []float64
	var ratios ratios
	for _, seed := range sortedSeeds(own) {
		base, shared := others[seed]
		if !shared {
			continue
		}
		run := own[seed]
		a.Seeds = append(a.Seeds, seed)
		if !base.ended() || !run.ended() {
			a.Unfinished++
		}
		if b, r, ok := lastShared(base.Evals, run.Evals); ok {
			differences = append(differences, r.Pass1-b.Pass1)
		}
		if target.Known() {
			ratios.add(base.Evals, run.Evals, target.Float(), byCompute)
		}
	}
	a.Difference, a.Ratio = differenceEffect(differences), ratios.effect()
	return a
}

// lastShared returns the evaluations of two runs at the last step of the grid after the start that both reached, false
// if there is none.
func lastShared(a, b []Eval) (x, y Eval, ok bool) {
	for _, e := range a {
		if e.Grid <= 0 || ok && e.Grid == x.Grid { // the first of two at one step, as in curves
			continue
		}
		if i := slices.IndexFunc(b, func(o Eval) bool { return o.Grid == e.Grid }); i >= 0 {
			x, y, ok = e, b[i], true
		}
	}
	return x, y, ok
}

// word fills in the result in words: compute to the target, if the arms share one, and accuracy at equal compute.
func (t *Table) word() {
	t.Caution = t.caution()
	for _, row := range t.Arms[min(1, len(t.Arms)):] {
		switch a := row.Against; {
		case a == nil:
			t.Findings = append(t.Findings, fmt.Sprintf("%s and %s are not compared: they were evaluated on different "+
				"problems.", row.Name, t.Arms[0].Name))
		case len(a.Seeds) == 0:
			t.Findings = append(t.Findings, fmt.Sprintf("%s shares no seed with %s: they are not compared.",
				row.Name, a.Arm))
		case a.Ratio.Seeds > 0:
			t.Findings = append(t.Findings, ratioFinding(row.Name, a, t.Target.Float())+" "+differenceFinding("It", a))
		default:
			t.Findings = append(t.Findings, differenceFinding(row.Name, a))
		}
	}
	t.Statement = strings.TrimSpace(t.Caution + " " + strings.Join(t.Findings, " "))
}

// caution tells why there is no claim, "" if all pairs have enough seeds for one.
func (t *Table) caution() string {
	switch {
	case len(t.Arms) < 2:
		return "One arm: nothing to compare it with."
	case t.Claim:
		return ""
	}
	least, most, unfinished := math.MaxInt, 0, 0
	for _, row := range t.Arms[1:] {
		n := 0
		if row.Against != nil {
			n = len(row.Against.Seeds)
			unfinished += row.Against.Unfinished
		}
		least, most = min(least, n), max(most, n)
	}
	switch {
	case most == 0:
		return "No claim: no seed can be compared."
	case least >= ClaimRuns && unfinished > 0:
		return "Runs that have not ended are compared as far as they came: no claim."
	case least < most:
		return fmt.Sprintf("The arms share %d to %d seeds with %s; fewer than %d make no claim.", least, most,
			t.Arms[0].Name, ClaimRuns)
	default:
		return fewSeeds(most)
	}
}

// ratioFinding puts the cost of the target into words.
func ratioFinding(name string, a *Against, target float64) string {
	s, r := contest{target, name, a.Arm}.finding(a.Ratio), a.Ratio
	if n := len(a.Seeds); r.Seeds < ClaimRuns && n >= ClaimRuns {
		s += fmt.Sprintf(" Only %d of %d seeds have a ratio: no claim.", r.Seeds, n)
	}
	return s
}

// differenceFinding puts the accuracy at equal compute into words.
func differenceFinding(name string, a *Against) string {
	d := a.Difference
	if d.Seeds == 0 {
		return fmt.Sprintf("%s was not evaluated at any step of compute of %s.", name, a.Arm)
	}
	what := fmt.Sprintf("%s ended level with %s in held-out pass@1", name, a.Arm)
	if m := words.Fixed(math.Abs(d.Mean.Float()), 3); m != "0.000" {
		what = fmt.Sprintf("%s ended %s %s %s in held-out pass@1", name, m,
			map[bool]string{true: "above", false: "below"}[d.Mean.Float() > 0], a.Arm)
	}
	if d.Seeds == 1 {
		return what + " on one seed."
	}
	low, high := d.Low.Float(), d.High.Float()
	return fmt.Sprintf("%s (%d seeds, 95%% interval %s to %s).%s", what, d.Seeds, words.Signed(low, 3),
		words.Signed(high, 3), d.doubt(0, words.Fixed((high-low)/2, 3)+" or more"))
}

// warnings lists what is not comparable between the arms. METHODS.md asks that they share task, evaluation set, seeds,
// warm start and compute.
func warnings(arms []NamedRuns) []string {
	var w []string
	if names := tasks(arms); len(names) > 1 {
		w = append(w, fmt.Sprintf("The arms were trained on different tasks (%s): their accuracies cannot be compared.",
			strings.Join(names, ", ")))
	}
	if sizes := problems(arms); len(sizes) > 1 {
		w = append(w, fmt.Sprintf("The arms were evaluated on sets of different sizes (%s problems): they are not "+
			"compared.", joined(sizes)))
	}
	if targets := distinct(arms, func(s *Summary) Number { return s.Target }); len(targets) > 1 {
		w = append(w, fmt.Sprintf("The runs have different targets (%s): compute to target is left out.",
			joined(targets)))
	}
	w = append(w, seedWarnings(arms)...)
	w = append(w, runWarnings(arms)...)
	return append(w, reachWarning(arms)...)
}

// seedWarnings lists seeds that an arm has twice or does not share with the first, and warm starts that differ.
func seedWarnings(arms []NamedRuns) []string {
	var w []string
	for i, a := range arms {
		row := seeded(a)
		known, unknown := 0, 0
		for _, r := range a.Runs {
			if _, ok := r.seed(); ok {
				known++
			} else {
				unknown++
			}
		}
		if known > len(row) {
			w = append(w, fmt.Sprintf("%s has a seed more than once: the first run of each seed is compared.", a.Name))
		}
		if unknown > 0 {
			w = append(w, fmt.Sprintf("%s has %d of %d runs whose seed is not known: they are drawn but not compared.",
				a.Name, unknown, len(a.Runs)))
		}
		if i == 0 {
			continue
		}
		base := seeded(arms[0])
		if !slices.Equal(sortedSeeds(base), sortedSeeds(row)) {
			w = append(w, fmt.Sprintf("%s and %s have different seeds: only the seeds that both have are compared.",
				arms[0].Name, a.Name))
		}
		for _, seed := range sortedSeeds(row) {
			if b := base[seed]; b != nil && !sameStart(b, row[seed]) {
				w = append(w, fmt.Sprintf("%s and %s start at different accuracies on seed %d: they do not share a "+
					"warm start.",
					arms[0].Name, a.Name, seed))
				break
			}
		}
	}
	return w
}

// sameStart reports whether two runs' evaluations before the first update agree, or cannot be compared.
func sameStart(a, b *Run) bool {
	if len(a.Evals) == 0 || len(b.Evals) == 0 {
		return true
	}
	x, y := a.Evals[0], b.Evals[0]
	return x.Update > 0 || y.Update > 0 || x.Problems != y.Problems || x.Pass1 == y.Pass1
}

// runWarnings lists runs that have not ended, and folders that are in two arms.
func runWarnings(arms []NamedRuns) []string {
	var w []string
	where := make(map[string]string)
	for _, a := range arms {
		for i, r := range a.Runs {
			at := 0
			if n := len(r.Updates); n > 0 {
				at = r.Updates[n-1].Update
			}
			switch {
			case r.Summary == nil:
				w = append(w, fmt.Sprintf("%s has not ended: it failed, was killed or is still running; last seen at "+
					"update %d.",
					describeRun(a, i), at))
			case r.Summary.Ended == "interrupted":
				w = append(w, fmt.Sprintf("%s was interrupted at update %d.", describeRun(a, i), at))
			}
			if other, seen := where[r.Dir]; seen && r.Dir != "" {
				w = append(w, fmt.Sprintf("%s is in both %s and %s.", r.Dir, other, a.Name))
			}
			where[r.Dir] = a.Name
		}
	}
	return w
}

// reachWarning reports arms that had less compute than others.
func reachWarning(arms []NamedRuns) []string {
	if len(arms) == 0 {
		return nil
	}
	longest, shortest := arms[0], arms[0]
	for _, a := range arms {
		if furthest(a) > furthest(longest) {
			longest = a
		}
		if furthest(a) < furthest(shortest) {
			shortest = a
		}
	}
	if furthest(shortest) >= 0.95*furthest(longest) {
		return nil
	}
	return []string{fmt.Sprintf("%s goes to %.4g of compute, %s to %.4g: differences are taken at the last step that "+
		"both reached.",
		shortest.Name, furthest(shortest), longest.Name, furthest(longest))}
}

// furthest returns the largest compute that a run of the arm reached.
func furthest(a NamedRuns) float64 {
	far := 0.0
	for _, r := range a.Runs {
		if n := len(r.Updates); n > 0 {
			far = max(far, r.Updates[n-1].Compute)
		}
	}
	return far
}

// describeRun names a run in a warning.
func describeRun(a NamedRuns, i int) string {
	if seed, ok := a.Runs[i].seed(); ok {
		return fmt.Sprintf("%s, seed %d", a.Name, seed)
	}
	return fmt.Sprintf("%s, run %d of %d", a.Name, i+1, len(a.Runs))
}

// joined lists values for a sentence.
func joined[T any](values []T) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = fmt.Sprint(v)
	}
	return strings.Join(list, ", ")
}

// commonTarget returns the target of all runs with a summary, nothing if they differ.
func commonTarget(arms []NamedRuns) Number {
	targets := distinct(arms, func(s *Summary) Number { return s.Target })
	if len(targets) != 1 {
		return Number{}
	}
	return targets[0]
}

// tasks returns the names of the arms' tasks, each once.
func tasks(arms []NamedRuns) []string {
	return distinct(arms, func(s *Summary) string { return s.Task })
}

// distinct returns the values of the runs with a summary, each once, in order of appearance.
func distinct[T comparable](arms []NamedRuns, of func(*Summary) T) []T {
	var values []T
	for _, a := range arms {
		for _, r := range a.Runs {
			if r.Summary == nil {
				continue
			}
			if v := of(r.Summary); !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return values
}

// problems returns the sizes of the arms' evaluation sets, each once.
func problems(arms []NamedRuns) []int {
	var sizes []int
	for _, a := range arms {
		for _, r := range a.Runs {
			for _, e := range r.Evals {
				if !slices.Contains(sizes, e.Problems) {
					sizes = append(sizes, e.Problems)
				}
			}
		}
	}
	return sizes
}

// seeded returns an arm's runs by seed, the first of several with the same seed.
func seeded(arm NamedRuns) map[uint64]*Run {
	runs := make(map[uint64]*Run)
	for _, r := range arm.Runs {
		if seed, ok := r.seed(); ok && runs[seed] == nil {
			runs[seed] = r
		}
	}
	return runs
}

func sortedSeeds(runs map[uint64]*Run) []uint64 { return slices.Sorted(maps.Keys(runs)) }

// seed returns the run's seed, false if it is not known: a run outside a comparison that has not ended.
func (r *Run) seed() (uint64, bool) { return r.Seed, r.Summary != nil || r.Seed != 0 }

// ended reports whether the run has spent its budget.
func (r *Run) ended() bool { return r.Summary != nil && r.Summary.Ended != "interrupted" }

// neverDrawn is the share of all inserted rollouts that were never drawn; before the run has ended, of those in the
// table.
func (r *Run) neverDrawn() Number {
	if r.Summary != nil && r.Summary.Sampling != nil {
		return r.Summary.Sampling.NeverUsed
	}
	return r.Final(func(u *Update) Number { return u.NeverDrawn })
}

// Mean returns the mean of a metric over the run's updates that have it, nothing if none has.
func (r *Run) Mean(metric func(*Update) Number) Number {
	var sum, n float64
	for i := range r.Updates {
		if m := metric(&r.Updates[i]); m.Known() {
			sum += m.Float()
			n++
		}
	}
	return Num(sum / n)
}

// medianMean returns the median over the runs of a metric's mean over each run that has it.
func medianMean(runs []*Run, metric func(*Update) Number) Number {
	means := make([]float64, len(runs))
	for i, r := range runs {
		means[i] = r.Mean(metric).Float()
	}
	return RangeOf(means).Median
}

// Final returns the last known value of a metric, nothing if no update has it.
func (r *Run) Final(metric func(*Update) Number) Number {
	for i := len(r.Updates) - 1; i >= 0; i-- {
		if m := metric(&r.Updates[i]); m.Known() {
			return m
		}
	}
	return Number{}
}
