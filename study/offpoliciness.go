package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/results"
)

// offPoliciness makes rollouts stale without replay: workers get new weights more rarely.
func offPoliciness() Study {
	return Study{
		Name: "off-policiness", Title: "What does staleness do by itself, without replay?", Source: "[ER] fig. 12",
		Lead: []string{
			aboutLab(),
			"No buffer: each rollout is used once. The workers get the weights of every update, or of every few alone, so that rollouts are staler when they are trained on. " +
				"Curves are named by the median staleness over all rollouts used, as measured.",
		},
		Arms: offPolicinessArms, Judge: judgeOffPoliciness,
	}
}

// delays are the updates between the weights that workers get: none to speak of, moderate, and long.
func delays() []int { return []int{1, 4, 12} }

func offPolicinessArms(o Options) []Arm {
	var arms []Arm
	for _, d := range delays() {
		arms = append(arms, delayedArm(o, d))
	}
	return arms
}

// delayedArm is the arm without replay whose workers get every d-th version alone.
func delayedArm(o Options, d int) Arm {
	if d == 1 {
		return queueArm(o)
	}
	c := queue(o)
	c.Pipeline.PublishEvery = d
	return Arm{fmt.Sprintf("%s, weights every %d updates", queueName, d), c}
}

func judgeOffPoliciness(f *Found) (Judgement, error) {
	arms := f.of(offPolicinessArms(f.Options)...)
	levels := make([]float64, len(arms))
	for i, d := range delays() {
		levels[i] = float64(d)
	}
	slow := trend(arms, levels, meanOver(0.5))
	calm := difference(arms[0], arms[1], fall)
	top := difference(arms[1], arms[0], best)
	er12 := func(claim string) asked { return asked{"[ER] fig. 12", claim} }
	return Judgement{
		Findings: []results.Finding{
			f.settle(er12("The staler the rollouts, the slower the training."),
				fmt.Sprintf("Rank correlation of the delay with mean accuracy over the first half of the budget: %s. Median staleness: %s.",
					slow.format(times), stalenesses(arms)), slow, below("the rank correlation", 0)),
			f.settle(er12("Moderate staleness makes training more stable."),
				fmt.Sprintf("The greatest fall below a run's own best is larger on-policy, by %s, than at the moderate delay.",
					calm.format(points)), calm, above("the difference in the greatest fall", 0)),
			f.settle(er12("Moderate staleness comes to a higher best accuracy."),
				fmt.Sprintf("Best pass@1 at the moderate delay, less that on-policy: %s.", top.format(change)),
				top, above("the difference", 0)),
		},
		Sections: append(offPolicinessSections(arms), f.trouble()...),
	}, nil
}

// medianStaleness is the median over the uses of a run, in versions.
func medianStaleness(s *results.Summary) results.Number { return histogramMedian(s.Staleness) }

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

func stalenesses(arms []Runs) string {
	s := ""
	for i, a := range arms {
		if i > 0 {
			s += ", "
		}
		s += fixed(a.median(inSummary(medianStaleness)), 0)
	}
	return s + " versions"
}

func offPolicinessSections(arms []Runs) []results.Section {
	list := lines(0, arms...)
	for i := range list {
		list[i].name = fmt.Sprintf("staleness %s (weights every %d)", fixed(arms[i].median(inSummary(medianStaleness)), 0), delays()[i])
	}
	x := bySteps()
	return []results.Section{
		{
			Title: "Accuracy against steps", Figures: []results.Figure{medians("Medians", "Medians over seeds with their quartiles.", x, list...)},
			Grids: []results.Grid{armsGrid("Arms", arms...)},
		},
		{Title: "Every seed", Figures: []results.Figure{everySeed("Every seed", "", x, list...)}},
	}
}
