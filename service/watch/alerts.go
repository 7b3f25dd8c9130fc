package watch

import (
	"fmt"
	"math"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/service"
)

// Callers that wait while nothing is done are reported after alertAfter; generators at a gate, which wait for each
// version as they should, after gateAfter.
const (
	alertAfter = 20 * time.Second
	gateAfter  = 2 * time.Minute
)

// alert is what is wrong with a table, for how long, and what to do.
type alert struct {
	Table  string // shown if the table is not
	Words  string
	Remedy string
}

// alertsOf returns what has kept callers of a table waiting for too long.
func alertsOf(v *service.TableView, p past) (list []alert) {
	now := p.now()
	if now.starved >= alertAfter {
		list = append(list, starvation(v, p))
	}
	if now.blocked >= alertAfter {
		list = append(list, blockage(v, p))
	}
	if now.held >= gateAfter && now.starved < alertAfter {
		list = append(list, alert{
			Words: fmt.Sprintf("Generators have waited at the gate for %s: %s, and the table is at version %s.",
				words.Span(now.held), verb(v.StartsWaiting, "caller", "waits", "wait"), words.Thousands(now.version)),
			Remedy: "The trainer opens the gate by its next version (advance): see whether it still trains.",
		})
	}
	return list
}

// verb writes a count with its noun and its verb.
func verb(n int, noun, one, more string) string {
	if n == 1 {
		return "1 " + noun + " " + one
	}
	return words.Plural(n, noun) + " " + more
}

// starvation tells why nothing is drawn.
func starvation(v *service.TableView, p past) alert {
	now := p.now()
	a := alert{Words: fmt.Sprintf("Starved for %s: ", words.Span(now.starved))}
	batch := ratio(float64(v.Counters.SampledRows), float64(v.Counters.Samples))
	switch {
	case v.SamplesWaiting == 0:
		a.Words += "trainers time out and ask again"
	case batch > 0:
		a.Words += fmt.Sprintf("%s for a batch, so far of %s", verb(v.SamplesWaiting, "trainer", "waits", "wait"),
			words.Plural(uint64(math.Round(batch)), "rollout"))
	default:
		a.Words += verb(v.SamplesWaiting, "trainer", "waits", "wait") + " for a first batch"
	}
	unused := uint64(math.Round(v.NeverUsed * float64(v.Stats.Present)))
	a.Words += fmt.Sprintf("; the table holds %s, %s of them unused.", words.Thousands(uint64(v.Stats.Present)),
		words.Thousands(unused))
	if l := v.Limiter; l != nil && samplesHeld(v) {
		a.Words += fmt.Sprintf(" The limiter holds draws: its balance is %s, and %s is the least.", words.Amount(l.Balance),
			words.Amount(l.Min))
	}
	switch rate := current(p.points, alertAfter, func(p point) uint64 { return p.inserted }); {
	case v.Gate != nil && v.StartsWaiting > 0 && v.Gate.Outstanding == 0:
		a.Remedy = fmt.Sprintf("Both sides wait: generators wait at the gate for the next version, and no rollout is in "+
			"progress. The gate lets %s start per version (rollouts_per_update), fewer than trainers need: publish a version "+
			"(advance), and give the next run's table a larger rollouts_per_update or max_staleness.",
			words.Amount(v.Gate.RolloutsPerUpdate))
	case rate > 0:
		a.Remedy = fmt.Sprintf("Rollouts arrive at %s/s: generators are the slower side. Add some, or take smaller batches.",
			words.Amount(rate))
	case v.InsertsWaiting > 0:
		a.Remedy = "Insertions wait too: see below."
	default:
		a.Remedy = fmt.Sprintf("Nothing was inserted for %s: see whether the generators still run and reach this service.",
			words.Span(p.since(func(a, b point) bool { return a.inserted == b.inserted })))
	}
	return a
}

// blockage tells why nothing is inserted.
func blockage(v *service.TableView, p past) alert {
	now, d := p.now(), &v.Definition
	waits := "generators time out and try again"
	if v.InsertsWaiting > 0 {
		waits = verb(v.InsertsWaiting, "generator", "waits", "wait") + " for room"
	}
	a := alert{Words: fmt.Sprintf("Insertions blocked for %s: %s.", words.Span(now.blocked), waits)}
	switch l := v.Limiter; {
	case l != nil && insertsHeld(v):
		a.Words += fmt.Sprintf(" The limiter holds insertions: its balance is %s, and %s is the most.",
			words.Amount(l.Balance), words.Amount(l.Max))
	case d.Capacity > 0:
		a.Words += fmt.Sprintf(" The table holds %s of %s.", words.Thousands(uint64(v.Stats.Present)),
			words.Plural(uint64(d.Capacity), "rollout"))
	}
	if v.OnLease > 0 {
		a.Words += fmt.Sprintf(" %s on lease: drawn and not acknowledged.", verb(int(v.OnLease), "draw", "is", "are"))
	}
	a.Remedy = given(v, p)
	return a
}

// given tells what trainers do.
func given(v *service.TableView, p past) string {
	rate := current(p.points, alertAfter, func(p point) uint64 { return p.sampled })
	switch {
	case rate > 0:
		return fmt.Sprintf("Trainers draw %s/s: they are the slower side. Add some, use each rollout less often, or run "+
			"fewer generators.", words.Amount(rate))
	case v.SamplesWaiting > 0:
		return "Trainers wait as well: see above."
	}
	return fmt.Sprintf("Nothing was drawn for %s: see whether the trainers still run and reach this service.",
		words.Span(p.since(func(a, b point) bool { return a.sampled == b.sampled })))
}
