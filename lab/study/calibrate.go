package study

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/run/noise"
	"github.com/reprise-rl/reprise/replay"
)

// Calibrate measures the gradient noise of runs, which are seeds of one configuration, and fits the calculator's
// parameters to all of them together. It calls measuring before each run, which takes half a minute, and what that
// returns with the share that is done, in (0, 1]. What the runs do not show stays assumed.
func Calibrate(ctx context.Context, dirs []string, measuring func(dir string) (progress func(float64))) (
	design.Known, error) {
	var runs []*results.Noise
	for _, dir := range dirs {
		n, err := noise.Measure(ctx, dir, noise.Options{Progress: measuring(dir)})
		if err != nil {
			return design.Known{}, err
		}
		runs = append(runs, n)
	}
	known, err := calibrate(runs)
	if err != nil {
		return design.Known{}, err
	}
	first, err := run.Load(filepath.Join(dirs[0], results.ConfigFile), nil)
	if err != nil {
		return known, fmt.Errorf("%s: %w", dirs[0], err)
	}
	known.Batch = first.Pipeline.Batch
	differ, err := configurationDifferences(dirs)
	known.Warnings = append(differ, known.Warnings...)
	return known, err
}

// configurationDifferences names the runs that are not seeds of the first one's configuration.
func configurationDifferences(dirs []string) ([]string, error) {
	var differ []string
	var first map[string]string
	for _, dir := range dirs {
		config, err := run.Load(filepath.Join(dir, results.ConfigFile), nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		settings, err := config.Settings()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		delete(settings, "seed")
		if first == nil {
			first = settings
		}
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(settings)),
			func(key string) bool { return settings[key] == first[key] })
		if len(keys) > 0 {
			differ = append(differ, fmt.Sprintf("%s differs from %s in %s: this fit mixes experiments.", dir, dirs[0],
				strings.Join(keys, ", ")))
		}
	}
	return differ, nil
}

// calibrate fits the parameters to the noise of runs. Costs are medians over the runs. Runs without gradients give only
// their costs, unless none has gradients.
func calibrate(runs []*results.Noise) (design.Known, error) {
	k := design.Assumptions()
	for _, n := range runs {
		k.HowMeasured = append(k.HowMeasured, source(n))
		for _, w := range n.Warnings {
			if len(runs) > 1 {
				w = n.Run + ": " + w
			}
			k.Warnings = append(k.Warnings, w)
		}
	}
	costs := numbers(runs, func(n *results.Noise) results.Number { return n.RolloutCost })
	fresh := numbers(runs, func(n *results.Noise) results.Number { return n.NewPerUpdate })
	if len(costs) == 0 {
		return k, fmt.Errorf("%s: its rollout cost was not measured: choose a run with updates", runs[0].Run)
	}
	used := slices.DeleteFunc(slices.Clone(runs), func(n *results.Noise) bool { return n.Proxy })
	if len(used) == 0 {
		used = runs
	}
	if n := len(runs) - len(used); n > 0 {
		k.Warnings = append(k.Warnings, fmt.Sprintf("%d of %d runs have no gradients and give only their rollout cost.",
			n, len(runs)))
	}
	cost, _ := strconv.ParseFloat(fmt.Sprintf("%.12g", results.Median(costs)), 64) // 5.44, not 5.4399999999999995
	m := measurements(used, cost, results.Median(fresh))
	f, err := design.Fit(m)
	if err != nil {
		return k, err
	}
	what := "Noise of one rollout's gradient by staleness, relative to fresh rollouts: "
	k.Profile, k.Origins.Noise = f.Table, design.Measured
	if m.Proxy { // averages that fade with time: their shape is worth more than their values
		what = "n/ESS of importance ratios by age, relative to tokens of the current policy: "
		k.Profile, k.Origins.Noise = f.PowerLaw, design.Measured+" by proxy, n/ESS of importance ratios"
	}
	k.RolloutCost, k.Origins.RolloutCost = f.RolloutCost, design.Measured
	k.Exponent, k.Noise, k.Doubts = f.PowerLaw.Exponent, m.Noise, f.Doubts
	k.HowMeasured = append(k.HowMeasured,
		fmt.Sprintf("A rollout costs %s units of training; an update takes in %s new rollouts.", medianIQR(costs),
			medianIQR(fresh)),
		what+noiseByStaleness(used)+".",
		fmt.Sprintf("The nearest power law has exponent a = %.3g and is off by %.0f%%; the nearest table that "+
			"does not fall is off by %.0f%%.",
			f.PowerLaw.Exponent, 100*f.PowerLawResidual, 100*f.TableResidual))
	if k.NoiseScale, k.Doubts.Scale = noiseScale(used); k.NoiseScale > 0 {
		k.Origins.NoiseScale = design.Measured
	}
	if psis := coherences(used, k.NoiseScale); len(psis) > 0 {
		k.MeasureCoherence(results.Median(psis))
		k.HowMeasured = append(k.HowMeasured, fmt.Sprintf("Of the noise of a rollout's gradient an update leaves a correlation "+
			"of %s; over the step of an update without noise that is a coherence of %s.",
			medianIQR(numbers(used, func(n *results.Noise) results.Number { return n.Alike })), medianIQR(psis)))
	}
	if !m.Proxy {
		k.HowMeasured = append(k.HowMeasured, describeScale(used))
	}
	if f.Correlation == nil {
		k.Doubts.Correlation = []string{fmt.Sprintf("The correlation was not measured: %g is assumed.", k.Correlation)}
		return k, nil
	}
	k.Correlation, k.Origins.Correlation = f.Correlation.Rho, design.Measured
	residuals := numbers(used, func(n *results.Noise) results.Number { return n.Residual })
	k.HowMeasured = append(k.HowMeasured, fmt.Sprintf("The mean of b draws has a variance of %.3g (1/b + c) with c = "+
		"%.2g%s; one split into micro-batches of 1 to 16 is off by %.2g%%. So the correlation is R c = %.2g.",
		f.Correlation.Mean, f.Correlation.C, commonError(used), 100*results.Median(residuals), f.Correlation.Rho))
	return k, nil
}

