package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/browsertest"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	browsed = flag.Int("browsed", 800, "rollouts in the service of TestThePageOfALiveTable…; make bench-browse has "+
		"100,000, and then checks how long the page takes")
	browseShots = flag.String("browse-shots", "", "folder for screenshots of that test's pages")
)

// What the page may take with 100,000 rollouts, in seconds, in the median.
const (
	mostFirstRows = 0.3
	mostFilter    = 0.5
	allBrowsed    = 100_000
)

// fillBrowsed inserts n rollouts of 512 tokens in groups of 8, with reasoning of a few lines, of versions 0 to 19. The
// first group gets by far the largest priorities; then it is drawn, reported and evicted.
func fillBrowsed(t *testing.T, s *served, n int) {
	t.Helper()
	table := s.dial(s.at.GRPC, client.Options{}).Table("lab")
	random := rollout.Stream(1, "browse test", 0)
	group := func(number int, v rollout.Version) (g rollout.Group) {
		a, b := 10+random.IntN(90), 10+random.IntN(90)
		for range 8 {
			c := rollout.Completion{Version: v}
			said := a + b - random.IntN(2)
			if said == a+b {
				c.Reward = 1
			}
			for range 496 {
				c.Tokens = append(c.Tokens, random.Int32N(32_000))
				c.Logprobs = append(c.Logprobs, -float32(random.ExpFloat64()/2))
			}
			r := rollout.New(fmt.Sprintf("sums/train/%d", number%(n/40)), make([]int32, 16), c)
			r.Text = fmt.Sprintf("We add %d and %d: first the tens, then the ones.\n%s\nThe answer is %d.", a, b,
				strings.Repeat("We carry one and go on with the next digit. ", 1+random.IntN(30)), said)
			g.Rollouts = append(g.Rollouts, r)
		}
		return g
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	insert := func(first, last int, v rollout.Version) {
		for from := first; from < last; from += 32 {
			var groups []rollout.Group
			for i := from; i < min(from+32, last); i++ {
				groups = append(groups, group(i, v))
			}
			_, err := table.Insert(t.Context(), groups...)
			must(err)
		}
	}
	const versions = 20
	for v := range versions {
		must(table.Advance(t.Context(), rollout.Version(v)))
		insert(n/8*v/versions, n/8*(v+1)/versions, rollout.Version(v))
	}
	ids, large := make([]rollout.ID, 8), slices.Repeat([]float64{1e9}, 8)
	for i := range ids {
		ids[i] = rollout.ID(i + 1)
	}
	must(table.Update(t.Context(), ids, large))
	_, err := table.Sample(t.Context(), rollout.Request{Size: 64})
	must(err)
	must(table.Report(t.Context(), rollout.Feedback{ID: 1, Staleness: 19, Advantage: rollout.Measured(0.8),
		GradNorm: rollout.Measured(0.1), Tokens: 496, RatioSum: 521, RatioSquares: 560}))
	insert(n/8, n/8+1, versions-1)
}

// timed has a page note when its first row is there, and measures the time from a change of the form to its rows.
const timed = `
	new MutationObserver((_, o) => {
		if (document.querySelector("#rows tbody tr")) { o.disconnect(); requestAnimationFrame(() => { window.firstRow = performance.now() / 1000; }); }
	}).observe(document, { subtree: true, childList: true });
	window.filter = (values) => new Promise((done) => {
		const form = document.forms[0], start = performance.now();
		for (const input of form.querySelectorAll("input")) input.value = values[input.name] || "";
		new MutationObserver((_, o) => { o.disconnect(); requestAnimationFrame(() => done((performance.now() - start) / 1000)); })
			.observe(document.querySelector("#count"), { childList: true });
		form.requestSubmit();
	});`

// The page of a service in a process of its own, with a browser in another, as people have it.
func TestThePageOfALiveTableIsQuickAndTellsALifeWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a service, and starts a browser")
	}
	p := browsertest.Open(t)
	n := *browsed
	s := startServe(t, "--table", fmt.Sprintf("name=lab,capacity=%d,sampler=prioritized,history=%d", n, n+8))
	began := time.Now()
	fillBrowsed(t, s, n)
	t.Logf("%d rollouts of 512 tokens inserted in %.1f s", n+8, time.Since(began).Seconds())
	p.Call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": timed}, nil)
	p.Size(1280, 900)
	page := s.at.HTTP + "/rollouts?table=lab"
	var first, filters, texts, lives []float64
	eval := func(expression string) float64 {
		t.Helper()
		seconds, ok := p.Eval(expression).(float64)
		if !ok {
			t.Fatalf("%s is no number", expression)
		}
		return seconds
	}
	for range 7 {
		p.Go(page)
		first = append(first, eval(`new Promise((done) => { const look = () => window.firstRow ? done(window.firstRow) :
			requestAnimationFrame(look); look(); })`))
	}
	found := `document.querySelector("#count").textContent`
	for _, c := range []struct {
		where, order, text string
		into               *[]float64
	}{
		{"reward < 0.5 && age > 10 && uses == 0", "", "", &filters}, {"advantage > 0", "-mean_logprob", "", &filters},
		{"group_std > 0 || truncated", "age", "", &filters}, {"uses > 0", "", "", &filters},
		{"length > 100 && version >= 7", "mean_logprob * length", "", &filters}, {"", "", "We add 42", &texts},
		{"reward > 0", "", "THE ANSWER is 100.", &texts},
	} {
		*c.into = append(*c.into, eval(fmt.Sprintf(`filter({ where: %q, order: %q, text: %q })`, c.where, c.order, c.text)))
		if said := p.Text(found); !strings.Contains(said, " found, table at version 19") {
			t.Errorf("%+v: the page says %q", c, said)
		}
	}
	for range 3 {
		p.Go(page + "&id=1")
		lives = append(lives, eval(`new Promise((done) => { const look = () => document.querySelector(".life") ?
			done(performance.now() / 1000) : requestAnimationFrame(look); look(); })`))
	}
	told := p.Text(`[...document.querySelectorAll(".life li > :last-child")].map((e) => e.textContent).join("\n")`)
	for _, want := range []string{"inserted, priority", "drawn in batch ", "weight ", "staleness 19, used by",
		"mean ratio 1.05", "left: the table was full"} {
		if !strings.Contains(told, want) {
			t.Errorf("the life of rollout 1 lacks %q:\n%s", want, told)
		}
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
	if *browseShots != "" {
		shootBrowsed(t, p, page)
	}
	for _, m := range []struct {
		what string
		took []float64
		most float64 // of the median; 0: no goal
	}{
		{"first rows", first, mostFirstRows}, {"filter", filters, mostFilter}, {"text search", texts, 0}, {"a life", lives, 0},
	} {
		median := slices.Sorted(slices.Values(m.took))[len(m.took)/2]
		t.Logf("%-12s median %.2f s, each %.2f", m.what, median, m.took)
		if n >= allBrowsed && m.most > 0 && median > m.most {
			t.Errorf("%s took %.2f s in the median, want %.1f at most", m.what, median, m.most)
		}
	}
}

// shootBrowsed keeps pictures of the pages in the folder of -browse-shots, and wants each to fit.
func shootBrowsed(t *testing.T, p *browsertest.Page, page string) {
	t.Helper()
	for name, at := range map[string]string{"list": "&where=advantage+%3E+0+%26%26+age+%3C+9&order=-mean_logprob", "one": "&id=79"} {
		for _, width := range []int{390, 800, 1280} {
			p.Size(width, 900)
			for _, scheme := range []string{"light", "dark"} {
				p.Media("screen", scheme)
				p.Go(page + at)
				p.Eval(`new Promise((done) => { const look = () => document.querySelector("#rows tbody tr, #one .facts") ? done() :
					requestAnimationFrame(look); look(); })`)
				if wide := p.Text(`document.documentElement.scrollWidth`); wide != fmt.Sprint(width) {
					t.Errorf("%s: the page is %s px wide in %d px", name, wide, width)
				}
				p.Shot(filepath.Join(*browseShots, fmt.Sprintf("live-%s-%d-%s.png", name, width, scheme)))
			}
		}
	}
}
