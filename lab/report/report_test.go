package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
)

// pages returns a report of every kind by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	collapsed := madeComparison(t, 3, 400)
	collapsed.Replay[1] = made{arm: results.ReplayArm, seed: 2, updates: 700, rate: 0.006, cost: madeBatch * 4,
		collapse: 300}.make()
	collapsed.Baseline[0] = made{arm: results.BaselineArm, seed: 1, updates: 150, rate: 0.006,
		cost: madeBatch * 6.28}.make()
	running := madeComparison(t, 1, 100)
	running.Compare, running.Replay = nil, nil
	byName := map[string]string{}
	for name, c := range map[string]*results.Comparison{
		"four-seeds": madeComparison(t, 4, 500), "one-seed": madeComparison(t, 1, 500), "collapsed": collapsed,
		"running-comparison": running,
		"eight-long":         madeComparison(t, 8, 5000),
	} {
		var b bytes.Buffer
		if err := renderComparison(&b, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	replay := made{arm: results.ReplayArm, seed: 1, updates: 400, rate: 0.006, cost: madeBatch * 4}
	none, few, running1 := replay, replay, replay
	none.noEvals, few.updates, running1.running = true, 5, true
	for name, run := range map[string]*results.Run{
		"run": replay.make(), "no-evaluation": none.make(), "one-evaluation": few.make(), "running": running1.make(),
		"only-begun": {Config: "seed: 1\n"},
	} {
		var b bytes.Buffer
		if err := renderRun(&b, run); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	dir := t.ArtifactDir() // go test -artifacts keeps them, to be looked at
	for name, text := range byName {
		if err := os.WriteFile(filepath.Join(dir, name+".html"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return byName
}

var (
	svgElement = regexp.MustCompile(`(?s)<svg .*?</svg>`)
	heading    = regexp.MustCompile(`<section id="([a-z]+)"`)
)

func TestPages(t *testing.T) {
	text := pages(t)
	t.Run("have their sections", func(t *testing.T) { haveSections(t, text) })
	t.Run("are self-contained and small", func(t *testing.T) { areSelfContained(t, text) })
	t.Run("have well-formed plots that follow the style sheet", func(t *testing.T) { haveSoundPlots(t, text) })
	t.Run("claim what the seeds allow", func(t *testing.T) { claimWhatSeedsAllow(t, text) })
	t.Run("draw every seed behind its median", func(t *testing.T) { drawEverySeed(t, text) })
	t.Run("are the same bytes for the same results", func(t *testing.T) {
		tests.Long(t)
		for name, again := range pages(t) {
			if text[name] != again {
				t.Errorf("%s differs from one writing to the next", name)
			}
		}
	})
}

func haveSections(t *testing.T, text map[string]string) {
	both, compared := "headline accuracy training reuse gpus", "sides headline accuracy differences costs"
	want := map[string]string{
		"four-seeds":         compared + " seeds training reuse gpus facts configuration",
		"one-seed":           compared + " seeds training reuse gpus facts configuration",
		"collapsed":          compared + " seeds training reuse gpus facts configuration",
		"eight-long":         compared + " seeds training reuse gpus facts configuration",
		"running-comparison": compared + " training reuse gpus facts configuration", "run": both + " facts configuration rollouts",
		"no-evaluation":  both + " facts configuration rollouts",
		"one-evaluation": both + " facts configuration rollouts", "running": both + " configuration rollouts",
		"only-begun": both + " configuration rollouts",
	}
	for name, text := range text {
		var got []string
		for _, m := range heading.FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != want[name] {
			t.Errorf("%s has sections %v, want %s", name, got, want[name])
		}
	}
}

func areSelfContained(t *testing.T, text map[string]string) {
	for name, text := range text {
		limit := 360_000
		if strings.Count(text, `"thin":true`) > 150 {
			limit = 1_050_000 // every run has its line in every figure
		}
		if len(text) > limit {
			t.Errorf("%s has %d bytes, want at most %d", name, len(text), limit)
		}
		rest := strings.ReplaceAll(text, `<script type="application/json">`, "")
		rest = strings.ReplaceAll(rest, `<script type="application/json" id="measures">`, "")
		rest = strings.ReplaceAll(rest, `"url(#"`, "") // of the page itself
		for _, outside := range []string{"http", "<script ", "fetch(", "import(", "url(", "@import", "src=", "<link"} {
			if i := strings.Index(rest, outside); i >= 0 {
				t.Errorf("%s has %q: %.60q", name, outside, rest[i:])
			}
		}
		if i := strings.Index(text, "NaN"); i >= 0 || strings.Contains(text, "Inf,") {
			t.Errorf("%s shows a number that is none", name)
		}
	}
}

// plotsOf returns the plots of a page, without the pieces of them in legends, which screen readers skip.
func plotsOf(page string) []string {
	return slices.DeleteFunc(svgElement.FindAllString(page, -1), func(svg string) bool {
		hidden := strings.Contains(svg, `aria-hidden="true"`)
		return hidden && !strings.Contains(svg, "<text") && !strings.Contains(svg, "#") // a colour of its own
	})
}

// firstPlot returns the plot of accuracy against compute, which is a page's first.
func firstPlot(t *testing.T, page string) string {
	t.Helper()
	plots := plotsOf(page)
	if len(plots) == 0 || !strings.Contains(plots[0], "<title>Accuracy against compute</title>") {
		t.Fatal("the first plot is not accuracy against compute")
	}
	return plots[0]
}

func haveSoundPlots(t *testing.T, text map[string]string) {
	raw := regexp.MustCompile(`#[0-9A-Fa-f]{6}|font-family|NaN`)
	for name, text := range text {
		plots := plotsOf(text)
		if len(plots) == 0 && name != "only-begun" && name != "bare" {
			t.Errorf("%s has no plot", name)
		}
		for _, plot := range plots {
			titles := 0
			d := xml.NewDecoder(strings.NewReader(plot))
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v in %.200s", name, err, plot)
				}
				if start, ok := token.(xml.StartElement); ok && start.Name.Local == "title" {
					titles++
				}
			}
			if titles != 1 {
				t.Errorf("%s: a plot has %d titles, want 1", name, titles)
			}
			if m := raw.FindString(plot); m != "" {
				t.Errorf("%s: a plot has %q, which the style sheet does not reach: %.200s", name, m, plot)
			}
		}
	}
}

func claimWhatSeedsAllow(t *testing.T, text map[string]string) {
	for name, want := range map[string]string{
		"four-seeds":         "<em>4 seeds: no claim</em>",
		"one-seed":           "<em>One seed: no claim</em>",
		"collapsed":          "<em>3 seeds: no claim</em>",
		"running-comparison": "The comparison has not ended",
		"running":            "<em>This run has not ended</em>",
		"run":                "It reached the target of 0.65 at update ",
		"one-evaluation":     "It did not reach the target of 0.65.",
	} {
		if !strings.Contains(text[name], want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
	if page := text["eight-long"]; strings.Contains(page, "<em>") ||
		!strings.Contains(page, "(ratio over 8 seeds: 95% interval ") {
		t.Error("eight seeds are enough for a claim, but the page cautions, or gives no interval")
	}
	if !strings.Contains(text["run"], "capacity: 1024 # rollouts &amp; &lt;groups&gt;") {
		t.Error("the configuration is not shown, or not escaped")
	}
}

func drawEverySeed(t *testing.T, text map[string]string) {
	for name, want := range map[string]struct{ thin, bands int }{"four-seeds": {8, 2}, "one-seed": {0, 0},
		"collapsed": {6, 2}, "run": {0, 0}} {
		plot := firstPlot(t, text[name])
		thin, bands := strings.Count(plot, `class="line thin"`), strings.Count(plot, `class="band"`)
		if thin != want.thin || bands != want.bands {
			t.Errorf("%s has %d thin lines and %d bands, want %d and %d", name, thin, bands, want.thin, want.bands)
		}
	}
}

func TestWriteReadsEitherKindOfFolder(t *testing.T) {
	dir := t.TempDir()
	c := madeComparison(t, 1, 60)
	for arm, runs := range map[string][]*results.Run{results.BaselineArm: c.Baseline, results.ReplayArm: c.Replay} {
		writeRun(t, results.SeedDir(dir, arm, 1), runs[0])
	}
	if err := errors.Join(results.WriteCompare(dir, c.Compare),
		results.WriteConfig(dir, []byte("seed: 1\n"))); err != nil {
		t.Fatal(err) // a comparison may keep its configuration beside its arms
	}
	for _, at := range []string{dir, results.SeedDir(dir, results.ReplayArm, 1)} {
		if err := Write(at); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(at, results.ReportFile))
		if err != nil || !bytes.HasSuffix(text, []byte("</html>\n")) {
			t.Errorf("%s: error %v, %d bytes", at, err, len(text))
		}
	}
	if err := Write(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a run folder") {
		t.Errorf("an empty folder: error %v", err)
	}
}

// writeRun writes a run folder as a run does.
func writeRun(t *testing.T, dir string, run *results.Run) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	metrics, err := results.CreateLog[results.Update](filepath.Join(dir, results.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range run.Updates {
		if err := metrics.Append(u); err != nil {
			t.Fatal(err)
		}
	}
	evals, err := results.CreateLog[results.Eval](filepath.Join(dir, results.EvalFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range run.Evals {
		if err := evals.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{metrics.Close(), evals.Close(), results.WriteConfig(dir, []byte(run.Config)),
		results.WriteSummary(dir, run.Summary)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// armsPages returns pages over arms by name.
func armsPages(t *testing.T) map[string]string {
	t.Helper()
	troubled := madeArms(4, 4, 500)
	troubled[1].Runs[1] = made{arm: results.ReplayArm, seed: 2, updates: 500, rate: 0.005, cost: madeBatch * 4,
		collapse: 200}.make()
	killed := made{arm: results.ReplayArm, seed: 3, updates: 180, rate: 0.005, cost: madeBatch * 4,
		running: true}.make()
	killed.Seed = 3
	troubled[2].Runs[2] = prioritized(killed, false, false)
	troubled[3].Runs[0].Summary.Task = "words"
	byName := map[string]string{}
	for name, arms := range map[string][]results.NamedRuns{
		"eight": madeArms(8, 4, 500), "two-of-two": madeArms(2, 2, 400), "three-of-one": madeArms(3, 1, 300),
		"alone": madeArms(1, 3, 300), "claim": madeArms(2, 8, 300),
		"troubled": troubled, "only-begun": {{Name: "a", Runs: []*results.Run{{Config: "seed: 1\n"}}},
			{Name: "b", Runs: []*results.Run{{Config: "seed: 1\n"}}}},
	} {
		var b bytes.Buffer
		if err := Arms(&b, "Prioritized <replay> & more", arms); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	keep(t, "arms-", byName)
	return byName
}

// keep writes pages where go test -artifacts keeps them, to be looked at.
func keep(t *testing.T, prefix string, byName map[string]string) {
	t.Helper()
	dir := t.ArtifactDir()
	for name, text := range byName {
		if err := os.WriteFile(filepath.Join(dir, prefix+name+".html"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPagesOverArms(t *testing.T) {
	text := armsPages(t)
	t.Run("are self-contained and small", func(t *testing.T) { areSelfContained(t, text) })
	t.Run("have well-formed plots that follow the style sheet", func(t *testing.T) { haveSoundPlots(t, text) })
	t.Run("are well-formed", func(t *testing.T) { areWellFormed(t, text) })
	t.Run("claim what the seeds allow", func(t *testing.T) {
		for name, want := range map[string][]string{
			"claim": {"Against on-policy, seed by seed:", "(8 seeds, 95% interval &#43;0."},
			"eight": {"<em>No claim</em>", "4 seeds: an indication, no claim; a claim needs 8.",
				`<td>4</td><td class="split"><span>&#43;0.`,
				"may leave out 0 or 1 by chance", "Prioritized &lt;replay&gt; &amp; more"},
			"two-of-two":   {"<em>No claim</em>", "2 seeds: an indication, no claim; a claim needs 8."},
			"three-of-one": {"One seed: no claim."},
			"alone":        {"One arm: nothing to compare it with."},
			"troubled": {"different tasks (arithmetic, words)", "PER, seed 3 has not ended",
				"they were evaluated on different problems", "not ended: failed, killed or running"},
			"only-begun": {"whose seed is not known"},
		} {
			for _, w := range want {
				if !strings.Contains(text[name], w) {
					t.Errorf("%s does not say %q", name, w)
				}
			}
		}
		if strings.Contains(text["claim"], "<em>") {
			t.Error("eight seeds are cautioned")
		}
	})
	t.Run("draw every seed thin and every median thick", func(t *testing.T) {
		for name, want := range map[string]int{"eight": 32, "three-of-one": 0, "troubled": 16} {
			plot := firstPlot(t, text[name])
			if thin := strings.Count(plot, `class="line thin"`); thin != want {
				t.Errorf("%s has %d thin lines, want %d", name, thin, want)
			}
			if bands := strings.Count(plot, `class="band"`); bands != 0 {
				t.Errorf("%s has %d bands, want none", name, bands)
			}
			for _, colour := range figures.Arms() {
				if name == "eight" && !strings.Contains(plot, "var(--"+colour+")") {
					t.Errorf("%s lacks the colour %s", name, colour)
				}
			}
		}
	})
	t.Run("are the same bytes for the same results", func(t *testing.T) {
		for name, again := range armsPages(t) {
			if text[name] != again {
				t.Errorf("%s differs from one writing to the next", name)
			}
		}
	})
}

func TestAPageHasRoomForEightArms(t *testing.T) {
	for _, n := range []int{0, 9} {
		arms := make([]results.NamedRuns, n)
		if err := Arms(&bytes.Buffer{}, "", arms); err == nil || !strings.Contains(err.Error(), "a page shows 1 to 8") {
			t.Errorf("%d arms: error %v, want one that says how many fit", n, err)
		}
	}
}

func colourDistance(sight [3][3]float64, a, b uint32) float64 {
	x, y := oklab(sight, a), oklab(sight, b)
	return math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2]))
}

// oklab returns lightness and the two opponent axes of a colour as it is seen (Ottosson 2020).
func oklab(sight [3][3]float64, hex uint32) [3]float64 {
	var linear, seen [3]float64
	for i := range linear {
		c := float64(hex>>(16-8*i)&0xFF) / 255
		if linear[i] = math.Pow((c+0.055)/1.055, 2.4); c <= 0.04045 {
			linear[i] = c / 12.92
		}
	}
	for i := range seen {
		seen[i] = max(0, min(1, sight[i][0]*linear[0]+sight[i][1]*linear[1]+sight[i][2]*linear[2]))
	}
	l := math.Cbrt(0.4122214708*seen[0] + 0.5363325363*seen[1] + 0.0514459929*seen[2])
	m := math.Cbrt(0.2119034982*seen[0] + 0.6806995451*seen[1] + 0.1073969566*seen[2])
	s := math.Cbrt(0.0883024619*seen[0] + 0.2817188376*seen[1] + 0.6299787005*seen[2])
	return [3]float64{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}
