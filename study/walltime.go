package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/task"
)

// wallTime looks at the clock, and at who waits for whom.
func wallTime() Study {
	return Study{
		Name: "wall-time", Title: "What does replay do to the clock, and who waits?", Source: "[ER] figs. 10, 11, app. D",
		Lead: []string{
			aboutLab(),
			"Time is the virtual clock of the pipeline's GPUs, here in the time in which one trainer takes a batch: it does not depend on this machine. A queue stalls its workers when it " +
				"is full and its trainers when it holds too little; a buffer stalls trainers only before it holds a batch.",
			aboutSchedule,
			fmt.Sprintf("With slow rewards, each group's reward takes a time drawn from a lognormal distribution whose mean, %d, is that in which a trainer takes a batch, with σ = %g of the logarithm.",
				wallLatency, wallLatencySigma),
		},
		Arms: wallTimeArms, Judge: judgeWallTime,
	}
}

// Slow rewards: the mean is about an update's time without replay, the tail is heavy.
const (
	wallLatency      = scheduleBatch
	wallLatencySigma = 2.0
)

func wallTimeArms(o Options) []Arm {
	arms := []Arm{queueArm(o), wideQueueArm(o)}
	for _, s := range labSplits() {
		arms = append(arms, bufferArm(o, s, labCapacity))
	}
	return append(append(arms, bufferArm(o, queueSplit(), labCapacity)), stallArms(o)...)
}

// wideQueueArm is the arm without replay on the GPUs of the buffers'.
func wideQueueArm(o Options) Arm {
	c := queue(o)
	c.Pipeline.Workers, c.Pipeline.Trainers = labSplit().workers, labSplit().trainers
	return Arm{fmt.Sprintf("%s, %s", queueName, labSplit()), c}
}

// stallArms are schedules at W/T = mu: a queue and a buffer, with rewards that come at once and with slow ones.
func stallArms(o Options) []Arm {
	q, b := schedule(o, queueSplit(), "lifo"), schedule(o, queueSplit(), distinct)
	return []Arm{
		{"schedule, queue", q}, {"schedule, buffer", b}, {"schedule, queue, slow rewards", slowRewards(q)}, {"schedule, buffer, slow rewards", slowRewards(b)},
	}
}

func slowRewards(c run.Config) run.Config {
	c.Pipeline.RewardLatency = task.Latency{Distribution: task.Lognormal, Mean: wallLatency, Sigma: wallLatencySigma}
	return c
}

func judgeWallTime(f *Found) (Judgement, error) {
	o := f.Options
	arms := f.of(queueArm(o), wideQueueArm(o), bufferArm(o, labSplit(), labCapacity), bufferArm(o, queueSplit(), labCapacity))
	once, wide, shared, atMu := arms[0], arms[1], arms[2], arms[3]
	stalls := f.of(stallArms(o)...)
	queue, buffer, slowQueue, slowBuffer := stalls[0], stalls[1], stalls[2], stalls[3]
	clock, compute := ratio(shared, wide, clockToTarget), ratio(shared, wide, toTarget)
	gain := ratio(shared, wide, clockPerCompute)
	worse, smooth, smoothSlow := difference(slowQueue, queue, stalled), difference(queue, buffer, stalled), difference(slowQueue, slowBuffer, stalled)
	sooner, inQueue := ratio(atMu, once, clockToTarget), spreadOf(queue.over(stalled))
	mu := queue.Config.Pipeline.RolloutCost
	perfect := stalledAnyway(queueSplit(), mu)
	return Judgement{
		Findings: []results.Finding{
			f.settle(asked{"[ER] figs. 10, 11", "On the same GPUs, replay gains at least as much by the clock as by compute."},
				fmt.Sprintf("To the target at (6,2), with replay over without: clock %s, compute %s. Clock per compute, with over without: %s.",
					clock.format(times), compute.format(times), gain.format(times)),
				gain, atMost("the ratio of clock per compute", 1)),
			f.settle(asked{"[ER] app. D", "A queue stalls GPUs even at W/T = μ."},
				fmt.Sprintf("Share of GPU time stalled at %s: %s. As %g is not μ = %g, %s would be stalled with perfect timing.", queueSplit(), inQueue.format(percentFine),
					queueSplit().ratio(), mu, percentFine(perfect)),
				inQueue, above("the share stalled, of which perfect timing and the start explain less than this,", perfect+startStall)),
			f.settle(asked{"[ER] app. D", "Rewards of variable latency make a queue stall more."},
				fmt.Sprintf("Share of GPU time stalled with slow rewards less without, at %s: %s.", queueSplit(), worse.format(percentFine)),
				worse, above("the difference", 0)),
			f.settle(asked{"[ER] app. D", "A buffer attenuates the stalls at W/T = μ."},
				fmt.Sprintf("Share of GPU time stalled in a queue less that in a buffer, at %s: %s; with slow rewards %s.",
					queueSplit(), smooth.format(percentFine), smoothSlow.format(percentFine)), smooth, above("the difference", 0)),
			f.settle(asked{"[ER] app. D", "A buffer at W/T = μ, where rollouts are used once on average, reaches the target sooner by the clock than a queue."},
				fmt.Sprintf("Clock to the target, buffer over queue, at %s: %s.", queueSplit(), sooner.format(times)), sooner, below("the ratio", 1)),
		},
		Sections: append(f.wallTimeSections(), f.trouble()...),
	}, nil
}

