package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
)

// dynamics shows how stale and how often used rollouts are.
func dynamics() Study {
	return Study{
		Name: "dynamics", Title: "How stale are rollouts, and how often are they used?", Source: "[ER] fig. 2",
		Lead: []string{
			aboutLab(),
			"Over whole runs: the staleness of each use, in updates since the rollout was generated; the uses of each rollout until it left the buffer; and the updates since its last use, of every use " +
				"but the first. Above by capacity at (6,2), below by split at one capacity, as in the source's figure.",
		},
		Arms: dynamicsArms, Judge: judgeDynamics,
	}
}

// dynamicsCapacities are the capacities of the upper row.
func dynamicsCapacities() []int { return labCapacities() }

func dynamicsArms(o Options) []Arm {
	arms := dynamicsByCapacity(o)
	return append(arms, dynamicsBySplit(o)[1:]...)
}

func dynamicsByCapacity(o Options) []Arm {
	var arms []Arm
	for _, n := range dynamicsCapacities() {
		arms = append(arms, bufferArm(o, labSplit(), n))
	}
	return arms
}

func dynamicsBySplit(o Options) []Arm {
	var arms []Arm
	for _, s := range labSplits() {
		arms = append(arms, bufferArm(o, s, labCapacity))
	}
	return arms
}

// distribution is a histogram of summary.json.
type distribution struct {
	title string
	x     string
	of    func(*results.Summary) results.Histogram
}

func distributions() []distribution {
	return []distribution{
		{"Staleness at use", "updates since it was generated", func(s *results.Summary) results.Histogram { return s.Staleness }},
		{"Uses of a rollout", "uses until it left the buffer", func(s *results.Summary) results.Histogram { return s.Uses }},
		{"Time since last use", "updates since the last use", func(s *results.Summary) results.Histogram { return s.SinceLastUse }},
	}
}

// meanOf is the mean of a distribution over a run.
func (d distribution) meanOf() measure {
	return inSummary(func(s *results.Summary) results.Number { return d.of(s).Mean() })
}

// sameUses is how far, as a share, the replay ratio may change with N and be ruled by W/T alone.
const sameUses = 0.1

func judgeDynamics(f *Found) (Judgement, error) {
	bySize, bySplit := f.of(dynamicsByCapacity(f.Options)...), f.of(dynamicsBySplit(f.Options)...)
	sizes := make([]float64, len(bySize))
	for i, n := range dynamicsCapacities() {
		sizes[i] = float64(n)
	}
	trainers := make([]float64, len(bySplit)) // per worker
	for i, s := range labSplits() {
		trainers[i] = 1 / s.ratio()
	}
	d := distributions()
	stale, uses, since := d[0].meanOf(), inSummary(replayRatio), d[2].meanOf()
	staler, busier := trend(bySize, sizes, stale), trend(bySplit, trainers, stale)
	more, even, rarer := trend(bySplit, trainers, uses), ratio(bySize[len(bySize)-1], bySize[0], uses), trend(bySize, sizes, since)
	er2 := func(claim string) asked { return asked{"[ER] §2.2, fig. 2", claim} }
	return Judgement{
		Findings: []results.Finding{
			f.settle(er2("The larger the buffer, the staler what is drawn."),
				fmt.Sprintf("Rank correlation of N with mean staleness: %s. Means: %s.", staler.format(times), meansOf(bySize, stale)), staler, above("the rank correlation", 0)),
			f.settle(er2("The more trainers to a worker, the staler what is drawn."),
				fmt.Sprintf("Rank correlation of T/W with mean staleness: %s. Means: %s.", busier.format(times), meansOf(bySplit, stale)), busier, above("the rank correlation", 0)),
			f.settle(er2("The more trainers to a worker, the more uses of a rollout."),
				fmt.Sprintf("Rank correlation of T/W with the replay ratio: %s. Replay ratios: %s.", more.format(times), meansOf(bySplit, uses)), more, above("the rank correlation", 0)),
			f.settle(er2("The size of the buffer hardly changes the uses of a rollout."),
				fmt.Sprintf("Replay ratio at the largest N over that at the smallest: %s. Replay ratios: %s.", even.format(times), meansOf(bySize, uses)),
				even, within("the ratio", 1, sameUses)),
			f.settle(er2("The larger the buffer, the longer between two uses of a rollout: locally, batches are more diverse."),
				fmt.Sprintf("Rank correlation of N with the mean time since last use: %s. Means: %s.", rarer.format(times), meansOf(bySize, since)), rarer, above("the rank correlation", 0)),
		},
		Sections: append([]results.Section{
			rowOf(fmt.Sprintf("By capacity, at %s", labSplit()), bySize, 0), rowOf(fmt.Sprintf("By split, at N = %d", labCapacity), bySplit, 0),
			{Title: "Means", Grids: []results.Grid{dynamicsGrid(f.Arms)}},
		}, f.trouble()...),
	}, nil
}

// meansOf writes the medians over seeds of a measure, arm by arm.
func meansOf(arms []Runs, m measure) string {
	var s string
	for i, a := range arms {
		if i > 0 {
			s += ", "
		}
		s += times(a.median(m))
	}
	return s
}

// rowOf draws the distributions of arms, over all seeds together.
func rowOf(title string, arms []Runs, first int) results.Section {
	section := results.Section{Title: title, Text: []string{"Shares of all uses, or of all rollouts that left, over all seeds together."}}
	for _, d := range distributions() {
		fig := results.Figure{Title: d.title, X: results.Axis{Title: d.x}, Y: results.Axis{Title: "share", Low: results.Num(0)}}
		for i, a := range arms {
			if c := shares(a, d); len(c.At) > 0 {
				c.Colour = first + i
				fig.Curves = append(fig.Curves, c)
			}
		}
		section.Figures = append(section.Figures, fig)
	}
	return section
}

// mostBins is how many points of a distribution are drawn; wider ones are drawn in bins.
const mostBins = 60

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
	width := highest/mostBins + 1
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

func dynamicsGrid(arms []Runs) results.Grid {
	d := distributions()
	g := results.Grid{
		Title: "Means over a run", Note: "Medians over seeds, quartiles in brackets. The largest staleness is that of any use in any seed.",
		Columns: []string{"arm", "staleness", "largest staleness", "replay ratio", "replay ratio expected", "time since last use", "never used"},
	}
	for _, a := range arms {
		largest := math.NaN()
		for _, r := range a.Runs {
			if r.Summary != nil {
				largest = math.Max(float64(r.Summary.Staleness.Max()), orZero(largest))
			}
		}
		g.Rows = append(g.Rows, []string{
			a.Name, a.cell(d[0].meanOf(), times), fixed(largest, 0), a.cell(inSummary(replayRatio), times), times(expectedReplayRatio(a.Config)), a.cell(d[2].meanOf(), times),
			a.cell(neverUsed, percentFine),
		})
	}
	return g
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// neverUsed is the share of the rollouts that left the buffer without a use.
func neverUsed(_ Runs, r *results.Run) float64 {
	if r.Summary == nil || r.Summary.Uses.Count() == 0 {
		return math.NaN()
	}
	return float64(r.Summary.NeverUsed) / float64(r.Summary.Uses.Count())
}
