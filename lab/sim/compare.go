package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Limits of a comparison.
const (
	MostRollouts = 1_000_000_000
	maxUses      = 5e9 // draws of the buffer's trainers: ten minutes of a core and more
)

// Comparison is one schedule with both queues and with a replay buffer, side by side. Times are in units of training on
// one rollout.
type Comparison struct {
	Workers     int     `json:"workers"`
	Trainers    int     `json:"trainers"`
	Batch       int     `json:"batch"`
	Group       int     `json:"group"`
	RolloutCost float64 `json:"rollout_cost"`
	Rollouts    int     `json:"rollouts"` // generated for each arm
	Skipped     int     `json:"skipped"`  // of them, before measuring began
	Seed        uint64  `json:"seed"`

	Lengths struct {
		Median float64 `json:"median"`
		Sigma  float64 `json:"sigma"`
		Max    int     `json:"max"`
		Mean   float64 `json:"mean"`
	} `json:"lengths"`
	Batching   Batching `json:"batching"`
	Stragglers struct {
		Share  float64 `json:"share"`
		Factor float64 `json:"factor"`
	} `json:"stragglers"`
	RewardLatency struct {
		Mean  float64 `json:"mean"`
		Sigma float64 `json:"sigma"`
	} `json:"reward_latency"`
	InParts        InParts             `json:"in_parts,omitzero"` // of the arms in parts; zero: there are none
	WeightTransfer float64             `json:"weight_transfer"`
	WeightSync     pipeline.WeightSync `json:"weight_sync"`
	InFlight       int                 `json:"updates_in_flight"` // 0: no limit

	ComputeRatio        float64 `json:"compute_ratio"`         // gamma
	ExpectedReplayRatio float64 `json:"expected_replay_ratio"` // mu T/W
	GroupUpdates        float64 `json:"group_updates"`         // D, updates while a group is generated
	// mean time from a group's start until it may enter
	Delay          float64         `json:"delay"`
	Pace           float64         `json:"pace"`            // of the workers, 1 without stragglers
	StalenessBound float64         `json:"staleness_bound"` // of the buffer with equal lengths: N/R + 2D + 1
	Arms           []ComparisonArm `json:"arms"`
	Words          []string        `json:"words"`
	Warnings       []string        `json:"warnings"`
	Seconds        float64         `json:"seconds"` // wall time of all arms
}

// ComparisonArm is the measurements with one of the queues or with the buffer, as one table or in parts.
type ComparisonArm struct {
	Name     string         `json:"name"`
	Sampler  replay.Sampler `json:"sampler"`
	Capacity int            `json:"capacity"`
	Absence  *Absence       `json:"absence,omitempty"` // of parts that were lost; nil: one table

	Updates         int     `json:"updates"`
	Time            float64 `json:"time"`
	Speed           float64 `json:"speed"`            // updates, as a share of those of trainers who never wait
	TrainersStalled float64 `json:"trainers_stalled"` // share of the time
	WorkersStalled  float64 `json:"workers_stalled"`  // the same, mean over workers
	WorkerStalls    Spread  `json:"worker_stalls"`    // share of the time, over workers
	// of the trainers before each update, in durations of an update, B/T
	Waits        Spread  `json:"waits"`
	NewPerUpdate float64 `json:"rollouts_per_update"`
	ReplayRatio  float64 `json:"replay_ratio"`
	ComputeBusy  float64 `json:"compute_busy"` // of an update by the clock, in updates without replay, B(1 + mu)
	ComputeAll   float64 `json:"compute_all"`  // the same with all stalls

	Staleness     Counts  `json:"staleness"`      // of draws, in versions
	MeanStaleness Counts  `json:"mean_staleness"` // the same as the mean over tokens
	Uses          Counts  `json:"uses"`           // of the rollouts that left
	NeverUsed     float64 `json:"never_used"`     // share of them
	SinceLastUse  Counts  `json:"since_last_use"` // in updates, of draws that were not the first
}

// Spread is quantiles of measurements.
type Spread struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// spreadOf returns quantiles: the least value with at least that share at or below it.
func spreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	at := func(percent int) float64 { return sorted[max(0, (percent*len(sorted)+99)/100-1)] }
	return Spread{at(50), at(90), at(99), at(100)}
}

