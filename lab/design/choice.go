package design

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Way is how often training uses a rollout, and from where.
type Way string

const (
	// Queue uses each rollout once.
	Queue Way = "queue"
	// Reuse makes several updates on each batch of a queue, then drops it.
	Reuse Way = "reuse"
	// Buffer draws each batch from the newest N rollouts, without replacement.
	Buffer Way = "buffer"
)

// Use is one way to use rollouts, with its sizes.
type Use struct {
	Way      Way `json:"way"`
	Batch    int `json:"batch"`    // B, rollouts per update
	Updates  int `json:"updates"`  // i, updates on each batch, >= 1
	Workers  int `json:"workers"`  // W
	Trainers int `json:"trainers"` // T
	Capacity int `json:"capacity"` // N; of a queue its bound
}

// Validate reports every value out of its range.
func (u Use) Validate() error {
	var problems option.Problems
	problems.Check(slices.Contains([]Way{Queue, Reuse, Buffer}, u.Way), "way", string(u.Way), "queue, reuse or buffer")
	for _, n := range []struct {
		key   string
		value int
	}{{"batch", u.Batch}, {"updates", u.Updates}, {"workers", u.Workers}, {"trainers", u.Trainers},
		{"capacity", u.Capacity}} {
		problems.Check(n.value >= 1, n.key, n.value, "1 or more")
	}
	problems.Check(u.Way != Queue || u.Updates == 1, "updates", u.Updates, "1 in a queue")
	return problems.Err()
}

// point returns the horizon x and the replay ratio y of a use. Updates on the same batch are a buffer of one batch.
func (t Theory) point(u Use) Point {
	if u.Way != Buffer {
		return Point{float64(u.Updates), float64(u.Updates)}
	}
	r := float64(u.Batch) * float64(u.Workers) / float64(u.Trainers) * t.TrainCost
	return Point{max(1, float64(u.Capacity)/r), float64(u.Batch) / r}
}

// age returns the horizon in versions of the run that the profile was measured in. A version there moved the policy
// further if its batch was larger: the best step of a batch B is proportional to B/(B + S).
func (t Theory) age(batch int, x float64) float64 {
	if t.Batch == 0 {
		return x
	}
	return max(1, x*t.step(batch)/t.step(t.Batch))
}

// noise returns the variance of an update in units of that of one fresh rollout, 1/B for fresh ones: that of a single
// update, and per update in the sum of many, to which the noise of a rollout returns with each use (METHODS section 6).
func (t Theory) noise(u Use) (single, summed float64) { return t.noiseAt(t.point(u), u.Batch) }

func (t Theory) noiseAt(p Point, batch int) (single, summed float64) {
	b := float64(batch)
	single = t.Profile.Mean(t.age(batch, p.X)) / t.Profile.Mean(1) / b
	again := p.Y / p.X // the probability with which an update draws a rollout that is held, B/N
	return single, single + 2*again*returning(math.Pow(t.Coherence, t.step(batch)), p.X)/b
}

// step returns the best step of a batch over that of an update without noise.
func (t Theory) step(batch int) float64 { return float64(batch) / (float64(batch) + t.NoiseScale) }

// returning sums (1 - k/x) q^k over the whole k from 1 to below x: the coherence q^k of uses that are k updates apart,
// by the share of a rollout's life in which it can have both.
func returning(q, x float64) float64 {
	n := math.Ceil(x) - 1
	if 1-q < 1e-7 {
		return n - n*(n+1)/(2*x)
	}
	last := math.Pow(q, n)
	sum := q * (1 - last) / (1 - q)
	weighted := q * (1 - (n+1)*last + n*last*q) / ((1 - q) * (1 - q))
	return sum - weighted/x
}

