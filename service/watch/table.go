package watch

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

// Rates are averages over the last rateSpan; their sparklines go back lineSpan.
const (
	rateSpan = 10 * time.Second
	lineSpan = 5 * time.Minute
)

// tableView is a table shown in full.
type tableView struct {
	Name, Anchor string
	State        state
	Chips        []string
	Warning      string // its journal failed
	Alerts       []alert
	Tiles        []tile
	Windows      []choice // how far back the history goes
	Recorded     string   // for how long, if that is less
	History      []card
	Charts       []card
	Facts        []card
	Recent       []recent
	Rollouts     string // address of the page of all of them; "": none
	Label        string // address of the page to give them rewards; "": the caller may not
}

// state is the condition of a table in a few words.
type state struct {
	Words, About string
	Class        string // good, warn, bad, or still: healthy and not in use
}

// tile is a large number with a small chart.
type tile struct {
	Name, Value, Unit string
	Span              string // of the sparkline
	Notes             []string
	Charts            []template.HTML
	ID                string      // of a tile with data
	Data              template.JS // for the page's script; empty: none
}

// card is a chart or a list of facts with a title.
type card struct {
	Title string
	Note  string // the chart in a few numbers
	Chart template.HTML
	Rows  []row
	Empty string // shown instead of a chart and rows
	ID    string
	Data  template.JS // for the page's script; empty: none
	// of a chart with several curves
	Legend []figures.Key
}

// row is a line of a card.
type row struct {
	Name, Value string
	Class       string // good, warn, bad or nothing
	Bar         template.HTML
}

// recent is a recent rollout with its text.
type recent struct {
	Key, Prompt, Reward, Class, About, Text string
	Cut                                     bool
}

// viewOfTable shows a table in full, with its past.
func viewOfTable(now time.Time, v *service.TableView, p past, w window) tableView {
	points := p.points
	t := tableView{Name: v.Name, Anchor: "t-" + v.Name, State: stateOf(v, points), Chips: chips(v),
		Alerts: alertsOf(v, p)}
	if v.Journal != nil && v.Journal.Err != nil {
		t.Warning = "The journal failed and accepts nothing: " + v.Journal.Err.Error()
	}
	if v.Journal != nil && v.Journal.Err == nil && len(v.Journal.Stats.Damage) > 0 {
		t.Warning = "The journal is damaged, and a restart would refuse it. Save the table in a checkpoint and " +
			"restore that: it writes the journal anew. Damage: " + v.Journal.Stats.Damage[0].String()
	}
	t.Tiles = []tile{sizeTile(v), insertTile(now, v, points), sampleTile(now, v, points), reuseTile(v)}
	t.History = historyCards(v, p, w)
	if known := p.since(func(point, point) bool { return true }); known < w.span {
		t.Recorded = "recorded for " + words.Span(known)
	}
	s := &v.Stats
	t.Charts = []card{
		histogramCard("Staleness at use", "versions", &s.Staleness, "uses", "stale", "No rollout has been used yet."),
		histogramCard("Uses of rollouts in the table", "uses", &s.UsesPresent, "rollouts", "out",
			"The table is empty."),
		histogramCard("Time since last use", "updates", &s.SinceLastUse, "uses", "since",
			"No rollout has been used twice yet."),
		priorityCard(v), essCard(v), evictionsCard(v),
	}
	for i := range t.Tiles {
		t.Tiles[i].ID = fmt.Sprintf("%s-tile-%d", t.Anchor, i+1)
	}
	for i := range t.Charts {
		t.Charts[i].ID = fmt.Sprintf("%s-chart-%d", t.Anchor, i+1)
	}
	for i := range t.History {
		t.History[i].ID = fmt.Sprintf("%s-history-%d", t.Anchor, i+1)
	}
	t.Facts = []card{flowCard(v), latencyCard(v), journalCard(now, v)}
	if v.Prompts != nil {
		t.Facts = append(t.Facts, promptsCard(v))
	}
	for i := range v.Recent {
		t.Recent = append(t.Recent, viewOfRecent(now, v, &v.Recent[i]))
	}
	return t
}

