package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// pages returns a report of every kind by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	collapsed := madeComparison(t, 3, 400)
	collapsed.Replay[1] = made{arm: results.ReplayArm, seed: 2, updates: 700, rate: 0.006, cost: madeBatch * 4, collapse: 300}.make()
	collapsed.Baseline[0] = made{arm: results.BaselineArm, seed: 1, updates: 150, rate: 0.006, cost: madeBatch * 6.28}.make()
	running := madeComparison(t, 1, 100)
	running.Compare, running.Replay = nil, nil
	byName := map[string]string{}
	for name, c := range map[string]*results.Comparison{
		"four-seeds": madeComparison(t, 4, 500), "one-seed": madeComparison(t, 1, 500), "collapsed": collapsed, "running-comparison": running,
		"eight-long": madeComparison(t, 8, 5000),
	} {
		var b bytes.Buffer
		if err := Comparison(&b, c); err != nil {
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
		if err := Run(&b, run); err != nil {
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
		for name, again := range pages(t) {
			if text[name] != again {
				t.Errorf("%s differs from one writing to the next", name)
			}
		}
	})
}

func haveSections(t *testing.T, text map[string]string) {
	both := "headline accuracy training reuse gpus"
	want := map[string]string{
		"four-seeds": "headline accuracy seeds training reuse gpus facts configuration", "one-seed": "headline accuracy seeds training reuse gpus facts configuration",
		"collapsed": "headline accuracy seeds training reuse gpus facts configuration", "eight-long": "headline accuracy seeds training reuse gpus facts configuration",
		"running-comparison": both + " facts configuration", "run": both + " facts configuration", "no-evaluation": both + " facts configuration",
		"one-evaluation": both + " facts configuration", "running": both + " configuration", "only-begun": both + " configuration",
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
	const limit = 1_500_000
	for name, text := range text {
		if len(text) > limit {
			t.Errorf("%s has %d bytes, want at most %d", name, len(text), limit)
		}
		rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
		for _, outside := range []string{"http", "<script", "url(", "@import", "src=", "<link"} {
			if i := strings.Index(rest, outside); i >= 0 {
				t.Errorf("%s has %q: %.60q", name, outside, rest[i:])
			}
		}
		if i := strings.Index(text, "NaN"); i >= 0 || strings.Contains(text, "Inf,") {
			t.Errorf("%s shows a number that is none", name)
		}
	}
}

func haveSoundPlots(t *testing.T, text map[string]string) {
	raw := regexp.MustCompile(`#[0-9A-Fa-f]{6}|font-family|NaN`)
	for name, text := range text {
		plots := svgElement.FindAllString(text, -1)
		if len(plots) == 0 && name != "only-begun" {
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
		"four-seeds":         "of the baseline&#39;s compute: ",
		"one-seed":           "<em>One seed: no claim</em>",
		"collapsed":          "<em>3 seeds: no claim</em>",
		"running-comparison": "The comparison has not ended",
		"running":            "<em>This run has not ended</em>",
		"run":                "It reached the target of 0.65 at update ",
		"eight-long":         "<td>16m40s</td>", // 5,000 updates of 0.2 s
		"one-evaluation":     "It did not reach the target of 0.65.",
	} {
		if !strings.Contains(text[name], want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
	if strings.Contains(text["four-seeds"], "<em>") {
		t.Error("four seeds are enough for a claim, but the page cautions")
	}
	if !strings.Contains(text["run"], "capacity: 1024 # rollouts &amp; &lt;groups&gt;") {
		t.Error("the configuration is not shown, or not escaped")
	}
}

func drawEverySeed(t *testing.T, text map[string]string) {
	for name, want := range map[string]struct{ thin, bands int }{"four-seeds": {8, 2}, "one-seed": {0, 0}, "collapsed": {6, 2}, "run": {0, 0}} {
		plot := svgElement.FindString(text[name])
		if !strings.Contains(plot, "<title>Accuracy against compute</title>") {
			t.Fatalf("%s: the first plot is not accuracy against compute", name)
		}
		thin, bands := strings.Count(plot, "stroke-opacity:0.38"), strings.Count(plot, "fill-opacity:0.17")
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
	if err := errors.Join(results.WriteCompare(dir, c.Compare), results.WriteConfig(dir, []byte("seed: 1\n"))); err != nil {
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
	for _, err := range []error{metrics.Close(), evals.Close(), results.WriteConfig(dir, []byte(run.Config)), results.WriteSummary(dir, run.Summary)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
