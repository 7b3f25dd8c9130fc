package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/browsertest"
	"github.com/reprise-rl/reprise/lab/results"
)

var (
	shots     = flag.String("shots", "", "folder for screenshots of pages")
	shotPages = flag.String("pages", "", "pages to take them of, as NAME=FILE,NAME=FILE")
	picture   = flag.String("picture", "", "file for a picture of a page's first row of figures, by make picture")
	pictured  = flag.String("pictured", "", "that page's file")
)

// opened returns a page over two arms of two seeds in a browser, and its address.
func opened(t *testing.T) (*browsertest.Page, string) {
	t.Helper()
	p := browsertest.Open(t)
	var page bytes.Buffer
	if err := renderComparison(&page, madeComparison(t, 2, 300)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Size(1280, 900)
	p.Go("file://" + file)
	return p, "file://" + file
}

// same checks the text of an expression.
func same(t *testing.T, p *browsertest.Page, what, expression, want string) {
	t.Helper()
	if got := p.Text(expression); got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

const entropy = "#entropy"

// tip is the text of the values that are shown.
const tip = `[...document.querySelectorAll(".tip p, .tip td")].map((e) => e.textContent).filter(Boolean).join("|")`

func TestValuesAreShownOnHoverAndByKeys(t *testing.T) {
	p, _ := opened(t)
	p.Move("#accuracy-against-compute svg.wide", 0.5, 0.5)
	// The values must be those of the data at the x that is shown.
	same(t, p, "the value on hover", `(() => {
		const data = JSON.parse(document.querySelector("#accuracy-against-compute script").textContent);
		const row = [...document.querySelectorAll(".tip tr")].find((r) =>
			r.cells[0].textContent === "replay, 2 seeds");
		const shown = document.querySelector(".tip p").textContent.match(/[\d,]+$/)[0].replaceAll(",", "");
		const c = data.curves.find((c) => c.name === "replay, 2 seeds");
		let sum = 0;
		const xs = Array.isArray(c.x) ? c.x.map((v) => sum += v) : c.x.at, i = xs.indexOf(Number(shown));
		return [i > 0, Math.abs(Number(row.cells[1].textContent) - c.y[i]) < 1e-4].join();
	})()`, "true,true")
	same(t, p, "the number of hairlines", `document.querySelectorAll(".hair").length`, "1")
	p.Move("h1", 0.5, 0.5)
	same(t, p, "what is shown beside the chart", tip, "")

	p.Eval(`document.querySelector("#entropy svg").focus()`)
	p.Key("ArrowRight")
	first := p.Text(tip)
	if !strings.HasPrefix(first, "updates 1|") || !strings.Contains(first, "|replay|") ||
		!strings.Contains(first, "baseline|") {
		t.Errorf("the first key shows %q, want update 1 and both arms", first)
	}
	p.Key("ArrowRight")
	if second := p.Text(tip); second == first || second == "" {
		t.Errorf("the second key shows %q after %q", second, first)
	}
	p.Key("End")
	same(t, p, "the last value's x", `document.querySelector(".tip p").textContent`, "updates 471")
	p.Key("Escape")
	same(t, p, "what is shown after Escape", tip, "")
	noErrors(t, p)
}

// shownChart is a selector of the page's first chart that is shown.
func shownChart(p *browsertest.Page) string {
	return p.Text(`(() => { const all = [...document.querySelectorAll("figure svg:not(.icon)")];
		const s = all.find((s) => s.clientWidth > 0);
		s.id = "chart"; return "#chart"; })()`)
}

func noErrors(t *testing.T, p *browsertest.Page) {
	t.Helper()
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
}

// drawn is the d of the thick line of replay in the chart of the KL divergence.
const drawn = `document.querySelector("#kl-b [data-p=l5]").getAttribute("d")`

func TestArmsLogAndSmoothingAreInTheAddress(t *testing.T) {
	p, address := opened(t)
	hidden := `[...document.querySelectorAll("figure [data-p]")].filter((e) =>
		getComputedStyle(e).display === "none").length`
	visible := func(arm string) string {
		return fmt.Sprintf(`(() => { let n = 0; for (const f of document.querySelectorAll("figure")) {
			const s = f.querySelector("script"), d = s && JSON.parse(s.textContent); if (!d || !d.curves) continue;
			for (const e of f.querySelectorAll("[data-p^=l]"))
				if (d.curves[e.dataset.p.slice(1)].arm === %q && getComputedStyle(e).display !== "none") n++;
		} return n; })()`, arm)
	}
	all := p.Text(visible("baseline"))
	same(t, p, "what is hidden at first", hidden, "0")
	p.Eval(`document.querySelector("#accuracy button.arm[data-arm=replay]").click()`)
	same(t, p, "lines of the arm after it was hidden", visible("replay"), "0")
	same(t, p, "lines of the other arm", visible("baseline"), all)
	same(t, p, "the address", `location.hash`, "#hide=replay")
	same(t, p, "other legends", `[...document.querySelectorAll("button.arm[data-arm=replay]")].every((b) =>
		b.getAttribute("aria-pressed") === "false")`, "true")
	p.Move(entropy+" svg", 0.5, 0.5)
	if text := p.Text(tip); strings.Contains(text, "replay") || !strings.Contains(text, "baseline") {
		t.Errorf("hover shows %q: want the visible arm only", text)
	}
	p.Eval(`document.querySelector("#training button.arm[data-arm=replay]").click()`)
	same(t, p, "what is hidden in the end", hidden, "0")
	same(t, p, "the address in the end", `location.href`, address)

	linear := p.Text(drawn)
	labels := `[...document.querySelectorAll("#kl-b svg text")].filter((e) => getComputedStyle(e).display !== "none"
		&& e.getAttribute("text-anchor") === "end").map((e) => e.textContent).join()`
	p.Eval(`[...document.querySelectorAll("#kl-b .tools button")].find((b) => b.textContent === "log").click()`)
	same(t, p, "the address with a log axis", `location.hash`, "#log=kl-b")
	if p.Text(drawn) == linear || !strings.Contains(p.Text(labels), "0.005") {
		t.Errorf("the log axis has the labels %q", p.Text(labels))
	}
	// Equal ratios are equally far apart.
	same(t, p, "the ticks' distances", `(() => { const at = Object.fromEntries([...document.querySelectorAll(
		"#kl-b svg text[text-anchor=end]")].map((e) => [e.textContent, Number(e.getAttribute("y"))]));
		const perLog = (from, to) => (at[from] - at[to]) / Math.log(to / from);
		return Math.abs(perLog("0.002", "0.005") / perLog("0.005", "0.01") - 1) < 0.02; })()`, "true")
	p.Eval(`{ const s = document.querySelector(".choices select[name=smooth]");
		s.value = "10"; s.dispatchEvent(new Event("change")); }`)
	both := p.Text(drawn)
	same(t, p, "the address with smoothing", `location.hash`, "#log=kl-b&smooth=10")

	p.Go("about:blank")
	p.Go(address + "#log=kl-b&smooth=10&hide=baseline")
	same(t, p, "the restored line", drawn, both)
	same(t, p, "lines of the hidden arm", visible("baseline"), "0")
	p.Eval(`new Promise((done) => { addEventListener("hashchange", done, { once: true }); location.hash = "#x=1"; })`)
	same(t, p, "the line without state", drawn, linear)
	same(t, p, "what is hidden without state", hidden, "0")
	noErrors(t, p)
}

func TestSmoothingIsAnExponentialAverage(t *testing.T) {
	p, _ := opened(t)
	rough := func() string {
		return p.Text(`(() => { const d = document.querySelector("#gradient-norm [data-p=l5]").getAttribute("d");
			const y = d.split(/[ML]/).slice(1).map((s) => Number(s.split(",")[1])); let sum = 0;
			for (let i = 1; i < y.length; i++) sum += Math.abs(y[i] - y[i - 1]); return Math.round(sum); })()`)
	}
	var sums []string
	for _, strength := range []string{"1", "3", "10"} {
		p.Eval(`new Promise((done) => { addEventListener("hashchange", done, { once: true });
			location.replace("#smooth=` + strength + `"); })`)
		sums = append(sums, rough())
	}
	for i := 1; i < len(sums); i++ {
		var before, after int
		if _, err := fmt.Sscan(sums[i-1]+" "+sums[i], &before, &after); err != nil || after >= before {
			t.Errorf("the line rises and falls by %v with growing smoothing: want less each time", sums)
		}
	}
}

func TestPointsAreDownloaded(t *testing.T) {
	p, _ := opened(t)
	p.Eval(`{ const make = URL.createObjectURL; URL.createObjectURL = (b) => { window.blob = b; return make(b); };
		HTMLAnchorElement.prototype.click = function () { window.file = this.download; }; }`)
	p.Eval(`[...document.querySelectorAll("#accuracy-against-updates .tools button")].find((b) =>
		b.textContent === "CSV").click()`)
	same(t, p, "the file", "window.file", "accuracy-against-updates.csv")
	lines := strings.Split(strings.TrimSpace(p.Text("window.blob.text()")), "\n")
	if lines[0] != `curve,optimizer updates,"held-out pass@1, greedy",low,high` {
		t.Errorf("the head is %q", lines[0])
	}
	c := madeComparison(t, 2, 300)
	want := c.Replay[1].Evals[3]
	line := fmt.Sprintf(`"replay, run 2",%d,%.6g,,`, want.Update, want.Pass1)
	if text := strings.Join(lines, "\n"); !strings.Contains(text, line) {
		t.Errorf("there is no line %q in\n%.400s", line, text)
	}
}

func TestPagesAreCompleteInPrintAndWithoutScripts(t *testing.T) {
	p, address := opened(t)
	lines := `[...document.querySelectorAll("figure [data-p]")].filter((e) =>
		getComputedStyle(e).display === "none").length`
	controls := `[...document.querySelectorAll(".tools, .choices, .copy")].filter((e) =>
		getComputedStyle(e).display !== "none").length`
	p.Eval(`document.querySelector("button.arm[data-arm=replay]").click()`)
	p.Move(entropy+" svg", 0.5, 0.5)
	p.Media("print", "light")
	same(t, p, "lines hidden in print", lines, "0")
	same(t, p, "controls in print", controls, "0")
	same(t, p, "values in print", `[...document.querySelectorAll(".tip, .hair")].filter((e) =>
		getComputedStyle(e).display !== "none").length`, "0")
	p.Media("screen", "light")
	if p.Text(controls) == "0" {
		t.Error("no controls on the screen")
	}

	p.Scripts(false)
	p.Go("about:blank")
	p.Go(address)
	p.Scripts(true) // to ask; those of the page did not run
	same(t, p, "lines hidden without scripts", lines, "0")
	same(t, p, "buttons without scripts", `document.querySelectorAll("button, select").length`, "0")
	same(t, p, "charts without scripts", `[...document.querySelectorAll("figure")].every((f) =>
		f.querySelector("svg [data-p], .empty"))`, "true")
}

func TestTheScriptStartsAgainWhenThePageWasReplaced(t *testing.T) {
	p, address := opened(t)
	p.Eval(`document.querySelector("button.arm[data-arm=replay]").click()`)
	text, err := os.ReadFile(strings.TrimPrefix(address, "file://"))
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		t.Fatal(err)
	}
	p.Eval(fmt.Sprintf(`{ const page = new DOMParser().parseFromString(%s, "text/html");
		document.querySelector("main").replaceWith(page.querySelector("main"));
		document.dispatchEvent(new Event("reprise:replaced")); }`, quoted))
	same(t, p, "the legend", `document.querySelector("button.arm[data-arm=replay]").getAttribute("aria-pressed")`,
		"false")
	same(t, p, "the line", `getComputedStyle(document.querySelector("#entropy [data-p=l5]")).display`, "none")
	noErrors(t, p)
}

// Everything fits at every width, light and dark. The screenshots are kept in the folder of -shots, if given.
func TestPagesFitTheScreen(t *testing.T) {
	p, address := opened(t)
	pages := map[string]string{"comparison": address}
	for pair := range strings.SplitSeq(*shotPages, ",") {
		if name, file, ok := strings.Cut(pair, "="); ok {
			pages[name] = "file://" + file
		}
	}
	for name, page := range pages {
		p.Go("about:blank") // a page that differs in its fragment only would not be loaded
		p.Go(page)
		for _, width := range []int{390, 800, 1280} {
			p.Size(width, 900)
			if got := p.Text(`document.documentElement.scrollWidth`); got != fmt.Sprint(width) {
				t.Errorf("%s is %s px wide in %d px", name, got, width)
			}
			for _, scheme := range []string{"light", "dark"} {
				p.Media("screen", scheme)
				p.Move(shownChart(p), 0.7, 0.5)
				same(t, p, fmt.Sprintf("%s at %d: whether the values are on the screen", name, width), `(() => {
					const b = document.querySelector(".tip").getBoundingClientRect();
					return b.width > 60 && b.left >= 0 && b.right <= innerWidth; })()`, "true")
				if *shots != "" {
					p.Shot(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)))
				}
			}
			p.Media("screen", "light")
		}
		if p.Media("print", "light"); *shots != "" {
			p.Shot(filepath.Join(*shots, name+"-print.png"))
		}
		p.Media("screen", "light")
	}
	noErrors(t, p)
}