// stateOf returns the worst condition of a table. A side counts as waiting if it waited in most of the latest points: a
// stream that asks for its next batch always waits for a moment.
func stateOf(v *service.TableView, points []point) state {
	recent := latest(points, rateSpan)
	starts := mostly(recent, func(p point) bool { return p.startsWait })
	inserts := mostly(recent, func(p point) bool { return p.insertsWait })
	samples := mostly(recent, func(p point) bool { return p.samplesWait })
	rows := func(p point) uint64 { return p.inserted + p.sampled }
	switch {
	case v.Journal != nil && v.Journal.Err != nil:
		return state{"journal failed", "inserts are refused until a restart", "bad"}
	case v.Journal != nil && len(v.Journal.Stats.Damage) > 0:
		return state{"journal damaged", "a restart would refuse it: save and restore a checkpoint", "bad"}
	case inserts && insertsHeld(v):
		return state{"inserts held", "the limiter holds inserts: trainers are the slower side", "warn"}
	case inserts:
		return state{"inserts wait", "inserts wait for room: trainers are the slower side", "warn"}
	case samples && samplesHeld(v):
		return state{"samples held", "the limiter holds samples: generators are the slower side", "warn"}
	case samples:
		return state{"samples wait", "samples wait for rollouts: generators are the slower side", "warn"}
	case starts:
		return state{"gate closed", "generators wait for the next version before starting more rollouts", "good"}
	case current(points, rateSpan, rows) > 0:
		return state{"flowing", "neither side waits for long", "good"}
	case v.InsertsWaiting+v.SamplesWaiting+v.StartsWaiting > 0:
		return state{"waiting: " + waiting(v), "nothing came or went in the last " + words.Span(rateSpan), "warn"}
	case len(points) > 0 && points[len(points)-1].starved+points[len(points)-1].blocked > 0:
		return state{"waiting: callers time out", "they ask again; nothing came or went in the last " +
			words.Span(rateSpan), "warn"}
	case v.Stats.Inserted == 0:
		return state{"unused", "nothing was inserted yet", "still"}
	}
	return state{"idle", "no inserts and no samples in the last " + words.Span(rateSpan), "still"}
}

// waiting says how many callers wait for what.
func waiting(v *service.TableView) string {
	var list []string
	for _, side := range []struct {
		n    int
		what string
	}{{v.InsertsWaiting, "for room"}, {v.SamplesWaiting, "for draws"}, {v.StartsWaiting, "for the gate"}} {
		if side.n > 0 {
			list = append(list, words.Plural(side.n, "caller")+" "+side.what)
		}
	}
	return strings.Join(list, ", ")
}

// insertsHeld reports whether the limiter holds inserts: any insert, or, while some wait, one of average size.
func insertsHeld(v *service.TableView) bool {
	l, n := v.Limiter, &v.Counters
	if l == nil {
		return false
	}
	after := l.Balance + l.SamplesPerInsert*ratio(float64(n.InsertedRows), float64(n.InsertRequests))
	return l.InsertsHeld || v.InsertsWaiting > 0 && after > l.Max
}

// samplesHeld does the same for samples.
func samplesHeld(v *service.TableView) bool {
	l, n := v.Limiter, &v.Counters
	if l == nil {
		return false
	}
	after := l.Balance - ratio(float64(n.SampledRows), float64(n.Samples))
	return l.SamplesHeld || v.SamplesWaiting > 0 && after < l.Min
}

// chips are the table's options in words.
func chips(v *service.TableView) []string {
	d := &v.Definition
	list := []string{"version " + words.Thousands(int32(v.Stats.Version))}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if d.Sampler != "" {
		add("sampler %s", strings.ReplaceAll(string(d.Sampler), "_", " "))
	}
	if d.Retention != "" {
		add("retention %s", strings.ReplaceAll(string(d.Retention), "_", " "))
	}
	if d.Unit != "" && d.Unit != "rollout" {
		add("unit %s", d.Unit)
	}
	if d.MaxStaleness > 0 {
		add("staleness ≤ %d", d.MaxStaleness)
	}
	if d.MaxUses > 0 {
		add("uses ≤ %d", d.MaxUses)
	}
	if d.GroupSize > 0 {
		add("groups of %d", d.GroupSize)
	}
	if d.Shards > 1 {
		add("%d shards", d.Shards)
	}
	if v.Journal == nil {
		add("in memory")
	} else {
		add("durable, sync %s", v.Journal.Sync)
	}
	return list
}

