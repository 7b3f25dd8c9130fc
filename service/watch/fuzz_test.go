package watch_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/service/watch"
)

// FuzzRequests sends any request, and puts any text where users' text is shown: the page's elements stay those of the page, and nothing is
// answered but pages, refusals and redirects.
func FuzzRequests(f *testing.F) {
	f.Add([]byte("GET /?table=math HTTP/1.1\r\nHost: x\r\n\r\n"), "a prompt", "some text")
	f.Add([]byte("GET /fragment?table=%3Cscript%3E HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\n\r\n"), "<b>", "</pre><script>alert(1)</script>")
	f.Add([]byte("POST /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nAccept: application/openmetrics-text\r\n\r\n"), "\"", "\x00\xff")
	f.Add([]byte("GET //healthz/../metrics?a=b;c=d HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\nRange: bytes=0-1\r\n\r\n"), "'", "&amp;")
	f.Fuzz(func(t *testing.T, raw []byte, prompt, text string) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // the HTTP server refuses it
		}
		o := busy(100)
		if len(o.Tables) == 0 || len(o.Tables[0].Recent) == 0 {
			t.Fatal("the observation shows no recent rollout")
		}
		shown := &o.Tables[0].Recent[0]
		shown.PromptID, shown.Text = prompt, text
		w, err := watch.New((&fake{o: o}).observe, watch.Options{Version: "1"})
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, r)
		switch answer.Code {
		case http.StatusOK, http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusNotFound,
			http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusServiceUnavailable, http.StatusUnauthorized:
		default:
			t.Errorf("%s %s answered %d: %.200s", r.Method, r.URL, answer.Code, answer.Body)
		}
		page := httptest.NewRecorder()
		w.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
		if got, want := skeleton(page.Body.String()), skeleton(plainPage(t)); got != want {
			t.Errorf("with prompt %q and text %q the page has other elements:\n%s\nwant\n%s", prompt, text, got, want)
		}
		if !utf8.Valid(page.Body.Bytes()) {
			t.Errorf("with prompt %q and text %q the page is not UTF-8", prompt, text)
		}
	})
}

// plainPage is the page with a harmless prompt and text.
func plainPage(t *testing.T) string {
	t.Helper()
	o := busy(100)
	o.Tables[0].Recent[0].PromptID, o.Tables[0].Recent[0].Text = "prompt", "text"
	w, err := watch.New((&fake{o: o}).observe, watch.Options{Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	page := httptest.NewRecorder()
	w.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
	return page.Body.String()
}

// skeleton is what stands between < and >, values of attributes left out.
func skeleton(page string) string {
	var b strings.Builder
	for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(page, -1) {
		b.WriteString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(tag, `""`))
		b.WriteString("\n")
	}
	return b.String()
}
