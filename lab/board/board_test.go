package board_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/board"
	"github.com/reprise-rl/reprise/lab/results"
)

// written is a run that the test writes as reprise train does.
type written struct {
	t       testing.TB
	dir     string
	updates *results.Log[results.Update]
	timings *results.Log[results.Timing]
	evals   *results.Log[results.Eval]
}

// begin writes the folder of a run that has just begun.
func begin(t testing.TB, path ...string) *written {
	t.Helper()
	w := &written{t: t, dir: filepath.Join(path...)}
	must(t, os.MkdirAll(w.dir, 0o755))
	must(t, results.WriteConfig(w.dir, []byte("name: addition\nseed: 1\nevaluate:\n  every: 20.0\n  target: 0.65\n")))
	var err error
	w.updates, err = results.CreateLog[results.Update](filepath.Join(w.dir, results.MetricsFile))
	must(t, err)
	w.timings, err = results.CreateLog[results.Timing](filepath.Join(w.dir, results.TimingFile))
	must(t, err)
	w.evals, err = results.CreateLog[results.Eval](filepath.Join(w.dir, results.EvalFile))
	must(t, err)
	t.Cleanup(func() { w.updates.Close(); w.timings.Close(); w.evals.Close() })
	w.evaluate(0, 0.3)
	return w
}

// train appends updates up to a number, each of the given seconds.
func (w *written) train(to int, seconds float64) *written {
	w.t.Helper()
	for u := w.updates.Lines() + 1; u <= to; u++ {
		x := float64(u)
		must(w.t, w.updates.Append(results.Update{Update: u, Version: u, Clock: x, Compute: 1000 * x,
			ComputeBusy: 1000 * x, ComputeAll: 1000 * x, Reward: results.Num(1 - 1/x),
			Loss: results.Num(1 / x), Entropy: results.Num(1 / x)}))
		must(w.t, w.timings.Append(results.Timing{Update: u, Elapsed: seconds * x}))
	}
	return w
}

func (w *written) evaluate(update int, pass1 float64) *written {
	w.t.Helper()
	x := 1000 * float64(update)
	must(w.t, w.evals.Append(results.Eval{Update: update, Version: update, Grid: x, Compute: x, ComputeBusy: x,
		ComputeAll: x, Clock: float64(update), Problems: 400, Pass1: pass1}))
	return w
}

func (w *written) end(why string) *written {
	w.t.Helper()
	n := w.updates.Lines()
	must(w.t, results.WriteSummary(w.dir, &results.Summary{Name: "addition", Task: "arithmetic", Seed: 1, Ended: why,
		Updates: n, Version: n, Target: results.Num(0.65)}))
	return w
}

// age makes all files of a folder as old as d.
func (w *written) age(d time.Duration) *written {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	must(w.t, err)
	for _, e := range entries {
		must(w.t, os.Chtimes(filepath.Join(w.dir, e.Name()), time.Time{}, time.Now().Add(-d)))
	}
	return w
}