// The picture is of the page's first figure alone, and as wide as half of README, so that its text is never smaller
// than that of the page. The dark one has -dark in its name.
func TestPictureOfAPage(t *testing.T) {
	if *picture == "" {
		t.Skip("no -picture is asked for")
	}
	p := browsertest.Open(t)
	p.Size(440, 300)
	p.Scripts(false)
	p.Go("file://" + *pictured)
	p.Eval(`{ const figure = document.querySelector(".grid").firstElementChild; document.body.replaceChildren(figure);
		document.body.style.padding = figure.style.margin = "6px"; }`)
	for scheme, name := range map[string]string{
		"light": *picture, "dark": strings.TrimSuffix(*picture, ".png") + "-dark.png",
	} {
		p.Media("screen", scheme)
		p.ShotAt(name, 2)
	}
}

// drag draws the mouse over shares of the width of an element.
func drag(p *browsertest.Page, selector string, from, to float64) {
	p.Move(selector, from, 0.5)
	p.Press(selector, from, 0.5)
	p.Move(selector, (from+to)/2, 0.5)
	p.Move(selector, to, 0.5)
	p.Release(selector, to, 0.5)
}

// xLabels lists the numbers that are shown below a chart, the smallest first.
func xLabels(id string) string {
	return fmt.Sprintf(`(() => { const svg = document.querySelector("#%s svg"), d = JSON.parse(
		document.querySelector("#%[1]s script").textContent), bottom = d.areas[0][3];
		return [...svg.querySelectorAll("text")].filter((e) => getComputedStyle(e).display !== "none" &&
			e.dataset.p !== "t0" && Number(e.getAttribute("y")) > bottom + 6).map((e) => e.textContent).join(); })()`, id)
}

