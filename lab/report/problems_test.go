package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// asked is a run with evaluations of which each solved the problems with a sign in its text.
func asked(solved ...string) *results.Run {
	run := &results.Run{}
	for k, text := range solved {
		n := len(text)
		run.Evals = append(run.Evals, results.Eval{Update: 10 * k, Version: 10 * k, Grid: float64(k), Compute: float64(k),
			Problems: n, Pass1: float64(strings.Count(text, "x")) / float64(n),
			Solved: results.NewSolved(n, func(i int) bool { return text[i] == 'x' })})
	}
	for i := range len(solved[0]) {
		run.Problems = append(run.Problems, results.NewProblem(fmt.Sprintf("%d-1", i), fmt.Sprintf("<b>%d-1", i)))
	}
	return run
}

func TestAPageTellsWhichProblemsFlipped(t *testing.T) {
	text := func(run *results.Run) string {
		var page strings.Builder
		if err := renderRun(&page, run); err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(page.String(), `<section id="problems">`)
		section, _, _ = strings.Cut(section, "</section>")
		return section
	}
	run := asked("x.x.", "xx..", ".x.x")
	page := text(run)
	for _, want := range []string{
		"the same 4 problems, greedy. From update 0 to 20 the run gained 2 and lost 2.",
		`<th class="word">0 to 20</th><td>2</td><td>2</td><td>2</td><td class="sentence">1-1, 3-1</td>` +
			`<td class="sentence">0-1, 2-1</td>`,
		`<th class="word">10 to 20</th><td>2</td><td>1</td><td>1</td><td class="sentence">3-1</td>` +
			`<td class="sentence">0-1</td>`,
		`<th class="word">0-1</th><td class="sentence">&lt;b&gt;0-1</td><td>1</td><td class="sentence">●●○</td>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	if lost, now := strings.Index(page, "●●○"), strings.Index(page, "○○●"); lost < 0 || now < lost {
		t.Error("what was solved and is not any more does not come first")
	}
	run.Problems = nil
	if page := text(run); !strings.Contains(page, "problem 2, problem 4") {
		t.Errorf("problems without names:\n%s", page)
	}
	run.Evals = run.Evals[:1]
	if page := text(run); page != "" {
		t.Errorf("one evaluation flips nothing:\n%s", page)
	}
	run = asked("x.", ".x")
	run.Evals[0].Solved = nil // by an earlier build
	if page := text(run); page != "" {
		t.Errorf("an earlier build recorded nothing:\n%s", page)
	}
	var all []string
	for k := range 300 {
		all = append(all, strings.Repeat(".x"[k%2:k%2+1], 400))
	}
	page = text(asked(all...))
	for _, want := range []string{"and 394 more", "200 of 400 are shown", "Flips before update 1,990 are left out",
		"from update 2,400 to 2,990"} {
		if !strings.Contains(page, want) {
			t.Errorf("a long run has no %q on %d bytes of page", want, len(page))
		}
	}
	if n := strings.Count(page, "<tr>"); n > maxFlips+maxProblems+3 {
		t.Errorf("a long run has %d rows", n)
	}
}
