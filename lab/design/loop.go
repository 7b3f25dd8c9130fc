package design

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Loop is what a training loop measured of itself while it ran: generation and updates take turns on the same machines,
// or the trainer waits for generators elsewhere.
type Loop struct {
	Batches int `json:"batches"` // measured, >= 1
	Batch   int `json:"batch"`   // rollouts that an update learns from
	Group   int `json:"group"`   // rollouts of a prompt

	Generate *float64 `json:"generate_seconds"` // of one rollout: what the loop waited for it; null: not measured
	Update   *float64 `json:"update_seconds"`   // of one rollout in an update; null: not measured

	Groups int      `json:"groups"`      // generated
	Flat   int      `json:"flat_groups"` // of them those in which all rewards were equal
	Right  *float64 `json:"right"`       // share of rollouts with the better of two rewards; null: there were others
	Asked  *float64 `json:"asked"`       // how often the run asks each prompt, on average; null: nobody knows

	ESS       []AgeESS   `json:"ess"`       // by age, from importance ratios; none if they were not reported
	Gradients *Gradients `json:"gradients"` // null: not measured
}

// AgeESS is the effective sample size over the size of the draws of a range of ages in versions.
type AgeESS struct {
	First  int     `json:"first"`
	Last   int     `json:"last"`
	ESS    float64 `json:"ess"` // in (0, 1]
	Tokens float64 `json:"tokens"`
}

// Gradients are the squared norms of the mean gradient of a part of a batch and of the whole, [part, whole] of an
// update each, in any unit.
type Gradients struct {
	Part    int          `json:"part"`  // rollouts
	Whole   int          `json:"whole"` // rollouts, more than Part
	Squares [][2]float64 `json:"squares"`
}

// Answer is what the figures say of a way to use rollouts.
type Answer string

const (
	Pays       Answer = "pays"
	DoesNotPay Answer = "does not pay"
	CannotTell Answer = "cannot tell"
)

// Verdict is an answer, with the sentence that gives its reason. Cost is the compute for the same progress over that of
// using each rollout once in batches of the loop's size, with the least and the most that the figures leave possible;
// zero without an estimate. Most is null if it is infinite.
type Verdict struct {
	Answer  Answer   `json:"answer"`
	Updates int      `json:"updates,omitempty"` // on each batch
	Batch   int      `json:"batch,omitempty"`   // rollouts of an update
	Cost    float64  `json:"cost,omitempty"`
	Least   float64  `json:"least,omitempty"`
	Most    *float64 `json:"most,omitempty"`
	Why     string   `json:"why"`
}

// LoopAdvice says whether reuse, a table or another batch would pay in a loop.
type LoopAdvice struct {
	Reuse Verdict `json:"reuse"`
	Table Verdict `json:"table"`
	Size  Verdict `json:"batch"`
	Line  string  `json:"line"` // all of it
}

// Validate reports every figure out of its range.
func (l Loop) Validate() error {
	var problems option.Problems
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	problems.Check(l.Batches >= 1 && l.Batches <= 1e9, "batches", l.Batches, "1 to 1e9")
	problems.Check(l.Batch >= 1 && l.Batch <= 1e9, "batch", l.Batch, "1 to 1e9 rollouts")
	problems.Check(l.Group >= 1 && l.Group <= 1e9, "group", l.Group, "1 to 1e9 rollouts")
	problems.Check(l.Flat >= 0 && l.Flat <= l.Groups, "flat_groups", l.Flat, "0 to the %d groups", l.Groups)
	problems.Check(l.Generate == nil || *l.Generate == 0 || positive(*l.Generate), "generate_seconds", value(l.Generate),
		"seconds, 0 or more, or null")
	problems.Check(l.Update == nil || positive(*l.Update), "update_seconds", value(l.Update), "seconds above 0, or null")
	problems.Check(l.Right == nil || *l.Right >= 0 && *l.Right <= 1, "right", value(l.Right), "a share, or null")
	problems.Check(l.Asked == nil || *l.Asked > 0, "asked", value(l.Asked), "more than 0, or null")
	for i, e := range l.ESS {
		key := fmt.Sprintf("ess[%d].", i)
		problems.Check(e.First >= 0 && e.Last >= e.First && e.Last <= 1e6, key+"last", e.Last, "%d to 1e6 versions",
			e.First)
		problems.Check(e.ESS > 0 && e.ESS <= 1.001, key+"ess", e.ESS, "above 0, up to 1")
		problems.Check(e.Tokens >= 0, key+"tokens", e.Tokens, "0 or more")
	}
	if g := l.Gradients; g != nil {
		problems.Check(g.Part >= 1 && g.Part < g.Whole && g.Whole <= 1e9, "gradients.part", g.Part, "1 to below "+
			"the %d rollouts of the whole", g.Whole)
		for i, pair := range g.Squares {
			ok := pair[0] >= 0 && pair[1] >= 0 && pair[0] <= maxVariance && pair[1] <= maxVariance
			problems.Check(ok, fmt.Sprintf("gradients.squares[%d]", i), pair, "squares of norms, 0 to %v", maxVariance)
		}
	}
	return problems.Err()
}