// describeScale says what the runs measured of the noise scale.
func describeScale(runs []*results.Noise) string {
	scales := numbers(runs, func(n *results.Noise) results.Number { return n.Scale })
	if len(scales) == 0 {
		return "The noise scale is not known: the fresh rollouts are too few to tell the gradient from 0."
	}
	text := fmt.Sprintf("The noise scale is %s rollouts: in the gradient of a batch of that size, noise equals signal. "+
		"The larger the batch relative to this scale, the less noise limits learning, and the more further updates on "+
		"the same rollouts can teach.", medianIQR(scales))
	if unknown := len(runs) - len(scales); unknown > 0 {
		text += fmt.Sprintf(" In %d of %d runs it was too large to be measured.", unknown, len(runs))
	}
	return text
}

// coherences returns the coherence that each run had at a noise scale, where it was measured: the step of a batch B is
// B/(B + S) of that without noise.
func coherences(runs []*results.Noise, scale float64) (list []float64) {
	for _, n := range runs {
		if n.Batch > 0 && n.Alike.Known() && scale > 0 {
			list = append(list, math.Pow(n.Alike.Float(), 1+scale/float64(n.Batch)))
		}
	}
	return list
}

// noiseScale returns the median of the noise scales over runs, 0 if it is unknown, and what makes it doubtful. A scale
// of more than four times the fresh rollouts is a gradient of less than half the standard deviation of its estimate.
// One run in two must have told it.
func noiseScale(runs []*results.Noise) (scale float64, doubts []string) {
	var told []float64
	for _, n := range runs {
		if n.Scale.Known() && n.Scale.Float() <= 4*float64(n.Fresh) {
			told = append(told, n.Scale.Float())
		}
	}
	if 2*len(told) <= len(runs) {
		return 0, []string{fmt.Sprintf("the noise scale could not be measured: %d of %s had no gradient that fresh rollouts "+
			"told from 0", len(runs)-len(told), words.Plural(len(runs), "run"))}
	}
	return results.Median(told), nil
}

