package browse_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/browsertest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
)

// pending has two groups of two rollouts without rewards, ids 1 to 4, and one with, id 5.
func pending(t *testing.T) *replay.Table {
	t.Helper()
	table, err := replay.New(replay.Options{Capacity: 16, PendingRewards: 3600})
	if err != nil {
		t.Fatal(err)
	}
	add := func(prompt string, reward float32, texts ...string) {
		g := rollout.Group{}
		for _, text := range texts {
			r := rollout.New(prompt, []int32{1, 2}, rollout.Completion{Tokens: []int32{3, 4},
				Logprobs: []float32{-0.5, -0.25}, Reward: reward})
			r.Text = text
			g.Rollouts = append(g.Rollouts, r)
		}
		if _, err := table.Insert(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	unknown := float32(math.NaN())
	add("Explain why the sky is blue in two sentences.", unknown,
		"Air scatters short waves more than long ones, and of sunlight that is blue. So from every side some blue comes.",
		"The sky reflects the sea, which is blue because water is.\n"+hostile)
	add("Write a haiku about rain.", unknown, "Rain on the tin roof\nkeeps time for nobody now\nbut the cat listens.",
		"rain rain rain rain rain")
	add("7 * 8 = ?", 1, "56")
	return table
}

func serveLabels(t *testing.T, table *replay.Table) (address string) {
	status := func(error) int { return http.StatusInternalServerError }
	pages := browse.Handler(func(*http.Request) (browse.Source, error) { return browse.Table{Table: table}, nil }, status)
	labels := browse.LabelHandler(func(*http.Request) (browse.Rewarder, error) { return browse.Table{Table: table}, nil },
		status)
	mux := http.NewServeMux()
	mux.Handle("/rollouts/", pages)
	mux.Handle("/", labels)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// Keys give rewards; each rollout comes once, those skipped later; undo lets another reward be given.
func TestAPersonLabelsByKeys(t *testing.T) {
	table := pending(t)
	page := browsertest.Open(t)
	page.Go(serveLabels(t, table) + "/label?table=math&by=alice")
	shows := func(id int) {
		until(page, fmt.Sprintf("document.querySelector('.facts dd')?.textContent === '%d'", id))
	}
	shows(4)
	if text := page.Text("document.body.innerText"); !strings.Contains(text, "rain rain") || !strings.Contains(text, "4 rollouts: pending") {
		t.Errorf("the page shows %q", text)
	}
	page.Key("3")
	shows(3)
	page.Key("s")
	shows(2)
	page.Key("5")
	shows(1)
	page.Key("u")
	shows(2)
	page.Key("1")
	shows(1)
	page.Key("2")
	until(page, "document.querySelector('#one').textContent.includes('No other rollout')")
	want := map[rollout.ID]float64{1: 0.25, 2: 0, 3: math.NaN(), 4: 0.5}
	for id, reward := range want {
		h, _ := table.Inspect().Get(id)
		if got := float64(h.Rollout.Reward); got != reward && !(math.IsNaN(got) && math.IsNaN(reward)) {
			t.Errorf("rollout %d has reward %v, want %v", id, got, reward)
		}
	}
	calls := table.Inspect().Labels(0)
	if len(calls) != 4 || calls[0].By != "alice" || calls[0].Request == "" {
		t.Errorf("the table remembers %+v", calls)
	}
	if b, err := table.Sample(t.Context(), rollout.Request{Size: 3}); err != nil || len(b.Draws) != 3 {
		t.Errorf("what has its rewards is drawn with %v", err)
	}
}

// Rewards and filter come from the address, and what is wrong with them is said.
func TestTheLabelPageFollowsItsAddress(t *testing.T) {
	table := pending(t)
	address := serveLabels(t, table)
	page := browsertest.Open(t)
	page.Go(address + "/label?table=math&where=reward+%3E%3D+1&rewards=-1,2")
	until(page, "document.querySelector('.facts dd')?.textContent === '5'")
	page.Key("2")
	until(page, "document.querySelector('#one').textContent.includes('No other rollout')")
	if h, _ := table.Inspect().Get(5); h.Rollout.Reward != 2 {
		t.Errorf("rollout 5 has reward %v, want 2", h.Rollout.Reward)
	}
	for query, want := range map[string]string{"where=reward+%3E": "where", "rewards=1,x": "give 1 to 9 numbers"} {
		page.Go(address + "/label?table=math&" + query)
		until(page, "!document.querySelector('#wrong').hidden")
		if text := page.Text("document.querySelector('#wrong').textContent"); !strings.Contains(text, want) {
			t.Errorf("%s: the page says %q", query, text)
		}
	}
}

func TestTheLabelPageFitsEveryWidth(t *testing.T) {
	page := browsertest.Open(t)
	page.Go(serveLabels(t, pending(t)) + "/label?table=math&where=pending+%26%26+group_mean+!%3D+3&order=-version&by=alice")
	until(page, "document.querySelector('.facts')")
	for _, scheme := range []string{"light", "dark"} {
		page.Media("screen", scheme)
		for _, width := range []int{390, 800, 1280} {
			page.Size(width, 800)
			if wide := page.Eval("document.documentElement.scrollWidth").(float64); wide > float64(width) {
				t.Errorf("at a width of %d the page is %v wide", width, wide)
			}
			if low := page.Eval("document.querySelector('#rewards').getBoundingClientRect().bottom").(float64); low > 800 {
				t.Errorf("at a width of %d the buttons end at %v", width, low)
			}
			if *shots != "" {
				page.Shot(filepath.Join(*shots, fmt.Sprintf("label-%s-%d.png", scheme, width)))
			}
		}
	}
}

// POST /reward answers as the table does, and refuses what is no request of a program or of its own page.
func TestRewardsArePosted(t *testing.T) {
	address := serveLabels(t, pending(t)) + "/reward?table=math"
	post := func(body, kind, from string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		if from != "" {
			req.Header.Set("Origin", from)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, strings.TrimSpace(string(text))
	}
	const good = `{"ids": [1, 2], "rewards": [0.5, 1], "by": "judge-3", "request_id": "r1"}`
	for _, c := range []struct {
		body, kind, from string
		status           int
		answer           string
	}{
		{good, "application/json", "", 200, `{"rewarded":2,"left":0,"entered":2}`},
		{good, "application/json", "", 200, `{"rewarded":2,"left":0,"entered":2}`}, // repeated
		{strings.Replace(good, "0.5", "0.25", 1), "application/json", "", 400, "use a new id for each call"},
		{`{"ids": [99], "rewards": [1]}`, "application/json", "", 400, "id is 99: use an id that the table returned"},
		{`{"ids": [1, 1], "rewards": [1, 0]}`, "application/json", "", 400, "give each rollout one reward"},
		{`{"ids": [1], "rewards": []}`, "application/json", "", 400, "rewards is 0 for 1 ids"},
		{`{"ids": [1], "rewards": [1e10]}`, "application/json", "", 400, "within -1e9 to 1e9"},
		{`{"ids": [1], "rewards": [1], "bye": 1}`, "application/json", "", 400, "bye"},
		{`{`, "application/json", "", 400, "body: "},
		{good, "text/plain", "", 400, "send application/json"},
		{good, "application/json", "http://elsewhere.example", 403, "cross-origin"},
		{"{" + strings.Repeat(" ", 200<<10), "application/json", "", 400, "give at most 1024 rewards"},
	} {
		if status, answer := post(c.body, c.kind, c.from); status != c.status || !strings.Contains(answer, c.answer) {
			t.Errorf("%.80s as %s from %q: %d %s, want %d %s", c.body, c.kind, c.from, status, answer, c.status, c.answer)
		}
	}
}
