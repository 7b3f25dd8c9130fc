package watch_test

import (
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/browsertest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/watch"
)

var shots = flag.String("shots", "", "folder for screenshots of the dashboard")

// warmed serves a busy service that has been watched for five minutes.
func warmed(t *testing.T) (*fake, *watch.Watch) {
	t.Helper()
	f := &fake{}
	w, err := watch.New(f.observe, watch.Options{Version: "0.0.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	for s := 0; s <= 300; s += 2 {
		w.Record(busy(s))
	}
	f.set(busy(302))
	return f, w
}

func TestTheDashboardUpdatesInABrowser(t *testing.T) {
	f, w := warmed(t)
	fetched := 0
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fragment" {
			if fetched++; fetched == 2 {
				o := busy(310)
				o.Tables[0].Stats.Present = 12_345
				f.set(o)
			}
			w.Forget()
		}
		if host, _, _ := strings.Cut(r.Host, ":"); host != "127.0.0.1" {
			t.Errorf("the page asked %s", r.Host)
		}
		w.ServeHTTP(answer, r)
	}))
	defer server.Close()

	dom, console := browsertest.Run(t, "--virtual-time-budget=9000", "--window-size=1400,1000", "--dump-dom",
		server.URL)
	if len(console) > 0 {
		t.Errorf("the console says:\n%s", strings.Join(console, ""))
	}
	if fetched < 3 {
		t.Errorf("the body was fetched %d times in 9 seconds", fetched)
	}
	for _, want := range []string{">12,345<", "math-prioritized", "Priority by age", "generators",
		"&lt;script&gt;alert(1)&lt;/script&gt;", `<p id="lost" role="status" hidden`} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(dom, "<script>alert(1)") {
		t.Error("a rollout's text became part of the page")
	}
}