// main returns the part of a page that results are in.
func main(answer *httptest.ResponseRecorder) string {
	text := answer.Body.String()
	return text[max(0, strings.Index(text, "<main>")):]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *board.Board {
	t.Helper()
	b, err := board.Open(dir, board.Tables{})
	must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// ask asks a board for an address, with an entity tag if there is one.
func ask(b *board.Board, at, tag string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://localhost:6007"+at, nil)
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	answer := httptest.NewRecorder()
	b.ServeHTTP(answer, r)
	return answer
}

var rowsInText = regexp.MustCompile(`<tr><td>(?:<input[^>]*>)?</td>(.*?)</tr>`)

// listed returns the rows of a list in words, by folder.
func listed(t *testing.T, b *board.Board, at string) (rows map[string]string, order []string) {
	t.Helper()
	answer := ask(b, at, "")
	if answer.Code != http.StatusOK {
		t.Fatalf("%s: %d\n%s", at, answer.Code, answer.Body)
	}
	rows = make(map[string]string)
	tags := regexp.MustCompile(`<[^>]*>`)
	for _, m := range rowsInText.FindAllStringSubmatch(answer.Body.String(), -1) {
		cells := strings.Fields(tags.ReplaceAllString(strings.NewReplacer("<wbr>", "", "<", " <").Replace(m[1]), ""))
		rows[cells[0]] = strings.Join(cells[1:], " ")
		order = append(order, cells[0])
	}
	return rows, order
}

func TestTheListTellsWhatAFolderHolds(t *testing.T) {
	dir := t.TempDir()
	begin(t, dir, "fresh").train(12, 1)
	begin(t, dir, "deep/er/finished").train(1234, 1).evaluate(1234, 0.7).end("budget").age(time.Hour)
	begin(t, dir, "stopped").train(3, 1).end("interrupted")
	begin(t, dir, "resumed").train(3, 1).end("interrupted").train(4, 1)
	begin(t, dir, "killed").train(3, 1).age(6 * time.Minute)
	begin(t, dir, "large").train(3, 100).age(10 * time.Minute)
	begin(t, dir, "broken").train(3, 1)
	must(t, os.WriteFile(filepath.Join(dir, "broken", results.EvalFile), []byte("{}\nnonsense\n"), 0o644))
	begin(t, dir, "torn").train(3, 1)
	appendText(t, filepath.Join(dir, "torn", results.MetricsFile), `{"update":4,"vers`)
	for arm, states := range map[string][]string{"baseline": {"budget", ""}, "replay": {"budget"}} {
		for i, ended := range states {
			w := begin(t, dir, "both", arm, fmt.Sprint("seed-", i+1)).train(5, 1)
			if ended != "" {
				w.end(ended)
			}
		}
	}
	must(t, results.WriteConfig(filepath.Join(dir, "both"), []byte("seed: 1\n")))
	begin(t, dir, "ended/replay/seed-1").train(5, 1).end("budget")
	must(t, results.WriteCompare(filepath.Join(dir, "ended"), &results.Compare{Format: results.CompareFormat, Target: 0.65}))
	must(t, os.MkdirAll(filepath.Join(dir, "study"), 0o755))
	must(t, results.WriteStudy(filepath.Join(dir, "study"), &results.Study{Sheet: results.Sheet{Title: "Mu"}}))
	// Nothing of these is a run.
	begin(t, dir, ".hidden")
	begin(t, dir, "fresh/checkpoint")
	must(t, os.MkdirAll(filepath.Join(dir, "thesis"), 0o755))
	must(t, results.WriteConfig(filepath.Join(dir, "thesis"), []byte("title: thesis\n")))

	b := open(t, dir)
	rows, _ := listed(t, b, "/")
	for folder, want := range map[string]string{
		"fresh": "run running 12 0.300 0.65", "deep/er/finished": "run finished 1,234 0.700 0.65",
		"stopped": "run interrupted 3 0.300 0.65", "resumed": "run running 4 0.300 0.65",
		"killed": "run stale 3 0.300", "large": "run running 3 0.300", "torn": "run running 3 0.300",
		"broken": "broken/eval.jsonl: last line: invalid character",
		"both":   "comparison running – – 0.65", "both/baseline/seed-1": "run finished 5",
		"both/baseline/seed-2": "run running", "both/replay/seed-1": "run finished",
		"ended": "comparison finished – – 0.65", "ended/replay/seed-1": "run finished", "study": "study finished",
	} {
		if !strings.HasPrefix(rows[folder], want) {
			t.Errorf("%s: %q, want it to begin with %q", folder, rows[folder], want)
		}
		delete(rows, folder)
	}
	if len(rows) > 0 {
		t.Errorf("listed besides: %v", rows)
	}
	if text := main(ask(b, "/", "")); !strings.Contains(text, "12 runs, 5 of them running; 2 comparisons, 1 study") {
		t.Errorf("the counts are wrong:\n%s", text)
	}
	for at, first := range map[string]string{"/?sort=folder": "both", "/?sort=updates": "deep/er/finished",
		"/?sort=pass": "deep/er/finished", "/?sort=state": "both"} {
		if _, order := listed(t, b, at); order[0] != first {
			t.Errorf("%s begins with %v, want %s", at, order, first)
		}
	}
	if code := ask(b, "/?sort=colour", "").Code; code != http.StatusBadRequest {
		t.Errorf("sorted by no column: %d", code)
	}
}

func TestTheTargetOfARunIsThatOfItsEvaluations(t *testing.T) {
	dir := t.TempDir()
	for name, config := range map[string]string{
		"elsewhere": "evaluate:\n  every: 5.0\nother:\n  target: 0.3\n",
		"none":      "evaluate:\n  target: 0.0\n",
		"damaged":   "evaluate:\n  target: 65%\n",
	} {
		must(t, results.WriteConfig(begin(t, dir, name).train(3, 1).dir, []byte(config)))
	}
	rows, _ := listed(t, open(t, dir), "/")
	for name, want := range map[string]string{"elsewhere": "run running 3 0.300 –", "none": "run running 3 0.300 –",
		"damaged": "config.yaml: evaluate.target: &#34;65%&#34;: want"} {
		if !strings.HasPrefix(rows[name], want) {
			t.Errorf("%s: %q, want it to begin with %q", name, rows[name], want)
		}
	}
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

func TestTheListFollowsTheFiles(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	empty := ask(b, "/", "")
	if !strings.Contains(empty.Body.String(), "no run here yet") {
		t.Errorf("of an empty folder:\n%s", empty.Body)
	}
	w := begin(t, dir, "a").train(1, 1)
	first := ask(b, "/", empty.Header().Get("ETag"))
	if first.Code != http.StatusOK {
		t.Fatalf("with a run: %d", first.Code)
	}
	if again := ask(b, "/", first.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("unchanged: %d with %d bytes", again.Code, again.Body.Len())
	}
	w.train(2, 1)
	if rows, _ := listed(t, b, "/"); !strings.HasPrefix(rows["a"], "run running 2 ") {
		t.Errorf("a second update: %v", rows)
	}
	must(t, os.RemoveAll(w.dir))
	if rows, _ := listed(t, b, "/"); len(rows) != 0 {
		t.Errorf("a run that vanished: %v", rows)
	}
}

func TestALongListIsBoundAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		begin(t, dir, fmt.Sprint("run-", i))
	}
	b := open(t, dir)
	for most, want := range map[int]int{5: 5, 6: 6, 7: 6} {
		b.Bound(most)
		rows, _ := listed(t, b, "/")
		said := strings.Contains(main(ask(b, "/", "")), fmt.Sprintf("The list ends here, after %d rows", most))
		if len(rows) != want || said != (most < 6) {
			t.Errorf("a list of at most %d: %d rows, says that it ends: %v", most, len(rows), said)
		}
	}
}

func TestAPageGrowsWithItsRun(t *testing.T) {
	dir := t.TempDir()
	w := begin(t, dir, "a").train(20, 1).evaluate(20, 0.4)
	b := open(t, dir)
	first := ask(b, "/at/a/", "")
	if first.Code != http.StatusOK || !strings.Contains(first.Body.String(), "after 20 updates") {
		t.Fatalf("%d\n%.900s", first.Code, main(first))
	}
	tag := first.Header().Get("ETag")
	if again := ask(b, "/at/a/", tag); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("unchanged: %d with %d bytes", again.Code, again.Body.Len())
	}
	w.train(40, 1).evaluate(40, 0.5)
	grown := ask(b, "/at/a/", tag)
	if grown.Code != http.StatusOK || !strings.Contains(grown.Body.String(), "after 40 updates") {
		t.Errorf("grown: %d\n%.900s", grown.Code, main(grown))
	}
	if grown.Header().Get("ETag") == tag {
		t.Error("another page has the same tag")
	}
	w.end("budget")
	if ended := ask(b, "/at/a/", ""); !strings.Contains(ended.Body.String(), "<h1>addition</h1>") {
		t.Errorf("ended:\n%.900s", main(ended))
	}
}

