package watch

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

// Rates are those of the last rateSpan; the lines beside them go back lineSpan.
const (
	rateSpan = 10 * time.Second
	lineSpan = 5 * time.Minute
)

// ofTable shows a table with what is remembered of it.
func ofTable(now time.Time, v *service.TableView, points []point) tableView {
	t := tableView{Name: v.Name, Anchor: "t-" + v.Name, State: stateOf(v, points), Chips: chips(v)}
	if v.Journal != nil && v.Journal.Err != nil {
		t.Warning = "The journal accepts nothing any more: " + v.Journal.Err.Error()
	}
	t.Tiles = []tile{sizeTile(v), insertTile(now, v, points), sampleTile(now, v, points), reuseTile(v)}
	s := &v.Stats
	t.Charts = []card{
		histogramCard("Staleness at use", "versions", &s.Staleness, "uses", "stale", "Nothing has been used yet."),
		histogramCard("Uses of what is held", "uses", &s.UsesPresent, "rollouts", "uses", "The table holds nothing."),
		histogramCard("Time since last use", "updates", &s.SinceLastUse, "uses", "since", "Nothing has been used twice yet."),
		priorityCard(v), essCard(v), evictionsCard(v),
	}
	t.Facts = []card{flowCard(v), latencyCard(v), journalCard(v)}
	if v.Prompts != nil {
		t.Facts = append(t.Facts, promptsCard(v))
	}
	for i := range v.Recent {
		t.Recent = append(t.Recent, ofRecent(now, v, &v.Recent[i]))
	}
	return t
}

// chips are what the table was made to be, in words.
func chips(v *service.TableView) []string {
	d := &v.Definition
	list := []string{"version " + count(int32(v.Stats.Version))}
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
	t := tile{Name: "Size", Value: count(s.Present)}
	if d.Capacity > 0 {
		t.Unit = "of " + plural(d.Capacity, "rollout")
		share := float64(s.Present) / float64(d.Capacity)
		t.Charts = append(t.Charts, meter(share, "fill-size", percent(share)+" of the rollouts that there is room for"))
	} else {
		t.Unit = "rollouts"
	}
	payload := bytes(float64(s.PresentBytes))
	if d.CapacityBytes > 0 {
		share := float64(s.PresentBytes) / float64(d.CapacityBytes)
		payload += " of " + bytes(float64(d.CapacityBytes))
		t.Charts = append(t.Charts, meter(share, "fill-size", percent(share)+" of the bytes that there is room for"))
	}
	t.Notes = append(t.Notes, payload)
	if s.Present > 0 {
		t.Notes = append(t.Notes, bytes(float64(s.PresentBytes)/float64(s.Present))+" a rollout")
	}
	return t
}

func insertTile(now time.Time, v *service.TableView, points []point) tile {
	rows := func(p point) uint64 { return p.inserted }
	return tile{
		Name: "Inserted", Value: amount(current(points, rateSpan, rows)), Unit: "rollouts/s", Span: "last " + minutes(lineSpan),
		Notes: []string{
			amount(current(points, rateSpan, func(p point) uint64 { return p.tokensIn })) + " tokens/s",
			bytes(current(points, rateSpan, func(p point) uint64 { return p.bytesIn })) + "/s",
			count(v.Stats.Inserted) + " ever",
		},
		Charts: []template.HTML{sparkline(rates(points, rows), now, lineSpan, "in", "rollouts inserted per second, the last "+span(lineSpan))},
	}
}

func sampleTile(now time.Time, v *service.TableView, points []point) tile {
	rows := func(p point) uint64 { return p.sampled }
	return tile{
		Name: "Sampled", Value: amount(current(points, rateSpan, rows)), Unit: "rollouts/s", Span: "last " + minutes(lineSpan),
		Notes: []string{
			amount(current(points, rateSpan, func(p point) uint64 { return p.tokensOut })) + " tokens/s",
			bytes(current(points, rateSpan, func(p point) uint64 { return p.bytesOut })) + "/s",
			count(v.Stats.Drawn) + " ever",
		},
		Charts: []template.HTML{sparkline(rates(points, rows), now, lineSpan, "out", "rollouts sampled per second, the last "+span(lineSpan))},
	}
}