func TestADragZoomsAllChartsOfAnAxis(t *testing.T) {
	p, address := opened(t)
	whole, kl := p.Text(xLabels("entropy")), p.Text(drawn)
	drag(p, entropy+" svg", 0.5, 0.8)
	if hash := p.Text("location.hash"); !strings.HasPrefix(hash, "#zoom=") || !strings.HasSuffix(hash, "updates") {
		t.Fatalf("the address after the drag is %q", hash)
	}
	zoomed := p.Text(xLabels("entropy"))
	if zoomed == whole || zoomed != p.Text(xLabels("reward")) || strings.HasPrefix(zoomed, "0,") {
		t.Errorf("the labels are %q after %q, and %q on the next chart", zoomed, whole, p.Text(xLabels("reward")))
	}
	if p.Text(drawn) == kl {
		t.Error("the line of another chart of this axis has not moved")
	}
	// What is drawn within the chart is the data between the ends of the axis, over the axis' whole height.
	same(t, p, "whether the lines fill the chart", `(() => {
		const f = document.querySelector("#entropy"), d = JSON.parse(f.querySelector("script").textContent);
		const [left, top, right, bottom] = d.areas[0], ys = [...f.querySelectorAll("[data-p^=l]")].flatMap((e) =>
			e.getAttribute("d").split(/[ML]/).slice(1).map((s) => s.split(",").map(Number))
				.filter(([x]) => x >= left && x <= right).map(([, y]) => y));
		const high = Math.min(...ys), low = Math.max(...ys);
		return ys.length > 10 && high >= top && low <= bottom && low - high > 0.8 * (bottom - top); })()`, "true")
	p.Move(entropy+" svg", 0.5, 0.5)
	same(t, p, "whether the value that is read lies in the zoom", `(() => {
		const [low, high] = location.hash.slice(6).split(/,|%2C/).map(Number);
		const x = Number(document.querySelector(".tip p").textContent.match(/[\d,]+$/)[0].replaceAll(",", ""));
		return x >= low && x <= high; })()`, "true")

	hash := p.Text("location.hash")
	p.Go("about:blank")
	p.Go(address + hash)
	same(t, p, "the labels from the address", xLabels("entropy"), zoomed)
	p.DoubleClick(entropy+" svg", 0.4, 0.5)
	same(t, p, "the address after a double click", "location.href", address)
	same(t, p, "the line after a double click", drawn, kl)
	noErrors(t, p)
}