func TestAPageIsDrawnOncePerChange(t *testing.T) {
	dir := t.TempDir()
	begin(t, dir, "a").train(20, 1)
	b := open(t, dir)
	first := ask(b, "/at/a/", "")
	path := filepath.Join(dir, "a", results.MetricsFile)
	info, err := os.Stat(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte(strings.Repeat("x", int(info.Size())-1)+"\n"), 0o644))
	must(t, os.Chtimes(path, time.Time{}, info.ModTime())) // so that only who reads the file sees the change
	if again := ask(b, "/at/a/", ""); again.Body.String() != first.Body.String() {
		t.Errorf("the page was drawn again: %d\n%.900s", again.Code, main(again))
	}
	must(t, os.Chtimes(path, time.Time{}, info.ModTime().Add(time.Second)))
	if again := ask(b, "/at/a/", ""); again.Code != http.StatusInternalServerError ||
		!strings.Contains(again.Body.String(), "metrics.jsonl: line 1") || again.Header().Get("ETag") != "" {
		t.Errorf("with a broken line: %d\n%.900s", again.Code, main(again))
	}
}

func TestAHalfWrittenLineIsLeftForLater(t *testing.T) {
	dir := t.TempDir()
	w := begin(t, dir, "a").train(3, 1)
	b := open(t, dir)
	path := filepath.Join(dir, "a", results.EvalFile)
	appendText(t, path, `{"update":3,"version":3,"grid":3000,"compute":3000,"compute_busy":3000,`)
	got := ask(b, "/at/a/", "")
	if got.Code != http.StatusOK || strings.Contains(got.Body.String(), "after 3 updates") {
		t.Errorf("half a line: %d\n%.900s", got.Code, main(got))
	}
	appendText(t, path, `"compute_all":3000,"clock":3,"problems":400,"pass1":0.4,"samples":0,"mean_length":null,`+
		`"truncated":null}`+"\n")
	got = ask(b, "/at/a/", "")
	if got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "after 3 updates") {
		t.Errorf("the whole line: %d\n%.900s", got.Code, main(got))
	}
	must(t, os.RemoveAll(w.dir))
	got = ask(b, "/at/a/", "")
	if got.Code != http.StatusNotFound || !strings.Contains(got.Body.String(), "no such file") {
		t.Errorf("a run that vanished: %d\n%.900s", got.Code, main(got))
	}
}