// Counts is a histogram and its quantiles.
type Counts struct {
	Count  uint64  `json:"count"`
	Mean   float64 `json:"mean"`
	Median int64   `json:"median"`
	P90    int64   `json:"p90"`
	P99    int64   `json:"p99"`
	Max    int64   `json:"max"`

	Histogram rollout.Histogram `json:"histogram"` // [[value, count], …]
}

func countsOf(h rollout.Histogram) Counts {
	return Counts{h.Count(), h.Mean(), h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Max(), h}
}

// ParseWorkload reads the notation of the command line: lengths as MEDIAN,SIGMA,MAX, stragglers as SHARE,FACTOR and the
// latency of rewards as MEAN,SIGMA. Each problem is an [option.Error] with the key lengths, stragglers or
// reward_latency.
func ParseWorkload(lengths, stragglers, rewardLatency string) (Workload, error) {
	var problems option.Problems
	l, s, r := numbers(lengths, 3), numbers(stragglers, 2), numbers(rewardLatency, 2)
	problems.Check(l[0] >= 1 && l[1] >= 0 && l[1] <= 4 && l[2] >= l[0] && l[2] <= 1<<20 && l[2] == math.Trunc(l[2]),
		"lengths", lengths,
		"MEDIAN,SIGMA,MAX: a median of 1 token or more, a sigma of 0 (all equal) to 4, a maximum from the median "+
			"to %d; such as 1000,1,16384", 1<<20)
	problems.Check(s[0] >= 0 && s[0] <= 1 && s[1] >= 1 && s[1] <= 1e6, "stragglers", stragglers,
		"SHARE,FACTOR: a share of 0 to 1, and how many times as long they take, 1 to 1e6; such as 0.02,3")
	problems.Check(r[0] >= 0 && r[0] <= 1e9 && r[1] >= 0 && r[1] <= 4, "reward_latency", rewardLatency,
		"MEAN,SIGMA: a mean of 0 to 1e9 units, and a sigma of 0 (constant) to 4; such as 20,1")
	w := Workload{
		Lengths: Lognormal{Median: l[0], Sigma: l[1], Max: int(l[2])}, Stragglers: s[0], Slowness: s[1],
		Rewards: task.Latency{Distribution: task.Lognormal, Mean: r[0], Sigma: r[1]},
	}
	if r[1] == 0 {
		w.Rewards.Distribution = task.Constant
	}
	return w, problems.Err()
}

// numbers reads n numbers with commas between them. A malformed number is NaN, and so are all in a list of another
// length.
func numbers(list string, n int) []float64 {
	values := make([]float64, n)
	parts := strings.Split(list, ",")
	for i := range values {
		values[i] = math.NaN()
		if len(parts) == n {
			if v, err := strconv.ParseFloat(strings.TrimSpace(parts[i]), 64); err == nil {
				values[i] = v
			}
		}
	}
	return values
}