// Cost returns the compute for the progress that one update without noise makes, in rollouts generated:
//
//	(R + m B)(1 + S V)
//
// V is the noise of an update in the sum of many and S the noise scale. It supposes the best learning rate. Of a queue
// it is (1 + m)(B + S). It is NaN without a noise scale, and where the profile does not reach.
func (t Theory) Cost(u Use) float64 {
	if t.NoiseScale == 0 {
		return math.NaN()
	}
	return t.costAt(t.point(u), u.Batch)
}

// costAt returns the cost of updates on batches drawn at a horizon and a replay ratio. Without noise the batch alone
// counts.
func (t Theory) costAt(p Point, batch int) float64 {
	_, summed := t.noiseAt(p, batch)
	return float64(batch) * (1/p.Y + t.TrainCost) * (1 + t.NoiseScale*summed)
}

// Rate returns the learning rate to take for a use over that of another. Without reuse the rate goes with the root of
// the batch, as Adam's best rate does in batches below the noise scale (METHODS section 6). Noise that lasts, or that
// is larger than that of fresh rollouts, lowers it; that the other use has such noise does not raise it, as nobody
// knows that its rate was lowered for it.
func (t Theory) Rate(u, other Use) float64 {
	lowered := func(u Use) float64 {
		_, summed := t.noise(u)
		return (1 + t.NoiseScale/float64(u.Batch)) / (1 + t.NoiseScale*summed)
	}
	return math.Sqrt(float64(u.Batch)/float64(other.Batch)) * min(1, lowered(u)/lowered(other))
}

// Progress predicts the progress of a use at a learning rate, for the same compute, over that of another whose rate is
// its best. At u times the best rate an update makes 2u - u^2 of the progress that it makes at the best, and none beyond
// twice that; below 0 the loss rises. The best rate goes with sqrt(1 + S/B)/(1 + S V), see METHODS section 6.
func (k Known) Progress(use Use, rate float64, other Use, best float64) float64 {
	t := k.Theory().prolonged()
	adam := func(u Use) float64 {
		_, summed := t.noise(u)
		return math.Sqrt(1+t.NoiseScale/float64(u.Batch)) / (1 + t.NoiseScale*summed)
	}
	u := rate / best / (adam(use) / adam(other))
	return (2*u - u*u) * t.Cost(other) / t.Cost(use)
}

// prolonged is a profile whose noise stays as it is beyond its reach: the least that it can be where it does not fall.
type prolonged struct{ Profile }

// Mean implements [Profile] for all x >= 1.
func (p prolonged) Mean(x float64) float64 {
	reach := p.Reach()
	if x <= reach {
		return p.Profile.Mean(x)
	}
	return (reach*p.Profile.Mean(reach) + (x-reach)*p.At(math.Nextafter(reach, 0))) / x
}

func (t Theory) prolonged() Theory {
	t.Profile = prolonged{t.Profile}
	return t
}

// LeastIdle returns the split of at most as many GPUs into workers and trainers at which the least share of their time
// is idle when an update takes in all that is generated for it: trainers wait for W/T below mu, the compute of
// generating what one unit of training takes in; workers wait above. Trainers divide the batch. Among equals it
// uses the most GPUs. There is none, and it returns zeros, for fewer than two GPUs.
func LeastIdle(gpus, batch int, mu float64) Split {
	var best Split
	least := math.Inf(1)
	for t := 1; t < gpus; t++ {
		if batch%t != 0 {
			continue
		}
		below := int(math.Floor(min(mu*float64(t), float64(gpus))))
		for _, w := range []int{below, below + 1} {
			w = min(max(w, 1), gpus-t)
			if idle := idleShare(float64(w), float64(t), mu); idle < least-1e-12 ||
				(idle < least+1e-12 && w+t > best.Workers+best.Trainers) {
				least, best = idle, Split{w, t}
			}
		}
	}
	return best
}

// idleShare returns the idle share of the time of W workers and T trainers if every rollout is used once.
func idleShare(w, t, mu float64) float64 {
	if w/t < mu {
		return t * (1 - w/t/mu) / (w + t)
	}
	return w * (1 - mu*t/w) / (w + t)
}

