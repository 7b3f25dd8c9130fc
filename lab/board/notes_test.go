package board_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/board"
	"github.com/reprise-rl/reprise/lab/results"
)

// field is the value of a field of the form on a page.
func field(t *testing.T, b *board.Board, at, name string) string {
	t.Helper()
	page := ask(b, at, "").Body.String()
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("%s has no field %s", at, name)
	}
	return html.UnescapeString(m[1])
}

// post sends the form of notes with some headers.
func post(b *board.Board, folder, tags, note, was string, headers ...string) *httptest.ResponseRecorder {
	form := url.Values{"folder": {folder}, "tags": {tags}, "note": {note}, "was": {was}}.Encode()
	r := httptest.NewRequest(http.MethodPost, "http://localhost:6007/notes", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	b.ServeHTTP(answer, r)
	return answer
}

func TestNotesAreKeptInTheRunsFolderAndShownEscaped(t *testing.T) {
	dir := t.TempDir()
	begin(t, dir, "deep/a").train(5, 1).age(time.Hour)
	b := open(t, dir)
	was := field(t, b, "/at/deep/a/", "was")
	answer := post(b, "deep/a", "sweep <i>", "first </textarea><script>alert(1)</script>\nsecond", was,
		"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:6007")
	if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "/at/deep/a/" {
		t.Fatalf("%d to %q: %s", answer.Code, answer.Header().Get("Location"), answer.Body)
	}
	text, err := os.ReadFile(filepath.Join(dir, "deep/a", results.NotesFile))
	must(t, err)
	if n, err := results.ParseNotes(text); err != nil || strings.Join(n.Tags, " ") != "sweep <i>" ||
		n.Note != "first </textarea><script>alert(1)</script>\nsecond" {
		t.Errorf("the file holds %s: %v", text, err)
	}
	page, list := ask(b, "/at/deep/a/", "").Body.String(), ask(b, "/", "").Body.String()
	for what, text := range map[string]string{"page": page, "list": list} {
		if strings.Contains(text, "alert(1)</script>") || strings.Contains(text, "<i>") {
			t.Errorf("the %s shows a note as HTML", what)
		}
		if !strings.Contains(text, "first &lt;/textarea&gt;") || !strings.Contains(text, "sweep") {
			t.Errorf("the %s does not show the notes", what)
		}
	}
	if rows, _ := listed(t, b, "/"); !strings.Contains(rows["deep/a"], "stale") {
		t.Errorf("a note makes a run look alive: %q", rows["deep/a"])
	}
	if code := post(b, "deep/a", " ", "", field(t, b, "/at/deep/a/", "was")).Code; code != http.StatusSeeOther {
		t.Errorf("empty notes: %d", code)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "deep/a", results.NotesFile+"*")); len(left) > 0 {
		t.Errorf("empty notes leave %v", left)
	}
}

func TestNotesOfOthersAreRefused(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	begin(t, dir, "a").train(5, 1)
	must(t, os.Mkdir(filepath.Join(dir, "plain"), 0o755))
	begin(t, outside, "b").train(5, 1)
	must(t, os.Symlink(filepath.Join(outside, "b"), filepath.Join(dir, "link")))
	b := open(t, dir)
	was := field(t, b, "/at/a/", "was")
	for name, headers := range map[string][]string{
		"another site": {"Sec-Fetch-Site", "cross-site"}, "another port": {"Sec-Fetch-Site", "same-site"},
		"an origin": {"Origin", "http://evil.example"}, "an origin of this machine": {"Origin", "http://localhost:8000"},
	} {
		if code := post(b, "a", "x", "", was, headers...).Code; code != http.StatusForbidden {
			t.Errorf("a post from %s: %d, want 403", name, code)
		}
	}
	for folder, want := range map[string]int{"../x": 400, "": 400, "plain": 404, "none": 404, "link": 404} {
		if code := post(b, folder, "x", "", "none").Code; code != want {
			t.Errorf("folder %q: %d, want %d", folder, code, want)
		}
	}
	if code := post(b, "a", "x", strings.Repeat("n", 10_001), was).Code; code != http.StatusBadRequest {
		t.Errorf("a long note: %d, want 400", code)
	}
	if code := post(b, "a", "x", strings.Repeat("n", 200<<10), was).Code; code != http.StatusBadRequest {
		t.Errorf("a very long note: %d, want 400", code)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "*", "notes*")); len(found) > 0 {
		t.Errorf("written all the same: %v", found)
	}
	if found, _ := filepath.Glob(filepath.Join(outside, "*", "notes*")); len(found) > 0 {
		t.Errorf("written outside: %v", found)
	}
}

func TestNotesThatChangedMeanwhileAreNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	begin(t, dir, "a").train(5, 1)
	b := open(t, dir)
	was := field(t, b, "/at/a/", "was")
	if code := post(b, "a", "", "mine", was).Code; code != http.StatusSeeOther {
		t.Fatalf("the first: %d", code)
	}
	if code := post(b, "a", "", "yours", was).Code; code != http.StatusConflict {
		t.Errorf("the second from the same page: %d, want 409", code)
	}
	if page := ask(b, "/at/a/", "").Body.String(); !strings.Contains(page, "mine") {
		t.Error("the first note is lost")
	}
	must(t, os.WriteFile(filepath.Join(dir, "a", results.NotesFile), []byte("nonsense"), 0o644))
	answer := ask(b, "/at/a/", "")
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "a: notes.json: ") {
		t.Errorf("with broken notes the run's page answers %d and does not name them", answer.Code)
	}
}

func TestTheListIsSearchedAndHasColumnsOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"small": "replay:\n  capacity: 60\n  sampler: fifo\n", "large": "replay:\n  capacity: 9600\n  sampler: unseen\n",
		"middle": "replay:\n  capacity: 512\n  sampler: fifo\n", "without": "seed: 1\n",
	} {
		w := begin(t, dir, name).train(3, 1)
		must(t, results.WriteConfig(w.dir, []byte("seed: 1\n"+text)))
	}
	b := open(t, dir)
	if code := post(b, "large", "keep", "Overnight run", "none").Code; code != http.StatusSeeOther {
		t.Fatalf("notes: %d", code)
	}
	for q, want := range map[string]string{
		"": "large middle small without", "MID": "middle", "tag:keep": "large", "overnight": "large",
		"sampler=fifo": "middle small", "replay.sampler=fifo capacity=60.0": "small", "running large": "large",
		"tag:kee": "", "sampler=fif": "", "amp=fifo": "",
	} {
		_, order := listed(t, b, "/?"+url.Values{"q": {q}, "sort": {"folder"}}.Encode())
		if got := strings.Join(order, " "); got != want {
			t.Errorf("%q finds %q, want %q", q, got, want)
		}
	}
	for sort, want := range map[string]string{"replay.capacity": "small middle large without",
		"-replay.capacity": "without large middle small", "-folder": "without small middle large"} {
		rows, order := listed(t, b, "/?col=replay.capacity&sort="+sort)
		if got := strings.Join(order, " "); got != want {
			t.Errorf("sorted by %s: %q, want %q", sort, got, want)
		}
		if !strings.Contains(rows["large"], "0.300 – 9600 20") || !strings.Contains(rows["without"], "0.300 – – 20") {
			t.Errorf("the column of capacities: %q and %q", rows["large"], rows["without"])
		}
	}
	page := ask(b, "/?col=replay.capacity&q=sampler%3Dfifo", "").Body.String() +
		ask(b, "/?q=fifo", "").Body.String()
	for _, want := range []string{`value="replay.capacity" checked`, `value="replay.sampler">`, `value="fifo"`,
		`href="?col=replay.capacity&amp;q=sampler%3Dfifo&amp;sort=folder"`, "No row has all of these words"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, `value="seed"`) {
		t.Error("a setting that all runs share is offered as a column")
	}
}

func TestTwoRunsShowWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	for name, rate := range map[string]string{"a": "0.001", "b": "0.002"} {
		w := begin(t, dir, name).train(20, 1).evaluate(20, 0.4)
		must(t, results.WriteConfig(w.dir, []byte("seed: 1\nlearner:\n  learning_rate: "+rate+"\n  clip: 0.2\n")))
	}
	page := ask(open(t, dir), "/compare?run=a&run=b", "").Body.String()
	at, end := strings.Index(page, `id="differences"`), strings.Index(page, `id="costs"`)
	if at < 0 || end < at || !strings.Contains(page[at:end], "learner.learning_rate") ||
		!strings.Contains(page[at:end], "0.002") || strings.Contains(page[at:end], "learner.clip") {
		t.Errorf("the page of two runs does not list how their configurations differ")
	}
}
