package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/study"
)

// measured is what runs say of the theory's parameters.
type measured struct {
	theory      design.Theory  // Correlation is that of the calculator's default where it was not measured
	correlation bool           // whether it was measured
	exponent    float64        // of the power law nearest to what was measured
	noise       []design.Noise // what the profile was fitted to, in units of that of fresh rollouts
	noiseFrom   string         // how noise is known
	how         []string       // sentences: what was measured, from how much, with which spread
	warnings    []string       // sentences
	doubts      design.Doubts  // of what may be given by flags instead
}

// fromRuns measures the theory's parameters in the folders of runs, seeds of one configuration. Costs are medians over them; noise is
// fitted to all of them together, in units of that of each run's fresh rollouts.
func fromRuns(ctx context.Context, dirs []string) (measured, error) {
	var all []*results.Noise
	for _, dir := range dirs {
		if terminal(os.Stderr) { // it takes half a minute
			fmt.Fprintf(os.Stderr, "measuring the gradient noise of %s\n", dir)
		}
		n, err := run.MeasureNoise(ctx, dir, run.NoiseOptions{})
		if err != nil {
			return measured{}, fmt.Errorf("--from: %w", err)
		}
		all = append(all, n)
	}
	m, err := fitNoise(all)
	if err != nil {
		return measured{}, err
	}
	differ, err := differences(dirs)
	m.warnings = append(differ, m.warnings...)
	return m, err
}

// differences says which runs are no further seeds of the first one's configuration.
func differences(dirs []string) ([]string, error) {
	var said []string
	var first map[string]string
	for _, dir := range dirs {
		config, err := run.Load(filepath.Join(dir, results.ConfigFile), nil)
		if err != nil {
			return nil, fmt.Errorf("--from %s: %w", dir, err)
		}
		settings, err := config.Settings()
		if err != nil {
			return nil, fmt.Errorf("--from %s: %w", dir, err)
		}
		delete(settings, "seed")
		if first == nil {
			first = settings
			continue
		}
		var keys []string
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if settings[key] != first[key] {
				keys = append(keys, key)
			}
		}
		if len(keys) > 0 {
			said = append(said, fmt.Sprintf("%s differs from %s in %s: what is taken together is of more than one experiment.", dir, dirs[0], strings.Join(keys, ", ")))
		}
	}
	return said, nil
}

// fitNoise fits the theory to what was measured of runs.
func fitNoise(all []*results.Noise) (measured, error) {
	var m measured
	for _, n := range all {
		m.how = append(m.how, measuredText(n))
		for _, w := range n.Warnings {
			m.warnings = append(m.warnings, from(n, len(all), w))
		}
	}
	costs, fresh := numbers(all, func(n *results.Noise) results.Number { return n.RolloutCost }), numbers(all, func(n *results.Noise) results.Number { return n.NewPerUpdate })
	if len(costs) == 0 {
		return measured{}, fmt.Errorf("--from: %s: its rollout cost was not measured: name a run with updates", all[0].Run)
	}
	kept := gradients(all)
	if n := len(all) - len(kept); n > 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("%d of %d runs have no gradients and give their rollout cost alone.", n, len(all)))
	}
	together := study.Measurements(kept, results.Median(costs), results.Median(fresh))
	fitted, err := design.Fit(together)
	if err != nil {
		return measured{}, fmt.Errorf("--from: %w", err)
	}
	m.how = append(m.how, fmt.Sprintf("A rollout costs %s units of training; an update takes in %s new rollouts.", spreadText(costs), spreadText(fresh)))
	m.noise = together.Noise
	m.tell(fitted, kept)
	return m, nil
}