// Source is the run whose configuration the choice begins with.
type Source struct {
	Use
	// OnlyBatch is why nothing but the batch may change: what the run does that the theory does not know. Empty: all may.
	OnlyBatch string
}

// Priced is a use with its cost.
type Priced struct {
	Use
	Cost     float64 `json:"cost"`          // in rollouts generated, for the progress of an update without noise
	Relative float64 `json:"relative_cost"` // over that of the run; without a run, over that of the queue
	Least    float64 `json:"least"`         // the least that Relative can be by what is not known exactly
	Most     float64 `json:"most"`          // the most
	Rate     float64 `json:"learning_rate"` // the learning rate to take over that of the run, or of the queue
}

// MarshalJSON writes a cost that the profile does not reach as null.
func (p Priced) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Use
		Cost     *float64 `json:"cost"`
		Relative *float64 `json:"relative_cost"`
		Least    *float64 `json:"least"`
		Most     *float64 `json:"most"`
		Rate     *float64 `json:"learning_rate"`
	}{p.Use, finite(p.Cost), finite(p.Relative), finite(p.Least), finite(p.Most), finite(p.Rate)})
}

// Limits of a choice.
const (
	// batchSlack is how much more than the least a batch may cost: the theory puts the smallest batch first, but what it
	// gains below a quarter of the noise scale is less than the scale is known to, and small batches cost what the theory
	// does not count.
	batchSlack = 1.25
	// keepAbove is the most that a use may cost of the run's compute, whatever the noise scale and the coherence, to
	// replace what the run does.
	keepAbove = 0.9
	// scaleFactor is how far a measured noise scale may be off: seeds of one run differ by as much.
	scaleFactor = 2
	// What the coherence is assumed to be, and the least and the most that it may be then.
	minCoherence, assumedCoherence, maxCoherence = 0.2, 0.4, 1.0
	// coherenceFactor is how far the logarithm of a measured coherence may be off.
	coherenceFactor = 2
	// maxUpdates is the most updates on a batch, and the most uses of a rollout in a buffer, that are tried.
	maxUpdates = 8
)

// possible returns the theories that the parameters leave possible, the nominal one first.
func (k Known) possible() []Theory {
	t := k.Theory().prolonged()
	scales, coherences := []float64{1}, []float64{t.Coherence}
	if k.Origins.NoiseScale == Measured {
		scales = append(scales, 1./scaleFactor, scaleFactor)
	}
	switch k.Origins.Coherence {
	case Assumed:
		coherences = append(coherences, minCoherence, maxCoherence)
	case Measured:
		coherences = append(coherences, math.Pow(t.Coherence, coherenceFactor), math.Pow(t.Coherence, 1./coherenceFactor))
	}
	var list []Theory
	for _, scale := range scales {
		for _, c := range coherences {
			other := t
			other.NoiseScale, other.Coherence = t.NoiseScale*scale, c
			if k.Origins.Coherence == Measured { // what was measured is the correlation over an update of the run
				other.Coherence = math.Pow(c, t.step(t.Batch)/other.step(t.Batch))
			}
			list = append(list, other)
		}
	}
	return list
}

// Relative predicts the compute that a use takes over that of another for the same progress, each at its best learning
// rate: what the parameters say, and the least and the most that they leave possible. Beyond the profile's reach noise
// stays as it is. All are NaN without a noise scale.
func (k Known) Relative(u, other Use) (relative, least, most float64) {
	for i, t := range k.possible() {
		r := t.Cost(u) / t.Cost(other)
		if i == 0 {
			relative, least, most = r, r, r
		}
		least, most = min(least, r), max(most, r)
	}
	return relative, least, most
}

