package watch_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/watch"
	"github.com/reprise-rl/reprise/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	everything = "all-tables-0123456789"
	codeOnly   = "code-table-0123456789"
	judge      = "judge-0123456789abcd" // of the table "code"
)

// guarded is a watch of an observation, with a token for everything and one for the table "code".
func guarded(t *testing.T, o service.Observation) *watch.Watch {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte("tokens: [{name: all, token: "+everything+", read: ['*']}, {name: code, "+
		"token: "+codeOnly+", read: [code]}, {name: writer, token: writer-0123456789abc, write: ['*']}, {name: judge, "+
		"token: "+judge+", read: [code], label: [code]}]"),
		0o600); err != nil {
		t.Fatal(err)
	}
	policy, err := access.NewPolicy(access.Options{Tokens: path})
	if err != nil {
		t.Fatal(err)
	}
	table, err := replay.New(replay.Options{Capacity: 8})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watch.New((&fake{o: o}).observe, watch.Options{Policy: policy,
		Rollouts: func(string) browse.Rewarder { return browse.Table{Table: table} }})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// open is a watch of an observation that anybody may see.
func open(t *testing.T, o service.Observation) *watch.Watch {
	t.Helper()
	w, err := watch.New((&fake{o: o}).observe, watch.Options{Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func get(w http.Handler, path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if token != "" {
		r.SetBasicAuth("somebody", token)
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	return answer
}

func TestRolloutsAreShownToThoseWhoMayReadTheirTable(t *testing.T) {
	w := guarded(t, busy(302))
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/rollouts?table=code", "", 401}, {"/rollouts/find?table=code", "", 401}, {"/rollouts/one?table=code&id=1", "", 401},
		{"/rollouts/score?table=code&id=1", "", 401}, {"/rollouts/page.css", "", 401},
		{"/rollouts/score?table=math-prioritized&id=1", codeOnly, 403}, {"/rollouts/score?table=code&id=1", codeOnly, 400},
		{"/rollouts/page.js", "", 401}, {"/rollouts/find?table=code", "wrong-token-0123456789", 401},
		{"/rollouts?table=code", codeOnly, 200}, {"/rollouts/page.js", codeOnly, 200},
		{"/rollouts/find?table=code&where=uses+==+0", codeOnly, 200}, {"/rollouts/find?table=code&where=uses", codeOnly, 400},
		{"/rollouts/one?table=code&id=1", codeOnly, 404}, {"/rollouts/find?table=code&limit=-1", codeOnly, 400},
		{"/rollouts/find?table=math-prioritized", codeOnly, 403}, {"/rollouts/one?table=math-prioritized&id=1", codeOnly, 403},
		{"/rollouts/find?table=math-prioritized", everything, 200}, {"/rollouts/find", codeOnly, 403},
	} {
		answer := get(w, c.path, c.token)
		if answer.Code != c.want {
			t.Errorf("%s with token %q: %d %s, want %d", c.path, c.token, answer.Code, answer.Body, c.want)
		}
		if policy := answer.Header().Get("Content-Security-Policy"); c.want == 200 &&
			(!strings.HasPrefix(policy, "default-src 'none'; script-src 'self'") || strings.Contains(policy, "unsafe")) {
			t.Errorf("%s: the content security policy is %q", c.path, policy)
		}
	}
	if page := get(w, "/", codeOnly).Body.String(); !strings.Contains(page, `href="rollouts?table=code"`) ||
		strings.Contains(page, "rollouts?table=math") {
		t.Error("the dashboard does not link to the rollouts of the table that the caller may read, and of it alone")
	}
	if page := get(open(t, busy(302)), "/", "").Body.String(); strings.Contains(page, "rollouts?table=") {
		t.Error("a dashboard without rollouts links to them")
	}
}

func TestRewardsAreTakenOfThoseWhoMayLabelTheTable(t *testing.T) {
	w := guarded(t, busy(302))
	for _, c := range []struct {
		table, token string
		want         int
	}{
		{"code", "", 401}, {"code", codeOnly, 403}, {"code", everything, 403}, {"math-prioritized", judge, 403}, {"", judge, 403},
		{"code", judge, 400}, {"code", "writer-0123456789abc", 400}, // the table, which is empty, has no such id
	} {
		r := httptest.NewRequest(http.MethodPost, "/reward?table="+c.table, strings.NewReader(`{"ids": [1], "rewards": [1]}`))
		r.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, r)
		if answer.Code != c.want {
			t.Errorf("a reward in %q with token %q: %d %s, want %d", c.table, c.token, answer.Code, answer.Body, c.want)
		}
	}
	for token, links := range map[string]bool{judge: true, codeOnly: false} {
		if page := get(w, "/", token).Body.String(); strings.Contains(page, `href="label?table=code"`) != links {
			t.Errorf("with token %q, the dashboard links to the labels: want %v", token, links)
		}
	}
	for path, want := range map[string]int{"/label?table=code": 200, "/label/page.js": 200, "/label/page.css": 200} {
		if answer := get(w, path, judge); answer.Code != want {
			t.Errorf("%s: %d, want %d", path, answer.Code, want)
		}
	}
}

func TestTheESSIsDrawnUpToTheWhole(t *testing.T) {
	o := empty()
	o.Tables[0].ESSByAge = []replay.AgeESS{{First: 0, Last: 0, Tokens: 10, ESS: 0.5}}
	page := get(open(t, o), "/", "").Body.String()
	if !strings.Contains(page, ">100%</text>") || !strings.Contains(page, ` height="101.2" rx="0"/>`) ||
		!strings.Contains(page, ` height="50.6" rx="2"/></g>`) ||
		!strings.Contains(page, "age 0: 50% of the tokens count") {
		t.Errorf("half of the tokens are not drawn half as high as all:\n%s", page)
	}
}

func TestAnAnswerIsMarkedRightFromTheThresholdOn(t *testing.T) {
	o := empty()
	o.Tables[0].Definition.PositiveThreshold = new(float32(1))
	o.Tables[0].Recent = []service.Recent{{ID: 1, Reward: 1, Text: "4"}, {ID: 2, Reward: 0.5, Text: "5"}}
	page := get(open(t, o), "/", "").Body.String()
	for _, want := range []string{`<span class="reward good">&#43;1</span>`,
		`<span class="reward none">&#43;0.5</span>`} {
		if !strings.Contains(page, want) {
			t.Errorf("want %s in the page", want)
		}
	}
}

func TestThePageShowsWhatIsObserved(t *testing.T) {
	page := get(open(t, busy(302)), "/", "").Body.String()
	for _, want := range []string{
		"serving", "1 d 7 h", "math-prioritized", ">38,412<", "of 50,000 rollouts", "1.24 GB of 2 GB", "version 1,843",
		"durable, sync always", "in memory",
		"median 3", "decay τ = 6.2", "no room", ">48,220<", "held now", "open, 512 may start", "2.91 ms", "1.61 GB",
		"gsm8k/train/4711", "&#43;1", "stopped by length",
		`href="#t-code"`, "10.1.0.7:51334", "generators", "1.83 TB", "no name", "reprise 1.2.3",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, never := range []string{"http://", "https://", "<script>alert", "NaN", "ZgotmplZ", "%!"} {
		if got := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""); strings.Contains(got,
			never) { // a name, which nobody fetches
			t.Errorf("the page has %q", never)
		}
	}
	fragment := get(open(t, busy(302)), "/fragment", "").Body.String()
	if !strings.Contains(page, fragment) || strings.Contains(fragment, "<html") {
		t.Error("the fragment is not the page's body")
	}
}

func TestThePageUsesNoOtherHost(t *testing.T) {
	answer := get(open(t, busy(302)), "/", "")
	policy := answer.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "script-src 'sha256-",
		"style-src 'sha256-",
		"frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the content security policy %q lacks %q", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(answer.Body.String(), " style=") ||
		strings.Contains(answer.Body.String(), " onclick=") {
		t.Errorf("the page has inline styles or handlers, or its policy allows them: %q", policy)
	}
}

func TestAnEmptyServiceSaysWhatToDo(t *testing.T) {
	o := empty()
	page := get(open(t, o), "/", "").Body.String()
	for _, want := range []string{"No rollout has been used yet", "The table is empty", "No trainer has reported",
		"None has text", "Nobody is connected", "In memory only", "No rollout has left"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of an empty table has no %q", want)
		}
	}
	o.Tables = nil
	if page := get(open(t, o), "/", "").Body.String(); !strings.Contains(page, "No tables yet") ||
		!strings.Contains(page, "create_table") {
		t.Error("the page of no tables does not say how to make one")
	}
}

func TestAnUnusedTableHasRatesOfZero(t *testing.T) {
	w := open(t, empty())
	for s := range 5 {
		o := empty()
		o.At = epoch().Add(time.Duration(s-10) * time.Second)
		w.Record(o)
	}
	if page := get(w, "/", "").Body.String(); strings.Contains(page, "NaN") || !strings.Contains(page, `data-p="l0"`) {
		t.Error("rates of 0 are not drawn as a line")
	}
}

func TestOneOfManyTablesIsShownInFull(t *testing.T) {
	o := busy(302)
	for i := range 20 {
		v := o.Tables[1]
		v.Name = "table-" + strconv.Itoa(i)
		o.Tables = append(o.Tables, v)
	}
	w := open(t, o)
	for query, want := range map[string]string{"": "t-math-prioritized", "?table=table-7": "t-table-7",
		"?table=none": "t-math-prioritized"} {
		page := get(w, "/"+query, "").Body.String()
		if strings.Count(page, `class="table"`) != 1 || !strings.Contains(page, `id="`+want+`"`) ||
			!strings.Contains(page, `href="?table=table-19"`) {
			t.Errorf("%q shows %d tables in full, want %s alone", query, strings.Count(page, `class="table"`), want)
		}
	}
}

func TestCallersSeeOnlyTablesTheyMayRead(t *testing.T) {
	w := guarded(t, busy(302))
	for _, path := range []string{"/", "/fragment", "/metrics"} {
		if answer := get(w, path, ""); answer.Code != http.StatusUnauthorized ||
			strings.Contains(answer.Body.String(), "math") {
			t.Errorf("%s without a token: %d", path, answer.Code)
		}
		all := get(w, path, everything).Body.String()
		if !strings.Contains(all, "math-prioritized") || !strings.Contains(all, "code") {
			t.Errorf("%s: a token for everything does not show everything", path)
		}
		some := get(w, path, codeOnly).Body.String()
		if strings.Contains(some, "math-prioritized") || !strings.Contains(some, "code") {
			t.Errorf("%s: a token for code shows another table, or not its own", path)
		}
		if none := get(w, path, "writer-0123456789abc").Body.String(); strings.Contains(none, "math-prioritized") ||
			strings.Contains(none, "Name: \"code\"") {
			t.Errorf("%s: a token that reads nothing sees tables", path)
		}
	}
}

func TestAttackNoPageNamesWhatTheCallerMayNotRead(t *testing.T) {
	o := busy(302)
	o.Err = errors.New(`table "math-prioritized": journal: /data/math.journal: no space left`)
	o.Tables[0].Journal.Err = errors.New("/data/math.journal: no space left")
	o.Connections = append(o.Connections, service.Connection{Peer: "10.1.0.9:1", Caller: "code", Since: epoch()})
	w := guarded(t, o)
	// Of the others' connections a reader of code sees the trainer's, which works on code.
	others := []string{"math-prioritized", "/data/", "no space", "generators", "10.1.0.21", "2001:db8", "unix 4"}
	for _, path := range []string{"/", "/fragment", "/?table=math-prioritized", "/metrics", "/healthz"} {
		page := get(w, path, codeOnly).Body.String()
		for _, name := range others {
			if strings.Contains(page, name) {
				t.Errorf("%s tells a reader of code of %q", path, name)
			}
		}
		if page := get(w, path, "writer-0123456789abc").Body.String(); strings.Contains(page, "trainer") {
			t.Errorf("%s tells one who reads nothing of other callers", path)
		}
	}
	page := get(w, "/", codeOnly).Body.String()
	for _, want := range []string{"10.1.0.7:51334", "trainer", "10.1.0.9:1", "Not shown: 3 of others",
		"outside the tables that you may read"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of a reader of code lacks %q", want)
		}
	}
	all := get(w, "/", everything).Body.String()
	for _, want := range append(others, "10.1.0.9:1") {
		if !strings.Contains(all, want) || strings.Contains(all, "Not shown") {
			t.Errorf("the page of one who reads everything lacks %q", want)
		}
	}
	o.Tables[1].Journal = &service.JournalState{Err: errors.New("disk of code")}
	if page := get(guarded(t, o), "/healthz", codeOnly).Body.String(); !strings.Contains(page, "disk of code") {
		t.Errorf("a reader of code is not told what is wrong with code: %s", page)
	}
}