// Values and smoothing survive that the page's body is replaced every two seconds.
func TestTheDashboardsFiguresAnswerWhileItUpdates(t *testing.T) {
	p := browsertest.Open(t)
	_, w := warmed(t)
	server := httptest.NewServer(w)
	defer server.Close()
	p.Size(1280, 900)
	p.Go(server.URL)
	// replaced waits for the next body that the page shows.
	replaced := func() {
		t.Helper()
		p.Eval(`new Promise((done) => document.addEventListener("reprise:replaced", done, { once: true }))`)
	}
	tip := `[...document.querySelectorAll(".tip p, .tip td")].map((e) => e.textContent).filter(Boolean).join("|")`
	inserted := `document.querySelector("section.table .tile[id] [data-p=l0]").getAttribute("d")`

	p.Move("section.table .tile[id] svg.spark", 0.5, 0.5)
	replaced()
	if text := p.Text(tip); !strings.HasPrefix(text, "seconds −1") || !strings.Contains(text, "|inserted|") {
		t.Errorf("the sparkline's middle shows %q after the body was replaced: want the rate about 150 s ago", text)
	}
	// The body may be replaced between looking for the bar and moving there.
	tests.Until(t, "the first bar shows its versions and uses", func() bool {
		p.Move("#t-math-prioritized-chart-1 svg", 0.1, 0.5)
		text := p.Text(tip)
		return strings.Contains(text, "versions: ") && strings.Contains(text, "uses")
	})
	p.Move("h1", 0.5, 0.5)
	p.Eval(`document.querySelector("section.table .tile[id] svg.spark").focus()`)
	p.Key("End")
	last := p.Text(tip)
	replaced()
	p.Key("ArrowLeft")
	if text := p.Text(tip); text == "" || text == last {
		t.Errorf("the arrow key shows %q after %q, with the body replaced between", text, last)
	}
	p.Key("Escape")
	p.Eval(`document.activeElement.blur()`)

	for _, control := range []string{"section.table .tools button:not([hidden])", ".choices select[name=smooth]"} {
		p.Eval(fmt.Sprintf(`document.querySelector(%q).focus()`, control))
		replaced()
		p.Eval(`new Promise((done) => setTimeout(done))`)
		if p.Eval(fmt.Sprintf(`document.activeElement === document.querySelector(%q)`, control)) != true {
			t.Errorf("%s has lost the focus to %s", control, p.Text(`document.activeElement.outerHTML.slice(0, 80)`))
		}
	}
	raw := p.Text(inserted)
	p.Eval(`{ const s = document.querySelector(".choices select[name=smooth]"); s.value = "10";
		s.dispatchEvent(new Event("change")); }`)
	smooth := p.Text(inserted)
	replaced()
	if again := p.Text(inserted); smooth == raw || !strings.HasSuffix(p.Text("location.href"), "#smooth=10") ||
		strings.Count(again, "L") != strings.Count(smooth, "L") ||
		p.Text(`document.querySelector(".choices select[name=smooth]").value`) != "10" {
		t.Errorf("smoothing is lost: at %s the line is %.80q, then %.80q", p.Text("location.href"), smooth, again)
	}
	p.Eval(`{ const make = URL.createObjectURL; URL.createObjectURL = (b) => { window.blob = b; return make(b); };
		document.querySelector("#t-math-prioritized-chart-1 .tools button:not([hidden])").click(); }`)
	if text := p.Text("window.blob.text()"); !strings.HasPrefix(text, "curve,versions,uses,low,high\n") ||
		strings.Count(text, "\n") < 3 {
		t.Errorf("the points are %q", text)
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
	for _, width := range []int{390, 800, 1280} {
		p.Size(width, 900)
		for _, scheme := range []string{"light", "dark"} {
			p.Media("screen", scheme)
			p.Move("section.table .tile[id] svg.spark", 0.6, 0.5)
			if *shots != "" {
				p.Shot(filepath.Join(*shots, fmt.Sprintf("dashboard-%d-%s.png", width, scheme)))
			}
		}
		if got := p.Text(`document.documentElement.scrollWidth`); got != fmt.Sprint(width) {
			t.Errorf("the dashboard is %s px wide in %d px", got, width)
		}
	}
	p.Media("print", "light")
	if n := p.Text(`[...document.querySelectorAll(".tools, .choices, .tip")].filter((e) =>
		getComputedStyle(e).display !== "none").length`); n != "0" {
		t.Errorf("%s controls in print", n)
	}
}

// Pages are framed at several widths, and each frame measures its page.
func TestTheDashboardFitsAPhone(t *testing.T) {
	many := busy(302)
	for i := range 9 {
		v := many.Tables[1]
		v.Name = fmt.Sprintf("table-number-%d-with-a-name-of-some-length-%s", i, strings.Repeat("x", 60))
		many.Tables = append(many.Tables, v)
	}
	broken := busy(302)
	broken.Err = fmt.Errorf("journal %s: %s", strings.Repeat("/folder", 40), strings.Repeat("x", 300))
	none := empty()
	none.Tables = nil
	pages := map[string]*watch.Watch{
		"busy": open(t, busy(302)), "empty": open(t, empty()), "none": open(t, none), "many": open(t, many),
		"broken": open(t, broken),
	}
	widths := []int{320, 390, 768, 1400}
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if name, ok := strings.CutPrefix(r.URL.Path, "/page/"); ok {
			if page := pages[name]; page != nil { // else what a page asks for by itself
				r.URL.Path = "/"
				page.ServeHTTP(&framed{ResponseWriter: answer}, r)
			}
			return
		}
		_, _ = io.WriteString(answer, `<!doctype html><body><script>
			function measure(frame) {
				const d = frame.contentDocument, wide = [], right = frame.clientWidth + 0.5;
				for (const x of d.querySelectorAll("body *"))
					if (!x.closest(".scroll, svg") && x.getBoundingClientRect().right > right) wide.push(x.tagName + "." + x.className);
				document.body.insertAdjacentHTML("beforeend", "<p>" + frame.id + ": " + d.documentElement.scrollWidth + " in " +
					frame.clientWidth + ": " + wide.join(",") + ".</p>");
			}</script>`)
		for name := range pages {
			for _, width := range widths {
				_, _ = fmt.Fprintf(answer, `<iframe id="%s" src="/page/%[1]s" onload="measure(this)" style="border:0;width:%dpx;height:2000px">`+
					`</iframe>`, name, width)
			}
		}
	}))
	defer server.Close()
	dom, _ := browsertest.Run(t, "--virtual-time-budget=1500", "--window-size=1500,2000", "--dump-dom",
		server.URL+"/frames")
	found := regexp.MustCompile(`<p>(\w+): (\d+) in (\d+): (.*?)\.</p>`).FindAllStringSubmatch(dom, -1)
	if want := len(pages) * len(widths); len(found) != want {
		t.Fatalf("%d frames of %d were measured:\n%s", len(found), want, dom)
	}
	for _, f := range found {
		if f[2] != f[3] || f[4] != "" {
			t.Errorf("%s: the page is %s px wide in %s px; too wide: %s", f[1], f[2], f[3], f[4])
		}
	}
}