func sizeTile(v *service.TableView) tile {
	d, s := &v.Definition, &v.Stats
	t := tile{Name: "Size", Value: words.Thousands(s.Present)}
	if d.Capacity > 0 {
		t.Unit = "of " + words.Plural(d.Capacity, "rollout")
		share := float64(s.Present) / float64(d.Capacity)
		t.Charts = append(t.Charts, figures.Meter(share, "size", percent(share)+" of the capacity in rollouts"))
	} else {
		t.Unit = "rollouts"
	}
	payload := words.Bytes(float64(s.PresentBytes))
	if d.CapacityBytes > 0 {
		share := float64(s.PresentBytes) / float64(d.CapacityBytes)
		payload += " of " + words.Bytes(float64(d.CapacityBytes))
		t.Charts = append(t.Charts, figures.Meter(share, "size", percent(share)+" of the capacity in bytes"))
	}
	t.Notes = append(t.Notes, payload)
	if s.Present > 0 {
		t.Notes = append(t.Notes, words.Bytes(float64(s.PresentBytes)/float64(s.Present))+" a rollout")
	}
	if s.Waiting > 0 {
		t.Notes = append(t.Notes, words.Thousands(s.Waiting)+" wait for rewards")
	}
	return t
}

func insertTile(now time.Time, v *service.TableView, points []point) tile {
	return rateTile("Inserted", "in", now, points, v.Stats.Inserted, func(p point) uint64 { return p.inserted },
		func(p point) uint64 { return p.tokensIn }, func(p point) uint64 { return p.bytesIn })
}

func sampleTile(now time.Time, v *service.TableView, points []point) tile {
	return rateTile("Sampled", "out", now, points, v.Stats.Drawn, func(p point) uint64 { return p.sampled },
		func(p point) uint64 { return p.tokensOut }, func(p point) uint64 { return p.bytesOut })
}

// rateTile shows the rate of one direction, with its sparkline in a colour of the style sheet.
func rateTile(
	name, colour string, now time.Time, points []point, total uint64, rollouts, tokens, size func(point) uint64,
) tile {
	line := sparkline(rates(points, rollouts), now, lineSpan, colour, strings.ToLower(name))
	return tile{
		Name: name, Value: words.Amount(current(points, rateSpan, rollouts)), Unit: "rollouts/s",
		Span: fmt.Sprintf("last %d min", int(lineSpan.Minutes())),
		Notes: []string{
			words.Amount(current(points, rateSpan, tokens)) + " tokens/s",
			words.Bytes(current(points, rateSpan, size)) + "/s",
			words.Thousands(total) + " in total",
		},
		Charts: line.SVG, Data: line.Data,
	}
}

// reuse returns the mean number of uses of a rollout.
func reuse(v *service.TableView) float64 {
	return ratio(float64(v.Stats.Acknowledged), float64(v.Stats.Inserted))
}

// reuseTile shows how often rollouts are used, and what that costs in variance.
func reuseTile(v *service.TableView) tile {
	s := &v.Stats
	t := tile{Name: "Reuse", Value: words.Amount(reuse(v)), Unit: "uses per rollout"}
	if s.Present > 0 {
		t.Notes = append(t.Notes, percent(v.NeverUsed)+" never used")
		t.Charts = append(t.Charts, figures.Meter(1-v.NeverUsed, "out",
			percent(1-v.NeverUsed)+" of the rollouts in the table have been used"))
	}
	if s.Staleness.Count() > 0 {
		t.Notes = append(t.Notes, "staleness "+words.Amount(s.Staleness.Mean()))
	}
	if ess := meanESS(v); ess > 0 {
		t.Notes = append(t.Notes, "ESS "+percent(ess))
	}
	t.Notes = append(t.Notes, words.Thousands(v.OnLease)+" on lease")
	return t
}

// histogramCard shows a histogram with its quantiles.
func histogramCard(title, unit string, h *rollout.Histogram, things, colour, empty string) card {
	c := card{Title: title, Empty: empty}
	if h.Count() == 0 {
		return c
	}
	list := histogramBars(h, unit, things)
	c.Note = fmt.Sprintf("mean %s · median %s · 95%% ≤ %s · max %s", words.Amount(h.Mean()),
		words.Thousands(h.Quantile(0.5)),
		words.Thousands(h.Quantile(0.95)), words.Thousands(h.Max()))
	c.Chart, c.Data = bars(list, unit, figures.Axis{Title: things, High: figures.None()}, colour,
		title+" in "+unit+": "+c.Note)
	return c
}

func priorityCard(v *service.TableView) card {
	c := card{Title: "Priority by age", Empty: "None: the sampler does not use priorities."}
	if v.ByAge != nil {
		c.Empty = "The table has no rollout to draw."
	}
	if list := priorityBars(v.ByAge); len(list) > 0 {
		c.Note = "share of the draws"
		if !math.IsInf(v.AgeDecay, 1) && v.AgeDecay > 0 {
			c.Note += ", decay τ = " + words.Amount(v.AgeDecay)
		}
		c.Chart, c.Data = bars(list, "age, in versions",
			figures.Axis{Title: "share of the draws", High: figures.None(), Percent: true}, "in",
			"Priority by age: "+c.Note)
	}
	return c
}

