package study

import (
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/run"
)

// imitations are the studies that compare replay with learning from right answers alone, one for each task.
func imitations() (list []Study) {
	for i, name := range []string{"raft", "raft-search", "raft-countdown"} {
		x := imitation{opponentTasks()[i]}
		list = append(list, Study{
			Name: name, Title: "Does replay beat learning from right answers alone on " + x.name + "?",
			Source: "our own, on RAFT",
			Lead: []string{
				"The recipe of the study " + x.study + " learns from right answers that it keeps, and from hardly anything " +
					"else. Fine-tuning on one's own right answers (STaR, RAFT) keeps none: it pushes up the log-probs of right " +
					"answers, and wrong ones teach nothing. Is what the recipe gains in the answers, or in keeping them?",
				"Two families without a buffer, each rollout used once and several updates on each batch in turns, begin with " +
					"what they chose in that study and take that loss. The recipe begins likewise, and may keep its own loss. All " +
					"three are then tuned in the same stages: the rate that goes with the loss, the batch, what the family alone " +
					"can vary, the size of groups, the rate, and these again, beyond the ends where they were chosen. A group " +
					"of one is as good as any for a loss without a baseline, so it is tried as well.",
			},
			Blocks: 2, PilotRuns: 2, Pilots: x.pilots, Arms: x.arms, Judge: x.judge,
		})
	}
	return list
}

// imitation is the comparison on one task.
type imitation struct{ opponentTask }

// contests are those of the families, from what they chose in the tournament; parents are those of the tournament.
func (x imitation) contests(o Options) (list, parents []contest) {
	for _, c := range x.opponentTask.contests(o) {
		switch c.family.name {
		case "queue", "reuse, sync", "recipe":
			parents = append(parents, c)
			c.stages, c.after = imitationStages(c), len(c.pilots())
			c.family.name += ", right answers alone"
			list = append(list, c)
		}
	}
	return list, parents
}

// imitationStages are those in which a family is tuned further, from what it chose before.
func imitationStages(parent contest) func(contest) []stage {
	return func(c contest) []stage {
		before, _ := parent.chosen()
		var first []variant
		if c.family.buffer {
			first = append(first, variant{name: "as before", change: func(to *run.Config) { *to = before }})
		}
		for _, by := range []float64{0.5, 1, 2, 4} {
			first = append(first, variant{name: timesRateName(by), change: func(to *run.Config) {
				*to = withRate(before, roundRate(before.Learner.LearningRate*by))
				withRAFT(to)
			}})
		}
		own := c.family.own
		if before.Pipeline.BatchUpdates == 1 && !c.family.buffer { // filling and advantages mean nothing to the loss
			own = c.family.own[1:3]
		}
		rates := always(timesRate(minRate, 0.7, 1.4, maxRate)...)
		return stagesThatRun([]stage{{"loss", always(first...)}, {"batch", c.halfAndTwice},
			{"the family's own", always(own...)}, {"groups", halfAndTwiceTheGroup}, {"rate", rates}, {"beyond", beyondRates},
			{"groups again", halfAndTwiceTheGroup}, {"batch again", c.halfAndTwice}, {"rate again", rates},
			{"batch beyond", c.batchBeyond}, {"batch further beyond", c.batchBeyond},
			{"smaller share", smallerShare}, {"still smaller share", smallerShare}})
	}
}

// smallerShare are shares of right answers below the least if that was chosen. They were added when the study on
// addition was judged, because the recipe had chosen its least share there.
func smallerShare(chosen Arm, tried []Pilot) []variant {
	share := chosen.Config.Replay.PositiveShare
	for _, p := range tried {
		for _, a := range p.Arms {
			if s := a.Config.Replay.PositiveShare; s > 0 && s < share {
				return nil
			}
		}
	}
	if share == 0 {
		return nil
	}
	return []variant{rightAnswers(share / 2), rightAnswers(share / 4)}
}

// withRAFT sets the loss that learns from right answers alone.
func withRAFT(c *run.Config) {
	l, d := &c.Learner, run.Default().Learner
	l.Objective, l.Advantage, l.MaskZeroVariance = objective.RAFT{}.Name(), d.Advantage, false
	l.ClipLow, l.ClipHigh, l.Shift = 0, 0, d.Shift
	c.Pipeline.FilterGroups = false
}

func (x imitation) pilots(o Options) (list []Pilot) {
	contests, parents := x.contests(o)
	for _, c := range append(parents, contests...) {
		list = append(list, c.pilots()...)
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
