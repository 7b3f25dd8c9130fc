package study

import (
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/run"
)

// imitations are the studies that compare the recipe with learning from right answers alone, one for each task.
func imitations() (list []Study) {
	for _, t := range []struct {
		study string
		task  opponentTask
	}{{"raft", opponentTasks()[0]}, {"raft-countdown", opponentTasks()[2]}} {
		x := imitation(t)
		list = append(list, Study{
			Name: x.study, Title: "Does replay beat learning from right answers alone on " + x.task.name + "?",
			Source: "our own, on RAFT",
			Lead: []string{
				"The recipe of the study " + x.task.study + " learns from right answers that it keeps, and from hardly " +
					"anything else. Fine-tuning on one's own right answers (STaR, RAFT) does so without keeping any: log-probs " +
					"of right answers are pushed up, wrong ones teach nothing. Is what the recipe gains in the answers, or in " +
					"keeping them?",
				"Two families without a buffer, each rollout used once and several updates on each batch in turns, begin with " +
					"what they chose in that study and take that loss. It is then tuned: the rate from a half to four times, the " +
					"batch, the number of updates, the groups, the rate again, and beyond the ends. The recipe is as it was.",
			},
			Blocks: 2, PilotRuns: 2, Pilots: x.pilots, Arms: x.arms, Judge: x.judge,
		})
	}
	return list
}

// imitation is the comparison on one task.
type imitation struct {
	study string
	task  opponentTask
}

// contests are those of the families without a buffer, with the loss that learns from right answers alone; and of the
// recipe. parents are those that they begin with.
func (x imitation) contests(o Options) (list, parents []contest) {
	for _, c := range x.task.contests(o) {
		switch c.family.name {
		case "queue", "reuse, sync":
			parents = append(parents, c)
			c.stages, c.after = imitationStages(c), len(c.pilots())
			c.family.name += ", right answers alone"
			list = append(list, c)
		case "recipe":
			parents = append(parents, c)
			list = append(list, c)
		}
	}
	return list, parents
}

// imitationStages are those in which a family is tuned for right answers alone, from what it chose before.
func imitationStages(parent contest) func(contest) []stage {
	return func(c contest) []stage {
		before, _ := parent.chosen()
		var rates []variant
		for _, by := range []float64{0.5, 1, 2, 4} {
			rates = append(rates, variant{name: timesRateName(by), change: func(to *run.Config) {
				*to = withRate(before, roundRate(before.Learner.LearningRate*by))
				l := &to.Learner
				l.Objective, l.Advantage, l.MaskZeroVariance = objective.RAFT{}.Name(), "", false
				l.ClipLow, l.ClipHigh, l.Shift = 0, 0, run.Default().Learner.Shift
				to.Pipeline.FilterGroups = false
			}})
		}
		own := stage{"updates", always(updatesOnABatch(2, 4, 6, 8)...)}
		if before.Pipeline.BatchUpdates == 1 {
			own = stage{"the oldest first", always(c.family.own[1])}
		}
		return stagesThatRun([]stage{{"loss", always(rates...)}, {"batch", c.halfAndTwice}, own, {"groups", halfAndTwiceTheGroup},
			{"rate", always(timesRate(minRate, 0.7, 1.4, maxRate)...)}, {"beyond", beyondRates},
			{"batch beyond", c.batchBeyond}, {"batch further beyond", c.batchBeyond}})
	}
}

func (x imitation) pilots(o Options) (list []Pilot) {
	contests, parents := x.contests(o)
	for _, c := range parents {
		list = append(list, c.pilots()...)
	}
	for _, c := range contests {
		if c.after > 0 {
			list = append(list, c.pilots()...)
		}
	}
	return list
}

func (x imitation) arms(o Options) []Arm {
	contests, _ := x.contests(o)
	return armsOf(contests)
}

func (x imitation) judge(f *Found) (Judgement, error) {
	contests, _ := x.contests(f.Options)
	return f.judgeContests(contests)
}