// Runs come and go while they are read; every answer is a whole page.
func TestFoldersMayVanishWhileTheyAreRead(t *testing.T) {
	tests.LongShared(t)
	dir := t.TempDir()
	begin(t, dir, "stays").train(3, 1)
	b := open(t, dir)
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for _, at := range []string{"/", "/at/goes/", "/compare?run=stays&run=goes", "/at/both/"} {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := ask(b, at, "")
				if !strings.HasSuffix(got.Body.String(), "</html>\n") || at == "/" && got.Code != 200 {
					t.Errorf("%s: %d\n%s", at, got.Code, got.Body)
					return
				}
			}
		})
	}
	for range 8 {
		for _, path := range []string{"goes", "both/replay/seed-1"} {
			begin(t, dir, path).train(5, 1).end("budget")
			must(t, os.RemoveAll(filepath.Join(dir, path)))
		}
	}
	close(stop)
	reading.Wait()
}

func TestRunsAreComparedSideBySide(t *testing.T) {
	dir := t.TempDir()
	for i := range 9 {
		begin(t, dir, fmt.Sprint("run-", i)).train(20, 1).evaluate(20, 0.4)
	}
	begin(t, dir, "both/replay/seed-1")
	w := begin(t, dir, "odd [1] ?#&%2f").train(20, 1).evaluate(20, 0.4)
	b := open(t, dir)
	pair := "/compare?run=run-3&run=odd+%5B1%5D+%3F%23%26%252f"
	got := ask(b, pair, "")
	text := got.Body.String()
	if got.Code != http.StatusOK || !strings.Contains(text, "Runs side by side") || !strings.Contains(text, "run-3") ||
		!strings.Contains(text, "odd [1] ?#&amp;%2f") {
		t.Fatalf("%d\n%.900s", got.Code, main(got))
	}
	w.train(30, 1)
	if grown := ask(b, pair, got.Header().Get("ETag")); grown.Code != http.StatusOK {
		t.Errorf("one of the two has grown: %d", grown.Code)
	}
	if link := `href="/at/odd%20%5B1%5D%20%3F%23&amp;%252f/"`; !strings.Contains(ask(b, "/", "").Body.String(), link) {
		t.Errorf("the list has no %s", link)
	}
	if got := ask(b, "/at/odd%20%5B1%5D%20%3F%23&%252f/", ""); got.Code != http.StatusOK {
		t.Errorf("the page of the folder with an odd name: %d\n%.900s", got.Code, main(got))
	}
	for _, name := range []string{"x/y/baseline/seed-1", "x/y/replay/seed-1", "x/z"} {
		begin(t, dir, name).train(20, 1)
	}
	for at, want := range map[string]string{"run=x/y/baseline/seed-1&run=x/y/replay/seed-1": ">baseline/seed-1<",
		"run=x/y/baseline/seed-1&run=x/z": ">y/baseline/seed-1<", "run=run-0&run=x/z": ">x/z<"} {
		if got := ask(b, "/compare?"+at, ""); !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s: the page has no %s:\n%.3000s", at, want, main(got))
		}
	}
	eight := "/compare?run=run-0"
	for i := 1; i < 8; i++ {
		eight += fmt.Sprint("&run=run-", i)
	}
	for at, want := range map[string]int{eight: 200, "/compare?run=run-1": 200, eight + "&run=run-8": 400,
		"/compare": 400, "/compare?run=run-1&run=run-1": 400, "/compare?run=none": 404, "/compare?run=both": 500} {
		if got := ask(b, at, ""); got.Code != want {
			t.Errorf("%s: %d, want %d\n%.900s", at, got.Code, want, main(got))
		}
	}
}

