package browse_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/browsertest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
)

var shots = flag.String("shots", "", "folder for screenshots of the page")

const (
	hostile = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>\x1b[31mred\x1b[0m\r\n" +
		"\u202etxet desrever\u202c \u05e9\u05dc\u05d5\u05dd\u200b\x00 end"
	tooLong = 1 << 20 // of a line
)

// filled has 50 groups of 6 rollouts of 20 prompts, and a hostile group at the end: ids 301 to 303.
func filled(t *testing.T) *replay.Table {
	t.Helper()
	table, err := replay.New(replay.Options{Capacity: 512, Sampler: replay.Prioritized, History: 512})
	if err != nil {
		t.Fatal(err)
	}
	random := rollout.Stream(1, "browse", 0)
	add := func(group int, prompt string, texts ...string) {
		g, v := rollout.Group{}, rollout.Version(group/5)
		if err := table.Advance(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for k, text := range texts {
			c := rollout.Completion{Version: v, Reward: float32(random.IntN(2))}
			for range 40 {
				c.Tokens = append(c.Tokens, int32(random.IntN(30_000)))
				c.Logprobs = append(c.Logprobs, -float32(random.ExpFloat64()))
			}
			r := rollout.New(prompt, []int32{101, 102, 103, 104}, c)
			if r.Text = text; k == 0 {
				r.Turns = []rollout.Turn{{Start: 4, End: 20, Reward: 0.5}, {Start: 24, End: 44, Reward: 1, Done: true}}
				for i := 20; i < 24; i++ { // what a tool answered
					r.Mask[i], r.Logprobs[i], r.Versions[i] = 0, 0, rollout.NoVersion
				}
			}
			g.Rollouts = append(g.Rollouts, r)
		}
		if _, err := table.Insert(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		texts := make([]string, 6)
		for k := range texts {
			texts[k] = fmt.Sprintf("We add %d and %d: the ones first, then the tens, and carry.\nThe answer is %d.", 10+i, 30+k,
				40+i+k)
		}
		add(i, fmt.Sprintf("sums/train/%d", i%20), texts...)
	}
	add(50, "hostile\u202e\x1b[2J<b>", hostile, strings.Repeat("x", tooLong), "")
	if _, err := table.Sample(t.Context(), rollout.Request{Size: 32}); err != nil {
		t.Fatal(err)
	}
	return table
}

func serve(t *testing.T, table browse.Table) (address string) {
	t.Helper()
	server := httptest.NewServer(browse.Handler(func(*http.Request) (browse.Source, error) {
		return table, nil
	}, func(error) int { return http.StatusInternalServerError }))
	t.Cleanup(server.Close)
	return server.URL + "/rollouts?table=sums"
}

// until waits for a condition of the page, which changes by answers of the server.
func until(p *browsertest.Page, condition string) {
	p.Eval(`new Promise((done) => { const look = () => ` + condition + ` ? done() : requestAnimationFrame(look); look(); })`)
}

func TestTheListFiltersSortsAndPagesByItsAddress(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: filled(t)})
	ids := `[...document.querySelectorAll("#rows tbody th")].map((e) => e.textContent).join(" ")`
	p.Size(1280, 900)
	p.Go(address)
	until(p, `document.querySelectorAll("#rows tbody tr").length === 100`)
	if got := p.Text(ids); !strings.HasPrefix(got, "303 302 301 300 ") || !strings.HasSuffix(got, " 204") {
		t.Errorf("the first page has rollouts %s, want 303 down to 204", got)
	}
	p.Eval(`document.querySelector("#after").click()`)
	until(p, `document.querySelector("#rows tbody th").textContent === "203"`)
	if at := p.Text("location.search"); at != "?table=sums&skip=100" {
		t.Errorf("the second page is at %s", at)
	}
	fill := func(name, value string) {
		p.Eval(fmt.Sprintf(`document.forms[0].elements[%q].value = %q; document.forms[0].requestSubmit()`, name, value))
	}
	fill("where", "age == 10 and reward >= 0")
	until(p, `document.querySelector("#count").textContent.startsWith("30 rollouts found")`)
	fill("text", "ANSWER is 42.")
	until(p, `document.querySelector("#count").textContent.startsWith("3 rollouts found")`)
	fill("where", "rewrd > 0")
	until(p, `!document.querySelector("#wrong").hidden`)
	if said := p.Text(`document.querySelector("#wrong").textContent`); !strings.Contains(said, "use reward") {
		t.Errorf("a bad expression says %q, want the remedy", said)
	}
	if p.Text(`document.querySelector("[aria-invalid=true]").name`) != "where" {
		t.Error("the wrong expression is not marked")
	}
	p.Eval(`history.back()`)
	until(p, `document.querySelector("#wrong").hidden && document.querySelector("#rows tbody tr")`)

	p.Go(address + "&order=-age")
	until(p, `document.querySelectorAll("#rows tbody tr").length === 100`)
	p.Eval(`[...document.querySelectorAll("thead button")].find((b) => b.textContent.startsWith("age")).click()`)
	until(p, `document.querySelector("#rows tbody th").textContent === "30"`)
	p.Eval(`document.activeElement.blur()`)
	for _, key := range []string{"j", "j", "k", "Enter"} {
		p.Key(key)
	}
	until(p, `document.querySelector("#one h2")?.textContent === "Rollout 29"`)
	p.Key("j")
	until(p, `document.querySelector("#one h2").textContent === "Rollout 28"`)
	if n := p.Text(`document.querySelector(".mates").children.length`); n != "6" {
		t.Errorf("%s rollouts of its group, want 6", n)
	}
	p.Eval(`document.querySelector(".tokens").focus()`)
	p.Key("ArrowRight")
	if said := p.Text(`document.querySelector(".tools output").textContent`); !strings.HasPrefix(said, "token 0: id 101, not the policy's") {
		t.Errorf("the first token says %q", said)
	}
	p.Key("Escape")
	until(p, `!document.querySelector("#list").hidden`)
	if at := p.Text("location.search"); strings.Contains(at, "id=") || !strings.Contains(at, "order=age") {
		t.Errorf("back in the list the address is %s", at)
	}
	p.Key("/")
	if p.Text(`document.activeElement.name`) != "text" {
		t.Error("/ does not go to the text search")
	}
	for _, e := range p.Errors {
		if !strings.Contains(e, "400") { // of the bad expression, which a browser tells its console
			t.Errorf("the page says %.400s", e)
		}
	}
}

func TestHostileTextIsShownHarmlessly(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: filled(t)})
	p.Size(390, 800)
	for _, at := range []string{address, address + "&id=301", address + "&id=302"} {
		p.Go(at)
		until(p, `document.querySelector("#rows tbody tr, #one .facts")`)
		shown := p.Text(`document.body.textContent`)
		if strings.ContainsAny(shown, "\x1b\x00\u202e\u202c\u200b") {
			t.Errorf("%s: what cannot be seen is part of the page", at)
		}
		for _, want := range []string{"<script>window.hurt = 1</script>", "<img src=x", "␛[31mred", "U+202E", "U+200B", "␀"} {
			if at != address+"&id=302" && !strings.Contains(shown, want) {
				t.Errorf("%s: the page has no %q", at, want)
			}
		}
		if p.Eval(`window.hurt === undefined && !document.querySelector("main script, main img, main b")`) != true {
			t.Errorf("%s: a text became part of the page", at)
		}
		if wide := p.Text(`document.documentElement.scrollWidth`); wide != "390" {
			t.Errorf("%s: the page is %s px wide in 390 px", at, wide)
		}
	}
	length := `document.querySelectorAll("#one .box .said")[1].textContent.length` // the first is the prompt's
	if n := p.Eval(length).(float64); n > 5000 {
		t.Errorf("%g characters of a line of 1 MB are shown at first", n)
	}
	for range 3 {
		p.Eval(`document.querySelector("#one .box .more").click()`)
	}
	if n := p.Eval(length); n != float64(tooLong) {
		t.Errorf("all of the line is %v characters, want %d", n, tooLong)
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
}

// lived has a rollout that has left after all that can happen to one, and one that is there; their callers are hostile.
func lived(t *testing.T) *replay.Table {
	t.Helper()
	at := time.Date(2026, 11, 25, 22, 0, 0, 0, time.UTC)
	table, err := replay.New(replay.Options{Capacity: 1, Sampler: replay.Prioritized, History: 2,
		Clock: func() time.Time { at = at.Add(time.Second); return at }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := replay.WithCaller(t.Context(), "<b>\u202eworker")
	insert(t, table, "sum", 1)
	for range 20 {
		if _, err := table.Sample(ctx, rollout.Request{Size: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Report(ctx, rollout.Feedback{ID: 1, Advantage: rollout.Measured(0.5), Tokens: 2, RatioSum: 3,
		RatioSquares: 5}); err != nil {
		t.Fatal(err)
	}
	if err := table.Advance(ctx, 7); err != nil {
		t.Fatal(err)
	}
	insert(t, table, "sum", 1)
	return table
}

func TestTheLifeOfARolloutIsToldAlsoOnceItHasLeft(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: lived(t)})
	lines := `[...document.querySelectorAll(".life li")].map((e) =>
		[...e.children].slice(1).map((c) => c.textContent).join(" ") || e.textContent).join("\n")`
	for _, width := range []int{320, 1280} {
		p.Size(width, 900)
		p.Go(address + "&id=1")
		until(p, `document.querySelector("#one .facts")`)
		told := strings.Split(p.Text(lines), "\n")
		want := map[int]string{0: "version 0 inserted, priority 1.00e-6", 1: "7 events between are forgotten",
			2:  "version 0 drawn in batch 8 2 times, probability 1, weight 1, staleness 0, used by <b>U+202Eworker",
			15: "version 0 reported, priority 0.5, |advantage| 0.5, mean ratio 1.5 by <b>U+202Eworker",
			16: "version 7 left: the table was full"}
		for i, line := range want {
			if i >= len(told) || told[i] != line {
				t.Errorf("line %d of the life is not %q:\n%s", i, line, strings.Join(told, "\n"))
			}
		}
		if left := p.Text(`document.querySelector("#one").textContent`); !strings.Contains(left, "It has left the table") ||
			p.Text(`document.querySelectorAll("#one b, #one .tokens").length`) != "0" {
			t.Errorf("a rollout that has left is shown as %s", left)
		}
		if *shots != "" {
			p.Shot(filepath.Join(*shots, fmt.Sprintf("rollouts-left-%d.png", width)))
		}
		if wide := p.Text(`document.documentElement.scrollWidth`); wide != fmt.Sprint(width) {
			t.Errorf("the page is %s px wide in %d px", wide, width)
		}
		p.Go(address + "&id=2")
		until(p, `document.querySelector("#one .facts")`)
		if told := p.Text(lines); told != "version 7 inserted, priority 1.00e-6" ||
			p.Text(`document.querySelectorAll(".tokens").length`) != "1" {
			t.Errorf("the life of one that is there: %s", told)
		}
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
}

// spelt says the ids of tokens.
type spelt struct{}

func (spelt) Decode(ids []int32) string { return fmt.Sprintf("the tokens %v\u202e", ids) }

func (spelt) DecodedBytes(ids []int32) int64 { return 16 + 12*int64(len(ids)) }

func TestWhatCameWithoutTextIsDecoded(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: lived(t), Decoder: spelt{}})
	p.Size(800, 900)
	p.Go(address)
	until(p, `document.querySelector("#rows tbody tr")`)
	if said := p.Text(`document.querySelector("#rows tbody td:last-child").textContent`); said != "the tokens [2]U+202E" {
		t.Errorf("the row says %q", said)
	}
	p.Go(address + "&id=2")
	until(p, `document.querySelector("#one .facts")`)
	if said := p.Text(`[...document.querySelectorAll("#one h2, #one .box .said")].slice(1, 6).map((e) => e.textContent)
		.join("; ")`); said != "Prompt; sum; the tokens [1]U+202E; Text, decoded; the tokens [2]U+202E" {
		t.Errorf("the rollout says %q", said)
	}
	if *shots != "" {
		p.Shot(filepath.Join(*shots, "rollouts-decoded.png"))
	}
}

// halved gives a token half the probability that it had, the first of the policy's double.
type halved struct{}

func (halved) Score(_ context.Context, r *rollout.Rollout) ([]float32, string, error) {
	if r.Text == hostile {
		return nil, "", errors.New("the model has 16 positions: <b>shorten it</b>")
	}
	logprobs := slices.Clone(r.Logprobs)
	for i := range logprobs {
		logprobs[i] -= math.Ln2
		if i == 4 {
			logprobs[i] += 2 * math.Ln2
		}
	}
	return logprobs, "a test's policy", nil
}

func TestTokensAreColouredByTheRatioToThePolicy(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: filled(t), Decoder: spelt{}, Policy: halved{}})
	p.Size(1280, 900)
	p.Go(address + "&id=121&colour=ratio+to+the+policy")
	said := `document.querySelector(".tools output")?.textContent`
	until(p, said+`.startsWith("By")`)
	if got := p.Text(said); got != "By a test's policy: mean ratio 0.5417, 36 of 36 tokens outside 0.8 to 1.2" {
		t.Errorf("the page says %q", got)
	}
	look := func(token int) string {
		return p.Text(fmt.Sprintf(`(() => { const c = document.querySelector(".tokens [data-i='%d']");
			c.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
			return c.classList[0] + " " + c.style.getPropertyValue("--heat") + ": " + %s; })()`, token, said))
	}
	for token, want := range map[int][]string{
		3: {"given 0%: token 3: id 104, “the tokens [104]U+202E”, not the policy's"},
		4: {"high 70%: token 4: ", ", ratio 2 (log-prob now "}, 5: {"low 70%: token 5: ", ", ratio 0.5 (log-prob now "},
	} {
		got := look(token)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("token %d says %q, want %q", token, got, part)
			}
		}
	}
	p.Go(address + "&id=301")
	until(p, `document.querySelector("#one .tokens")`)
	p.Eval(`(() => { const s = document.querySelector(".tools select"); s.value = "ratio to the policy"; s.onchange(); })()`)
	until(p, said+`.includes("16 positions")`)
	if p.Text(`document.querySelectorAll(".tools b").length`) != "0" {
		t.Error("an error became part of the page")
	}
	p.Go(serve(t, browse.Table{Table: filled(t)}) + "&id=121&colour=ratio+to+the+policy")
	until(p, `document.querySelector("#one .tokens")`)
	if got := p.Text(`document.querySelector(".tools select").value`); got != "log-prob" {
		t.Errorf("without a policy tokens are coloured by %s", got)
	}
}