func TestHealthReportsTheService(t *testing.T) {
	well, stopping, broken, full := busy(1), busy(1), busy(1), busy(1)
	stopping.Stopping = true
	broken.Err = errors.New("journal of math: no space left")
	full.Err = wire.Errorf(wire.DiskFull, "disk of /data: it is full")
	for _, c := range []struct {
		o      service.Observation
		token  string
		code   int
		status string
		reason string
	}{
		{well, "", http.StatusOK, "ok", ""},
		{stopping, everything, http.StatusServiceUnavailable, "stopping", "the service is stopping"},
		{broken, everything, http.StatusServiceUnavailable, "failed", "journal of math: no space left"},
		{broken, "", http.StatusServiceUnavailable, "failed", ""},
		{full, codeOnly, http.StatusServiceUnavailable, "failed", "the disk is full"},
	} {
		answer := get(guarded(t, c.o), "/healthz", c.token)
		var h watch.Health
		if err := json.Unmarshal(answer.Body.Bytes(), &h); err != nil {
			t.Fatal(err)
		}
		if answer.Code != c.code || h.Status != c.status || h.Reason != c.reason || h.Tables != 2 {
			t.Errorf("%d %+v: want %d %s %q", answer.Code, h, c.code, c.status, c.reason)
		}
	}
	broken.Tables[0].Journal.Err = broken.Err
	page := get(open(t, broken), "/", "").Body.String()
	if !strings.Contains(page, "not healthy") || strings.Count(page, "no space left") != 2 {
		t.Error("the page does not show what is wrong, of the service and of the table")
	}
}

