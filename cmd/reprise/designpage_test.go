package main

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

func TestDesignShowsTheNeighboursAndWhatIf(t *testing.T) {
	w := works(t)
	least := math.Inf(1)
	for i, row := range w.WhatIf.Objective {
		s := w.WhatIf.Splits[i]
		if s.Workers+s.Trainers != 8 || 1024%s.Trainers != 0 || len(row) != len(w.WhatIf.Capacities) {
			t.Errorf("row %d is of %+v and has %d cells", i, s, len(row))
		}
		for k, j := range row {
			if (j == nil) != (w.WhatIf.Savings[i][k] == nil) {
				t.Errorf("(%d, %d): J %v, savings %v", i, k, j, w.WhatIf.Savings[i][k])
			}
			if j != nil {
				least = min(least, *j)
				near(t, "savings of a cell", *w.WhatIf.Savings[i][k], 1-*j/w.OnPolicy, 12)
			}
		}
	}
	if least < w.Configuration.Objective {
		t.Errorf("a cell has J %v, below the recommendation's %v", least, w.Configuration.Objective)
	}
	for _, n := range w.Neighbours {
		if n.Refused == "" && *n.Objective < w.Configuration.Objective {
			t.Errorf("%s has J %v and runs, the recommendation %v", n.Change, *n.Objective, w.Configuration.Objective)
		}
	}
	text := succeeds(t, "", "design")
	if strings.Contains(text, " \n") {
		t.Errorf("lines end with spaces:\n%s", text)
	}
	for _, want := range []string{"\n  recommended ", "one GPU more trains", "does not run: a batch of 1024 is no multiple of", "\n    (6, 2) ", "  *25.4%"} {
		if !strings.Contains(text, want) {
			t.Errorf("the words lack %q:\n%s", want, text)
		}
	}
}

func TestDesignWritesAPageThatOpensOffline(t *testing.T) {
	for name, args := range map[string][]string{
		"law": nil, "flat": {"--noise-exponent=0", "--correlation=0"}, "steep": {"--noise-exponent=2"}, "large": {"--gpus=8192", "--batch=5040"},
		"profile": {"--profile=" + profiled(t, "[1,1.2,1.3]")}, "alone": {"--gpus=2", "--batch=1"},
	} {
		path := filepath.Join(t.TempDir(), "design.html")
		text := succeeds(t, "", append([]string{"design", "--html", path}, args...)...)
		if !strings.HasSuffix(text, "\npage: "+path+"\n") {
			t.Errorf("%s: the words do not end with the page:\n%s", name, text)
		}
		page := read(t, path)
		w := works(t, args...)
		for _, want := range []string{
			"Optimal staleness horizon over the rollout cost", "Optimal replay ratio over the rollout cost", "Cost over the staleness horizon", "What a step is held against",
			"Savings by division of the GPUs and capacity", "Neighbours", fmt.Sprintf("%s, %s, a buffer of %d", counted(w.Configuration.Workers, "worker"), counted(w.Configuration.Trainers, "trainer"), w.Configuration.Capacity),
			"commit", "machine", "seeds", "plain SGD",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q", name, want)
			}
		}
		if n := strings.Count(page, "<svg"); n < 6 {
			t.Errorf("%s: %d pictures, want 6 or more", name, n)
		}
		if regexp.MustCompile(`(src|href)="https?:`).MatchString(page) || strings.Contains(page, "NaN") {
			t.Errorf("%s: the page loads something or shows NaN", name)
		}
	}
}

