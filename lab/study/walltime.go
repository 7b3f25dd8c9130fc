package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
)

func wallTime() Study {
	return Study{
		Name: "wall-time", Title: "What does replay do to the clock, and who waits?",
		Source: "[ER] figs. 10, 11, app. D",
		Lead: []string{
			aboutLab(),
			"Time is the virtual clock of the pipeline's GPUs, in units of the time in which one trainer takes a " +
				"batch; it does not depend on this machine. A queue stalls its workers when it is full and its " +
				"trainers when it holds too little; a buffer stalls trainers only until it holds a batch.",
			aboutSchedule,
			fmt.Sprintf("With slow rewards, each group's reward takes a time drawn from a lognormal distribution. "+
				"Its mean, "+
				"%d, is the time in which a trainer takes a batch, and σ = %g of the logarithm.", slowMean, slowSigma),
			fmt.Sprintf("In the schedules the lengths of rollouts vary as a lognormal distribution with σ = %g of the "+
				"logarithm, so that groups take different times with the mean Gμ, and a group ends with its longest "+
				"rollout. With equal lengths all groups take Gμ.", scheduleLengths),
		},
		Arms: func(o Options) []Arm { return append(learningArms(o), stallArms(o)...) }, Judge: judgeWallTime,
	}
}

// Slow rewards: the mean is about an update's time without replay, and the tail is heavy.
const (
	slowMean  = scheduleBatch
	slowSigma = 2.0
)

// scheduleLengths is sigma of the logarithm of lengths: a standard deviation of 1.3 times the mean.
const scheduleLengths = 1.0

func learningArms(o Options) []Arm {
	arms := append([]Arm{queueArm(o), wideQueueArm(o)}, splitArms(o)...)
	return append(arms, bufferArm(o, cell{queueSplit(), labCapacity}))
}

// wideQueueArm is the arm without replay on the same GPUs as the buffers.
func wideQueueArm(o Options) Arm {
	return Arm{fmt.Sprintf("%s, %s", queueName, labSplit()), labSplit().set(queue(o))}
}

// stallArms are schedules at W/T = mu: a queue and a buffer, with rewards that come at once and with slow rewards, all
// with lengths that vary; and both with equal lengths.
func stallArms(o Options) []Arm {
	slow := func(c run.Config) run.Config {
		c.Pipeline.RewardLatency = task.Latency{Distribution: task.Lognormal, Mean: slowMean, Sigma: slowSigma}
		return c
	}
	atMu := func(sampler string) run.Config {
		c := schedule(o, queueSplit(), sampler)
		c.Pipeline.RolloutCost = queueSplit().ratio() // at 5.28 workers are the slower side, and only trainers would wait
		return c
	}
	equalQ, equalB := atMu("lifo"), atMu(distinct)
	q, b := equalQ, equalB
	q.Pipeline.LengthSigma, b.Pipeline.LengthSigma = scheduleLengths, scheduleLengths
	return []Arm{
		{"schedule, queue, varying lengths", q}, {"schedule, buffer, varying lengths", b},
		{"schedule, queue, varying lengths, slow rewards", slow(q)},
		{"schedule, buffer, varying lengths, slow rewards", slow(b)},
		{"schedule, queue, equal lengths", equalQ}, {"schedule, buffer, equal lengths", equalB},
	}
}