func essCard(v *service.TableView) card {
	c := card{Title: "Effective sample size by age", Empty: "No trainer has reported its ratios."}
	if list := essBars(v.ESSByAge); len(list) > 0 {
		c.Note = "ESS/n of the tokens, " + percent(meanESS(v)) + " over all ages"
		c.Chart, c.Data = bars(list, "age, in versions", figures.Axis{Title: "ESS/n", High: 1, Percent: true}, "out",
			"Effective sample size: "+c.Note)
	}
	return c
}

// evictionsCard shows why rollouts left.
func evictionsCard(v *service.TableView) card {
	c := card{Title: "Evictions by cause"}
	var all, most uint64
	for _, n := range v.Stats.Evicted {
		all += n
		most = max(most, n)
	}
	for _, cause := range causes() {
		n := v.Stats.Evicted[cause.cause]
		if n == 0 {
			continue
		}
		c.Rows = append(c.Rows, row{
			Name: cause.words, Value: words.Thousands(n), Bar: figures.Meter(ratio(float64(n), float64(most)), "stale",
				percent(ratio(float64(n), float64(all)))+" of all evictions"),
		})
	}
	if all == 0 {
		c.Empty = "No rollout has left the table."
		return c
	}
	c.Note = words.Plural(all, "rollout") + " left, " + percent(ratio(float64(v.Stats.NeverUsed), float64(all))) +
		" of them never used"
	return c
}

// cause is a cause of eviction in words.
type cause struct {
	cause rollout.Cause
	words string
}

func causes() []cause {
	return []cause{
		{rollout.EvictedByCapacity, "no room"}, {rollout.EvictedByStaleness, "too stale"},
		{rollout.EvictedByUses, "used up"},
		{rollout.EvictedByConsume, "consumed"}, {rollout.EvictedByRewind, "rewound"},
		{rollout.EvictedByDamage, "lost to damage"}, {rollout.EvictedBySelection, "not selected"},
		{rollout.EvictedUnrewarded, "no reward in time"},
	}
}

// flowCard shows which side waits for the other: the limiter, the gate, and the waiting calls.
func flowCard(v *service.TableView) card {
	c := card{Title: "Flow control", Note: "no limiter: neither side waits for the other"}
	if l := v.Limiter; l != nil {
		c.Note = words.Amount(l.SamplesPerInsert) + " samples per insert; now " +
			words.Amount(ratio(float64(l.Drawn), float64(l.Inserted)))
		c.Chart = figures.Balance(l.Balance, l.Min, l.Max,
			"balance "+words.Amount(l.Balance)+": samples wait below "+words.Amount(l.Min)+", inserts above "+words.Amount(l.Max))
		c.Rows = append(c.Rows, row{Name: "balance", Value: words.Amount(l.Balance)},
			heldRow("inserts", insertsHeld(v), l.HeldInserts), heldRow("samples", samplesHeld(v), l.HeldSamples))
	}
	c.Rows = append(c.Rows, waitingRow("inserts", v.InsertsWaiting), waitingRow("samples", v.SamplesWaiting))
	if v.Counters.Full+v.Counters.Starved > 0 {
		c.Rows = append(c.Rows, row{Name: "timed out",
			Value: words.Plural(v.Counters.Full, "insert") + " · " + words.Plural(v.Counters.Starved, "sample")})
	}
	if g := v.Gate; g != nil {
		room := g.Allowed - g.Started
		left := row{Name: "gate", Value: "open, " + words.Thousands(room) + " may start", Class: "good"}
		if room <= 0 {
			left = row{Name: "gate", Value: "closed until the next version", Class: "warn"}
		}
		c.Rows = append(c.Rows, left, waitingRow("starts", v.StartsWaiting),
			row{Name: "in progress", Value: words.Plural(g.Outstanding, "rollout")},
			row{Name: "given back", Value: words.Thousands(g.Abandoned) + " · " +
				words.Thousands(g.Expired) + " expired"})
	}
	return c
}

// heldRow shows whether the limiter holds a side, and how often it did.
func heldRow(side string, now bool, ever uint64) row {
	r := row{Name: side, Value: "pass · held " + words.Thousands(ever) + "×", Class: "good"}
	if now {
		r.Value, r.Class = "held now · "+words.Thousands(ever)+"×", "warn"
	}
	return r
}