func TestStudiesAndComparisonsHaveTheirPages(t *testing.T) {
	dir := t.TempDir()
	w := begin(t, dir, "[both]/baseline/seed-1").train(20, 1).evaluate(20, 0.4)
	begin(t, dir, "[both]/replay/seed-1").train(20, 1).evaluate(20, 0.45)
	must(t, os.MkdirAll(filepath.Join(dir, "study"), 0o755))
	must(t, results.WriteStudy(filepath.Join(dir, "study"), &results.Study{Sheet: results.Sheet{Title: "Mu"},
		Arms: []results.StudyArm{{Name: "a", Folders: []string{"../runs/x"}}}}))
	b := open(t, dir)
	study := ask(b, "/at/study", "")
	if at := study.Header().Get("Location"); study.Code != http.StatusFound || at != "/at/study/" {
		t.Errorf("without the slash at its end: %d to %s", study.Code, at)
	}
	if study = ask(b, "/at/study/", ""); study.Code != http.StatusOK ||
		!strings.Contains(study.Body.String(), `<a href="./../runs/x/">`) {
		t.Errorf("the study: %d\n%.900s", study.Code, main(study))
	}
	both := ask(b, "/at/%5Bboth%5D/", "")
	if both.Code != http.StatusOK || !strings.Contains(both.Body.String(), "The comparison has not ended") {
		t.Errorf("the comparison: %d\n%.900s", both.Code, main(both))
	}
	w.train(21, 1)
	if grown := ask(b, "/at/%5Bboth%5D/", both.Header().Get("ETag")); grown.Code != http.StatusOK {
		t.Errorf("one of its runs has grown: %d", grown.Code)
	}
	// A board may be opened on a run.
	if run := ask(open(t, w.dir), "/at/", ""); run.Code != http.StatusOK ||
		!strings.Contains(run.Body.String(), "<b>seed-1</b>") {
		t.Errorf("the board's own folder: %d\n%.900s", run.Code, main(run))
	}
}

