package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// Bounds of what a page tells of single problems.
const (
	namedFlips  = 6   // in a row of flips
	maxFlips    = 100 // rows from one evaluation to the next
	maxProblems = 200 // rows
	maxSigns    = 60  // of the latest evaluations
)

// problemSection tells which held-out problems flipped between a run's evaluations, if it recorded them.
func problemSection(run *results.Run) (s section, ok bool) {
	evals := slices.DeleteFunc(slices.Clone(run.Evals), func(e results.Eval) bool { return e.Recorded() == 0 })
	if len(evals) < 2 {
		return s, false
	}
	first, last := &evals[0], &evals[len(evals)-1]
	gained, lost := results.Flips(first, last)
	text := fmt.Sprintf("Each evaluation asked the same %s, %s. From update %s to %s the run gained %s and lost %s.",
		words.Plural(last.Problems, "problem"), answered(*last), words.Thousands(first.Update), words.Thousands(last.Update),
		words.Thousands(len(gained)), words.Thousands(len(lost)))
	if last.Temperature.Float() > 0 {
		text += " Answers were sampled, so some flips are chance."
	}
	if n := last.Recorded(); n < last.Problems {
		text += fmt.Sprintf(" This is of the first %s.", words.Thousands(n))
	}
	return section{ID: "problems", Title: "Held-out problems", Text: []string{text},
		Grids: []gridTable{wordTable(flipGrid(run, evals), 4, 5), wordTable(changedGrid(run, evals), 1, 3)}}, true
}

// wordTable returns a table some columns of which are words, whatever they look like.
func wordTable(g results.Grid, columns ...int) gridTable {
	t := gridTables(g)[0]
	for _, j := range columns {
		t.Heads[j].Class = "sentence"
		for i := range t.Rows {
			t.Rows[i][j] = gridCell{Text: g.Rows[i][j], Class: "sentence"}
		}
	}
	return t
}

// flipGrid counts and names the flips between evaluations: from the first to the last, then from each to the next, the
// latest first.
func flipGrid(run *results.Run, evals []results.Eval) results.Grid {
	g := results.Grid{Title: "From one evaluation to another",
		Columns: []string{"updates", "solved", "gained", "lost", "which were gained", "which were lost"}}
	add := func(before, after *results.Eval) {
		gained, lost := results.Flips(before, after)
		g.Rows = append(g.Rows, []string{fmt.Sprintf("%d to %d", before.Update, after.Update),
			words.Thousands(after.Solved.Count()), words.Thousands(len(gained)), words.Thousands(len(lost)),
			nameProblems(run, gained), nameProblems(run, lost)})
	}
	if len(evals) > 2 {
		add(&evals[0], &evals[len(evals)-1])
	}
	from := max(0, len(evals)-1-maxFlips)
	for i := len(evals) - 1; i > from; i-- {
		add(&evals[i-1], &evals[i])
	}
	if from > 0 {
		g.Note = fmt.Sprintf("Flips before update %s are left out.", words.Thousands(evals[from].Update))
	}
	return g
}

// nameProblems names the first of some problems.
func nameProblems(run *results.Run, list []int) string {
	var names []string
	for _, i := range list[:min(len(list), namedFlips)] {
		names = append(names, problemOf(run, i).ID)
	}
	text := strings.Join(names, ", ")
	if more := len(list) - len(names); more > 0 {
		text += fmt.Sprintf(" and %s more", words.Thousands(more))
	}
	return cmp.Or(text, "–")
}

// problemOf returns a problem by its number, which is its name if the run has no other.
func problemOf(run *results.Run, i int) results.Problem {
	if i < len(run.Problems) {
		return run.Problems[i]
	}
	return results.Problem{ID: fmt.Sprintf("problem %d", i+1)}
}

// changedGrid lists the problems that flipped at all, with a sign for each evaluation: what was solved and is not any
// more comes first, then what flipped most often.
func changedGrid(run *results.Run, evals []results.Eval) results.Grid {
	shown := evals[max(0, len(evals)-maxSigns):]
	type changed struct {
		problem, flips int
		lost           bool
		signs          string
	}
	var list []changed
	for i := range evals[len(evals)-1].Recorded() {
		c, ever := changed{problem: i}, false
		for k := range shown {
			is := shown[k].Solved.Has(i)
			if k > 0 && is != shown[k-1].Solved.Has(i) {
				c.flips++
			}
			if ever = ever || is; is {
				c.signs += "●"
			} else {
				c.signs += "○"
			}
			c.lost = ever && !is
		}
		if c.flips > 0 {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b changed) int {
		if a.lost != b.lost {
			return map[bool]int{true: -1, false: 1}[a.lost]
		}
		return cmp.Compare(b.flips, a.flips)
	})
	g := results.Grid{Title: "Problems that flipped", Columns: []string{"problem", "begins", "flips", "evaluations"},
		Note: fmt.Sprintf("A sign for each evaluation from update %s to %s: ● solved, ○ not. Those that were solved and are "+
			"not now come first.", words.Thousands(shown[0].Update), words.Thousands(shown[len(shown)-1].Update))}
	if len(list) > maxProblems {
		g.Note += fmt.Sprintf(" %s of %s are shown.", words.Thousands(maxProblems), words.Thousands(len(list)))
	}
	for _, c := range list[:min(len(list), maxProblems)] {
		p := problemOf(run, c.problem)
		g.Rows = append(g.Rows, []string{p.ID, cmp.Or(p.Text, "–"), fmt.Sprint(c.flips), c.signs})
	}
	return g
}