func TestThePageShowsWhatAProfileWasFittedTo(t *testing.T) {
	figure := func(n *results.Noise) results.Figure {
		t.Helper()
		m := fittedTo(t, n)
		found := &calculation{theory: m.theory, noise: m.noise, measured: m.how}
		s := found.noiseSections()
		if len(s) != 1 || len(s[0].Figures) != 1 || !slices.Equal(s[0].Text, m.how) {
			t.Fatalf("sections %+v", s)
		}
		return s[0].Figures[0]
	}
	gradients := figure(noisy("a", 5, 150, 0.2, 0.3, 7))
	points := gradients.Curves[len(gradients.Curves)-1]
	if len(gradients.Curves) != 3 || !points.Points || len(points.At) != 21 || points.At[0].Y.Float() != 1 || !(points.At[20].Low.Float() < points.At[20].Y.Float() && points.At[20].Y.Float() < points.At[20].High.Float()) {
		t.Errorf("of gradients: %+v", points)
	}
	ratios := figure(proxy("p", 4))
	points = ratios.Curves[len(ratios.Curves)-1]
	if len(ratios.Curves) != 2 || len(points.At) != 3 || points.At[1].Low.Known() || strings.Contains(ratios.Title+ratios.Y.Title, "Variance") {
		t.Errorf("of a proxy: %+v", ratios)
	}
	if off := nearest(ratios.Curves[0], 3.5)/1.4 - 1; math.Abs(off) > 0.1 {
		t.Errorf("the law lies %.0f%% off what it was fitted to", 100*off)
	}
	given := &calculation{theory: design.Theory{Profile: design.PowerLaw{Exponent: 0.2}}}
	if s := given.noiseSections(); s != nil {
		t.Errorf("a law that is given has the section %+v", s)
	}
}

func TestThePageHasTheBoundThatWasAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "design.html")
	succeeds(t, "", "design", "--html", path, "--gpus=2", "--batch=1", "--most-capacity=1", "--bound-gap=2", "--bound-smoothness=4", "--bound-updates=50")
	if page := read(t, path); !strings.Contains(page, "theorem 3.4: 50 updates, eta 0.125 of at most 0.125") {
		t.Error("the page lacks the bound")
	}
	if text := succeeds(t, "", "design", "--json", "--gpus=2", "--batch=1", "--most-capacity=1"); !strings.Contains(text, `"neighbours": []`) {
		t.Errorf("no neighbours are no list:\n%s", text)
	}
}

func TestParagraphsAreBrokenBetweenWords(t *testing.T) {
	var out strings.Builder
	text := strings.Repeat("staleness and noise ", 30) + strings.Repeat("x", 150)
	writeParagraph(&out, "  - ", text)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, line := range lines {
		if mark := map[bool]string{true: "  - ", false: "    "}[i == 0]; !strings.HasPrefix(line, mark) || len(line) > lineWidth && i < len(lines)-1 || strings.HasSuffix(line, " ") {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if got := strings.Join(strings.Fields(strings.TrimPrefix(out.String(), "  - ")), " "); got != text {
		t.Errorf("the words are %q, want %q", got, text)
	}
}

// nearest returns the value of a curve's point nearest to x.
func nearest(c results.Curve, x float64) float64 {
	at := slices.MinFunc(c.At, func(a, b results.Point) int { return cmp.Compare(math.Abs(a.X-x), math.Abs(b.X-x)) })
	return at.Y.Float()
}

func TestTheCurvesOfThePageGoThroughWhatWasWorkedOut(t *testing.T) {
	found, err := (&designCommand{}).calculate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	about := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got/want-1) <= 0.05) {
			t.Errorf("%s is %v, want about %v", what, got, want)
		}
	}
	four := found.figure4()
	about("x* at mu", nearest(four[0].Curves[0], found.cost), found.best.X)
	about("y* at mu", nearest(four[1].Curves[0], found.cost), found.best.Y)
	for i, v := range found.variants() {
		about("x* of "+v.name, nearest(four[0].Curves[i], found.cost), v.theory.Optimum().X)
	}
	five := found.figure5()[0]
	about("J at x*", nearest(five.Curves[0], found.best.X), found.best.Objective/found.theory.OnPolicy())
	for _, c := range five.Curves {
		for _, p := range c.At {
			if p.Y.Known() && p.Y.Float() > highestCost {
				t.Errorf("%s: %v at %v is above %v", c.Name, p.Y.Float(), p.X, highestCost)
			}
		}
	}
	about("the line of training that uses each rollout once", five.Guides[1].Y.Float(), 1/(2+defaultCorrelation))
	bound := found.figureGRPO()[0].Curves
	about("the weight at p = 1/2", nearest(bound[0], 0.5), (1-math.Sqrt(0.26))/math.Sqrt(0.26))
	about("the weight at p = 0, where the figure of the source ends", nearest(bound[0], 0), 9)
	if n := len(bound[1].At); n != found.fleet.Group+1 {
		t.Errorf("a group of %d shows %d success rates, want %d", found.fleet.Group, n, found.fleet.Group+1)
	}
	about("the share of groups of 8 that are all alike at p = 1/2", nearest(found.figureGRPO()[1].Curves[0], 0.5), 2./256)
}