// tell takes up a fit and says what it came to.
func (m *measured) tell(f design.Fitted, kept []*results.Noise) {
	what := "Noise of one rollout's gradient by staleness, fresh rollouts being 1: "
	m.theory, m.noiseFrom = f.WithTable(), "measured"
	if f.Proxy { // of averages that fade with time: their shape is worth more than their values
		what = "n/ESS of importance ratios by age, tokens of the present policy being 1: "
		m.theory, m.noiseFrom = f.WithPowerLaw(), "measured by proxy, n/ESS of importance ratios"
	}
	m.exponent, m.doubts = f.PowerLaw.Exponent, f.Doubts
	m.how = append(m.how, what+stalenessText(kept)+".",
		fmt.Sprintf("Nearest to that are a power law of exponent a = %.3g, off by %.0f%%, and a table that does not fall, off by %.0f%%.",
			f.PowerLaw.Exponent, 100*f.PowerLawResidual, 100*f.TableResidual))
	if f.Correlation == nil {
		m.theory.Correlation = defaultCorrelation
		m.doubts.Correlation = []string{fmt.Sprintf("The correlation was not measured: %g is supposed.", defaultCorrelation)}
		return
	}
	m.correlation = true
	m.how = append(m.how, fmt.Sprintf("The mean of b draws has a variance of %.3g (1/b + c) with c = %.2g%s; a deal into micro-batches of 1 to 16 lies %.2g%% off. Hence the correlation R c = %.2g.",
		f.Correlation.Mean, f.Correlation.C, errorText(kept), 100*dealtOff(kept), f.Correlation.Rho))
}

// gradients returns the runs whose gradients were taken, or all where no run's were.
func gradients(all []*results.Noise) []*results.Noise {
	var list []*results.Noise
	for _, n := range all {
		if !n.Proxy {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return all
	}
	return list
}

func numbers(all []*results.Noise, of func(*results.Noise) results.Number) []float64 {
	var list []float64
	for _, n := range all {
		if v := of(n); v.Known() {
			list = append(list, v.Float())
		}
	}
	return list
}

// measuredText says what was measured of a run, and from how much.
func measuredText(n *results.Noise) string {
	last := n.ByStaleness[len(n.ByStaleness)-1]
	if n.Proxy {
		return fmt.Sprintf("%s, seed %d, version %d: n/ESS of importance ratios up to age %d.", n.Run, n.Seed, n.Version, last.Last)
	}
	return fmt.Sprintf("%s, seed %d, version %d: gradients of %d rollouts of the table, up to %d versions old, and of %d fresh ones.",
		n.Run, n.Seed, n.Version, n.Held, last.Last, n.Fresh)
}

// from names the run that a sentence is about, where there are several.
func from(n *results.Noise, of int, sentence string) string {
	if of == 1 {
		return sentence
	}
	return n.Run + ": " + sentence
}

// spreadText writes the median of values, and their quartiles where there are several.
func spreadText(values []float64) string {
	if len(values) == 1 {
		return fmt.Sprintf("%.4g", values[0])
	}
	return fmt.Sprintf("%.4g (IQR %.4g to %.4g over %d runs)", results.Median(values), results.Quantile(values, 0.25), results.Quantile(values, 0.75), len(values))
}

// mostStaleness is how many stalenesses a sentence lists, the first and the last among them.
const mostStaleness = 6

// stalenessText lists how the noise of the first run grows.
func stalenessText(list []*results.Noise) string {
	n := list[0]
	var parts []string
	last, listed := len(n.ByStaleness)-1, min(len(n.ByStaleness), mostStaleness)
	for i := range listed {
		s := n.ByStaleness[i*last/max(1, listed-1)]
		text := fmt.Sprintf("%.2f", s.Variance/n.ByStaleness[0].Variance)
		if s.Error.Known() {
			text += fmt.Sprintf(" ± %.2f", s.Error.Float()/n.ByStaleness[0].Variance)
		}
		text += fmt.Sprintf(" at %.3g", s.Age)
		if s.Rollouts > 0 {
			text += fmt.Sprintf(" (%d rollouts)", s.Rollouts)
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, ", ")
	if len(list) > 1 {
		text += ", in the first run"
	}
	return text
}

// errorText writes the standard error of c over runs, nothing where it is unknown.
func errorText(list []*results.Noise) string {
	var sum, n float64
	for _, e := range numbers(list, func(n *results.Noise) results.Number { return n.CommonError }) {
		sum += e * e
		n++
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" ± %.1g", math.Sqrt(sum)/n)
}

// dealtOff is how far deals into micro-batches lie off, at the median of the runs.
func dealtOff(list []*results.Noise) float64 {
	return results.Median(numbers(list, func(n *results.Noise) results.Number { return n.Residual }))
}