// reuse is how often a rollout was learned from, on average.
func reuse(v *service.TableView) float64 {
	return ratio(float64(v.Stats.Acknowledged), float64(v.Stats.Inserted))
}

// reuseTile is how often a rollout is learned from, and what that costs in variance.
func reuseTile(v *service.TableView) tile {
	s := &v.Stats
	t := tile{Name: "Reuse", Value: amount(reuse(v)), Unit: "uses per rollout"}
	if s.Present > 0 {
		t.Notes = append(t.Notes, percent(v.NeverUsed)+" never used")
		t.Charts = append(t.Charts, meter(1-v.NeverUsed, "fill-out", percent(1-v.NeverUsed)+" of what is held has been used"))
	}
	if s.Staleness.Count() > 0 {
		t.Notes = append(t.Notes, "staleness "+digits(s.Staleness.Mean()))
	}
	if ess := meanESS(v); ess > 0 {
		t.Notes = append(t.Notes, "ESS "+percent(ess))
	}
	t.Notes = append(t.Notes, count(v.OnLease)+" on lease")
	return t
}

// histogramCard is a histogram with its middle and its end in numbers.
func histogramCard(title, unit string, h *rollout.Histogram, things, class, empty string) card {
	c := card{Title: title, Unit: unit, Empty: empty}
	if h.Count() == 0 {
		return c
	}
	list := histogramBars(h, unit, things)
	c.Note = fmt.Sprintf("mean %s · median %s · 95%% ≤ %s · max %s", amount(h.Mean()), count(h.Quantile(0.5)), count(h.Quantile(0.95)), count(h.Max()))
	c.Chart = bars(list, class, highest(list), amount(highest(list))+" "+things, title+" in "+unit+": "+c.Note)
	return c
}

func priorityCard(v *service.TableView) card {
	c := card{Title: "Priority by age", Empty: "None: the sampler does not draw by priority."}
	if v.ByAge != nil {
		c.Empty = "Nothing can be drawn."
	}
	if list := priorityBars(v.ByAge); len(list) > 0 {
		c.Unit, c.Note = "versions", "share of the draws"
		if !math.IsInf(v.AgeDecay, 1) && v.AgeDecay > 0 {
			c.Note += ", decay τ = " + amount(v.AgeDecay)
		}
		c.Chart = bars(list, "priority", highest(list), percent(highest(list))+" of the draws", "Priority by age: "+c.Note)
	}
	return c
}

func essCard(v *service.TableView) card {
	c := card{Title: "Effective sample size by age", Empty: "No trainer has reported its ratios."}
	if list := essBars(v.ESSByAge); len(list) > 0 {
		c.Unit, c.Note = "versions", "ESS/n of the tokens, "+percent(meanESS(v))+" over all ages"
		c.Chart = bars(list, "ess", 1, "100%", "Effective sample size: "+c.Note)
	}
	return c
}

// evictionsCard are the reasons why rollouts left, in the order of their definition.
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
			Name: cause.words, Value: count(n), Bar: meter(ratio(float64(n), float64(most)), "evicted", percent(ratio(float64(n), float64(all)))+" of all evictions"),
		})
	}
	if all == 0 {
		c.Empty = "Nothing has left the table."
		return c
	}
	c.Note = plural(all, "rollout") + " left, " + percent(ratio(float64(v.Stats.NeverUsed), float64(all))) + " of them never used"
	return c
}

// cause is why rollouts leave, in words.
type cause struct {
	cause rollout.Cause
	words string
}

func causes() []cause {
	return []cause{
		{rollout.EvictedByCapacity, "no room"}, {rollout.EvictedByStaleness, "too stale"}, {rollout.EvictedByUses, "used up"},
		{rollout.EvictedByConsume, "consumed"}, {rollout.EvictedByRewind, "rewound"}, {rollout.EvictedByDamage, "lost to damage"},
	}
}
