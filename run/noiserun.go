package run

import (
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
)

// What makes a measurement of noise doubtful.
const (
	fewRollouts   = 256  // of the table
	fewVersions   = 4    // of staleness
	muchIdle      = 0.05 // share of the GPUs' time
	muchClipping  = 0.05 // share of the tokens
	latestUpdates = 20   // over which clipping is averaged
)

// circumstances adds the costs of the run and what makes the measurement doubtful.
func (s *session) circumstances(n *results.Noise, last pipeline.Update) error {
	warn := func(ok bool, format string, args ...any) {
		if !ok {
			n.Warnings = append(n.Warnings, fmt.Sprintf(format, args...))
		}
	}
	written, err := results.ReadRun(s.dir)
	if err != nil {
		return err
	}
	n.RolloutCost, n.NewPerUpdate = results.Num(unitCost(last)), results.Num(float64(last.Stored)/float64(last.Version))
	ended := written.Summary != nil && written.Summary.Ended != "interrupted"
	warn(ended, "The run has not ended: it is measured at update %d, its last checkpoint.", n.Version)
	warn(idle(last) <= muchIdle, "GPUs waited for %.0f%% of their time: the rollout cost is by the time that they worked, not by (K_train/T)/(K_infer/W).", 100*idle(last))
	warn(n.Held >= fewRollouts, "The table holds %d rollouts: too few to tell a correlation; %d or more would do.", n.Held, fewRollouts)
	oldest := n.ByStaleness[len(n.ByStaleness)-1].Last
	warn(oldest >= fewVersions, "The oldest rollout is %d versions old: how noise grows with staleness is hardly seen; measure a run with a larger replay.capacity.", oldest)
	if first, last := n.ByStaleness[0], n.ByStaleness[len(n.ByStaleness)-1]; falls(first, last) {
		warn(false, "Noise falls with staleness, at the oldest to %.2f of that of fresh rollouts: rollouts that were trained on have less gradient left, most the often used ones, of which the theory knows nothing. Their mean is biased thereby, which shows as correlation.", last.Variance/first.Variance)
	}
	clipped := clipping(written.Updates)
	if clipped > muchClipping && n.Clipped {
		warn(false, "%.0f%% of the tokens are clipped: they have no gradient, so that stale rollouts show less noise, and a bias in its place.", 100*clipped)
	} else {
		warn(clipped <= muchClipping, "The run clips the ratios of %.0f%% of the tokens; noise is measured without clipping, as the theory has it.", 100*clipped)
	}
	if r := n.NewPerUpdate.Float(); n.Common.Known() {
		warn(n.CommonError.Float() <= n.Common.Float()/2, "The correlation is not told from 0: R c is %.2g with a standard error of %.2g.", r*n.Common.Float(), r*n.CommonError.Float())
	}
	o := s.table.Options()
	warn(o.Retention != replay.KeepPositive, "The table keeps correct rollouts longer (retention positive), which biases the mean gradient: that shows as correlation.")
	warn(o.Sampler != replay.Prioritized, "Rollouts are weighed equally here, while sampler %s prefers some.", o.Sampler)
	warn(s.chooser == nil, "Prompts are replayed in the run, and were taken in their turn here.")
	warn(s.config.Prompts.Limit == 0, "The run asks its first %d prompts over and over, and so did this: the scatter from prompt to prompt counts as error of the true gradient, which makes the correlation too low.", s.config.Prompts.Limit)
	if s.config.Generate.TopP > 0 && s.config.Generate.TopP < 1 {
		warn(false, "generate.top_p %g biases importance ratios.", s.config.Generate.TopP)
	}
	return nil
}

// falls reports whether the noise of old rollouts is less than that of fresh ones by more than chance, two standard errors.
func falls(fresh, old results.StaleNoise) bool {
	if !fresh.Error.Known() || !old.Error.Known() {
		return false
	}
	return fresh.Variance-old.Variance > 2*math.Hypot(fresh.Error.Float(), old.Error.Float())
}

// unitCost is mu, in units of what the table keeps, (K_train/T)/(K_infer/W); of GPUs that waited it counts the time in which they worked.
func unitCost(u pipeline.Update) float64 {
	if idle(u) <= muchIdle {
		return float64(u.Used) / float64(u.Trainers) / (float64(u.Stored) / float64(len(u.Workers)))
	}
	var busy float64
	for _, w := range u.Workers {
		busy += w.Busy
	}
	return busy / float64(u.Stored) / (float64(u.Trainers) * u.Trainer.Busy / float64(u.Used))
}

// idle is the share of the time that the trainers waited, or the workers, whichever is more.
func idle(u pipeline.Update) float64 {
	var of pipeline.GPUTime
	for _, w := range u.Workers {
		of.Busy += w.Busy
		of.Stalled += w.Stalled
		of.Idle += w.Idle
	}
	share := func(s pipeline.GPUTime) float64 { return (s.Stalled + s.Idle) / (s.Busy + s.Stalled + s.Idle) }
	return max(share(of), share(u.Trainer))
}

// clipping is the mean share of clipped tokens in the latest updates.
func clipping(updates []results.Update) float64 {
	sum, n := 0.0, 0.0
	for _, u := range updates[max(0, len(updates)-latestUpdates):] {
		if u.ClipFraction.Known() {
			sum += u.ClipFraction.Float()
			n++
		}
	}
	return sum / max(n, 1)
}

// noiseByProxy makes of a run's summary what can be told without gradients: n/ESS by age, in units of a rollout of the present policy,
// whose ratio is 1. The variance of a rollout's gradient is mean (rho ||g||)^2, of which n/ESS is the part of rho.
func noiseByProxy(dir, why string) (*results.Noise, error) {
	written, err := results.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	sum := written.Summary
	if sum == nil {
		return nil, fmt.Errorf("%s, and the run has not ended: finish it by reprise train --resume, or name another", why)
	}
	n := &results.Noise{
		Run: dir, Seed: sum.Seed, Version: sum.Version, Proxy: true, RolloutCost: sum.RolloutCostMeasured, NewPerUpdate: sum.NewPerUpdate,
		Warnings: []string{fmt.Sprintf("No gradients could be taken: %s. Noise is by a proxy, n/ESS of the importance ratios by age, and the correlation stays unknown.", why)},
	}
	var tokens float64
	for _, a := range sum.ESSByAge {
		tokens += a.Tokens
		if a.Age > 0 {
			n.ByStaleness = append(n.ByStaleness, results.StaleNoise{First: a.Age, Last: a.Last, Age: float64(a.Age+a.Last) / 2, Tokens: a.Tokens, Variance: 1 / a.ESS})
		}
	}
	if len(n.ByStaleness) == 0 {
		return nil, errors.New(why + ", and its summary has no ESS by age: name a run that replays rollouts")
	}
	n.ByStaleness = append([]results.StaleNoise{{Tokens: tokens, Variance: 1}}, n.ByStaleness...)
	return n, nil
}
