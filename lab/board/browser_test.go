package board_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/internal/browsertest"
)

// browse opens an address in a browser for some seconds of virtual time, and returns the page as it is then and the
// lines of its console.
func browse(t *testing.T, address string, seconds int) (dom string, console []string) {
	t.Helper()
	return browsertest.Run(t, "--window-size=1500,2000", fmt.Sprintf("--virtual-time-budget=%d", 1000*seconds),
		"--dump-dom", address)
}

// What a reader does, before the script of the board: open what is folded, tick the first run, and count how often the
// page was replaced.
const reader = `
addEventListener("DOMContentLoaded", () => {
  for (const d of document.querySelectorAll("details")) d.open = true;
  for (const i of document.querySelectorAll("input[value=a]")) i.checked = true;
});
document.addEventListener("reprise:replaced", () => {
  document.body.dataset.replaced = 1 + +(document.body.dataset.replaced || 0);
  document.body.dataset.ticked = document.querySelectorAll("input:checked").length;
});
`

func TestAPageInABrowserGrowsWithoutBeingReloaded(t *testing.T) {
	dir := t.TempDir()
	a := begin(t, dir, "a").train(20, 1).evaluate(20, 0.4)
	b := open(t, dir)
	for _, at := range []string{"/", "/at/a/", "/compare?run=a"} {
		var mu sync.Mutex
		loaded, polled, unchanged := 0, 0, 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.URL.Path == "/board.js":
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = io.WriteString(w, reader)
			case r.URL.Path == "/board.css":
			case r.Header.Get("If-None-Match") == "":
				loaded++
			default:
				if polled++; polled == 2 { // the first finds nothing new
					n := a.updates.Lines() + 7
					a.train(n, 1).evaluate(n, 0.5)
				}
			}
			seen := &counting{ResponseWriter: w}
			b.ServeHTTP(seen, r)
			if seen.code == http.StatusNotModified {
				unchanged++
			}
		}))
		dom, console := browse(t, server.URL+at, 9)
		server.Close()
		if len(console) > 0 {
			t.Errorf("%s: the console says:\n%s", at, strings.Join(console, ""))
		}
		want := fmt.Sprintf("after %d updates", a.updates.Lines())
		if at != "/at/a/" {
			want = "0.500"
		}
		if at == "/" {
			want = fmt.Sprintf("<td>%d</td>", a.updates.Lines())
		}
		if loaded != 1 || polled < 3 || unchanged != polled-1 || !strings.Contains(dom, want) ||
			!strings.Contains(dom, `data-replaced="1"`) {
			t.Errorf("%s: loaded %d times, polled %d times, %d of them in vain; want %q on the page:\n%.2000s",
				at, loaded, polled, unchanged, want, dom[strings.Index(dom, "<body"):])
		}
		if at == "/" && !strings.Contains(dom, `data-ticked="1"`) {
			t.Errorf("the tick is lost:\n%s", dom[strings.Index(dom, "<body"):])
		}
		if closed := strings.Count(dom, "<details>"); at != "/" && closed > 0 {
			t.Errorf("%s: %d parts that were open are closed", at, closed)
		}
	}
}

// counting notes the status code of an answer.
type counting struct {
	http.ResponseWriter
	code int
}

func (c *counting) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

func TestAPageInABrowserSaysWhenItCannotBeRefreshed(t *testing.T) {
	dir := t.TempDir()
	a := begin(t, dir, "a").train(20, 1).evaluate(20, 0.4)
	begin(t, dir, "b").train(20, 1).evaluate(20, 0.4)
	b := open(t, dir)
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("If-None-Match") != "" {
			must(t, os.RemoveAll(a.dir))
		}
		b.ServeHTTP(w, r)
	}))
	defer server.Close()
	dom, _ := browse(t, server.URL+"/at/a/", 5)
	if !strings.Contains(dom, "after 20 updates") || !strings.Contains(dom, "the page cannot be refreshed: ") ||
		!strings.Contains(dom, "no such file or directory") {
		t.Errorf("a run that vanished:\n%.2000s", dom[strings.Index(dom, "<body"):])
	}
}