// choose prices the run and the cheapest use of each way, cheapest first. The list is empty without a noise scale.
func (k Known) choose(f Fleet) (run *Priced, ways []Priced) {
	t := k.Theory()
	if t.NoiseScale == 0 {
		return nil, nil
	}
	price := func(u Use) Priced { return Priced{Use: u, Cost: t.Cost(u)} }
	if f.Source != nil { // its cost is the least that it can be where the profile does not reach
		p := Priced{Use: f.Source.Use, Cost: t.prolonged().Cost(f.Source.Use)}
		run = &p
	}
	if f.Source != nil && f.Source.OnlyBatch != "" {
		if best, ok := t.bestBatch(f, f.Source.Trainers, func(b int) Use {
			u := f.Source.Use
			u.Batch = b
			return u
		}); ok {
			ways = append(ways, price(best))
		}
	} else {
		ways = t.cheapest(f, price)
	}
	slices.SortStableFunc(ways, func(a, b Priced) int { return cmp.Compare(a.Cost, b.Cost) })
	unit := run
	if unit == nil {
		if i := slices.IndexFunc(ways, func(p Priced) bool { return p.Way == Queue }); i >= 0 {
			first := ways[i]
			unit = &first
		}
	}
	scale := func(p *Priced) {
		p.Relative, p.Least, p.Most = k.Relative(p.Use, unit.Use)
		p.Rate = t.prolonged().Rate(p.Use, unit.Use)
	}
	if unit != nil {
		if run != nil {
			scale(run)
		}
		for i := range ways {
			scale(&ways[i])
		}
	}
	return run, ways
}

// cheapest returns the cheapest use of each way.
func (t Theory) cheapest(f Fleet, price func(Use) Priced) (ways []Priced) {
	mu := 1 / t.TrainCost
	least := map[Way]Priced{}
	try := func(trainers int, at func(batch int) Use) {
		u, ok := t.bestBatch(f, trainers, at)
		if !ok {
			return
		}
		if p, known := least[u.Way]; !known || t.Cost(u) < p.Cost {
			least[u.Way] = price(u)
		}
	}
	shared := f.Batch // what trainers must divide
	if f.FreeBatch && f.Batch%f.Group == 0 {
		shared = f.Batch / f.Group // its parts are to have whole groups for each
	}
	for i := 1; i <= maxUpdates; i++ {
		s := LeastIdle(f.GPUs, shared, mu/float64(i))
		way := Reuse
		if i == 1 {
			way = Queue
		}
		try(s.Trainers, func(b int) Use {
			return Use{way, b, i, s.Workers, s.Trainers, max(2*b, b+f.Group*s.Trainers)}
		})
	}
	for _, trainers := range divisors(f.Batch, f.GPUs-1) {
		s := Split{f.GPUs - trainers, trainers}
		if mu*float64(trainers)/float64(s.Workers) > maxUpdates {
			continue
		}
		try(trainers, func(b int) Use {
			// A buffer of one batch would be reuse under another name. Larger ones spread the uses of a rollout further, which
			// the cost rewards, but it does not know the bias of old rollouts: where larger ones were tried, they did worse.
			r := float64(b) * float64(s.Workers) / float64(trainers) / mu
			n := max(2*b, int(math.Ceil(r-1e-9)), f.Group*trainers)
			return Use{Buffer, b, 1, s.Workers, trainers, (n + trainers - 1) / trainers * trainers}
		})
	}
	for _, way := range []Way{Queue, Reuse, Buffer} {
		if p, ok := least[way]; ok {
			ways = append(ways, p)
		}
	}
	return ways
}

// bestBatch returns the use with the largest batch that costs at most batchSlack times the least over all batches of
// whole groups for each trainer, up to the fleet's. False if none has a cost.
func (t Theory) bestBatch(f Fleet, trainers int, at func(batch int) Use) (best Use, ok bool) {
	batches := []int{f.Batch}
	if f.FreeBatch {
		batches = f.batches(trainers)
	}
	least := math.Inf(1)
	for _, b := range batches {
		if u := at(b); b%trainers == 0 && u.Capacity <= f.MostCapacity {
			least = min(least, orInfinite(t.Cost(u)))
		}
	}
	for _, b := range batches {
		u := at(b)
		if b%trainers == 0 && u.Capacity <= f.MostCapacity && orInfinite(t.Cost(u)) <= batchSlack*least &&
			!math.IsInf(least, 1) {
			best, ok = u, true
		}
	}
	return best, ok
}