func waitingRow(side string, n int) row {
	r := row{Name: side + " waiting", Value: words.Thousands(n)}
	if n > 0 {
		r.Class = "warn"
	}
	return r
}

// latencyCard shows the latency of calls since the service started.
func latencyCard(v *service.TableView) card {
	n := &v.Counters
	c := card{Title: "Latency and requests", Note: "p50 · p99 since the start, including waits"}
	c.Rows = []row{
		{Name: "insert", Value: medianAndP99(&v.InsertLatency)},
		{Name: "sample", Value: medianAndP99(&v.SampleLatency)},
		{Name: "inserts", Value: words.Thousands(n.InsertRequests)},
		{Name: "batches", Value: words.Thousands(n.Samples)},
		{Name: "rollouts per batch", Value: words.Amount(ratio(float64(n.SampledRows), float64(n.Samples)))},
		{Name: "repeated inserts", Value: words.Thousands(n.RepeatedInserts)},
		errorRow("refused rollouts", n.RefusedRows),
		{Name: "redrawn batches", Value: words.Thousands(n.Redrawn)},
		{Name: "draws returned", Value: words.Thousands(v.Stats.Returned)},
	}
	return c
}

// errorRow shows a count that should be 0.
func errorRow(name string, n uint64) row {
	r := row{Name: name, Value: words.Thousands(n)}
	if n > 0 {
		r.Class = "bad"
	}
	return r
}

// promptsCard shows prompt replay.
func promptsCard(v *service.TableView) card {
	p := v.Prompts
	return card{Title: "Prompts", Note: "prompts whose pass rate is within the band", Rows: []row{
		{Name: "held", Value: words.Thousands(p.Held)},
		{Name: "eligible", Value: words.Thousands(p.Eligible)},
		{Name: "spent", Value: words.Thousands(p.Spent)},
		{Name: "replayed", Value: words.Thousands(p.Replayed)},
		{Name: "results", Value: words.Thousands(p.Reported)},
		{Name: "all right or all wrong", Value: percent(ratio(float64(p.ZeroVariance), float64(p.Reported)))},
	}}
}

// legible replaces invalid UTF-8, which clients may send.
func legible(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// ofRecent shows a rollout as text.
func viewOfRecent(now time.Time, v *service.TableView, r *service.Recent) recent {
	shown := recent{
		Key: v.Name + "-" + words.Thousands(uint64(r.ID)), Prompt: legible(r.PromptID), Reward: signed(r.Reward),
		Class: "none",
		Text:  legible(r.Text), Cut: r.Cut,
		About: "version " + words.Thousands(int32(r.Version)) + " · " + words.Plural(r.Tokens, "token") + " · " +
			ago(now, r.At),
	}
	if r.Reward >= *v.Definition.WithDefaults().PositiveThreshold {
		shown.Class = "good"
	}
	if r.Truncated {
		shown.About += " · stopped by length"
	}
	return shown
}

// signed writes a reward with its sign.
func signed(x float32) string {
	text := words.Amount(float64(x))
	if x > 0 {
		return "+" + text
	}
	return text
}

// journalCard shows the journal of a table.
func journalCard(now time.Time, v *service.TableView) card {
	c := card{Title: "Journal", Empty: "In memory only: a restart loses the table. Set a data folder to keep it."}
	if v.Journal == nil {
		return c
	}
	j := &v.Journal.Stats
	took := commitLatency(j)
	c.Note = "sync " + string(v.Journal.Sync)
	state := row{Name: "state", Value: "working", Class: "good"}
	if v.Journal.Err != nil {
		state = row{Name: "state", Value: "failed", Class: "bad"}
	}
	if v.Journal.Err == nil && len(j.Damage) > 0 {
		state = row{Name: "state", Value: "damaged", Class: "bad"}
	}
	c.Rows = []row{
		state,
		{Name: "read through", Value: words.Span(now.Sub(j.Verified)) + " ago"},
		{Name: "on disk", Value: words.Bytes(float64(j.LogBytes))},
		{Name: "writes", Value: words.Thousands(j.Commits)},
		{Name: "p50 · p99", Value: medianAndP99(&took)},
		{Name: "rollouts written", Value: words.Thousands(j.Rollouts)},
		{Name: "bytes written", Value: words.Bytes(float64(j.Bytes))},
		{Name: "callers waiting", Value: words.Thousands(j.Pending)},
	}
	return c
}