func judgeWallTime(f *Found) (Judgement, error) {
	learning, stalls := f.of(learningArms(f.Options)...), f.of(stallArms(f.Options)...)
	once, wide, shared, atMu := learning[0], learning[1], learning[2], learning[5]
	queue, buffer, slowQueue, slowBuffer := stalls[0], stalls[1], stalls[2], stalls[3]
	fine := func(e estimate) estimate { return e.as("the difference", percentFine) }
	const appD = "[ER] app. D"
	return f.judge([]claim{
		{
			source: "[ER] figs. 10, 11", text: "On the same GPUs, replay gains at least as much by the clock as by " +
				"compute.",
			by: ratio(shared, wide, clockPerCompute).is(atMost(1)), check: true, measured: "Clock per compute at (6,2), with " +
				"replay over without",
			more: fmt.Sprintf("To the target: clock %s, compute %s.", ratio(shared, wide, clockToTarget),
				ratio(shared, wide, toTarget)),
		},
		{
			source: appD, text: "A queue stalls GPUs even at W/T = μ.",
			by: quantity(queue, stalled, "the share stalled", percentFine).is(above(startStall)), check: true,
			measured: fmt.Sprintf("Share of GPU time stalled at %s", queueSplit()),
			note:     "The wait for the first batch explains a smaller share than this bound.",
		},
		{
			source: appD, text: "Rewards of variable latency make a queue stall more.",
			by: fine(difference(slowQueue, queue, stalled)).is(above(0)), check: true,
			measured: fmt.Sprintf("Share of GPU time stalled with slow rewards less without, at %s", queueSplit()),
		},
		{
			source: appD, text: "A buffer attenuates the stalls at W/T = μ.",
			by: fine(difference(queue, buffer, stalled)).is(above(0)), check: true,
			measured: fmt.Sprintf("Share of GPU time stalled in a queue less that in a buffer, at %s", queueSplit()),
			more:     fmt.Sprintf("With slow rewards: %s.", fine(difference(slowQueue, slowBuffer, stalled))),
		},
		{
			source: appD, by: ratio(atMu, once, clockToTarget).is(below(1)),
			text: "A buffer at W/T = μ, where rollouts are used once on average, reaches the target sooner by the " +
				"clock than a queue.",
			measured: fmt.Sprintf("Clock to the target, buffer over queue, at %s", queueSplit()),
		},
	}, wallTimePage(learning, stalls)...)
}

// startStall is the share of GPU time allowed for waiting for the first batch.
const startStall = 0.005

func gpuBusy(g results.GPU) float64    { return g.Busy }
func gpuStalled(g results.GPU) float64 { return g.Stalled + g.Idle }

func workers(s *results.Summary) []results.GPU  { return s.WorkerTimes }
func trainers(s *results.Summary) []results.GPU { return s.TrainerTimes }

// stalled is the share of all GPUs' time that they waited.
func stalled(a Runs, r *results.Run) float64 {
	return gpuShare(func(s *results.Summary) []results.GPU { return slices.Concat(workers(s), trainers(s)) },
		gpuStalled)(a, r)
}

// gpuShare is a share of the time of some GPUs.
func gpuShare(gpus func(*results.Summary) []results.GPU, of func(results.GPU) float64) measure {
	return inSummary(func(s *results.Summary) float64 {
		var part, whole float64
		for _, g := range gpus(s) {
			part += of(g)
			whole += g.Busy + g.Stalled + g.Idle
		}
		return part / whole
	})
}

// clockPerCompute is a run's virtual time over its compute by formula.
func clockPerCompute(a Runs, r *results.Run) float64 {
	return inSummary(func(s *results.Summary) float64 { return s.Clock / s.Compute })(a, r)
}

func wallTimePage(learning, stalls []Runs) []results.Section {
	target := learning[0].Config.Evaluate.Target
	batches := progress{"virtual time, in batches' trainings by one trainer",
		func(_ run.Config, a results.Axes) float64 { return a.Clock / labBatch }}
	return []results.Section{
		{
			Title: "Accuracy against the clock",
			Text:  []string{"Medians over seeds with their quartiles. Arms at (5,1) have six GPUs, the others eight."},
			Figures: []results.Figure{
				withTarget(medianFigure("By the clock", "", batches, lines(0, learning...)...), target),
				withTarget(medianFigure("By compute", "", inUpdates(learning[0].Arm), lines(0, learning...)...),
					target),
			},
			Grids: []results.Grid{stallTable(learning, stalls), armsTable("Arms", learning...)},
		},
		{Title: "Every seed", Figures: []results.Figure{seedFigure("Every seed, by the clock", "", batches,
			lines(0, learning...)...)}},
	}
}

// stallTable shows how the GPUs spent their time. Schedules do not learn and have no target.
func stallTable(learning, stalls []Runs) results.Grid {
	batchesToTarget := func(a Runs, r *results.Run) float64 {
		if a.Config.Pipeline.Batch == scheduleBatch {
			return math.NaN()
		}
		return clockToTarget(a, r) / labBatch
	}
	return table("Where the GPUs' time went", mediansNote+" Workers are stalled by a full queue, trainers by a table "+
		"with too few rollouts.",
		slices.Concat(learning, stalls),
		medianOf("workers busy", gpuShare(workers, gpuBusy), percentFine),
		medianOf("workers stalled", gpuShare(workers, gpuStalled), percentFine),
		medianOf("trainers busy", gpuShare(trainers, gpuBusy), percentFine),
		medianOf("trainers stalled", gpuShare(trainers, gpuStalled), percentFine),
		medianOf("clock to the target", batchesToTarget, updates))
}