// framed lets a page be framed, as the dashboard's own policy does not.
type framed struct{ http.ResponseWriter }

func (f *framed) Write(b []byte) (int, error) {
	policy := f.Header().Get("Content-Security-Policy")
	f.Header().Set("Content-Security-Policy",
		strings.ReplaceAll(policy, "frame-ancestors 'none'", "frame-ancestors 'self'"))
	return f.ResponseWriter.Write(b)
}

// The screenshots are kept in the folder of -shots, if given.
func TestTheDashboardIsDrawnAtEverySize(t *testing.T) {
	folder := *shots
	if folder == "" {
		folder = t.TempDir()
	}
	_, w := warmed(t)
	bare, err := watch.New(func() service.Observation { return empty() }, watch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		watch *watch.Watch
		size  string
		path  string
		dark  bool
	}{
		"desktop": {w, "1400,2300", "/", false}, "dark": {w, "1400,2300", "/", true},
		"empty": {bare, "1400,1300", "/", false},
		"phone": {w, "1190,1900", "/phone", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/phone" { // a window is never as narrow as a phone
				_, _ = io.WriteString(answer, `<!doctype html><body style="margin:0;display:flex;gap:10px">`)
				for part := range 3 { // beside one another, as it is long
					_, _ = fmt.Fprintf(answer, `<div style="height:1900px;overflow:hidden"><iframe style="border:0;width:390px;height:5700px;margin-top:%dpx" src="/"></iframe></div>`, -1900*part)
				}
				return
			}
			c.watch.ServeHTTP(&framed{ResponseWriter: answer}, r)
		}))
		defer server.Close()
		arguments := []string{"--virtual-time-budget=500", "--window-size=" + c.size,
			"--screenshot=" + filepath.Join(folder, name+".png")}
		if c.dark {
			arguments = append(arguments, "--blink-settings=preferredColorScheme=0")
		}
		browsertest.Run(t, append(arguments, server.URL+c.path)...)
		if colours, size := painted(t, filepath.Join(folder, name+".png")); size != c.size || colours < 4 {
			t.Errorf("%s: the picture is of %s with %d colours: want %s, and more colours than an unstyled page has",
				name, size,
				colours, c.size)
		}
	}
}

// painted returns how many colours cover at least a thousandth of a picture, and its size as Chromium is told it.
func painted(t *testing.T, file string) (colours int, size string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	area := picture.Bounds()
	seen := make(map[color.Color]int)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			seen[picture.At(x, y)]++
		}
	}
	for _, n := range seen {
		if n*1000 >= area.Dx()*area.Dy() {
			colours++
		}
	}
	return colours, fmt.Sprintf("%d,%d", area.Dx(), area.Dy())
}
