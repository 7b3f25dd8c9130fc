package sim

import (
	"math"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Workload makes the generation of some groups take longer than that of others. Zero means the default in brackets.
type Workload struct {
	Seed        uint64
	Workers     int          // W, >= 1
	Group       int          // G, >= 1
	RolloutCost float64      // mu: mean time per rollout of a worker that is no straggler, > 0
	Lengths     Distribution // of responses, the same as those of a Generator with this seed [Constant(1)]
	Batching    Batching     // [Continuous]

	Stragglers float64      // share of workers that are slow, rounded to whole workers and drawn at random, in [0, 1]
	Slowness   float64      // factor by which a straggler takes longer, >= 1 [1]
	Rewards    task.Latency // until a group is rewarded [none]
}

// Batching is what a worker does when the short rollouts of a group have ended.
type Batching string

const (
	// Continuous fills the free slots with the next group, as inference servers do. A group takes its worker time in
	// proportion to its tokens; it enters the buffer when its longest rollout ends, while the worker makes the next.
	// The default.
	Continuous Batching = "continuous"
	// Static leaves the slots empty: a group takes time in proportion to its longest rollout.
	Static Batching = "static"
)

// maxLength bounds lengths because means are summed over all of them.
const maxLength = 1 << 24

// Validate returns an [option.Error] for every field out of its range, defaults filled in.
func (w Workload) Validate() error {
	w = w.withDefaults()
	var p option.Problems
	p.Check(w.Workers >= 1, "workers", w.Workers, "1 or more")
	p.Check(w.Group >= 1, "group", w.Group, "1 rollout or more")
	p.Check(w.RolloutCost > 0 && !math.IsInf(w.RolloutCost, 0), "rollout_cost", w.RolloutCost,
		"a finite number above 0")
	if l, ok := w.Lengths.(Lognormal); ok {
		p.Check(l.Median >= 1 && !math.IsInf(l.Median, 0), "lengths", l.Median, "a median of 1 token or more")
		p.Check(l.Sigma >= 0 && l.Sigma <= 4, "lengths", l.Sigma, "a sigma of 0 (all alike) to 4")
		p.Check(!(float64(l.Max) < l.Median), "lengths", l.Max, "a maximum of at least the median, %g", l.Median)
	}
	p.Check(w.Lengths.Most() <= maxLength, "lengths", w.Lengths.Most(), "at most %d tokens", maxLength)
	p.Check(w.Batching == Continuous || w.Batching == Static, "batching", w.Batching, "%s or %s", Continuous, Static)
	p.Check(w.Stragglers >= 0 && w.Stragglers <= 1, "stragglers", w.Stragglers, "a share of the workers, 0 to 1")
	p.Check(w.Slowness >= 1 && w.Slowness <= 1e6, "stragglers", w.Slowness, "a factor of 1 (as fast as the "+
		"others) to 1e6")
	p.Add(option.Under("reward_latency", w.Rewards.Validate()))
	return p.Err()
}

func (w Workload) withDefaults() Workload {
	if w.Lengths == nil {
		w.Lengths = Constant(1)
	}
	if w.Batching == "" {
		w.Batching = Continuous
	}
	if w.Slowness == 0 {
		w.Slowness = 1
	}
	return w
}

// Apply sets the options of a schedule that the workload determines: workers, groups, their times and the latency of
// rewards.
func (w Workload) Apply(o *pipeline.Options) error {
	if err := w.Validate(); err != nil {
		return err
	}
	w = w.withDefaults()
	slow := w.slowWorkers()
	mean, meanLongest := Mean(w.Lengths), MeanLongest(w.Lengths, w.Group)
	o.Workers, o.Group, o.RolloutCost = w.Workers, w.Group, w.RolloutCost
	o.GroupTiming = func(job uint64, worker int) pipeline.Timing {
		t := w.timing(job, mean, meanLongest)
		if slow[worker] {
			t.Worker, t.Tail = t.Worker*w.Slowness, t.Tail*w.Slowness
		}
		return t
	}
	o.RewardLatency = nil
	if w.Rewards.Mean > 0 {
		o.RewardLatency = func(job uint64) float64 { return w.Rewards.Draw(w.Seed, job) }
	}
	return nil
}

// timing returns how long a group takes on a worker that is no straggler. A worker has a slot for each rollout of a
// group; a slot makes a rollout of mean length in G mu.
func (w Workload) timing(job uint64, mean, meanLongest float64) pipeline.Timing {
	tokens, longest := 0, 0
	for _, n := range drawLengths(w.Lengths, w.Seed, job, w.Group) {
		tokens += n
		longest = max(longest, n)
	}
	whole := float64(w.Group) * w.RolloutCost
	if w.Batching == Static {
		return pipeline.Timing{Worker: float64(whole * (float64(longest) / meanLongest))}
	}
	o := pipeline.Options{Group: w.Group, RolloutCost: w.RolloutCost}
	return o.ContinuousTiming(float64(tokens)/float64(float64(w.Group)*mean), float64(longest)/mean)
}

// Delay returns the mean time from the start of a group until it may enter the buffer: G mu if all rollouts are alike,
// more if groups wait for their longest rollout, for stragglers or for rewards.
func (w Workload) Delay() float64 {
	w = w.withDefaults()
	d := float64(w.Group) * w.RolloutCost
	if w.Batching == Continuous {
		d *= MeanLongest(w.Lengths, w.Group) / Mean(w.Lengths)
	}
	return d/w.Pace() + w.Rewards.Mean
}

// Pace returns the throughput of the workers relative to that without stragglers.
func (w Workload) Pace() float64 {
	w = w.withDefaults()
	return 1 - float64(w.stragglers())/float64(w.Workers)*(1-1/w.Slowness)
}

// stragglers returns the number of slow workers.
func (w Workload) stragglers() int { return int(math.Round(w.Stragglers * float64(w.Workers))) }

// slowWorkers reports for each worker whether it is slow.
func (w Workload) slowWorkers() []bool {
	slow := make([]bool, w.Workers)
	for _, i := range rollout.Stream(w.Seed, "sim/stragglers", 0).Perm(w.Workers)[:w.stragglers()] {
		slow[i] = true
	}
	return slow
}

// Lengths draws the lengths of completions.
type Lengths interface {
	// Draw returns a length in tokens. Less than 1 counts as 1.
	Draw(rng *rand.Rand) int
}

// Distribution is Lengths whose distribution is known.
type Distribution interface {
	Lengths
	// AtLeast returns the probability of a length of n tokens or more, 1 for n <= 1.
	AtLeast(n int) float64
	// Most returns the greatest possible length.
	Most() int
}

// drawLengths returns the lengths of a job's group, each at least 1. They depend on the seed and the job only.
func drawLengths(l Lengths, seed, job uint64, group int) []int {
	rng := rollout.Stream(seed, "sim/lengths", job)
	lengths := make([]int, group)
	for i := range lengths {
		lengths[i] = max(1, l.Draw(rng))
	}
	return lengths
}

// Constant is one length for all.
type Constant int

// Draw returns the length.
func (c Constant) Draw(*rand.Rand) int { return int(c) }

// AtLeast returns 1 up to the length, and 0 above.
func (c Constant) AtLeast(n int) float64 {
	if n <= c.Most() {
		return 1
	}
	return 0
}

// Most returns the length.
func (c Constant) Most() int { return max(1, int(c)) }

// Lognormal is lengths whose logarithm is normal with mean log Median and standard deviation Sigma, rounded, in [1,
// Max].
type Lognormal struct {
	Median float64
	Sigma  float64
	Max    int
}

// Draw returns a length.
func (l Lognormal) Draw(rng *rand.Rand) int {
	x := math.Round(l.Median * math.Exp(float64(l.Sigma*rng.NormFloat64())))
	return int(max(1, min(x, float64(l.Max))))
}

// AtLeast returns the probability of n tokens or more. Draw rounds, so n begins half a token below.
func (l Lognormal) AtLeast(n int) float64 {
	switch {
	case n <= 1:
		return 1
	case n > l.Max:
		return 0
	case l.Sigma == 0:
		return Constant(math.Round(l.Median)).AtLeast(n)
	}
	return 0.5 * math.Erfc(math.Log((float64(n)-0.5)/l.Median)/(l.Sigma*math.Sqrt2))
}

// Most returns Max.
func (l Lognormal) Most() int { return max(1, l.Max) }

// Mean returns the mean length in tokens.
func Mean(d Distribution) float64 { return MeanLongest(d, 1) }

// MeanLongest returns the mean, over groups, of the length of a group's longest rollout. Its cost grows with the
// greatest length.
func MeanLongest(d Distribution, group int) float64 {
	sum := 0.0
	for n := 1; n <= d.Most(); n++ {
		p := d.AtLeast(n)
		if p == 0 {
			break
		}
		// 1 - (1-p)^group, without losing digits where p is small.
		sum += -math.Expm1(float64(group) * math.Log1p(-p))
	}
	return sum
}