func value(of *float64) any {
	if of == nil {
		return "null"
	}
	return *of
}

// cost returns the rollout cost mu, within the range of [Known].
func (l Loop) cost() (mu float64, known bool) {
	if l.Generate == nil || l.Update == nil {
		return 0, false
	}
	return min(max(*l.Generate / *l.Update, 1e-3), 1e5), true
}

// Advise says whether reuse, a table or another batch would pay, and where the figures do not decide it. Without
// measurements of the coherence all from [Assumptions] to 1 is left possible, and a noise scale of half to twice what
// was measured.
func (l Loop) Advise() (LoopAdvice, error) {
	if err := l.Validate(); err != nil {
		return LoopAdvice{}, err
	}
	s := l.noiseScale()
	a := LoopAdvice{Reuse: l.reuse(s), Table: l.table(), Size: l.size(s)}
	if a.Reuse.Answer == Pays && a.Size.Answer == Pays {
		a.Size.Why += ", which does not add to reuse"
	}
	if also := ": " + s.why; s.why != "" && strings.HasSuffix(a.Reuse.Why, also) && strings.HasSuffix(a.Size.Why, also) {
		a.Size.Why = strings.TrimSuffix(a.Size.Why, also) + " either"
	}
	a.Line = fmt.Sprintf("after %s of %d rollouts: %s; %s; %s. Measured: %s", words.Plural(l.Batches, "batch", "batches"),
		l.Batch, a.Reuse.Why, a.Table.Why, a.Size.Why, l.figures(s))
	return a, nil
}

// scale is the noise scale S: an estimate, and the least and the most that it may be, +Inf included. why is the reason
// if it is not known at all.
type scale struct {
	mid, low, high float64
	why            string
}

// noiseScale estimates S from the norms of gradients of two sizes (McCandlish et al. 2018, arXiv 1812.06162, appendix
// A.1): E|g_b|^2 = |g|^2 + tr(Sigma)/b. Bounds are two standard errors of the means over updates and scaleFactor.
func (l Loop) noiseScale() scale {
	unknown := scale{0, 0, math.Inf(1), "the gradient's noise is not measured: accumulate each update over two or more " +
		"micro-batches"}
	g := l.Gradients
	if g == nil || len(g.Squares) < 2 {
		return unknown
	}
	b, whole := float64(g.Part), float64(g.Whole)
	var signals, noises []float64
	for _, pair := range g.Squares {
		signals = append(signals, (whole*pair[1]-b*pair[0])/(whole-b))
		noises = append(noises, (pair[0]-pair[1])/(1/b-1/whole))
	}
	signal, signalError := meanAndError(signals)
	noise, noiseError := meanAndError(noises)
	if !(signal+2*signalError > 0) { // every gradient was 0
		unknown.why = "the gradient was 0 in every batch"
		return unknown
	}
	s := scale{low: max(noise-2*noiseError, 0) / (signal + 2*signalError) / scaleFactor, high: math.Inf(1)}
	if signal > 2*signalError {
		s.mid = max(noise, 0) / signal
		s.high = (noise + 2*noiseError) / (signal - 2*signalError) * scaleFactor
		return s
	}
	s.mid = s.low
	s.why = "the gradient's signal does not stand out from its noise yet"
	return s
}

// meanAndError returns the mean of at least two values and its standard error.
func meanAndError(values []float64) (mean, err float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		err += square(v-mean) / (n - 1) / n
	}
	return mean, math.Sqrt(err)
}