func orInfinite(cost float64) float64 {
	if math.IsNaN(cost) {
		return math.Inf(1)
	}
	return cost
}

// batches returns the batches to try, ascending: whole parts of the fleet's, so that budgets stay whole, of whole
// groups for each trainer.
func (f Fleet) batches(trainers int) (list []int) {
	unit := f.Group * trainers
	if f.Batch%unit != 0 {
		return []int{f.Batch}
	}
	for _, n := range divisors(f.Batch/unit, f.Batch/unit) {
		list = append(list, n*unit)
	}
	return list
}

// choice fills in what the theory advises, and why it cannot be relied on.
func (r *Recommendation) choice() {
	r.Run, r.Ways = r.choose(r.Fleet)
	if len(r.Ways) > 0 {
		best := r.Ways[0]
		if r.Run != nil && best.Most > keepAbove {
			best = *r.Run
			r.Keep = true
		}
		r.Best = &best
	}
	r.Unreliable = r.unreliable()
}

// Rate returns the learning rate to take for the recommended use over that of another.
func (r *Recommendation) Rate(other Use) float64 { return r.Theory.prolonged().Rate(r.Best.Use, other) }

// unreliable returns why the advice cannot be relied on and what to do, nothing if it can.
func (r *Recommendation) unreliable() (reasons []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			reasons = append(reasons, fmt.Sprintf(format, args...))
		}
	}
	if r.Theory.NoiseScale == 0 {
		if len(r.Doubts.Scale) > 0 {
			return []string{r.Doubts.Scale[0] + ": measure several seeds, or runs that ended earlier in training"}
		}
		return []string{"nobody measured the noise scale, on which the batch depends: measure it in a run with --from, or " +
			"give --noise-scale"}
	}
	if r.Best == nil || math.IsNaN(r.Best.Cost) {
		return append(reasons, "the noise was measured over fewer versions than any configuration uses: measure a run "+
			"with a larger buffer")
	}
	b, f := *r.Best, r.Fleet
	trainers := b.Trainers
	add(!r.Keep && f.FreeBatch && b.Batch <= f.Group*trainers, "the best batch is at the edge of what can be run, one "+
		"group for each of %s: use fewer GPUs or smaller groups", words.Plural(trainers, "trainer"))
	if b.Way == Queue || r.Keep {
		return reasons
	}
	add(b.Way == Reuse && b.Updates == maxUpdates, "the best number of updates on a batch is at the edge of those "+
		"tried, %d: take a smaller batch", maxUpdates)
	add(r.Origins.Correlation == Assumed || len(r.Doubts.Correlation) > 0, "the correlation of rollouts in a table is "+
		"not told from 0, and what they share adds to the cost of using them more than once: measure more seeds with "+
		"--from, or give --correlation")
	add(r.Run == nil && b.Most > 1, "whether this costs less than using each rollout once depends on the coherence, "+
		"which nobody measured (%.2f to %.2f of it): try both, or give --coherence", b.Least, b.Most)
	horizon := r.Theory.age(b.Batch, r.Theory.point(b.Use).X)
	measured := LastStaleness(r.Noise) + 1
	add(r.Origins.Noise == Assumed, "nobody measured how noise grows with staleness: measure a run with --from, or "+
		"give --noise-exponent or --profile")
	add(len(r.Noise) > 0 && horizon > measured, "the noise was measured up to staleness %.3g, and the advice uses "+
		"rollouts up to %.3g: measure a run with a larger buffer", measured-1, horizon-1)
	return reasons
}
