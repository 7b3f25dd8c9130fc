package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// sheetPages returns pages of studies and sheets by name.
func sheetPages(t *testing.T) map[string]string {
	t.Helper()
	many := madeStudy(40)
	many.Sheet.Sections = []results.Section{sectionOfArms(40, rand.New(rand.NewPCG(1, 2)))}
	quick := madeStudy(2)
	quick.Quick = true
	byName := map[string]string{}
	for name, s := range map[string]*results.Study{"everything": madeStudy(6), "forty": many, "quick": quick} {
		byName[name] = studyPage(t, s)
	}
	plain := madeStudy(2).Sheet
	plain.Kind, plain.Findings, plain.Title = "Design", nil, "A configuration for 8 GPUs & <more>"
	byName["design"] = pageOfSheet(t, &plain)
	checked := madeStudy(2).Sheet
	checked.Findings[1].Check = true
	byName["checked"] = pageOfSheet(t, &checked)
	byName["bare"] = pageOfSheet(t, &results.Sheet{Title: "Nothing yet"})
	keep(t, "sheet-", byName)
	return byName
}

func studyPage(t *testing.T, s *results.Study) string {
	t.Helper()
	var b bytes.Buffer
	if err := renderStudy(&b, s); err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return b.String()
}

func pageOfSheet(t *testing.T, s *results.Sheet) string {
	t.Helper()
	var b bytes.Buffer
	if err := Sheet(&b, s); err != nil {
		t.Fatalf("%s: %v", s.Title, err)
	}
	return b.String()
}

func TestPagesOfSheets(t *testing.T) {
	text := sheetPages(t)
	t.Run("are self-contained and small", func(t *testing.T) { areSelfContained(t, text) })
	t.Run("are well-formed", func(t *testing.T) { areWellFormed(t, text) })
	t.Run("have well-formed plots that follow the style sheet", func(t *testing.T) { haveSoundPlots(t, text) })
	t.Run("have their parts, findings first", func(t *testing.T) {
		for name, want := range map[string]string{
			"everything": "findings lead part part part part arms facts", "forty": "findings lead part arms facts",
			"quick": "findings lead part part part part arms facts", "design": "part part part part facts", "bare": "",
			"checked": "findings checks lead part part part part facts",
		} {
			var got []string
			for _, m := range regexp.MustCompile(`<section(?: id="([a-z]+)")?>`).FindAllStringSubmatch(text[name], -1) {
				got = append(got, cmp.Or(m[1], "part"))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s has parts %v, want %s", name, got, want)
			}
		}
	})
	t.Run("escape what they are given", func(t *testing.T) {
		if !strings.Contains(text["design"], "8 GPUs &amp; &lt;more&gt;</h1>") ||
			!strings.Contains(text["everything"], "N = 512 &amp; &lt;more&gt;") {
			t.Error("text from outside is not escaped")
		}
	})
	t.Run("caution where a study was a rehearsal, and only there", func(t *testing.T) {
		for name := range text {
			got, want := strings.Contains(text[name], "A rehearsal with small budgets"), name == "quick"
			if got != want {
				t.Errorf("%s cautions: %v, want %v", name, got, want)
			}
		}
	})
	t.Run("are the same bytes for the same results", func(t *testing.T) {
		for name, again := range sheetPages(t) {
			if text[name] != again {
				t.Errorf("%s differs from one writing to the next", name)
			}
		}
	})
}

func TestEveryVerdictHasAWordASignAndAColour(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range []results.Verdict{results.Holds, results.DoesNotHold, results.Inconclusive, results.Untested} {
		s := results.Sheet{Title: "t", Findings: []results.Finding{{Source: "[ER] fig. <1>", Claim: "it learns",
			Found: "it did", Verdict: v, Why: "by the interval"}}}
		text := pageOfSheet(t, &s)
		class, sign := verdictLook(v)
		if seen[class] || seen[sign] {
			t.Errorf("%q has the look of another verdict", v)
		}
		seen[class], seen[sign] = true, true
		for _, want := range []string{
			`<article class="finding ` + class + `">`, "<b>" + sign + "</b>" + string(v) + "</strong>",
			"[ER] fig. &lt;1&gt;",
			"</span> it learns</p>", "</span> it did</p>", "<span>Rule:</span> by the interval",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q: the page lacks %q", v, want)
			}
		}
		for _, rule := range []string{".finding." + class + " ", "--" + class + ": #"} {
			if !strings.Contains(styleText, rule) {
				t.Errorf("%q: the style sheet lacks %q", v, rule)
			}
		}
	}
}

