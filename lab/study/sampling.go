package study

import (
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
)

func sampling() Study {
	return Study{
		Name: "sampling", Title: "Does it matter how batches are drawn?", Source: "[ER] fig. 15",
		Lead: []string{
			aboutLab(),
			"One buffer at (6,2), drawn from in four ways: with replacement (uniform, [ER]'s); without replacement within " +
				"a batch (distinct); the same over as many draws as the buffer holds (epoch); and without replacement, " +
				"rollouts that were never used first (unseen). All start when each trainer's shard holds its share of a " +
				"batch: with replacement one rollout would be enough, and the first batches would repeat a few rollouts.",
		},
		Arms: func(o Options) []Arm {
			arms := []Arm{queueArm(o)}
			for _, s := range labSamplers() {
				arms = append(arms, samplerArm(o, s))
			}
			return arms
		},
		Judge: judgeSampling,
	}
}

// labSamplers are the samplers that are compared, [ER]'s first.
func labSamplers() []string { return []string{uniform, distinct, epoch, unseen} }

func samplerArm(o Options, sampler string) Arm {
	a := bufferArm(o, cell{labSplit(), labCapacity})
	if sampler == labSampler {
		return a
	}
	c := buffer(o, cell{labSplit(), labCapacity})
	c.Replay.Sampler = replay.Sampler(sampler)
	return Arm{a.Name + ", " + sampler, c}
}

func judgeSampling(f *Found) (Judgement, error) {
	samplers := labSamplers()
	var arms []Runs
	for _, s := range samplers {
		arms = append(arms, f.Of(samplerArm(f.Options, s).Name))
	}
	var tests []test
	for i, a := range arms[1:] {
		tests = append(tests, difference(a, arms[0], meanOver(1)).named(samplers[i+1], within(0, noImpact)))
	}
	x := inUpdates(arms[0].Arm)
	drawn := append(lines(0, f.Of(queueName)), namedLines(1, func(i int) string { return samplers[i] }, arms...)...)
	return f.judge([]claim{{
		source: "[ER] fig. 15", text: "Sampling without replacement has no clear impact.", by: tests,
		measured: "Mean accuracy over the run, less that of uniform",
	}}, results.Section{
		Title: "Accuracy against compute", Figures: []results.Figure{medianFigure("By sampler",
			"Medians over seeds with their quartiles.", x, drawn...)},
		Grids: []results.Grid{armsTable("Arms", f.Arms...)},
	}, results.Section{Title: "Every seed", Figures: []results.Figure{seedFigure("Every seed", "", x, drawn...)}})
}
