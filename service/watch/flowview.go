package watch

import (
	"strings"
	"time"

	"github.com/reprise-rl/reprise/service"
)

// flowCard is who waits for whom: the limiter, the gate, and what came of it.
func flowCard(v *service.TableView) card {
	c := card{Title: "Flow control", Note: "no limiter: neither side waits for the other"}
	if l := v.Limiter; l != nil {
		c.Note = amount(l.SamplesPerInsert) + " samples per insert; now " + amount(ratio(float64(l.Drawn), float64(l.Inserted)))
		c.Chart = balance(l.Balance, l.Min, l.Max, "balance "+amount(l.Balance)+": samples wait below "+amount(l.Min)+", inserts above "+amount(l.Max))
		c.Rows = append(c.Rows, row{Name: "balance", Value: amount(l.Balance)}, held("inserts", insertsHeld(v), l.HeldInserts), held("samples", samplesHeld(v), l.HeldSamples))
	}
	c.Rows = append(c.Rows, waiting("inserts", v.InsertsWaiting), waiting("samples", v.SamplesWaiting))
	if v.Counters.Full+v.Counters.Starved > 0 {
		c.Rows = append(c.Rows, row{Name: "timed out", Value: plural(v.Counters.Full, "insert") + " · " + plural(v.Counters.Starved, "sample")})
	}
	if g := v.Gate; g != nil {
		room := g.Allowed - g.Started
		left := row{Name: "gate", Value: "open, " + count(room) + " may start", Class: "good"}
		if room <= 0 {
			left = row{Name: "gate", Value: "closed until the next version", Class: "warn"}
		}
		c.Rows = append(c.Rows, left, waiting("starts", v.StartsWaiting),
			row{Name: "under way", Value: plural(g.Outstanding, "rollout")},
			row{Name: "given back", Value: count(g.Abandoned) + " · " + count(g.Expired) + " expired"})
	}
	return c
}

// insertsHeld tells whether a limiter holds insertions back: even one rollout, or one like those that there were while some wait.
func insertsHeld(v *service.TableView) bool {
	l, n := v.Limiter, &v.Counters
	return l != nil && (l.InsertsHeld || v.InsertsWaiting > 0 && l.Balance+l.SamplesPerInsert*ratio(float64(n.InsertedRows), float64(n.InsertRequests)) > l.Max)
}

// samplesHeld tells the same of samples.
func samplesHeld(v *service.TableView) bool {
	l, n := v.Limiter, &v.Counters
	return l != nil && (l.SamplesHeld || v.SamplesWaiting > 0 && l.Balance-ratio(float64(n.SampledRows), float64(n.Samples)) < l.Min)
}

// held tells whether the limiter holds a side back.
func held(side string, now bool, ever uint64) row {
	r := row{Name: side, Value: "go · held " + count(ever) + "×", Class: "good"}
	if now {
		r.Value, r.Class = "held back · "+count(ever)+"×", "warn"
	}
	return r
}

func waiting(side string, n int) row {
	r := row{Name: side + " waiting", Value: count(n)}
	if n > 0 {
		r.Class = "warn"
	}
	return r
}

// latencyCard is how long callers waited, since the service started.
func latencyCard(v *service.TableView) card {
	n := &v.Counters
	c := card{Title: "Latency and requests", Note: "p50 · p99 since the start, waiting included"}
	c.Rows = []row{
		{Name: "insert", Value: within(&v.InsertLatency)},
		{Name: "sample", Value: within(&v.SampleLatency)},
		{Name: "inserts", Value: count(n.InsertRequests)},
		{Name: "batches", Value: count(n.Samples)},
		{Name: "rows to a batch", Value: amount(ratio(float64(n.SampledRows), float64(n.Samples)))},
		{Name: "repeated inserts", Value: count(n.RepeatedInserts)},
		bad("refused rollouts", n.RefusedRows),
		{Name: "redrawn batches", Value: count(n.Redrawn)},
		{Name: "draws returned", Value: count(v.Stats.Returned)},
	}
	return c
}

// bad is a count of which none is best.
func bad(name string, n uint64) row {
	r := row{Name: name, Value: count(n)}
	if n > 0 {
		r.Class = "bad"
	}
	return r
}

// promptsCard is what is known of the prompts to ask again.
func promptsCard(v *service.TableView) card {
	p := v.Prompts
	return card{Title: "Prompts", Note: "whose pass rate is within the band", Rows: []row{
		{Name: "held", Value: count(p.Held)},
		{Name: "eligible", Value: count(p.Eligible)},
		{Name: "spent", Value: count(p.Spent)},
		{Name: "replayed", Value: count(p.Replayed)},
		{Name: "results", Value: count(p.Reported)},
		{Name: "all right or all wrong", Value: percent(ratio(float64(p.ZeroVariance), float64(p.Reported)))},
	}}
}

// legible is a text with what is no UTF-8 replaced: clients may send anything.
func legible(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// ofRecent shows a rollout as text.
func ofRecent(now time.Time, v *service.TableView, r *service.Recent) recent {
	shown := recent{
		Key: v.Name + "-" + count(uint64(r.ID)), Prompt: legible(r.PromptID), Reward: signed(r.Reward), Class: "none", Text: legible(r.Text), Cut: r.Cut,
		About: "version " + count(int32(r.Version)) + " · " + plural(r.Tokens, "token") + " · " + ago(now, r.At),
	}
	if r.Reward >= *v.Definition.WithDefaults().PositiveThreshold {
		shown.Class = "good"
	}
	if r.Truncated {
		shown.About += " · stopped by length"
	}
	return shown
}

// signed writes a reward.
func signed(x float32) string {
	text := amount(float64(x))
	if x > 0 {
		return "+" + text
	}
	return text
}