func TestVerdictsAreCounted(t *testing.T) {
	f := func(verdicts ...results.Verdict) (list []results.Finding) {
		for _, v := range verdicts {
			list = append(list, results.Finding{Verdict: v})
		}
		return list
	}
	check := results.Finding{Verdict: results.Holds, Check: true}
	for want, list := range map[string][]results.Finding{
		"One claim: 1 does not hold.":      append(f(results.DoesNotHold), check),
		"":                                 nil,
		"One claim: 1 holds.":              f(results.Holds),
		"4 claims: 2 hold, 2 do not hold.": f(results.Holds, results.DoesNotHold, results.Holds, results.DoesNotHold),
		"3 claims: 1 holds, 1 does not hold, 1 is inconclusive.": f(results.Inconclusive, results.DoesNotHold,
			results.Holds),
		"2 claims: 2 are inconclusive.": f(results.Inconclusive, results.Inconclusive),
		"5 claims: 3 hold, 1 is inconclusive, 1 is untested.": f(results.Holds, results.Holds, results.Holds,
			results.Untested, results.Inconclusive),
	} {
		if got := tally(list); got != want {
			t.Errorf("tally %q, want %q", got, want)
		}
	}
}

func TestASheetThatCannotBeDrawnIsRefusedAndNothingIsWritten(t *testing.T) {
	s := madeStudy(2)
	s.Sheet.Sections[1].Figures[0].Map.Values[1] = s.Sheet.Sections[1].Figures[0].Map.Values[1][:3]
	s.Sheet.Sections[0].Figures[2].Curves[0].At[0].X = 0
	var b bytes.Buffer
	err := renderStudy(&b, s)
	for _, want := range []string{
		`section "Buffer and split", figure "Best accuracy by buffer and split": map: row 2 has 3 values: want 5`,
		`section "Accuracy", figure "Noise against staleness": curve "fitted power law", point 1: ` +
			`x = 0 on a logarithmic axis`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	if b.Len() > 0 {
		t.Errorf("%d bytes were written all the same", b.Len())
	}
}

func TestAStudyShowsItsArmsAndWhereTheirRunsAre(t *testing.T) {
	s := madeStudy(3)
	s.Arms[2].Folders, s.Arms[2].Differs = []string{"../runs/a b:c", "", "../runs/0000000000000001"}, nil
	text := studyPage(t, s)
	for _, want := range []string{
		"3 arms · 4 seeds · 9 runs · 20 November 2026",
		`<a href="./../runs/0000000000000000/">1</a> <a href="./../runs/0000000000000001/">2</a>`,
		`<a href="./../runs/a%20b:c/">1</a> <a href="./../runs/0000000000000001/">3</a> </td>`,
		`<span class="quiet">the first</span>`, `<span class="quiet">in nothing</span>`,
		"<code>replay.capacity: 512</code>",
		"failed: seed 3: the loss is not finite at update 121", "An Eight-Core Processor",
		"reprise study buffer-size --seeds 4",
		"The numbers of all figures: study.json.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestManyArmsAreFolded(t *testing.T) {
	for arms, folded := range map[int]bool{12: false, 13: true} {
		text := studyPage(t, madeStudy(arms))
		if got := strings.Contains(text, fmt.Sprintf("<summary>%d arms</summary>", arms)); got != folded ||
			!strings.Contains(text, ">N = 256</th>") {
			t.Errorf("%d arms: folded %v, want %v and every arm", arms, got, folded)
		}
	}
}

func TestWriteReadsAStudysFolder(t *testing.T) {
	dir := t.TempDir()
	if err := results.WriteStudy(dir, madeStudy(2)); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, results.ReportFile))
	if err != nil || !strings.Contains(string(text), "<h1>How large a buffer?</h1>") ||
		!bytes.HasSuffix(text, []byte("</html>\n")) {
		t.Errorf("error %v, %d bytes", err, len(text))
	}
	if want := studyPage(t, madeStudy(2)); string(text) != want {
		t.Error("a study read from its folder has another page than the one in memory")
	}
	broken := errors.Join(os.WriteFile(filepath.Join(dir, results.StudyFile), []byte(`{"format": 99}`), 0o644),
		Write(dir))
	if broken == nil || !strings.Contains(broken.Error(), "format") {
		t.Errorf("a study of another format: error %v", broken)
	}
}