func TestAPromptsAnswersAreShownByVersion(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: filled(t)})
	p.Size(1280, 900)
	p.Go(address + "&id=121")
	until(p, `document.querySelector(".rewards")`)
	if got := p.Text(`[...document.querySelectorAll(".version summary")].map((e) => e.textContent.split(",")[0]).join("; ")`); got !=
		"Version 8: 6 rollouts; Version 0: 6 rollouts" {
		t.Errorf("the versions are %s", got)
	}
	dots := `document.querySelectorAll(".rewards %s").length`
	for kind, want := range map[string]string{"circle": "18", ".own": "5", ".self": "1"} {
		if got := p.Text(fmt.Sprintf(dots, kind)); got != want {
			t.Errorf("%s: %s of the chart, want %s", kind, got, want)
		}
	}
	ids := `[...document.querySelectorAll("#rows tbody th")].map((e) => e.textContent).join(" ")`
	for _, c := range []struct{ link, only, ids string }{
		{"List them", "Only group 21 ×", "126 125 124 123 122 121"},
		{"List all", "Only prompt sums/train/0 ×", "246 245 244 243 242 241 126 125 124 123 122 121 6 5 4 3 2 1"},
	} {
		p.Go(address + "&id=121")
		until(p, `document.querySelector(".rewards")`)
		p.Eval(fmt.Sprintf(`[...document.querySelectorAll("#one a")].find((a) => a.textContent === %q).click()`, c.link))
		until(p, `document.querySelector("#count").textContent.includes("found")`)
		if only, got := p.Text(`document.querySelector("#only").textContent`), p.Text(ids); only != c.only || got != c.ids {
			t.Errorf("%s: %q has %s, want %q with %s", c.link, only, got, c.only, c.ids)
		}
		p.Eval(`document.querySelector("#only button").click()`)
		until(p, `document.querySelector("#only").hidden && document.querySelectorAll("#rows tbody tr").length === 100`)
	}
}