func TestKeysZoom(t *testing.T) {
	p, address := opened(t)
	ends := func() (low, high float64) {
		t.Helper()
		text := strings.ReplaceAll(p.Text("location.hash"), "%2C", ",")
		if _, err := fmt.Sscanf(text, "#zoom=%g,%g,updates", &low, &high); err != nil {
			t.Fatalf("the address is %q: %v", text, err)
		}
		return low, high
	}
	p.Eval(`document.querySelector("#entropy svg").focus()`)
	p.Key("+")
	low, high := ends()
	if middle := (low + high) / 2; middle < 230 || middle > 242 || high-low < 225 || high-low > 245 {
		t.Errorf("plus shows %g to %g of 1 to 471: want half of it, in the middle", low, high)
	}
	p.Key("+")
	if l, h := ends(); h-l > (high-low)*0.51 {
		t.Errorf("another plus shows %g to %g after %g to %g", l, h, low, high)
	}
	p.Eval(`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", shiftKey: true }))`)
	if l, _ := ends(); l <= low+(high-low)/4 {
		t.Errorf("Shift and an arrow do not move: the axis begins at %g", l)
	}
	p.Key("-")
	p.Key("-")
	same(t, p, "the address after as many minuses", "location.href", address)
	p.Key("+")
	p.Key("0")
	same(t, p, "the address after 0", "location.href", address)
	noErrors(t, p)
}

