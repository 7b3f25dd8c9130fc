package study

import (
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
)

func sampling() Study {
	return Study{
		Name: "sampling", Title: "Does it matter how batches are drawn?", Source: "[ER] fig. 15",
		Lead: []string{
			aboutLab(),
			"One buffer at (6,2), drawn from in three ways: with replacement (uniform); without replacement within a " +
				"batch (distinct); and without replacement, rollouts that were never used first (unseen). All three " +
				"start when each trainer's shard holds its share of a batch: with replacement one rollout would be " +
				"enough, and the first batches would repeat a few rollouts.",
		},
		Arms: func(o Options) []Arm {
			return []Arm{queueArm(o), samplerArm(o, uniform), samplerArm(o, distinct), samplerArm(o, unseen)}
		},
		Judge: judgeSampling,
	}
}

// noImpact is the change of accuracy, fixed before the runs, that counts as none.
const noImpact = 0.05

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
	samplers := []string{uniform, distinct, unseen}
	arms := f.of(samplerArm(f.Options, uniform), samplerArm(f.Options, distinct), samplerArm(f.Options, unseen))
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
