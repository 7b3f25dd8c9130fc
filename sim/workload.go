package sim

import (
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// Batching is what a worker does when a group's short rollouts have ended.
type Batching string

const (
	// Continuous has the next group take the places that they leave free, as servers of language models do: a
	// group takes its worker's time in proportion to its tokens, and enters the buffer when its longest rollout has ended, while the
	// worker is on to the next. The default.
	Continuous Batching = "continuous"
	// Static leaves the places empty until the longest has ended: a group takes time in proportion to it.
	Static Batching = "static"
)

// Workload is what makes the generation of one group take longer than that of another. Zero means the default in brackets.
type Workload struct {
	Seed        uint64
	Workers     int          // W, >= 1
	Group       int          // G, >= 1
	RolloutCost float64      // mu: the mean time per rollout of a worker that is no straggler, > 0
	Lengths     Distribution // of responses, those of a Generator of the same seed [Constant(1): all alike]
	Batching    Batching     // [Continuous]

	Stragglers float64      // share of the workers that are slow, rounded to whole workers; which they are is drawn, in [0, 1]
	Slowness   float64      // a straggler takes so many times as long, >= 1 [1]
	Rewards    task.Latency // until a group is rewarded [none]
}

// mostTokens bounds the lengths that a workload takes the mean of, token by token.
const mostTokens = 1 << 24

// Validate reports every problem at once.
func (w Workload) Validate() error {
	w = w.withDefaults()
	var found []error
	refuse := func(bad bool, key string, value any, want string) {
		if bad {
			found = append(found, fmt.Errorf("%s: %v: want %s", key, value, want))
		}
	}
	refuse(w.Workers < 1, "workers", w.Workers, "1 or more")
	refuse(w.Group < 1, "group", w.Group, "1 rollout or more")
	refuse(!(w.RolloutCost > 0) || math.IsInf(w.RolloutCost, 0), "rollout_cost", w.RolloutCost, "a finite number above 0")
	if l, ok := w.Lengths.(Lognormal); ok {
		refuse(!(l.Median >= 1) || math.IsInf(l.Median, 0), "lengths", l.Median, "a median of 1 token or more")
		refuse(!(l.Sigma >= 0 && l.Sigma <= 4), "lengths", l.Sigma, "a sigma of 0 (all alike) to 4")
		refuse(float64(l.Max) < l.Median, "lengths", l.Max, fmt.Sprintf("a greatest length of at least the median, %g", l.Median))
	}
	refuse(w.Lengths.Most() > mostTokens, "lengths", w.Lengths.Most(), fmt.Sprintf("at most %d tokens", mostTokens))
	refuse(w.Batching != Continuous && w.Batching != Static, "batching", w.Batching, fmt.Sprintf("%s or %s", Continuous, Static))
	refuse(!(w.Stragglers >= 0 && w.Stragglers <= 1), "stragglers", w.Stragglers, "a share of the workers, 0 to 1")
	refuse(!(w.Slowness >= 1 && w.Slowness <= 1e6), "stragglers", w.Slowness, "a factor of 1 (as fast as the others) to 1e6")
	if err := w.Rewards.Validate(); err != nil {
		found = append(found, fmt.Errorf("reward_latency: %w", err))
	}
	return errors.Join(found...)
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

// Apply makes the options of a schedule those of the workload: who generates what in which time, and when rewards arrive.
func (w Workload) Apply(o *pipeline.Options) error {
	if err := w.Validate(); err != nil {
		return err
	}
	w = w.withDefaults()
	slow := w.stragglers()
	mean := Mean(w.Lengths)
	longest := MeanLongest(w.Lengths, w.Group)
	o.Workers, o.Group, o.RolloutCost = w.Workers, w.Group, w.RolloutCost
	o.GroupTiming = func(job uint64, worker int) pipeline.Timing {
		t := w.timing(job, mean, longest)
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

// Delay returns the mean time from the beginning of a group until it may enter the buffer: G mu where all is alike, and more where a
// group waits for its longest rollout, for a straggler, or for its rewards.
func (w Workload) Delay() float64 {
	w = w.withDefaults()
	d := float64(w.Group) * w.RolloutCost
	if w.Batching == Continuous {
		d *= MeanLongest(w.Lengths, w.Group) / Mean(w.Lengths)
	}
	return d/w.Pace() + w.Rewards.Mean
}

// Pace returns the groups that workers make as a share of what they would make without stragglers.
func (w Workload) Pace() float64 {
	w = w.withDefaults()
	return 1 - float64(w.slow())/float64(w.Workers)*(1-1/w.Slowness)
}

// timing returns how long a group takes on a worker that is no straggler. A worker has a place for each rollout of a group; a place
// makes a rollout of mean length in G mu.
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
	busy := float64(whole * (float64(tokens) / float64(float64(w.Group)*mean)))
	return pipeline.Timing{Worker: busy, Tail: max(0, float64(whole*(float64(longest)/mean))-busy)}
}

// slow is the number of stragglers.
func (w Workload) slow() int { return int(math.Round(w.Stragglers * float64(w.Workers))) }

// stragglers returns which workers are slow.
func (w Workload) stragglers() []bool {
	slow := make([]bool, w.Workers)
	for _, i := range rollout.Stream(w.Seed, "sim/stragglers", 0).Perm(w.Workers)[:w.slow()] {
		slow[i] = true
	}
	return slow
}