func TestAllChartsOfAnAxisAreReadTogether(t *testing.T) {
	p, _ := opened(t)
	p.Move(entropy+" svg", 0.5, 0.5)
	same(t, p, "whether each chart in view shows its values", `(() => {
		const seen = [...document.querySelectorAll("#training figure")].filter((f) => { const s = f.querySelector("svg"),
			b = s && s.getBoundingClientRect(); return s && b.width && b.bottom > 0 && b.top < innerHeight; });
		return seen.length > 3 && seen.every((f) => f.querySelectorAll(".hair").length === 1 && f.querySelector(".dot") &&
			f.querySelector(".tip, .also")); })()`, "true")
	same(t, p, "the full lists of values", `document.querySelectorAll(".tip").length`, "1")
	same(t, p, "lines on charts of another axis", `document.querySelectorAll("#accuracy .hair").length`, "0")
	p.Move("h1", 0.5, 0.5)
	same(t, p, "what is left of it", `document.querySelectorAll(".hair, .also, .dot").length`, "0")
}

func TestTheAxisOfXIsChosen(t *testing.T) {
	p, address := opened(t)
	choose := func(key, value string) {
		t.Helper()
		p.Eval(fmt.Sprintf(`{ const s = document.querySelector(".choices select[name=%s]");
			s.value = %q; s.dispatchEvent(new Event("change")); }`, key, value))
	}
	title := `document.querySelector("#entropy [data-p=t0]").textContent`
	before := p.Text(drawn)
	choose("by", "compute")
	same(t, p, "the address", "location.hash", "#by=compute")
	same(t, p, "the title of the axis", title, "compute: rollouts through one trainer")
	p.Eval(`document.querySelector("#entropy svg").focus()`)
	p.Key("End")
	c := madeComparison(t, 2, 300)
	far := 0.0
	for _, r := range append(c.Baseline, c.Replay...) {
		far = max(far, r.Updates[len(r.Updates)-1].Compute)
	}
	var shown float64
	text := p.Text(`document.querySelector(".tip p").textContent.match(/[\d,.]+$/)[0].replaceAll(",", "")`)
	if _, err := fmt.Sscan(text, &shown); err != nil || shown < far*0.999 || shown > far*1.001 {
		t.Errorf("the last value is at %q of compute, want %g", text, far)
	}
	// Both arms end at the same compute after different numbers of updates.
	same(t, p, "whether both arms' lines end at the right", `(() => { const right = JSON.parse(
		document.querySelector("#kl-b script").textContent).areas[0][2];
		return ["l2", "l5"].every((l) => right - Number(document.querySelector("#kl-b [data-p=" + l + "]")
			.getAttribute("d").split(/[ML]/).at(-1).split(",")[0]) < 12); })()`, "true")
	choose("by", "updates")
	same(t, p, "the title of accuracy by updates", `document.querySelector(
		"#accuracy-against-compute .wide [data-p=t0]").textContent`, "updates")
	choose("by", "")
	same(t, p, "the address in the end", "location.href", address)
	same(t, p, "the line in the end", drawn, before)
	noErrors(t, p)
}

