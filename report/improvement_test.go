package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// bounded is an arm of one run whose bound and change of reward are measured every 10 of 40 updates.
func bounded() []*arm {
	run := &results.Run{}
	for u := 1; u <= 40; u++ {
		up := results.Update{Update: u, Other: map[string]results.Number{"tokens": results.Num(3)}}
		if u%10 == 0 {
			up.Other["bound"], up.Other["reward_change"], up.Other["bound_tv"] = results.Num(-float64(u)), results.Num(float64(u)), results.Num(0.5)
		}
		run.Updates = append(run.Updates, up)
	}
	run.Updates = append(run.Updates, results.Update{Update: 41})
	return []*arm{{runs: []*results.Run{run}}}
}

func TestTheBoundIsShownBesideTheTrueChange(t *testing.T) {
	figures, _, err := trainingFigures(bounded(), commonMetrics())
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, f := range figures {
		if strings.HasPrefix(f.Title, "Improvement") {
			titles = append(titles, f.Title)
			if svg := string(f.SVG[0]); !strings.Contains(svg, "<path") && !strings.Contains(svg, "<polyline") {
				t.Errorf("%s has no line", f.Title)
			}
		}
	}
	if want := []string{"Improvement: lower bound", "Improvement: true change"}; !slices.Equal(titles, want) {
		t.Errorf("figures are %q, want %q", titles, want)
	}
	for _, m := range commonMetrics() {
		if strings.HasPrefix(m.title, "Improvement") && m.when(arms()) {
			t.Errorf("%s is shown where it was not measured", m.title)
		}
	}
	var further []string
	for _, m := range furtherMetrics(bounded()) {
		further = append(further, m.title)
	}
	if want := []string{"bound_tv", "tokens"}; !slices.Equal(further, want) {
		t.Errorf("further metrics are %q, want %q", further, want)
	}
}

// arms is an arm without a bound.
func arms() []*arm {
	return []*arm{{runs: []*results.Run{{Updates: []results.Update{{Update: 1}}}}}}
}

func TestWhatIsMeasuredNowAndThenIsOneLine(t *testing.T) {
	points := trace(bounded()[0].runs[0], other("bound"))
	if got := spaced(points); len(got) != 4 || got[0].X != 10 || got[3].Y != -40 {
		t.Errorf("the points are %v", got)
	}
	// A gap of one that is measured at every update stays one.
	whole := trace(bounded()[0].runs[0], other("tokens"))
	if got := spaced(whole); len(got) != 41 || got[40].Y == got[40].Y {
		t.Errorf("%d points, the last %v", len(got), got[len(got)-1])
	}
}
