package watch

import (
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

// spread is a histogram as Prometheus has them: how many values lie at or below each bound.
type spread struct {
	count uint64
	sum   float64
	upTo  map[float64]uint64
}

// spreadBounds are the upper ends of the classes of versions, uses and updates.
func spreadBounds() []float64 {
	return []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256}
}

func spreadOf(h *rollout.Histogram) spread {
	s := spread{count: h.Count(), sum: h.Sum(), upTo: make(map[float64]uint64)}
	bins := h.Bins()
	var below uint64
	for _, bound := range spreadBounds() {
		for len(bins) > 0 && float64(bins[0].Value) <= bound {
			below += bins[0].Count
			bins = bins[1:]
		}
		s.upTo[bound] = below
	}
	return s
}

func spreadOfLatency(l *service.Latency) spread {
	s := spread{count: l.Count, sum: l.Seconds, upTo: make(map[float64]uint64)}
	var below uint64
	for i, bound := range l.Bounds {
		below += l.Counts[i]
		s.upTo[bound] = below
	}
	return s
}

func (m *metrics) describeSpreads() {
	add := func(name, help string, of func(*service.TableView) (spread, bool)) {
		m.spreads = append(m.spreads, tableSpread{m.desc(name, help, "table"), of})
	}
	add("reprise_staleness_versions", "Staleness of rollouts at their uses.", func(v *service.TableView) (spread, bool) { return spreadOf(&v.Stats.Staleness), true })
	add("reprise_uses_at_eviction", "Uses of rollouts when they left.", func(v *service.TableView) (spread, bool) { return spreadOf(&v.Stats.UsesAtEviction), true })
	add("reprise_updates_since_last_use", "Updates between two uses of a rollout.", func(v *service.TableView) (spread, bool) { return spreadOf(&v.Stats.SinceLastUse), true })
	add("reprise_insert_seconds", "Time from a record batch's arrival to its answer, waiting included.", func(v *service.TableView) (spread, bool) { return spreadOfLatency(&v.InsertLatency), true })
	add("reprise_sample_seconds", "Time from a request to its batch on the way out, waiting included.", func(v *service.TableView) (spread, bool) { return spreadOfLatency(&v.SampleLatency), true })
	add("reprise_journal_commit_seconds", "Time of the journal's transactions, syncs included.", func(v *service.TableView) (spread, bool) {
		if v.Journal == nil {
			return spread{}, false
		}
		l := commitLatency(&v.Journal.Stats)
		return spreadOfLatency(&l), true
	})
}

// class is a range of values with its name as a label; to is -1 in the last, which has no end.
type class struct {
	name     string
	from, to int64
}

func usesRanges() []class {
	return []class{{"0", 0, 0}, {"1", 1, 1}, {"2", 2, 2}, {"3", 3, 3}, {"4-7", 4, 7}, {"8-15", 8, 15}, {"16+", 16, -1}}
}

func ageRanges() []class {
	return []class{{"0", 0, 0}, {"1", 1, 1}, {"2", 2, 2}, {"3-4", 3, 4}, {"5-8", 5, 8}, {"9-16", 9, 16}, {"17-32", 17, 32}, {"33+", 33, -1}}
}

func (c class) has(v int64) bool { return v >= c.from && (v <= c.to || c.to == -1) }

// usesClass is how many rollouts have so many uses.
type usesClass struct {
	name string
	n    uint64
}

func usesClasses(h *rollout.Histogram) []usesClass {
	var list []usesClass
	for _, r := range usesRanges() {
		u := usesClass{name: r.name}
		for _, b := range h.Bins() {
			if r.has(b.Value) {
				u.n += b.Count
			}
		}
		list = append(list, u)
	}
	return list
}

// essClass is the effective sample size of a range of ages.
type essClass struct {
	name string
	ess  float64
}

// essClasses are the ranges of ages of which something was reported. A report of several ages counts where its first lies.
func essClasses(ages []replay.AgeESS) []essClass {
	var list []essClass
	for _, r := range ageRanges() {
		var ess, tokens float64
		for _, a := range ages {
			if r.has(int64(a.First)) {
				ess += a.ESS * a.Tokens
				tokens += a.Tokens
			}
		}
		if tokens > 0 {
			list = append(list, essClass{r.name, ess / tokens})
		}
	}
	return list
}
