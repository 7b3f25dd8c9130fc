package study

import (
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
)

// factorial is an experiment with every combination of several parts, each an arm.
type factorial struct {
	parts []string
	none  string // the combination without any part
	by    measure
}

// mixture is a combination: it has part i if bit i is 1.
type mixture uint

func (m mixture) has(part int) bool { return m>>part&1 == 1 }

func (x factorial) mixtures() (list []mixture) {
	for m := range mixture(1) << len(x.parts) {
		list = append(list, m)
	}
	return list
}

// name is that of a combination's arm.
func (x factorial) name(m mixture) string {
	var has []string
	for i, part := range x.parts {
		if m.has(i) {
			has = append(has, part)
		}
	}
	if has == nil {
		return x.none
	}
	return strings.Join(has, ", ")
}

// runs returns the runs of all combinations.
func (x factorial) runs(f *Found) (arms []Runs) {
	for _, m := range x.mixtures() {
		arms = append(arms, f.Of(x.name(m)))
	}
	return arms
}

// gain is what a part adds: the mean over the combinations without it that chosen takes, each with the part less
// without. A nil chosen takes all.
func (x factorial) gain(f *Found, part int, chosen func(without mixture) bool) estimate {
	var with, without []Runs
	for _, m := range x.mixtures() {
		if !m.has(part) && (chosen == nil || chosen(m)) {
			without, with = append(without, f.Of(x.name(m))), append(with, f.Of(x.name(m|1<<part)))
		}
	}
	return estimateOf("the gain", change, func(seed uint64) float64 {
		return mean(onSeed(with, seed, x.by)) - mean(onSeed(without, seed, x.by))
	}, append(with, without...)...)
}

// grid lists what each part adds, over all combinations and over those with and without each other part.
func (x factorial) grid(title string, f *Found) results.Grid {
	g := results.Grid{Title: title, Columns: []string{"part", "over all"}}
	for _, name := range x.parts {
		g.Columns = append(g.Columns, "with "+name, "without")
	}
	for part, name := range x.parts {
		row := []string{name, x.gain(f, part, nil).cell()}
		for other := range x.parts {
			for _, has := range []bool{true, false} {
				cell := missing
				if other != part {
					cell = x.gain(f, part, func(m mixture) bool { return m.has(other) == has }).cell()
				}
				row = append(row, cell)
			}
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}