func TestColumnsOfNumbersStandToTheRightAndSentencesBreak(t *testing.T) {
	text := pageOfSheet(t, &results.Sheet{Title: "t", Sections: []results.Section{{Title: "s", Grids: []results.Grid{{
		Columns: []string{"Arm", "Ratio", "Sampler", "Why"},
		Rows: [][]string{
			{"8", "0.61 (0.56–0.66)", "uniform", "A sentence that is longer than a word or two can be."},
			{"16", "not reached", "epoch", ""}, {"32", "−4%", "–", "Short."}, {"64", "∞", "3 of them", "–"},
			{"x", "≥ 2", "", ""},
			{"-y", "-11.0%", "", ""}, {"y", "-", "", ""}, {"z", "not measured", "", ""},
			{"0", "not reached (9 to not reached)", "", ""},
		},
	}}}}})
	for _, want := range []string{
		`<th class="word">Arm</th><th>Ratio</th><th class="word">Sampler</th><th class="sentence">Why</th>`,
		`<td class="split"><span>not reached</span> <span>(9 to not reached)</span></td>`, "<td>not measured</td>",
		"<td>-</td>",
		"<td>−11.0%</td>", `<th class="word">-y</th>`,
		`<th class="word">8</th><td class="split"><span>0.61</span> <span>(0.56–0.66)</span></td>` +
			`<td class="word">uniform</td><td class="sentence">A sentence`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestLongTablesAreFoldedAndSayHowLongTheyAre(t *testing.T) {
	for rows, folded := range map[int]bool{1: false, 20: false, 21: true} {
		g := results.Grid{Title: "by seed", Columns: []string{"seed"}}
		for i := range rows {
			g.Rows = append(g.Rows, []string{fmt.Sprint(i + 1)})
		}
		text := pageOfSheet(t, &results.Sheet{Title: "t",
			Sections: []results.Section{{Title: "s", Grids: []results.Grid{g}}}})
		if got := strings.Contains(text, fmt.Sprintf("<summary>%d rows</summary>", rows)); got != folded ||
			strings.Count(text, `<th class="word">`) != rows+1 {
			t.Errorf("%d rows: folded %v, want %v and every row", rows, got, folded)
		}
		areWellFormed(t, map[string]string{"table": text})
	}
}

func TestWhatWasNotReachedStandsWhereItsNumberWould(t *testing.T) {
	for want, cells := range map[string][]string{"": {"360 (313 to 380)", "not reached", "not reached"},
		"word": {"not reached", "not measured", "–"}} {
		var rows [][]string
		for _, c := range cells {
			rows = append(rows, []string{"arm", c})
		}
		if got := columnClass(rows, 1); got != want {
			t.Errorf("%q is a column of class %q, want %q", cells, got, want)
		}
	}
}

func TestFiguresAreArrangedByTheirNumberAndKind(t *testing.T) {
	p := results.Figure{Title: "p", Curves: []results.Curve{{Name: "a", At: points(1, 2)}}}
	busy := p
	for i := range 6 {
		busy.Curves = append(busy.Curves, results.Curve{Name: fmt.Sprint(i), Colour: i, At: points(1, 2)})
	}
	small := results.Figure{Title: "m", Map: madeMap(false, []float64{1, 2})}
	large := results.Figure{Title: "M", Map: madeMap(false, make([]float64, 20))}
	for _, c := range []struct {
		figures []results.Figure
		want    string
	}{
		{nil, ""},
		{[]results.Figure{p}, "large 1×2"},
		{[]results.Figure{p, p}, "grid halves 2×1"},
		{[]results.Figure{p, p, p}, "grid thirds 3×1"},
		{[]results.Figure{p, busy, p}, "large 1×2, grid halves 2×1"},
		{[]results.Figure{p, p, p, p}, "grid halves 4×1"},
		{[]results.Figure{p, p, p, p, p}, "large 1×2, grid halves 4×1"},
		{[]results.Figure{small}, "grid halves 1×1"},
		{[]results.Figure{small, p, p}, "grid halves 3×1"},
		{[]results.Figure{large}, "large 1×1"},
		{[]results.Figure{p, p, large, p}, "grid halves 2×1, large 1×1, large 1×2"},
	} {
		var got []string
		for _, r := range arranged(c.figures) {
			got = append(got, fmt.Sprintf("%s %d×%d", r.Class, len(r.Figures), len(r.Figures[0].SVG)))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%d figures: %q, want %q", len(c.figures), strings.Join(got, ", "), c.want)
		}
	}
}

// Whatever stands in a study.json, its page is refused or drawn.
func FuzzStudyIsRefusedOrDrawn(f *testing.F) {
	f.Add([]byte(`{"arms": [{"name": "a", "folders": ["../runs/0", ""], "differs": ["seed: 1"], "failed": ["why"]}],
		"sheet": {"title": "t", "findings": [{"verdict": "holds"}], "facts": [{"name": "n"}],
		"sections": [{"tables": [{"columns": ["a", "b"], "rows": [["1", "-2 (1 to 3)"]]}]}]}}`))
	for _, figure := range []string{
		`{"curves": [{"at": [{"x": 1e17, "y": 1e17}, {"x": 1.0000000000000003e17, "y": 1.0000000000000003e17}]}]}`,
		`{"curves": [{"at": [{"x": -1e200, "y": -1e200}, {"x": 1e200, "y": 1e200}]}]}`,
		`{"x": {"log": true}, "y": {"log": true},
			"curves": [{"at": [{"x": 1e-200, "y": 1e-200}, {"x": 1e200, "y": 1e200}]}]}`,
		`{"x": {"low": 1e200}, "y": {"high": -1e200},
			"curves": [{"points": true, "colour": 99, "at": [{"x": 1, "y": 2, "low": 0, "high": 5}]}]}`,
		`{"map": {"columns": ["a", "b"], "rows": ["r"], "values": [[1e200, -1e200]], "digits": 6},
			"marks": [{"x": 1}]}`,
	} {
		f.Add([]byte(`{"sheet": {"title": "t", "sections": [{"figures": [` + figure + `]}]}}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s results.Study
		if json.Unmarshal(text, &s) != nil {
			return
		}
		if err := renderStudy(io.Discard, &s); err == nil && s.Sheet.Validate() != nil {
			t.Error("a study that is refused is drawn")
		}
	})
}