func TestAttackNothingOutsideTheFolderIsShown(t *testing.T) {
	const secret = "the secret"
	top := t.TempDir()
	dir, outside := filepath.Join(top, "runs"), filepath.Join(top, "outside")
	begin(t, dir, "good").train(3, 1)
	begin(t, outside).train(3, 1)
	must(t, results.WriteConfig(outside, []byte("name: "+secret+"\n")))
	for link, to := range map[string]string{
		"link": outside, "relative": "../outside", "both/baseline": top, "inside": "good",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755))
		must(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	begin(t, dir, "stolen").train(3, 1)
	must(t, os.Remove(filepath.Join(dir, "stolen", results.ConfigFile)))
	must(t, os.Symlink(filepath.Join(outside, results.ConfigFile), filepath.Join(dir, "stolen", results.ConfigFile)))
	begin(t, dir, "pipe")
	must(t, os.Remove(filepath.Join(dir, "pipe", results.EvalFile)))
	must(t, os.Mkdir(filepath.Join(dir, "pipe", results.EvalFile), 0o755))
	must(t, os.Rename(outside, filepath.Join(top, "seed-1"))) // as an arm of both
	must(t, os.Symlink("seed-1", outside))

	b := open(t, dir)
	for _, folder := range []string{
		"../outside", "%2e%2e/outside", "..%2foutside", "%2e%2e%2foutside", "good/../../outside",
		"good%2f..%2f..%2foutside", outside, "%2f" + outside, "/" + outside, "link", "relative", "link/../outside",
		"stolen", "both", "pipe", "good%00", "good/./", "good//", "..", "%2e%2e", "...",
		"%5c..%5coutside", "%ff", "C:%5c", "good/config.yaml",
	} {
		for _, at := range []string{"/at/" + folder + "/", "/at/" + folder, "/compare?run=" + folder,
			"/compare?run=good&run=" + folder} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
			var err error
			r.URL, err = url.ParseRequestURI(at) // as the server does
			must(t, err)
			answer := httptest.NewRecorder()
			b.ServeHTTP(answer, r)
			if answer.Code == http.StatusOK || strings.Contains(answer.Body.String(), secret) {
				t.Errorf("%s: %d\n%.300s", at, answer.Code, main(answer))
			}
		}
	}
	if got := ask(b, "/at/inside/", ""); got.Code != http.StatusOK {
		t.Errorf("a link within the folder: %d\n%.900s", got.Code, main(got))
	}
	rows, _ := listed(t, b, "/")
	if text := fmt.Sprint(rows); len(rows) != 3 || strings.Contains(text, secret) ||
		!strings.Contains(rows["stolen"], "path escapes") || !strings.Contains(rows["pipe"], "no regular file") {
		t.Errorf("the list shows %s", text)
	}
}

func TestAttackPagesAreServedToThisMachineOnly(t *testing.T) {
	b := open(t, t.TempDir())
	for host, want := range map[string]int{"localhost:6007": 200, "127.0.0.1:6007": 200, "[::1]:6007": 200,
		"": 421, "evil.example": 421, "evil.example:6007": 421, "192.0.2.7:6007": 421, "localhost.evil.example": 421} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		answer := httptest.NewRecorder()
		if b.ServeHTTP(answer, r); answer.Code != want {
			t.Errorf("Host %q: %d, want %d", host, answer.Code, want)
		}
	}
}

func TestABoardIsOnlyRead(t *testing.T) {
	dir := t.TempDir()
	begin(t, dir, "a").train(3, 1)
	b := open(t, dir)
	for _, at := range []string{"/", "/at/a/", "/compare?run=a", "/board.js"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			answer := httptest.NewRecorder()
			b.ServeHTTP(answer, httptest.NewRequest(method, "http://localhost"+at, nil))
			if answer.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, at, answer.Code)
			}
		}
	}
	server := httptest.NewServer(b)
	defer server.Close()
	answer, err := http.Head(server.URL + "/at/a/")
	must(t, err)
	body, err := io.ReadAll(answer.Body)
	if answer.Body.Close(); err != nil || len(body) > 0 || answer.StatusCode != 200 ||
		answer.Header.Get("ETag") == "" ||
		!strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
		t.Errorf("HEAD: %d %v, %d bytes, %v", answer.StatusCode, answer.Header, len(body), err)
	}
	if _, err := board.Open(filepath.Join(dir, "none"), board.Tables{}); err == nil ||
		!strings.Contains(err.Error(), "want a folder") {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// A board lists a folder of 1,000 runs of 100 updates, at first and again.
func BenchmarkList(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		w := begin(b, dir, fmt.Sprint(i/100), fmt.Sprint("run-", i)).train(100, 1).end("budget")
		w.updates.Close()
		w.timings.Close()
		w.evals.Close()
	}
	for _, name := range []string{"first", "again"} {
		b.Run(name, func(b *testing.B) {
			shown := open(b, dir)
			for b.Loop() {
				if name == "first" {
					shown = open(b, dir)
				}
				if ask(shown, "/", "").Code != http.StatusOK {
					b.Fatal("no list")
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/list")
		})
	}
}