// Source is a run as the calculator's choice begins with it.
func Source(c run.Config) design.Source {
	p := c.Pipeline
	s := design.Source{Use: design.Use{Way: design.Buffer, Batch: p.Batch, Updates: max(1, p.BatchUpdates),
		Workers: p.Workers, Trainers: p.Trainers, Capacity: cmp.Or(c.Replay.Capacity, 2*p.Batch)}}
	if !c.Replays() {
		if s.Way = design.Queue; s.Updates > 1 {
			s.Way = design.Reuse
		}
	}
	switch {
	case c.Replay.Retention == replay.KeepPositive:
		s.OnlyBatch = "the run keeps right answers for longer (replay.retention positive)"
	case c.Replay.Sampler == replay.Prioritized:
		s.OnlyBatch = "the run draws by priority (replay.sampler prioritized)"
	case c.Replay.Mix > 0 || c.Replay.FreshShare > 0:
		s.OnlyBatch = "the run draws fresh rollouts apart (replay.mix or replay.fresh_share)"
	case len(c.Replay.Sources) > 0:
		s.OnlyBatch = "the run composes batches (replay.sources)"
	case c.Prompts.Fraction > 0 || c.Prompts.Skip != "":
		s.OnlyBatch = "the run replays prompts (prompts.fraction)"
	}
	return s
}

// measurements returns the noise of runs for the calculator, all with gradients or all by proxy. The rollout cost mu
// and the new rollouts per update are 0 if unknown. Each run's variances are in units of its first, that of fresh
// rollouts: only ratios matter.
func measurements(runs []*results.Noise, cost, fresh float64) design.Measurements {
	m := design.Measurements{RolloutCost: cost, NewPerUpdate: fresh, Proxy: runs[0].Proxy}
	for _, n := range runs {
		unit := n.ByStaleness[0].Variance
		for _, s := range n.ByStaleness {
			m.Noise = append(m.Noise, design.Noise{
				Staleness: s.Age, Variance: s.Variance / unit, Count: max(s.Rollouts, int(s.Tokens)),
				Error: orZero(s.Error) / unit,
			})
		}
		for _, b := range n.MicroBatches {
			m.Means = append(m.Means, design.MeanNoise{Draws: b.Draws, Variance: b.Variance / unit, Count: b.Batches})
		}
	}
	return m
}

func orZero(n results.Number) float64 {
	if !n.Known() {
		return 0
	}
	return n.Float()
}

// numbers returns the known values of a measurement.
func numbers(runs []*results.Noise, of func(*results.Noise) results.Number) []float64 {
	var list []float64
	for _, n := range runs {
		if v := of(n); v.Known() {
			list = append(list, v.Float())
		}
	}
	return list
}

// source describes what was measured of a run, and from how much.
func source(n *results.Noise) string {
	last := n.ByStaleness[len(n.ByStaleness)-1]
	if n.Proxy {
		return fmt.Sprintf("%s, seed %d, version %d: n/ESS of importance ratios up to age %d.",
			n.Run, n.Seed, n.Version, last.Last)
	}
	return fmt.Sprintf("%s, seed %d, version %d: gradients of %d rollouts of the table, up to %d versions old, and "+
		"of %d fresh ones.",
		n.Run, n.Seed, n.Version, n.Held, last.Last, n.Fresh)
}

// medianIQR writes the median of values, with the quartiles of several.
func medianIQR(values []float64) string {
	if len(values) == 1 {
		return fmt.Sprintf("%.4g", values[0])
	}
	return fmt.Sprintf("%.4g (IQR %.4g to %.4g over %d runs)", results.Median(values), results.Quantile(values, 0.25),
		results.Quantile(values, 0.75), len(values))
}

// listedStalenesses is how many stalenesses a sentence lists, with the first and the last.
const listedStalenesses = 6

// noiseByStaleness lists the noise of the first run.
func noiseByStaleness(runs []*results.Noise) string {
	all := runs[0].ByStaleness
	var parts []string
	listed := min(len(all), listedStalenesses)
	for i := range listed {
		s := all[i*(len(all)-1)/max(1, listed-1)]
		text := fmt.Sprintf("%.2f", s.Variance/all[0].Variance)
		if s.Error.Known() {
			text += fmt.Sprintf(" ± %.2f", s.Error.Float()/all[0].Variance)
		}
		text += fmt.Sprintf(" at %.3g", s.Age)
		if s.Rollouts > 0 {
			text += fmt.Sprintf(" (%d rollouts)", s.Rollouts)
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, ", ")
	if len(runs) > 1 {
		text += ", in the first run"
	}
	return text
}

// commonError writes the standard error of c over runs, empty if it is unknown.
func commonError(runs []*results.Noise) string {
	var sum, n float64
	for _, e := range numbers(runs, func(n *results.Noise) results.Number { return n.CommonError }) {
		sum += e * e
		n++
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" ± %.1g", math.Sqrt(sum)/n)
}