func TestOtherPathsAndMethodsAreNotServed(t *testing.T) {
	w := open(t, empty())
	if answer := get(w, "/etc/passwd", ""); answer.Code != http.StatusNotFound {
		t.Errorf("another path: %d", answer.Code)
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil))
	if answer.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", answer.Code)
	}
}

func TestRequestsShareAnObservationAndRunMakesOneEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		w, err := watch.New(func() service.Observation {
			asked.Add(1)
			o := empty()
			o.At = time.Now()
			o.Tables[0].Counters.InsertedRows = uint64(asked.Load()) * 100
			return o
		}, watch.Options{Interval: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			get(w, "/", "")
			get(w, "/metrics", "")
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("ten answers at one moment asked %d times", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.Run(ctx) }()
		time.Sleep(20*time.Second + time.Millisecond)
		synctest.Wait()
		if n := asked.Load(); n != 11 {
			t.Errorf("20 seconds asked %d times, want 11", n)
		}
		if page := get(w, "/", "").Body.String(); !strings.Contains(page, "<b>50</b> <span>rollouts/s</span>") {
			t.Error("100 rollouts every two seconds are not shown as 50 per second")
		}
		cancel()
		<-ended
	})
}

func TestObservingTakesASmallShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		w, err := watch.New(func() service.Observation {
			asked.Add(1)
			time.Sleep(100 * time.Millisecond) // the bubble's clock: what a large table costs
			return empty()
		}, watch.Options{Interval: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.Run(ctx) }()
		time.Sleep(time.Minute)
		if n := asked.Load(); n != 6 {
			t.Errorf("a minute of watching looked %d times for 0.1 s, want a hundredth of the time", n)
		}
		cancel()
		<-ended
		asked.Store(0)
		for range 600 {
			get(w, "/", "")
			time.Sleep(100 * time.Millisecond)
		}
		if n := asked.Load(); n < 20 || n > 31 {
			t.Errorf("a minute of pages looked %d times for 0.1 s, want at most a twentieth of the time", n)
		}
	})
}