// Pages are framed at several widths, and each frame measures its page.
func TestTheBoardFitsEveryWidth(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("a-long-name-of-a-folder/", 4) + strings.Repeat("x", 90)
	begin(t, dir, long).train(1_234, 1).evaluate(1_234, 0.5)
	const one, other = "deep/b", "deep/a-run-with-a-name-of-some-length/seed-1"
	begin(t, dir, one).train(20, 1).end("interrupted")
	begin(t, dir, other).train(20, 1)
	begin(t, dir, "broken").train(1, 1)
	must(t, os.WriteFile(filepath.Join(dir, "broken", "eval.jsonl"), []byte("nonsense\n"), 0o644))
	b := open(t, dir)
	pages := []string{"/", "/at/" + long + "/", "/at/broken/", "/compare?run=" + one + "&run=" + other}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/frames" {
			b.ServeHTTP(&framed{w}, r)
			return
		}
		_, _ = io.WriteString(w, `<!doctype html><body><script>
			function measure(frame) {
				const d = frame.contentDocument, wide = [], right = frame.clientWidth + 0.5;
				for (const x of d.querySelectorAll("body *"))
					if (!x.closest(".scroll, svg, pre") && x.getBoundingClientRect().right > right)
						wide.push(x.tagName + "." + x.className);
				document.body.insertAdjacentHTML("beforeend", "<p>" + frame.name + ": " +
					d.documentElement.scrollWidth + " in " + frame.clientWidth + ": " + wide.join(",") + ".</p>");
			}</script>`)
		for i, at := range pages {
			for _, width := range []int{390, 800, 1280} {
				_, _ = fmt.Fprintf(w, `<iframe name="%d" src="%s" onload="measure(this)" `+
					`style="border:0;width:%dpx;height:900px"></iframe>`, i, at, width)
			}
		}
	}))
	defer server.Close()
	dom, _ := browse(t, server.URL+"/frames", 1)
	found := regexp.MustCompile(`<p>(\d+): (\d+) in (\d+): (.*?)\.</p>`).FindAllStringSubmatch(dom, -1)
	if len(found) != 3*len(pages) {
		t.Fatalf("%d frames of %d were measured:\n%s", len(found), 3*len(pages), dom)
	}
	for _, f := range found {
		if f[2] != f[3] || f[4] != "" {
			t.Errorf("page %s: %s px wide in %s px; too wide: %s", f[1], f[2], f[3], f[4])
		}
	}
}

// framed lets a page be framed, as the board's own policy does not.
type framed struct{ http.ResponseWriter }

func (f *framed) WriteHeader(code int) {
	policy := f.Header().Get("Content-Security-Policy")
	f.Header().Set("Content-Security-Policy",
		strings.ReplaceAll(policy, "frame-ancestors 'none'", "frame-ancestors 'self'"))
	f.ResponseWriter.WriteHeader(code)
}

// What a reader types is not lost while the list follows its files, and a form leads back to the page with its notes.
func TestAReaderSearchesAndWritesNotesInABrowser(t *testing.T) {
	p := browsertest.Open(t)
	dir := t.TempDir()
	a := begin(t, dir, "a").train(20, 1).evaluate(20, 0.4)
	begin(t, dir, "b").train(20, 1).evaluate(20, 0.4)
	server := httptest.NewServer(open(t, dir))
	defer server.Close()
	p.Size(1280, 900)
	p.Go(server.URL)
	p.Eval(`document.querySelector("[name=q]").value = "typed"`)
	a.train(30, 1)
	p.Eval(`new Promise((done) => { const ask = window.fetch; let n = 0;
		setTimeout(done, 5000); window.fetch = (...x) => { if (++n > 1) done(); return ask(...x); }; })`)
	if got := p.Text(`document.querySelector("[name=q]").value`); got != "typed" {
		t.Errorf("the search that is being typed became %q", got)
	}
	p.Eval(`document.querySelector("[name=q]").value = "a"`)
	p.Follow(`document.querySelector(".search").requestSubmit()`)
	if n := p.Text(`document.querySelectorAll("tbody tr").length`); n != "1" {
		t.Errorf("%s runs are found, want 1", n)
	}
	p.Go(server.URL + "/at/a/")
	p.Eval(`{ const f = document.querySelector(".notes"); f.open = true;
		f.querySelector("[name=tags]").value = "one two"; f.querySelector("textarea").value = "so far\nso good"; }`)
	p.Follow(`document.querySelector(".notes form").requestSubmit()`)
	if text := p.Text(`document.querySelector(".notes textarea")?.defaultValue`); text != "so far\nso good" {
		t.Errorf("the notes are %q", text)
	}
	p.Go(server.URL)
	if got := p.Text(`[...document.querySelectorAll("a.tag, .remark")].map((e) => e.textContent).join("|")`); got !=
		"one|two|so far …" {
		t.Errorf("the list shows %q", got)
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
}