func TestSeedsAreShownAsTheirMeanOrOneByOne(t *testing.T) {
	p, _ := opened(t)
	choose := func(value string) {
		t.Helper()
		p.Eval(fmt.Sprintf(`{ const s = document.querySelector(".choices select[name=seeds]");
			s.value = %q; s.dispatchEvent(new Event("change")); }`, value))
	}
	shown := func(selector string) string {
		return p.Text(fmt.Sprintf(`[...document.querySelectorAll("#accuracy-against-updates %s")].filter((e) =>
			getComputedStyle(e).display !== "none" && e.getAttribute("d")).length`, selector))
	}
	if thin, bands := shown(".line.thin"), shown(".band"); thin != "4" || bands != "2" {
		t.Errorf("%s thin lines and %s bands are drawn, want 4 and 2", thin, bands)
	}
	choose("mean")
	if thin, bands := shown(".line.thin"), shown(".band"); thin != "0" || bands != "2" {
		t.Errorf("means: %s thin lines and %s bands, want 0 and 2", thin, bands)
	}
	c := madeComparison(t, 2, 300)
	a, b := c.Replay[0].Evals, c.Replay[1].Evals
	last := min(len(a), len(b)) - 1
	mean, deviation := results.MeanAndDeviation([]float64{a[last].Pass1, b[last].Pass1})
	p.Eval(`document.querySelector("#accuracy-against-updates svg").focus()`)
	p.Key("End")
	want := fmt.Sprintf("%.3f|%.3f–%.3f", mean, mean-deviation, mean+deviation)
	got := p.Text(`(() => { const r = [...document.querySelectorAll(".tip tr")].find((r) =>
		r.cells[0].textContent.startsWith("replay")); const t = (v) => Number(v).toFixed(3);
		return t(r.cells[1].textContent) + "|" + r.cells[2].textContent.split(/[–,]/).slice(0, 2).map(t).join("–"); })()`)
	if got != want {
		t.Errorf("the last mean of replay with its band is %q, want %q", got, want)
	}
	choose("runs")
	if thin, bands, lines := shown(".line.thin"), shown(".band"), shown(".line"); thin != "0" || bands != "0" ||
		lines != "4" {
		t.Errorf("single runs: %s thin of %s lines and %s bands, want none of 4, and none", thin, lines, bands)
	}
	p.Key("End")
	if text := p.Text(tip); !strings.Contains(text, "replay, run 1|") || !strings.Contains(text, "baseline, run 2|") {
		t.Errorf("single runs are read as %q", text)
	}
	noErrors(t, p)
}