// theories returns those that the figures leave possible, the nominal one first.
func (l Loop) theories(s scale) []Theory {
	k := Assumptions()
	k.RolloutCost, _ = l.cost()
	k.Batch = l.Batch
	var noise []Noise
	for _, e := range l.ESS {
		if e.First < maxUpdates { // older than reuse lets rollouts become
			noise = append(noise, Noise{Staleness: min(float64(e.First+e.Last)/2, maxUpdates), Variance: 1 / e.ESS,
				Count: int(min(e.Tokens, 1e9))})
		}
	}
	if len(noise) > 1 { // of one age nobody knows how noise grows
		if fitted, err := Fit(Measurements{Noise: noise, Proxy: true}); err == nil {
			k.Profile = fitted.Table
		}
	}
	nominal := k.Theory().prolonged()
	nominal.NoiseScale = min(s.mid, 1e12)
	list := []Theory{nominal}
	for _, noise := range []float64{s.low, min(s.high, 1e12)} {
		for _, coherence := range []float64{minCoherence, maxCoherence} {
			t := nominal
			t.NoiseScale, t.Coherence = noise, coherence
			list = append(list, t)
		}
	}
	return list
}

// relative returns the cost of a use over that of using each rollout once in the loop's batches: the nominal one, the
// least and the most.
func (l Loop) relative(theories []Theory, p Point, batch int) (cost, least, most float64) {
	least = math.Inf(1)
	for i, t := range theories {
		r := t.costAt(p, batch) / t.costAt(Point{1, 1}, l.Batch)
		if i == 0 {
			cost = r
		}
		least, most = min(least, r), max(most, r)
	}
	return cost, least, most
}

func priced(answer Answer, cost, least, most float64) Verdict {
	v := Verdict{Answer: answer, Cost: cost, Least: least}
	if !math.IsInf(most, 0) {
		v.Most = &most
	}
	return v
}

// reuse judges several updates on each batch: the number of them whose cost is surely the least.
func (l Loop) reuse(s scale) Verdict {
	if _, known := l.cost(); !known {
		return Verdict{Answer: CannotTell, Why: "cannot tell whether reuse pays: the times of generation " +
			"and update are not measured"}
	}
	theories := l.theories(s)
	best := Verdict{}
	floor := math.Inf(1) // the least that any number of updates may cost
	for i := 2; i <= maxUpdates; i++ {
		cost, least, most := l.relative(theories, Point{float64(i), float64(i)}, l.Batch)
		floor = min(floor, least)
		if best.Updates == 0 || most < *best.Most {
			best = priced(Pays, cost, least, most)
			best.Updates = i
		}
	}
	times := fmt.Sprintf("%d updates on each batch would cost %.2f (%.2f to %.2f) of one for the same progress",
		best.Updates, best.Cost, best.Least, *best.Most)
	switch {
	case *best.Most <= keepAbove:
		best.Why = "reuse pays: " + times
	case floor >= keepAbove:
		best.Answer = DoesNotPay
		best.Why = "reuse does not pay: " + times
	default:
		best.Answer = CannotTell
		why := s.why
		if why == "" {
			why = "it depends on how much of a rollout's noise an update leaves, which is not measured: try it"
		}
		best.Why = fmt.Sprintf("cannot tell whether reuse pays: %d updates on each batch may cost %.2f to %.2f of one: %s",
			best.Updates, best.Least, *best.Most, why)
	}
	return best
}

// What keeping right answers needs to be worth a table, by the situations in which the laboratory judged it: prompts
// that come back and rewards of right or wrong. Groups without a signal are those that other ways learn nothing of.
const (
	manyFlat = 0.5
	oftAsked = 5
)