func TestConcurrentRequests(t *testing.T) {
	f := &fake{o: busy(2)}
	w, err := watch.New(f.observe, watch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 9)
	go func() { w.Run(ctx); ended <- struct{}{} }()
	for range 8 {
		go func() {
			for range 10 {
				for _, path := range []string{"/", "/metrics", "/healthz", "/fragment"} {
					if code := get(w, path, "").Code; code != http.StatusOK {
						t.Errorf("%s: %d", path, code)
					}
					w.Forget()
				}
			}
			ended <- struct{}{}
		}()
	}
	for range 8 {
		<-ended
	}
	cancel()
	<-ended
}

func TestThePageShowsUnusualValues(t *testing.T) {
	o := busy(302)
	v := &o.Tables[0]
	v.Limiter.Min, v.Limiter.Max = 5, 5
	v.ByAge, v.ESSByAge = v.ByAge[:1], v.ESSByAge[:0]
	v.InsertLatency = service.Latency{}
	v.Definition.Capacity, v.Definition.CapacityBytes = 1, 1
	v.Stats.UsesPresent = rollout.Histogram{}
	v.Stats.SinceLastUse.Add(1 << 50)
	v.Name = `"><b>odd</b>`
	v.Recent[0].PromptID = "<i>prompt</i>"
	page := get(open(t, o), "/", "").Body.String()
	for _, never := range []string{"NaN", "Inf", "<b>odd", "<i>prompt"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
}

func TestASlowObservationDelaysTheNextBySecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		w, err := watch.New(func() service.Observation {
			if asked.Add(1) == 1 {
				time.Sleep(4 * time.Second) // a machine that was busy with something else
			}
			return empty()
		}, watch.Options{Interval: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		get(w, "/", "")
		time.Sleep(5 * time.Second)
		if get(w, "/", ""); asked.Load() != 2 {
			t.Error("the page shows for more than five seconds what took four to look at")
		}
		w.Forget()
		asked.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.Run(ctx) }()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("four seconds of looking and 16 after them looked %d times, want 2", n)
		}
		cancel()
		<-ended
	})
}

// FuzzRequests sends any request, and puts any text where users' text is shown: the page's elements stay those of the
// page, and nothing is answered but pages, refusals and redirects.
func FuzzRequests(f *testing.F) {
	f.Add([]byte("GET /?table=math HTTP/1.1\r\nHost: x\r\n\r\n"), "a prompt", "some text")
	f.Add([]byte("GET /fragment?table=%3Cscript%3E HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\n\r\n"), "<b>",
		"</pre><script>alert(1)</script>")
	f.Add([]byte("POST /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n"+
		"Accept: application/openmetrics-text\r\n\r\n"), "\"", "\x00\xff")
	f.Add([]byte("GET //healthz/../metrics?a=b;c=d HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\nRange: bytes=0-1\r\n\r\n"),
		"'", "&amp;")
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
		case http.StatusOK, http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
			http.StatusNotFound,
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
