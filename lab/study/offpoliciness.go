package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/results"
)

func offPoliciness() Study {
	return Study{
		Name: "off-policiness", Title: "What does staleness do by itself, without replay?", Source: "[ER] fig. 12",
		Lead: []string{
			aboutLab(),
			"No buffer: each rollout is used once. The workers get new weights after every update, or only after " +
				"every few, so that rollouts are staler when they are trained on. Curves are named by the measured " +
				"median staleness of all rollouts used.",
		},
		Arms: offPolicinessArms, Judge: judgeOffPoliciness,
	}
}

// delays are the updates from one set of weights that the workers get to the next: short, moderate, and long.
func delays() []int { return []int{1, 4, 12} }

func offPolicinessArms(o Options) []Arm {
	arms := []Arm{queueArm(o)}
	for _, d := range delays()[1:] {
		c := queue(o)
		c.Pipeline.PublishEvery = d
		arms = append(arms, Arm{fmt.Sprintf("%s, weights every %d updates", queueName, d), c})
	}
	return arms
}

func judgeOffPoliciness(f *Found) (Judgement, error) {
	arms := f.Arms
	levels := make([]float64, len(arms))
	for i, d := range delays() {
		levels[i] = float64(d)
	}
	const er12 = "[ER] fig. 12"
	stale := inSummary(medianStaleness)
	drawn := namedLines(0, func(i int) string {
		return fmt.Sprintf("staleness %s (weights every %d)", whole(arms[i].median(stale)), delays()[i])
	}, arms...)
	return f.judge([]claim{
		{
			source: er12, text: "The staler the rollouts, the slower the training.",
			by:       trend(arms, levels, meanOver(0.5)).is(below(0)),
			measured: "Rank correlation of the delay with mean accuracy over the first half of the budget",
			more:     fmt.Sprintf("Median staleness: %s versions.", medians(arms, stale, whole)),
		},
		{
			source: er12, text: "Moderate staleness makes training more stable.",
			by: unsteadier(arms[0], arms[1]).is(above(0)), premise: wavers(arms[0]), note: samplingNote,
			measured: unsteadiness + ", on-policy less at the moderate delay",
		},
		{
			source: er12, text: "Moderate staleness reaches a higher best accuracy.",
			by: difference(arms[1], arms[0], level).is(above(0)), premise: falls(arms[0], arms[1]),
			measured: "Pass@1 reached at the moderate delay, less that on-policy",
		},
	}, results.Section{
		Title: "Accuracy against steps",
		Figures: []results.Figure{medianFigure("Medians", "Medians over seeds with their quartiles.",
			byUpdates(), drawn...)},
		Grids: []results.Grid{armsTable("Arms", arms...)},
	}, results.Section{Title: "Every seed", Figures: []results.Figure{seedFigure("Every seed", "", byUpdates(),
		drawn...)}})
}

// medianStaleness is the median over the uses of a run, in versions.
func medianStaleness(s *results.Summary) float64 { return histogramMedian(s.Staleness).Float() }

// histogramMedian is the least value that at least half of the counts do not exceed, nothing without counts.
func histogramMedian(h results.Histogram) results.Number {
	var n uint64
	for _, b := range h {
		if n += b[1]; 2*n >= h.Count() {
			return results.Num(float64(b[0]))
		}
	}
	return results.Number{}
}