// startStall is a share of GPU time that waiting for the first batch is allowed.
const startStall = 0.005

// stalledAnyway is the share of GPU time stalled without replay however well timed, because W/T is not mu.
func stalledAnyway(s split, mu float64) float64 {
	w, t := float64(s.workers), float64(s.trainers)
	if s.ratio() < mu {
		return t * (1 - s.ratio()/mu) / (w + t)
	}
	return w * (1 - mu/s.ratio()) / (w + t)
}

// percentFine writes a share in percent with a digit after the point.
func percentFine(v float64) string { return fixed(100*v, 1) + "%" }

// stalled is the share of all GPUs' time that they waited in.
func stalled(_ Runs, r *results.Run) float64 {
	return gpuShare(r, func(g results.GPU) float64 { return g.Stalled + g.Idle })
}

// gpuShare is a share of all GPUs' time.
func gpuShare(r *results.Run, of func(results.GPU) float64) float64 {
	if r.Summary == nil {
		return math.NaN()
	}
	return shareOf(append(append([]results.GPU(nil), r.Summary.WorkerTimes...), r.Summary.TrainerTimes...), of)
}

func shareOf(gpus []results.GPU, of func(results.GPU) float64) float64 {
	var part, whole float64
	for _, g := range gpus {
		part += of(g)
		whole += g.Busy + g.Stalled + g.Idle
	}
	return part / whole
}

// clockPerCompute is a run's virtual time over its compute by formula.
func clockPerCompute(_ Runs, r *results.Run) float64 {
	if r.Summary == nil {
		return math.NaN()
	}
	return r.Summary.Clock / r.Summary.Compute
}

func (f *Found) wallTimeSections() []results.Section {
	learning := f.Arms[:len(f.Arms)-len(stallArms(f.Options))]
	list := lines(0, learning...)
	target := f.Arms[0].Config.Evaluate.Target
	return []results.Section{
		{
			Title: "Accuracy against the clock",
			Text:  []string{"Medians over seeds with their quartiles. Arms at (5,1) have six GPUs, the others eight."},
			Figures: []results.Figure{
				withTarget(medians("By the clock", "", byBatches(), list...), target),
				withTarget(medians("By compute", "", inUpdates(f.Arms[0].Arm), list...), target),
			},
			Grids: []results.Grid{f.stallGrid(), armsGrid("Arms", learning...)},
		},
		{Title: "Every seed", Figures: []results.Figure{everySeed("Every seed, by the clock", "", byBatches(), list...)}},
	}
}

// byBatches measures virtual time in the time in which one trainer takes a batch.
func byBatches() abscissa {
	return abscissa{"virtual time, in batches' trainings by one trainer", func(a results.Axes) float64 { return a.Clock / labBatch }}
}

func batchesToTarget(a Runs, r *results.Run) float64 { return clockToTarget(a, r) / labBatch }

// stallGrid tells how the GPUs spent their time.
func (f *Found) stallGrid() results.Grid {
	g := results.Grid{
		Title:   "Where the GPUs' time went",
		Note:    "Medians over seeds, quartiles in brackets. Workers are stalled by a full queue, trainers by a table with too little.",
		Columns: []string{"arm", "workers busy", "workers stalled", "trainers busy", "trainers stalled", "clock to the target"},
	}
	share := func(gpus func(*results.Summary) []results.GPU, of func(results.GPU) float64) measure {
		return func(_ Runs, r *results.Run) float64 {
			if r.Summary == nil {
				return math.NaN()
			}
			return shareOf(gpus(r.Summary), of)
		}
	}
	workers := func(s *results.Summary) []results.GPU { return s.WorkerTimes }
	trainers := func(s *results.Summary) []results.GPU { return s.TrainerTimes }
	busy := func(g results.GPU) float64 { return g.Busy }
	waiting := func(g results.GPU) float64 { return g.Stalled + g.Idle }
	learning := len(f.Arms) - len(stallArms(f.Options))
	for i, a := range f.Arms {
		target := "—" // of a schedule, which does not learn
		if i < learning {
			target = a.cell(batchesToTarget, updates)
		}
		g.Rows = append(g.Rows, []string{
			a.Name, a.cell(share(workers, busy), percentFine), a.cell(share(workers, waiting), percentFine),
			a.cell(share(trainers, busy), percentFine), a.cell(share(trainers, waiting), percentFine), target,
		})
	}
	return g
}