// Compare runs a trial with a queue that gives the newest rollouts first, with one that gives the oldest first, and
// with a buffer of about the given capacity; then, if some are to be in parts, with the latter two in parts. It sets
// the trial's Buffer and Skip. A trial too short to show more than its beginning is refused, and so is one that would
// take for ever; the [option.Error] has the key workers, trainers or rollouts.
func Compare(ctx context.Context, t Trial, capacity int, d InParts) (*Comparison, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	c, err := newComparer(t, capacity, d)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	arms := c.arms()
	errs := make([]error, len(arms))
	var running sync.WaitGroup
	for i := range arms {
		running.Go(func() { errs[i] = c.run(ctx, &arms[i]) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c.comparison(arms, time.Since(began).Seconds()), nil
}

// schedule is the trial with one sampler.
type schedule struct {
	sampler replay.Sampler
	parts   bool
	record  *Record
	absence *Absence
}

// arms are the schedules compared, in the order in which they are shown.
func (c *comparer) arms() []schedule {
	arms := []schedule{{sampler: replay.LIFO}, {sampler: replay.FIFO}, {sampler: replay.Distinct}}
	if c.inParts.Parts > 0 {
		arms = append(arms, schedule{sampler: replay.FIFO, parts: true}, schedule{sampler: replay.Distinct, parts: true})
	}
	return arms
}

func (c *comparer) armName(a schedule) string {
	name := "buffer"
	if a.sampler.Consumes() {
		name = string(a.sampler) + " queue"
	}
	if a.parts {
		name += fmt.Sprintf(", %d parts", c.inParts.Parts)
	}
	return name
}

// comparer runs the arms of a comparison.
type comparer struct {
	Trial
	inParts  InParts
	capacity int    // of the buffer
	queue    int    // of the queues
	raised   string // why the buffer is larger than asked for, empty if it is not
}

func newComparer(t Trial, capacity int, d InParts) (*comparer, error) {
	t.Options = t.Options.WithDefaults()
	c := &comparer{Trial: t, inParts: d}
	o, w := c.Options, &c.Workload
	w.Workers, w.Group, w.RolloutCost = o.Workers, o.Group, o.RolloutCost
	if o.Batch%o.Trainers != 0 {
		return nil, refuse("trainers", o.Trainers,
			"a divisor of the %d rollouts of a batch: choose another, or another --batch", o.Batch)
	}
	// Each trainer's part must have room for its share of a batch and for a group.
	part, least := (capacity+o.Trainers-1)/o.Trainers, max(o.Batch/o.Trainers, o.Group)
	c.capacity, c.queue = o.Trainers*max(part, least), max(2*o.Batch, o.Batch+o.Group*o.Trainers)
	if part < least {
		c.raised = fmt.Sprintf("The buffer holds %d rollouts, not %d: each trainer's part must have room for "+
			"its %d of a batch and for a group of %d.",
			c.capacity, capacity, o.Batch/o.Trainers, o.Group)
	}
	c.Skip = min(max(t.Rollouts/4, c.settled()), t.Rollouts/2)
	return c, c.checkLength()
}

// checkLength refuses trials that show only their beginning, and those that never end.
func (c *comparer) checkLength() error {
	o := c.Options
	perUpdate := c.perTime() * c.updateTime()
	least := 8 * max(float64(o.Batch), float64(o.Group)*float64(o.Workers), math.Ceil(perUpdate))
	uses := float64(c.Rollouts) * float64(o.Batch) / perUpdate
	most := math.Floor(maxUses * perUpdate / float64(o.Batch) * (1 + 1e-12))
	switch {
	case least > MostRollouts:
		return refuse("workers", o.Workers, "fewer, or shorter updates: eight groups of each worker and the "+
			"rollouts of eight updates are %.3g, a schedule has at most %d", least, MostRollouts)
	case float64(c.Rollouts) < least:
		return refuse("rollouts", c.Rollouts, "at least %.0f, enough for eight batches, eight groups of each worker "+
			"and eight updates; fewer show only the beginning", least)
	case most < least:
		return refuse("trainers", o.Trainers, "fewer, or more than %s, which make %.3g rollouts in an update: each "+
			"would be used too often to show more than the beginning", words.Plural(o.Workers, "worker"), perUpdate)
	case uses > maxUses:
		return refuse("rollouts", c.Rollouts, "at most %.0f: the buffer's trainers use each %.4g times, which takes "+
			"too long",
			most, uses/float64(c.Rollouts))
	}
	return nil
}

func refuse(key string, value any, want string, args ...any) error {
	return &option.Error{Key: key, Value: value, Want: fmt.Sprintf(want, args...)}
}

// perTime returns the rollouts that all workers make in a unit of time if they never wait.
func (c *comparer) perTime() float64 {
	return float64(c.Options.Workers) / c.Options.RolloutCost * c.Workload.Pace()
}

// updateTime returns the time from one update to the next if trainers wait for nothing but weights in flight: n of
// these pass in the time of an update and a transfer.
func (c *comparer) updateTime() float64 {
	o := c.Options
	if o.UpdatesInFlight == 0 {
		return o.StepTime()
	}
	return max(o.StepTime(), (o.StepTime()+o.WeightTransfer)/float64(o.UpdatesInFlight))
}

// settled returns about how many rollouts have entered when the beginning is over: the buffer is full, and a group has
// had twice the time to enter it.
func (c *comparer) settled() int {
	return int(min(max(float64(c.capacity), 2*c.perTime()*c.Workload.Delay()), math.MaxInt32))
}

// room returns the capacity of an arm. Each part must have room for a group and, where a batch comes from one part, for
// a trainer's share of a batch; what is left while one is lost must have it too.
func (c *comparer) room(a schedule) int {
	capacity := c.capacity
	if a.sampler.Consumes() {
		capacity = c.queue
	}
	if n := c.inParts.Parts; a.parts {
		least, share := c.Options.Group, c.Options.Batch/c.Options.Trainers
		if !a.sampler.Consumes() && c.inParts.Scope == Own {
			least = max(least, share)
		}
		// Of a part up to a group is unusable room.
		return n * max(parted.Share(capacity, n, 1), least, parted.Share(share, n-1, 1)+c.Options.Group)
	}
	return capacity
}

func (c *comparer) run(ctx context.Context, a *schedule) error {
	o := replay.Options{Sampler: a.sampler, Capacity: c.room(*a), Shards: c.Options.Trainers, Seed: c.Workload.Seed}
	t := c.Trial
	var err error
	if a.parts {
		var parts *PartedTable
		o.Capacity, o.Shards = o.Capacity/c.inParts.Parts, 1
		if parts, err = NewPartedTable(c.inParts, c.Options.Trainers, o); err == nil {
			t.Buffer, a.absence = parts, &parts.Absence
		}
	} else {
		t.Buffer, err = replay.New(o)
	}
	if err != nil {
		return err
	}
	if a.record, err = t.Run(ctx); err != nil {
		return fmt.Errorf("simulate a schedule with the %s: %w", c.armName(*a), err)
	}
	return nil
}

func (c *comparer) comparison(arms []schedule, seconds float64) *Comparison {
	o, w := c.Options, c.Workload
	x := &Comparison{
		Workers: o.Workers, Trainers: o.Trainers, Batch: o.Batch, Group: o.Group, RolloutCost: o.RolloutCost,
		Rollouts: c.Rollouts, Skipped: c.Skip, Seed: w.Seed, Batching: cmp.Or(w.Batching, Continuous),
		WeightTransfer: o.WeightTransfer, WeightSync: o.WeightSync, InFlight: o.UpdatesInFlight,
		ComputeRatio: o.ComputeRatio(), ExpectedReplayRatio: o.ExpectedReplayRatio(), GroupUpdates: o.GroupUpdates(),
		Delay: w.Delay(), Pace: w.Pace(), StalenessBound: o.StalenessBound(c.capacity), InParts: c.inParts,
		Warnings: []string{}, Seconds: seconds,
	}
	x.Stragglers.Share, x.Stragglers.Factor = w.Stragglers, w.Slowness
	x.RewardLatency.Mean, x.RewardLatency.Sigma = w.Rewards.Mean, w.Rewards.Sigma
	if l, ok := w.Lengths.(Lognormal); ok {
		x.Lengths.Median, x.Lengths.Sigma, x.Lengths.Max, x.Lengths.Mean = l.Median, l.Sigma, l.Max, Mean(l)
	}
	for _, arm := range arms {
		r := arm.record
		waits := slices.Clone(r.Waits)
		for i := range waits {
			waits[i] /= o.StepTime()
		}
		a := ComparisonArm{
			Name: c.armName(arm), Sampler: arm.sampler, Capacity: c.room(arm), Absence: arm.absence,
			Updates: r.Updates, Time: r.Time, Speed: r.Speed(),
			TrainersStalled: r.TrainersStalled(), WorkersStalled: r.WorkersStalled(),
			WorkerStalls: spreadOf(r.WorkerStalls), Waits: spreadOf(waits),
			NewPerUpdate: r.NewPerUpdate(), ReplayRatio: r.ReplayRatio(),
			ComputeBusy: r.BusyCompute(), ComputeAll: r.AllCompute(),
			Staleness: countsOf(r.Staleness), MeanStaleness: countsOf(r.MeanStaleness),
			Uses: countsOf(r.Uses), SinceLastUse: countsOf(r.SinceLastUse),
		}
		if n := r.Uses.Count(); n > 0 {
			a.NeverUsed = float64(r.Uses.Of(0)) / float64(n)
		}
		x.Arms = append(x.Arms, a)
	}
	x.Words = x.explain()
	if c.raised != "" {
		x.Warnings = append(x.Warnings, c.raised)
	}
	x.Warnings = append(x.Warnings, x.warn(c)...)
	return x
}

// arm returns the measurements with a sampler and one table.
func (x *Comparison) arm(sampler replay.Sampler) ComparisonArm {
	return x.Arms[slices.IndexFunc(x.Arms, func(a ComparisonArm) bool { return a.Sampler == sampler })]
}

// stepTime is B/T, the duration of an update.
func (x *Comparison) stepTime() float64 { return float64(x.Batch) / float64(x.Trainers) }

// explain puts the findings into words.
func (x *Comparison) explain() []string {
	queue, buffer := x.arm(replay.FIFO), x.arm(replay.Distinct)
	list := []string{
		fmt.Sprintf("With the first-in, first-out queue trainers wait %.1f%% of the time and workers %.1f%%. %s; "+
			"lengths, latencies and transfers make the difference. With the buffer trainers wait %.1f%% and workers "+
			"%.1f%%.",
			100*queue.TrainersStalled, 100*queue.WorkersStalled, x.expectation(), 100*buffer.TrainersStalled,
			100*buffer.WorkersStalled),
		fmt.Sprintf("An update with the buffer takes %.3f times as long as one with the queue on the same GPUs, and "+
			"%.3f times as much work. It trains on rollouts used %.2f times, of median age %d versions and at "+
			"most %d; with the queue these are %d and %d.",
			queue.Speed/buffer.Speed, buffer.ComputeBusy/queue.ComputeBusy, buffer.ReplayRatio, buffer.Staleness.Median,
			buffer.Staleness.Max, queue.Staleness.Median, queue.Staleness.Max),
	}
	if buffer.NeverUsed >= 0.05 {
		list = append(list, fmt.Sprintf("%.0f%% of the rollouts leave the buffer unused: draws are random, and a "+
			"rollout is used %.2f times on average. The sampler unseen draws unused ones first.",
			100*buffer.NeverUsed, buffer.ReplayRatio))
	}
	if buffer.ReplayRatio < 0.95 {
		list = append(list, "Workers make more than trainers use: fewer of them would cost less per update.")
	}
	return append(list, x.explainParts()...)
}

// explainParts compares the buffer in parts with the one table, and says what losses did.
func (x *Comparison) explainParts() (list []string) {
	one, d := x.arm(replay.Distinct), x.InParts
	for _, a := range x.Arms {
		if a.Absence == nil {
			continue
		}
		text := fmt.Sprintf("With the %s (draws of scope %s) trainers wait %.1f%% of the time and workers %.1f%%. "+
			"Rollouts are used %.2f times, at a mean age of %.2f versions.", a.Name, scopeOf(a, d),
			100*a.TrainersStalled, 100*a.WorkersStalled, a.ReplayRatio, a.Staleness.Mean)
		if !a.Sampler.Consumes() {
			text += fmt.Sprintf(" With one table these are %.2f and %.2f.", one.ReplayRatio, one.Staleness.Mean)
		}
		if l := a.Absence; l.Losses > 0 {
			text += fmt.Sprintf(" A part was lost %s for %s, with %s rollouts on average; %s groups went to others "+
				"meanwhile, and %s rollouts are gone for good.", words.Plural(l.Losses, "time"),
				words.Plural(d.LostUpdates, "update"), words.Whole(float64(l.Rollouts)/float64(l.Losses)),
				words.Thousands(l.Rerouted), words.Thousands(l.Gone))
		}
		list = append(list, text)
	}
	return list
}

func scopeOf(a ComparisonArm, d InParts) Scope {
	if a.Sampler.Consumes() {
		return Global
	}
	return d.Scope
}

// expectation describes the stalls of a queue by W/T and mu alone: with equal lengths, trainers wait if there are too
// few workers, and workers wait if there are too many.
func (x *Comparison) expectation() string {
	feeds := float64(x.Workers) / float64(x.Trainers) * x.Pace
	at := fmt.Sprintf("W/T = %.4g", feeds)
	if x.Pace < 1 {
		at = fmt.Sprintf("W/T, %.4g without what stragglers lose,", feeds)
	}
	switch ratio := feeds / x.RolloutCost; {
	case ratio < 0.9995:
		return fmt.Sprintf("%s at mu = %.4g alone makes trainers wait %.1f%%", at, x.RolloutCost, 100*(1-ratio))
	case ratio > 1.0005:
		return fmt.Sprintf("%s at mu = %.4g alone makes workers wait %.1f%%", at, x.RolloutCost, 100*(1-1/ratio))
	}
	return fmt.Sprintf("%s just feeds the trainers at mu = %.4g", at, x.RolloutCost)
}

// warn returns the reservations about the figures.
func (x *Comparison) warn(c *comparer) (list []string) {
	step := x.stepTime()
	if d := x.Delay / step; d > 4 {
		list = append(list, fmt.Sprintf("%.3g updates pass from the start of a group until it may enter, so rollouts "+
			"are that old before anyone can use them. A larger batch (--batch) or smaller groups (--group) make them "+
			"younger.", d))
	}
	if settled := c.settled(); x.Skipped < settled {
		remedy := fmt.Sprintf("Use --rollouts %d.", roundUp(2*settled))
		if 2*settled > MostRollouts {
			remedy = "A smaller --capacity, or fewer workers, would show more."
		}
		list = append(list, fmt.Sprintf("The figures show the schedule's beginning, which ends after about %s "+
			"rollouts: then the buffer of %s is full, and a group has had twice the time to enter it. %s",
			words.Thousands(settled), words.Thousands(c.capacity), remedy))
	}
	for _, a := range x.Arms {
		if a.Updates < 20 {
			list = append(list, fmt.Sprintf("Only %d updates were measured with the %s, so shares and quantiles are "+
				"rough. Use more --rollouts.", a.Updates, a.Name))
			break
		}
	}
	// With n updates in flight the transfers of n-1 may overlap the update under way.
	if n := float64(x.InFlight); n > 0 && x.WeightTransfer > (n-1)*step {
		list = append(list, fmt.Sprintf("Trainers wait for weights to reach the workers: a transfer takes %.4g, and "+
			"with %d in flight it has %.4g. With --in-flight %d they would not wait.",
			x.WeightTransfer, x.InFlight, (n-1)*step, 1+int(math.Ceil(x.WeightTransfer/step))))
	}
	return list
}

// roundUp rounds up to two digits and zeros.
func roundUp(n int) int {
	unit := 1
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// Setting describes the schedule in two paragraphs.
func (x *Comparison) Setting() []string {
	l := x.Lengths
	batching := "continuous batching: the next group takes the slots that short responses free, and a group enters " +
		"the buffer when its longest response has ended"
	if x.Batching == Static {
		batching = "static batching: a group holds its worker until its longest response has ended"
	}
	first := fmt.Sprintf("%s workers and %s trainers, mu %.4g, batches of %s in groups of %d. Responses have a "+
		"median of %.4g tokens, lognormal with sigma %.4g, at most %s, %.4g on average; %s.",
		words.Thousands(x.Workers), words.Thousands(x.Trainers), x.RolloutCost, words.Thousands(x.Batch), x.Group,
		l.Median, l.Sigma, words.Thousands(l.Max), l.Mean, batching)
	var parts []string
	if s := x.Stragglers; s.Share > 0 && s.Factor > 1 {
		parts = append(parts, fmt.Sprintf("%.3g%% of the workers take %.4g times as long", 100*s.Share, s.Factor))
	}
	if r := x.RewardLatency; r.Sigma > 0 {
		parts = append(parts, fmt.Sprintf("rewards take %.4g on average, lognormal with sigma %.4g", r.Mean, r.Sigma))
	} else if r.Mean > 0 {
		parts = append(parts, fmt.Sprintf("rewards always take %.4g", r.Mean))
	}
	if x.WeightTransfer > 0 {
		parts = append(parts, fmt.Sprintf("a transfer of weights takes %.4g", x.WeightTransfer))
	}
	if x.InFlight > 0 {
		parts = append(parts, fmt.Sprintf("at most %s in flight", words.Plural(x.InFlight, "update is", "updates are")))
	}
	if x.WeightSync == pipeline.ByToken {
		parts = append(parts, "workers take up weights 16 times within a group")
	}
	parts = append(parts, fmt.Sprintf("an update takes %.4g; on average a group takes %.4g of its worker's time and "+
		"may enter after %.4g, in units of training on one rollout",
		x.stepTime(), float64(x.Group)*x.RolloutCost/x.Pace, x.Delay))
	second := strings.Join(parts, "; ") + "."
	second = strings.ToUpper(second[:1]) + second[1:]
	measured := fmt.Sprintf("%s rollouts with each queue and with the buffer; the first %s are not measured.",
		words.Thousands(x.Rollouts), words.Thousands(x.Skipped))
	return []string{first, second + " " + measured}
}

// Columns are the names of the cells of [Comparison.Rows].
func (x *Comparison) Columns() []string { return columnsOf(x.Arms) }

// Rows is the table of measurements, one column for each arm.
func (x *Comparison) Rows() [][]string { return x.rowsOf(x.Arms) }

func columnsOf(arms []ComparisonArm) []string {
	columns := []string{""}
	for _, a := range arms {
		columns = append(columns, a.Name)
	}
	return columns
}

func (x *Comparison) rowsOf(arms []ComparisonArm) [][]string {
	var rows [][]string
	for i, a := range arms {
		next := 0
		add := func(name, format string, args ...any) {
			if i == 0 {
				rows = append(rows, []string{name})
			}
			rows[next] = append(rows[next], fmt.Sprintf(format, args...))
			next++
		}
		counts := func(name string, c Counts) {
			mean, quantiles := "-", "-"
			if c.Count > 0 {
				mean, quantiles = fmt.Sprintf("%.2f", c.Mean), fmt.Sprintf("%d / %d / %d / %d", c.Median, c.P90, c.P99,
					c.Max)
			}
			add(name+", mean", "%s", mean)
			add("  50% / 90% / 99% / most", "%s", quantiles)
		}
		stalls := a.WorkerStalls
		add("room for rollouts", "%s", words.Thousands(a.Capacity))
		add("updates measured", "%s", words.Thousands(a.Updates))
		add("speed: updates, of those without waits", "%.1f%%", 100*a.Speed)
		add("trainers waited", "%.1f%%", 100*a.TrainersStalled)
		add("  before an update, 50% / 99% / most, in updates", "%.2f / %.2f / %.2f", a.Waits.Median, a.Waits.P99,
			a.Waits.Max)
		add("workers waited", "%.1f%%", 100*a.WorkersStalled)
		add("  by worker, 50% / 99% / most", "%.1f%% / %.1f%% / %.1f%%", 100*stalls.Median, 100*stalls.P99,
			100*stalls.Max)
		add("new rollouts per update", "%s", words.Thousands(int(a.NewPerUpdate+0.5)))
		add("uses per new rollout", "%.3f", a.ReplayRatio)
		add("compute per update, busy, in B(1 + mu)", "%.3f", a.ComputeBusy)
		add("  with the time spent waiting", "%.3f", a.ComputeAll)
		counts("staleness, versions", a.Staleness)
		if x.WeightSync == pipeline.ByToken {
			counts("staleness of a rollout's mean token", a.MeanStaleness)
		}
		counts("uses of rollouts that left", a.Uses)
		add("  never used", "%.1f%%", 100*a.NeverUsed)
		counts("updates since the last use", a.SinceLastUse)
	}
	return rows
}

// Text returns the comparison as text.
func (x *Comparison) Text() string {
	var w strings.Builder
	w.WriteString("\na schedule without a model\n")
	for _, paragraph := range x.Setting() {
		w.WriteString(words.Wrap("  ", paragraph))
	}
	w.WriteString("\n")
	for arms := range slices.Chunk(x.Arms, 3) { // one table, then parts
		t := tabwriter.NewWriter(&w, 0, 0, 3, ' ', tabwriter.AlignRight)
		rows := append([][]string{columnsOf(arms)}, x.rowsOf(arms)...)
		widest := 0
		for _, row := range rows {
			widest = max(widest, len(row[0]))
		}
		for _, row := range rows { // names to the left in a table aligned to the right
			fmt.Fprintf(t, "  %-*s\t%s\t\n", widest, row[0], strings.Join(row[1:], "\t"))
		}
		t.Flush()
		w.WriteString("\n")
	}
	for _, paragraph := range x.Words {
		w.WriteString(words.Wrap("  ", paragraph))
	}
	for _, warning := range x.Warnings {
		w.WriteString(words.Wrap("  - ", warning))
	}
	fmt.Fprintf(&w, "  simulated in %.1f s\n", x.Seconds)
	return w.String()
}