// table judges a table. That old rollouts alone add nothing to reuse, and that kept right answers do, are results of
// the laboratory (docs/studies.md), not of the theory.
func (l Loop) table() Verdict {
	const plain = "in our studies recent rollouts gained nothing over reuse"
	const kept = "keeping right answers"
	flat := float64(l.Flat) / float64(max(l.Groups, 1))
	tell := func(answer Answer, format string, args ...any) Verdict {
		head := map[Answer]string{Pays: "a table pays", DoesNotPay: "a table does not pay",
			CannotTell: "cannot tell whether a table pays"}[answer]
		return Verdict{Answer: answer, Why: head + ": " + fmt.Sprintf(format, args...)}
	}
	switch {
	case l.Right == nil && l.Groups == 0:
		return tell(CannotTell, "no group had its rewards when it was inserted")
	case l.Right == nil:
		return tell(DoesNotPay, "%s, and %s needs rewards of right or wrong", plain, kept)
	case *l.Right == 0:
		return tell(DoesNotPay, "no answer was right, so there is none to keep")
	case *l.Right == 1:
		return tell(DoesNotPay, "every answer was right")
	case l.Asked != nil && *l.Asked < 2:
		return tell(DoesNotPay, "%s, and prompts do not come back, so kept right answers are of other prompts", plain)
	case l.Asked == nil:
		return tell(CannotTell, "%s gains where prompts come back, and how often they do is not known", kept)
	case flat >= manyFlat && *l.Asked >= oftAsked:
		return tell(Pays, "%s of groups have no signal, prompts come back %.3g times, and %s of them needed 0.40 to "+
			"0.60 of the compute in the laboratory", words.Percent(flat, 0), *l.Asked, kept)
	}
	return tell(CannotTell, "%s gains where prompts come back often and few answers are right: here %s are right and "+
		"prompts come back %.3g times", kept, words.Percent(*l.Right, 0), *l.Asked)
}

// size judges the batch.
func (l Loop) size(s scale) Verdict {
	if s.high > 1e12 && s.low == 0 {
		return Verdict{Answer: CannotTell, Why: "cannot tell whether another batch pays: " + s.why}
	}
	once := Point{1, 1}
	theories := l.theories(s)
	if _, known := l.cost(); !known {
		for i := range theories { // the ratio of queues does not depend on it
			theories[i].TrainCost = 1
		}
	}
	nominal := theories[0]
	smaller := l.smaller(nominal)
	if cost, least, most := l.relative(theories, once, smaller); smaller < l.Batch && most <= keepAbove {
		v := priced(Pays, cost, least, most)
		v.Batch = smaller
		v.Why = fmt.Sprintf("a smaller batch pays: %d rollouts would cost %.2f (%.2f to %.2f) of this one for the same "+
			"progress", smaller, cost, least, most)
		return v
	}
	// An update of twice the batch makes 2 (B + S)/(2B + S) of the progress: 4/3 where the noise scale is the batch.
	least, most := math.Inf(1), 0.0
	for _, t := range theories {
		progress := 2 * (1 - float64(l.Batch)/(2*float64(l.Batch)+t.NoiseScale))
		least, most = min(least, progress), max(most, progress)
	}
	if most <= 4./3 {
		return Verdict{Answer: DoesNotPay, Why: "another batch does not pay"}
	}
	return Verdict{Answer: CannotTell, Batch: 2 * l.Batch, Why: fmt.Sprintf("cannot tell whether a larger batch pays: "+
		"%d rollouts do if they take less than %.2f times as long", 2*l.Batch, least)}
}

// leastPart is the least part of the loop's batch that is proposed: what small batches cost the theory does not count.
const leastPart = 4

// smaller returns the largest whole part of the batch, of whole groups, that costs at most batchSlack of the least.
func (l Loop) smaller(t Theory) int {
	price := func(part int) float64 { return t.costAt(Point{1, 1}, l.Batch/part) }
	least := leastPart
	for l.Batch%(least*l.Group) != 0 {
		if least--; least <= 1 {
			return l.Batch
		}
	}
	for part := 1; part < least; part++ {
		if l.Batch%(part*l.Group) == 0 && price(part) <= batchSlack*price(least) {
			return l.Batch / part
		}
	}
	return l.Batch / least
}

// figures lists what was measured.
func (l Loop) figures(s scale) string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if mu, known := l.cost(); known {
		add("generating a rollout takes %.3g times as long as learning from it", mu)
	}
	if l.Groups > 0 {
		add("%s of %s without a signal", words.Percent(float64(l.Flat)/float64(l.Groups), 0),
			words.Plural(l.Groups, "group"))
	}
	switch {
	case math.IsInf(s.high, 1) && s.low > 0:
		add("noise scale at least %.3g rollouts", s.low)
	case !math.IsInf(s.high, 1):
		add("noise scale %.3g rollouts (%.3g to %.3g)", s.mid, s.low, s.high)
	}
	if n := len(l.ESS); n > 0 {
		add("ESS %.2f at age %d", l.ESS[0].ESS, l.ESS[0].First)
		if n > 1 {
			add("%.2f at %d", l.ESS[n-1].ESS, l.ESS[n-1].Last)
		}
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