// written writes a file with the rollouts that a query finds, and returns its address.
func written(t *testing.T, table browse.Table, q replay.Query) string {
	t.Helper()
	page, err := table.Rollouts(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	f := browse.File{Of: "<i>a run</i>", Version: page.Version, Matched: page.Matched}
	for _, row := range page.Rows {
		shown, err := table.Rollout(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		scored := browse.Scored{Policy: "a test's policy", Logprobs: slices.Clone(shown.Logprobs)}
		fits, err := f.Add(browse.Sampled{Rollout: shown, Scores: &scored}, 200<<10)
		if big := row.ID == 302; err != nil || fits == big {
			t.Fatalf("rollout %d fits: %t, %v", row.ID, fits, err)
		}
	}
	path := filepath.Join(t.TempDir(), "rollouts.html")
	var text bytes.Buffer
	if err := f.Write(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if text.Len() > 300<<10 {
		t.Errorf("the file has %d bytes", text.Len())
	}
	return "file://" + path
}

func TestAFileShowsItsRolloutsWithoutATable(t *testing.T) {
	p := browsertest.Open(t)
	p.Size(390, 900)
	p.Go(written(t, browse.Table{Table: filled(t)}, replay.Query{Limit: 12}))
	ids := `[...document.querySelectorAll("#rows tbody th")].map((e) => e.textContent).join(" ")`
	until(p, `document.querySelector("#rows tbody tr")`)
	if got := p.Text(ids); got != "303 301 300 299 298 297 296 295 294 293 292" {
		t.Errorf("the file lists %s", got)
	}
	if got := p.Text(`document.querySelector("#of").textContent + ": " + document.querySelector("#count").textContent`); got !=
		"<i>a run</i>: 11 rollouts in this file, of 303, table at version 10" {
		t.Errorf("the file says %q", got)
	}
	if *shots != "" {
		p.Shot(filepath.Join(*shots, "rollouts-file.png"))
	}
	p.Eval(`document.forms[0].elements.text.value = "ANSWER is 94."; document.forms[0].requestSubmit()`)
	until(p, `document.querySelector("#count").textContent.startsWith("1 rollout ")`)
	p.Eval(`document.forms[0].elements.text.value = ""; document.forms[0].requestSubmit()`)
	until(p, `document.querySelectorAll("#rows tbody tr").length === 11`)
	p.Eval(`[...document.querySelectorAll("thead button")].find((b) => b.textContent.startsWith("log-prob")).click()`)
	until(p, `document.querySelector("[aria-sort]").textContent.startsWith("log-prob")`)
	if sorted := p.Eval(`(() => { const all = [...document.querySelectorAll("#rows tbody td.wide")].map((e) =>
		Number(e.textContent.replace("−", "-"))); return all.length === 11 && all.every((x, i) => !i || x <= all[i - 1]); })()`); sorted != true {
		t.Errorf("the order by log-prob is %s", p.Text(ids))
	}
	p.Eval(`document.querySelector("#rows tbody th a[href*='id=301']").click()`)
	until(p, `document.querySelector("#one h2")?.textContent === "Rollout 301"`)
	shown := p.Text(`document.querySelector("#one").textContent`)
	if !strings.Contains(shown, "<script>window.hurt = 1</script>") || strings.ContainsAny(shown, "\x1b\x00\u202e") ||
		p.Eval(`window.hurt === undefined && !document.querySelector("main script, main img, main b, header i")`) != true {
		t.Errorf("a hostile text is shown as %s", shown)
	}
	p.Eval(`(() => { const s = document.querySelector(".tools select"); s.value = "ratio to the policy"; s.onchange(); })()`)
	until(p, `document.querySelector(".tools output")?.textContent.startsWith("By a test's policy: mean ratio 1, 0 of ")`)
	p.Eval(`document.querySelector("#one .mate a[href*='id=302']").click()`)
	until(p, `document.querySelector("#one .alarm")?.textContent.includes("rollout 302 is not one of them")`)
	p.Eval(`history.back()`)
	until(p, `document.querySelector("#one h2")?.textContent === "Rollout 301"`)
	if wide := p.Text(`document.documentElement.scrollWidth`); wide != "390" {
		t.Errorf("the page is %s px wide in 390 px", wide)
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
}

// The screenshots are kept in the folder of -shots, if given.
func TestThePageFitsEveryWidth(t *testing.T) {
	p := browsertest.Open(t)
	address := serve(t, browse.Table{Table: filled(t)})
	for name, at := range map[string]string{"list": "&where=reward+%3E+0+%26%26+uses+%3E+0&order=advantage", "one": "&id=121"} {
		for _, width := range []int{320, 390, 800, 1280} {
			p.Size(width, 900)
			for _, scheme := range []string{"light", "dark"} {
				p.Media("screen", scheme)
				p.Go(address + at)
				until(p, `document.querySelector("#rows tbody tr, #one .facts")`)
				if *shots != "" && width > 320 {
					p.Shot(filepath.Join(*shots, fmt.Sprintf("rollouts-%s-%d-%s.png", name, width, scheme)))
				}
				if wide := p.Text(`document.documentElement.scrollWidth`); wide != fmt.Sprint(width) {
					t.Errorf("%s: the page is %s px wide in %d px", name, wide, width)
				}
			}
		}
	}
}

var _ browse.Source = browse.Table{}

func ExampleTable() {
	table, err := replay.New(replay.Options{Capacity: 8})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for reward := range 3 {
		r := rollout.New("2+2", []int32{1}, rollout.Completion{Tokens: []int32{4}, Logprobs: []float32{-1}, Reward: float32(reward)})
		if _, err := table.Insert(ctx, rollout.Group{Rollouts: []*rollout.Rollout{r}}); err != nil {
			panic(err)
		}
	}
	page, err := browse.Table{Table: table}.Rollouts(ctx, replay.Query{Where: "reward > 0", Order: "-reward", Limit: 10})
	if err != nil {
		panic(err)
	}
	for _, row := range page.Rows {
		fmt.Println("rollout", row.ID, "of", row.PromptID, "has reward", row.Reward)
	}
	// Output:
	// rollout 2 of 2+2 has reward 1
	// rollout 3 of 2+2 has reward 2
}
