package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/results"
)

// sampling sets the ways to draw a batch side by side.
func sampling() Study {
	return Study{
		Name: "sampling", Title: "Does it matter how batches are drawn?", Source: "[ER] fig. 15",
		Lead: []string{
			aboutLab(),
			"One buffer at (6,2), drawn from in three ways: with replacement (uniform); without replacement within a batch (distinct); the same with rollouts that were never used first (unseen). " +
				"All three begin when each trainer's shard holds its share of a batch: with replacement one rollout would do, and the first batches would be repetitions of a few.",
		},
		Arms: samplingArms, Judge: judgeSampling,
	}
}

// A sampler has no clear impact if it changes accuracy by less than this.
const noImpact = 0.05

const (
	uniform  = "uniform"
	distinct = "distinct"
	unseen   = "unseen"
)

// otherSamplers draw without replacement, within a batch or across.
func otherSamplers() []string { return []string{distinct, unseen} }

func samplingArms(o Options) []Arm {
	arms := []Arm{queueArm(o), samplerArm(o, uniform)}
	for _, s := range otherSamplers() {
		arms = append(arms, samplerArm(o, s))
	}
	return arms
}

func samplerArm(o Options, sampler string) Arm {
	if sampler == labSampler {
		return bufferArm(o, labSplit(), labCapacity)
	}
	c := buffer(o, labSplit(), labCapacity)
	c.Replay.Sampler = sampler
	return Arm{bufferName(labSplit(), labCapacity) + ", " + sampler, c}
}

func judgeSampling(f *Found) (Judgement, error) {
	reference := f.Of(samplerArm(f.Options, uniform).Name)
	lead := []line{{Runs: f.Of(queueName), colour: 0}, {Runs: reference, name: uniform, colour: 1}}
	r := within("the difference", 0, noImpact)
	var verdicts []results.Verdict
	found, seeds := "Mean accuracy over the run less that of uniform:", len(reference.over(best))
	for i, s := range otherSamplers() {
		a := f.Of(samplerArm(f.Options, s).Name)
		d := difference(a, reference, meanOver(1))
		verdicts, seeds = append(verdicts, r.by(f, d)), min(seeds, len(d.values))
		found += fmt.Sprintf(" %s %s;", s, d.format(change))
		lead = append(lead, line{Runs: a, name: s, colour: 2 + i})
	}
	why := r.words + " It must hold for each sampler, and does not if it does not for one."
	if c := f.caution(seeds); c != "" {
		why = c + " " + why
	}
	return Judgement{
		Findings: []results.Finding{{
			Source: "[ER] fig. 15", Claim: "Sampling without replacement has no clear impact.", Found: found[:len(found)-1] + ".", Verdict: all(verdicts...), Why: why,
		}},
		Sections: append([]results.Section{
			{
				Title: "Accuracy against compute", Figures: []results.Figure{medians("By sampler", "Medians over seeds with their quartiles.", inUpdates(reference.Arm), lead...)},
				Grids: []results.Grid{armsGrid("Arms", f.Arms...)},
			},
			{Title: "Every seed", Figures: []results.Figure{everySeed("Every seed", "", inUpdates(reference.Arm), lead...)}},
		}, f.trouble()...),
	}, nil
}
