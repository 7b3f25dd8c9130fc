package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/lab/results"
)

func dynamics() Study {
	return Study{
		Name: "dynamics", Title: "How stale are rollouts, and how often are they used?", Source: "[ER] fig. 2",
		Lead: []string{
			aboutLab(),
			"Over whole runs: the staleness of each use, in updates since the rollout was generated; the uses of " +
				"each rollout until it left the buffer; and the updates since its last use, for every use but the " +
				"first. First by capacity at (6,2), then by split at one capacity, as in the source's figure.",
		},
		Arms:  func(o Options) []Arm { return append(capacityArms(o, labSplit()), splitArms(o)[1:]...) },
		Judge: judgeDynamics,
	}
}

// distribution is a histogram of summary.json.
type distribution struct {
	title, x string
	of       func(*results.Summary) results.Histogram
}

func staleness() distribution {
	return distribution{"Staleness at use", "updates since it was generated",
		func(s *results.Summary) results.Histogram { return s.Staleness }}
}

func uses() distribution {
	return distribution{"Uses of a rollout", "uses until it left the buffer",
		func(s *results.Summary) results.Histogram { return s.Uses }}
}

func sinceLastUse() distribution {
	return distribution{"Time since last use", "updates since the last use",
		func(s *results.Summary) results.Histogram { return s.SinceLastUse }}
}

// mean is the mean of a distribution over a run.
func (d distribution) mean() measure {
	return inSummary(func(s *results.Summary) float64 { return d.of(s).Mean().Float() })
}

// sameUses is the change of the replay ratio with N, as a share, that still counts as none.
const sameUses = 0.1

func judgeDynamics(f *Found) (Judgement, error) {
	bySize, bySplit := f.of(capacityArms(f.Options, labSplit())...), f.of(splitArms(f.Options)...)
	sizes := capacityLevels(labSplit())
	var trainersPerWorker []float64
	for _, s := range labSplits() {
		trainersPerWorker = append(trainersPerWorker, 1/s.ratio())
	}
	stale, ratios, since := staleness().mean(), inSummary(replayRatio), sinceLastUse().mean()
	const er2 = "[ER] §2.2, fig. 2"
	return f.judge([]claim{
		{
			source: er2, text: "The larger the buffer, the staler what is drawn.",
			by: trend(bySize, sizes, stale).is(above(0)), check: true,
			measured: "Rank correlation of N with mean staleness",
			more:     fmt.Sprintf("Means: %s.", medians(bySize, stale, times)),
		},
		{
			source: er2, text: "The more trainers to a worker, the staler what is drawn.",
			by: trend(bySplit, trainersPerWorker, stale).is(above(0)), check: true,
			measured: "Rank correlation of T/W with mean staleness",
			more:     fmt.Sprintf("Means: %s.", medians(bySplit, stale, times)),
		},
		{
			source: er2, text: "The more trainers to a worker, the more uses of a rollout.",
			by: trend(bySplit, trainersPerWorker, ratios).is(above(0)), check: true,
			measured: "Rank correlation of T/W with the replay ratio",
			more:     fmt.Sprintf("Replay ratios: %s.", medians(bySplit, ratios, times)),
		},
		{
			source: er2, text: "The size of the buffer hardly changes the uses of a rollout.",
			by: ratio(bySize[len(bySize)-1], bySize[0], ratios).is(within(1, sameUses)), check: true,
			measured: "Replay ratio at the largest N over that at the smallest",
			more:     fmt.Sprintf("Replay ratios: %s.", medians(bySize, ratios, times)),
		},
		{
			source: er2, text: "The larger the buffer, the longer between two uses of a rollout: locally, batches " +
				"are more diverse.",
			by: trend(bySize, sizes, since).is(above(0)), check: true,
			measured: "Rank correlation of N with the mean time since last use",
			more:     fmt.Sprintf("Means: %s.", medians(bySize, since, times)),
		},
	}, distributionSection(fmt.Sprintf("By capacity, at %s", labSplit()), bySize),
		distributionSection(fmt.Sprintf("By split, at N = %d", labCapacity), bySplit),
		results.Section{Title: "Means", Grids: []results.Grid{dynamicsTable(f.Arms)}})
}

// distributionSection draws the distributions of arms, over all seeds together.
func distributionSection(title string, arms []Runs) results.Section {
	section := results.Section{Title: title, Text: []string{"Shares of all uses, or of all rollouts that left, over " +
		"all seeds together."}}
	for _, d := range []distribution{staleness(), uses(), sinceLastUse()} {
		var curves []results.Curve
		for i, a := range arms {
			c := shares(a, d)
			c.Colour = i
			curves = append(curves, c)
		}
		fig := figure(d.title, "", d.x, "share", curves...)
		fig.Y.Low = results.Num(0)
		section.Figures = append(section.Figures, fig)
	}
	return section
}

// maxBins is how many points of a distribution are drawn. Wider distributions are drawn in bins.
const maxBins = 60

// shares is the distribution of an arm's runs together: the share per unit, in bins of whole numbers.
func shares(a Runs, d distribution) results.Curve {
	counts, total, highest := make(map[uint64]uint64), 0.0, uint64(0)
	for _, r := range a.Runs {
		if r.Summary == nil {
			continue
		}
		for _, b := range d.of(r.Summary) {
			counts[b[0]] += b[1]
			total += float64(b[1])
			highest = max(highest, b[0])
		}
	}
	c := results.Curve{Name: a.Name}
	if total == 0 {
		return c
	}
	width := highest/maxBins + 1
	for from := uint64(0); from <= highest; from += width {
		var n float64
		for v := from; v < from+width; v++ {
			n += float64(counts[v])
		}
		middle := float64(from) + float64(width-1)/2
		c.At = append(c.At, results.Point{X: middle, Y: results.Num(n / total / float64(width))})
	}
	return c
}

func dynamicsTable(arms []Runs) results.Grid {
	largest := func(a Runs) string {
		list := a.over(inSummary(func(s *results.Summary) float64 { return float64(s.Staleness.Max()) }))
		return whole(results.Quantile(list, 1))
	}
	neverUsed := inSummary(func(s *results.Summary) float64 { // share of the rollouts that left the buffer
		if s.Uses.Count() == 0 {
			return math.NaN()
		}
		return float64(s.NeverUsed) / float64(s.Uses.Count())
	})
	return table("Means over a run", mediansNote+" The largest staleness is that of any use in any seed.", arms,
		medianOf("staleness", staleness().mean(), times), column{"largest staleness", largest},
		medianOf("replay ratio", inSummary(replayRatio), times),
		column{"replay ratio expected", func(a Runs) string { return times(expectedReplayRatio(a.Config)) }},
		medianOf("time since last use", sinceLastUse().mean(), times), medianOf("never used", neverUsed, percentFine))
}
