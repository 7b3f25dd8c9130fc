package watch

import (
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// metrics answers /metrics. The values of labels are bounded: they are table names and lists fixed in the code (causes
// of eviction, methods, error codes, ranges of ages and uses).
type metrics struct {
	process    *prometheus.Registry // the Go runtime and the process
	service    []serviceMetric
	tables     []tableMetric
	histograms []tableHistogram
	descs      []*prometheus.Desc

	evicted, byUses, ess, calls, errors *prometheus.Desc
	partUsed, partMost, partRefused     *prometheus.Desc
}

// serviceMetric is a number of the service.
type serviceMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*service.Observation) float64
}

// tableMetric is a number of each table; ok is false for a table without it.
type tableMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*service.TableView) (value float64, ok bool)
}

// tableHistogram is a histogram of each table; it returns nil for a table without it.
type tableHistogram struct {
	desc  *prometheus.Desc
	value func(*service.TableView) *cumulative
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func newMetrics(version string) *metrics {
	m := &metrics{process: prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "reprise_build_info", Help: "Always 1; the label holds the version of the program.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	m.process.MustRegister(collectors.NewGoCollector(), process, build)
	m.addService()
	m.addTables()
	m.addCounters()
	m.addOptionalParts()
	m.addHistograms()
	m.evicted = m.desc("reprise_evicted_rollouts_total", "Rollouts that left the table.", "table", "cause")
	m.byUses = m.desc("reprise_present_rollouts_by_uses", "Rollouts in the table, by number of uses.", "table", "uses")
	m.ess = m.desc("reprise_ess_ratio",
		"Effective sample size as a share of the tokens, by age in versions, as reported by trainers.", "table", "age")
	m.calls = m.desc("reprise_calls_total", "Calls started, by Flight method.", "method")
	m.errors = m.desc("reprise_errors_total", "Calls and requests that ended in an error, by error code.", "code")
	m.partUsed = m.desc("reprise_memory_part_bytes", "Bytes held, by part of the memory.", "part")
	m.partMost = m.desc("reprise_memory_part_limit_bytes", "Most bytes held, by part of the memory.", "part")
	m.partRefused = m.desc("reprise_memory_refusals_total", "Requests that did not fit into a part of the memory.",
		"part")
	return m
}

func (m *metrics) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	m.descs = append(m.descs, d)
	return d
}

func (m *metrics) addService() {
	type observation = service.Observation
	add := func(kind prometheus.ValueType, name, help string, value func(*observation) float64) {
		m.service = append(m.service, serviceMetric{m.desc(name, help), kind, value})
	}
	add(gauge, "reprise_healthy", "1 while no journal has failed and the disk is not full.",
		func(o *observation) float64 { return oneIf(o.Err == nil) })
	add(gauge, "reprise_disk_full", "1 while insertions are refused because the disk of the data folder is full.",
		func(o *observation) float64 { return oneIf(o.DiskFull != nil) })
	add(gauge, "reprise_disk_free_bytes", "Free bytes of the data folder's disk, without the reserve; -1 if unknown.",
		func(o *observation) float64 { return float64(o.DiskFree) })
	add(gauge, "reprise_stopping", "1 while the service is stopping.",
		func(o *observation) float64 { return oneIf(o.Stopping) })
	add(gauge, "reprise_start_time_seconds", "Unix time at which the service started.",
		func(o *observation) float64 { return float64(o.Started.UnixMilli()) / 1e3 })
	add(gauge, "reprise_tables", "Tables.", func(o *observation) float64 { return float64(len(o.Tables)) })
	add(gauge, "reprise_connections", "Open connections.",
		func(o *observation) float64 { return float64(len(o.Connections)) })
	add(gauge, "reprise_streams", "Calls in progress.", func(o *observation) float64 {
		n := 0
		for _, c := range o.Connections {
			n += c.Streams
		}
		return float64(n)
	})
	add(gauge, "reprise_memory_bytes", "Most bytes that the service holds: memory_bytes.",
		func(o *observation) float64 { return float64(o.MemoryBytes) })
	add(counter, "reprise_connections_cut_total",
		"Connections closed because there were too many, or for what they sent.",
		func(o *observation) float64 { return float64(o.Cut) })
	add(counter, "reprise_slow_readers_total", "Connections closed because their reader took nothing.",
		func(o *observation) float64 { return float64(o.SlowReaders) })
	add(counter, "reprise_panics_total", "Calls that a fault in the service ended; the log has the stacks.",
		func(o *observation) float64 { return float64(o.Panics) })
}

// oneIf is 1 for true.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) addTable(
	kind prometheus.ValueType, name, help string, value func(*service.TableView) (float64, bool),
) {
	m.tables = append(m.tables, tableMetric{m.desc(name, help, "table"), kind, value})
}

// addTables adds what every table has.
func (m *metrics) addTables() {
	type view = service.TableView
	add := func(kind prometheus.ValueType, name, help string, value func(*view) float64) {
		m.addTable(kind, name, help, func(v *view) (float64, bool) { return value(v), true })
	}
	add(gauge, "reprise_rollouts", "Rollouts in the table.", func(v *view) float64 { return float64(v.Stats.Present) })
	add(gauge, "reprise_waiting_rollouts", "Of these, rollouts that wait for the rewards of their group.",
		func(v *view) float64 { return float64(v.Stats.Waiting) })
	add(gauge, "reprise_capacity_rollouts", "Capacity in rollouts; 0: unbounded.",
		func(v *view) float64 { return float64(v.Definition.Capacity) })
	add(gauge, "reprise_bytes", "Bytes of payload in the table.",
		func(v *view) float64 { return float64(v.Stats.PresentBytes) })
	add(gauge, "reprise_capacity_bytes", "Capacity in bytes of payload; 0: unbounded.",
		func(v *view) float64 { return float64(v.Definition.CapacityBytes) })
	add(gauge, "reprise_version", "Version of the weights that the table was last told.",
		func(v *view) float64 { return float64(v.Stats.Version) })
	add(gauge, "reprise_never_used_ratio", "Share of the rollouts in the table without a use.",
		func(v *view) float64 { return v.NeverUsed })
	add(gauge, "reprise_on_lease_draws", "Draws handed out and not settled.",
		func(v *view) float64 { return float64(v.OnLease) })
	add(counter, "reprise_inserted_rollouts_total", "Rollouts inserted since the table was created.",
		func(v *view) float64 { return float64(v.Stats.Inserted) })
	add(counter, "reprise_inserted_groups_total", "Groups inserted since the table was created.",
		func(v *view) float64 { return float64(v.Stats.InsertedGroups) })
	add(counter, "reprise_refused_rollouts_total", "Rollouts that the table refused for good.",
		func(v *view) float64 { return float64(v.Stats.Refused) })
	add(counter, "reprise_drawn_rollouts_total", "Draws handed out.",
		func(v *view) float64 { return float64(v.Stats.Drawn) })
	add(counter, "reprise_acknowledged_draws_total", "Draws acknowledged as uses.",
		func(v *view) float64 { return float64(v.Stats.Acknowledged) })
	add(counter, "reprise_returned_draws_total", "Draws returned unused.",
		func(v *view) float64 { return float64(v.Stats.Returned) })
	add(counter, "reprise_ignored_updates_total", "Priority updates of rollouts that had left.",
		func(v *view) float64 { return float64(v.Stats.UpdatesIgnored) })
	add(gauge, "reprise_evicted_unused_rollouts",
		"Rollouts that left without a use; falls when a draw is acknowledged after its rollout left.",
		func(v *view) float64 { return float64(v.Stats.NeverUsed) })
	add(gauge, "reprise_waiting_inserts", "Inserts waiting for room or for the limiter.",
		func(v *view) float64 { return float64(v.InsertsWaiting) })
	add(gauge, "reprise_waiting_samples", "Samples waiting for rollouts or for the limiter.",
		func(v *view) float64 { return float64(v.SamplesWaiting) })
	add(gauge, "reprise_waiting_starts", "Starts waiting for the gate.",
		func(v *view) float64 { return float64(v.StartsWaiting) })
	m.addTable(gauge, "reprise_age_decay_versions", "Tau of a prioritized sampler's age decay.",
		func(v *view) (float64, bool) { return v.AgeDecay, v.AgeDecay > 0 && !math.IsInf(v.AgeDecay, 0) })
}

// addCounters adds the counters of a table's calls.
func (m *metrics) addCounters() {
	type counters = service.Counters
	for _, c := range []struct {
		name, help string
		value      func(*counters) uint64
	}{
		{"reprise_insert_requests_total", "Record batches inserted.",
			func(c *counters) uint64 { return c.InsertRequests }},
		{"reprise_inserted_tokens_total", "Tokens inserted.", func(c *counters) uint64 { return c.InsertedTokens }},
		{"reprise_inserted_bytes_total", "Bytes of payload inserted.",
			func(c *counters) uint64 { return c.InsertedBytes }},
		{"reprise_received_bytes_total", "Bytes of insert messages received.",
			func(c *counters) uint64 { return c.ReceivedBytes }},
		{"reprise_repeated_inserts_total", "Record batches whose batch_id had been inserted before.",
			func(c *counters) uint64 { return c.RepeatedInserts }},
		{"reprise_refused_inserts_total", "Record batches refused for good.",
			func(c *counters) uint64 { return c.RefusedInserts }},
		{"reprise_samples_total", "Batches handed out.", func(c *counters) uint64 { return c.Samples }},
		{"reprise_sampled_rollouts_total", "Rollouts in batches handed out.",
			func(c *counters) uint64 { return c.SampledRows }},
		{"reprise_sampled_tokens_total", "Tokens in batches handed out.",
			func(c *counters) uint64 { return c.SampledTokens }},
		{"reprise_sampled_bytes_total", "Bytes of packed batches handed out.",
			func(c *counters) uint64 { return c.SampledBytes }},
		{"reprise_redrawn_batches_total", "Prefetched batches drawn again because they were too old or gone.",
			func(c *counters) uint64 { return c.Redrawn }},
		{"reprise_lapsed_batches_total", "Batches acknowledged after their lease had expired.",
			func(c *counters) uint64 { return c.Lapsed }},
		{"reprise_starved_samples_total", "Samples that timed out waiting for rollouts or for the limiter.",
			func(c *counters) uint64 { return c.Starved }},
		{"reprise_full_inserts_total", "Inserts that timed out waiting for room or for the limiter.",
			func(c *counters) uint64 { return c.Full }},
	} {
		m.addTable(counter, c.name, c.help,
			func(v *service.TableView) (float64, bool) { return float64(c.value(&v.Counters)), true })
	}
}

// partMetric is a number of a part that only some tables have.
type partMetric[T any] struct {
	kind       prometheus.ValueType
	name, help string
	value      func(*T) float64
}

// addPart adds the metrics of a part; part returns nil for a table without it.
func addPart[T any](m *metrics, part func(*service.TableView) *T, list ...partMetric[T]) {
	for _, p := range list {
		m.addTable(p.kind, p.name, p.help, func(v *service.TableView) (float64, bool) {
			if x := part(v); x != nil {
				return p.value(x), true
			}
			return 0, false
		})
	}
}

// addOptionalParts adds what only some tables have: a limiter, a gate, a journal, prompt replay.
func (m *metrics) addOptionalParts() {
	type view = service.TableView
	type limiter = wire.LimiterState
	addPart(m, func(v *view) *limiter { return v.Limiter }, []partMetric[limiter]{
		{gauge, "reprise_limiter_balance", "Inserted x samples_per_insert - drawn.",
			func(l *limiter) float64 { return l.Balance }},
		{gauge, "reprise_limiter_min", "Balance below which samples wait.", func(l *limiter) float64 { return l.Min }},
		{gauge, "reprise_limiter_max", "Balance above which inserts wait.", func(l *limiter) float64 { return l.Max }},
		{gauge, "reprise_limiter_inserts_held", "1 while the limiter holds inserts.",
			func(l *limiter) float64 { return oneIf(l.InsertsHeld) }},
		{gauge, "reprise_limiter_samples_held", "1 while the limiter holds samples.",
			func(l *limiter) float64 { return oneIf(l.SamplesHeld) }},
		{counter, "reprise_limiter_held_inserts_total", "Inserts that the limiter made wait.",
			func(l *limiter) float64 { return float64(l.HeldInserts) }},
		{counter, "reprise_limiter_held_samples_total", "Samples that the limiter made wait.",
			func(l *limiter) float64 { return float64(l.HeldSamples) }},
	}...)
	type gate = wire.GateState
	addPart(m, func(v *view) *gate { return v.Gate }, []partMetric[gate]{
		{gauge, "reprise_gate_allowed_rollouts", "Rollouts allowed to start so far.",
			func(g *gate) float64 { return float64(g.Allowed) }},
		{gauge, "reprise_gate_started_rollouts", "Rollouts inserted or granted.",
			func(g *gate) float64 { return float64(g.Started) }},
		{gauge, "reprise_gate_outstanding_rollouts", "Rollouts granted, and neither inserted nor given back.",
			func(g *gate) float64 { return float64(g.Outstanding) }},
		{gauge, "reprise_gate_grants", "Outstanding grants.", func(g *gate) float64 { return float64(g.Grants) }},
		{counter, "reprise_gate_granted_rollouts_total", "Rollouts granted.",
			func(g *gate) float64 { return float64(g.Granted) }},
		{counter, "reprise_gate_abandoned_rollouts_total", "Rollouts granted and given back.",
			func(g *gate) float64 { return float64(g.Abandoned) }},
		{counter, "reprise_gate_expired_rollouts_total", "Rollouts granted that never came.",
			func(g *gate) float64 { return float64(g.Expired) }},
	}...)
	type state = service.JournalState
	addPart(m, func(v *view) *state { return v.Journal }, []partMetric[state]{
		{gauge, "reprise_journal_healthy", "1 while the journal works.",
			func(s *state) float64 { return oneIf(s.Err == nil) }},
		{gauge, "reprise_journal_verified_time_seconds", "Unix time when the whole journal was last read and checked.",
			func(s *state) float64 { return float64(s.Stats.Verified.UnixMilli()) / 1e3 }},
		{gauge, "reprise_journal_damage", "Places of the journal that were found damaged.",
			func(s *state) float64 { return float64(len(s.Stats.Damage)) }},
		{gauge, "reprise_journal_file_bytes", "Bytes of the journal's files.",
			func(s *state) float64 { return float64(s.Stats.LogBytes) }},
		{gauge, "reprise_journal_waiting", "Callers waiting for the journal.",
			func(s *state) float64 { return float64(s.Stats.Pending) }},
		{counter, "reprise_journal_written_bytes_total", "Bytes of rollouts and uses written.",
			func(s *state) float64 { return float64(s.Stats.Bytes) }},
		{counter, "reprise_journal_written_rollouts_total", "Rollouts written.",
			func(s *state) float64 { return float64(s.Stats.Rollouts) }},
		{counter, "reprise_journal_written_removals_total", "Removals written.",
			func(s *state) float64 { return float64(s.Stats.Removals) }},
		{counter, "reprise_journal_written_uses_total", "Uses and priorities written.",
			func(s *state) float64 { return float64(s.Stats.Uses) }},
	}...)
	type stats = prompts.Stats
	addPart(m, func(v *view) *stats { return v.Prompts }, []partMetric[stats]{
		{gauge, "reprise_prompts_held", "Prompts whose pass rate is within the band.",
			func(s *stats) float64 { return float64(s.Held) }},
		{gauge, "reprise_prompts_eligible", "Prompts that can be replayed now.",
			func(s *stats) float64 { return float64(s.Eligible) }},
		{counter, "reprise_prompts_reported_total", "Prompt results reported.",
			func(s *stats) float64 { return float64(s.Reported) }},
		{counter, "reprise_prompts_replayed_total", "Prompts replayed.",
			func(s *stats) float64 { return float64(s.Replayed) }},
	}...)
}

func (m *metrics) addHistograms() {
	type view = service.TableView
	add := func(name, help string, value func(*view) *cumulative) {
		m.histograms = append(m.histograms, tableHistogram{m.desc(name, help, "table"), value})
	}
	add("reprise_staleness_versions", "Staleness of rollouts when used.",
		func(v *view) *cumulative { return cumulativeCounts(&v.Stats.Staleness) })
	add("reprise_uses_at_eviction", "Uses of rollouts when they left.",
		func(v *view) *cumulative { return cumulativeCounts(&v.Stats.UsesAtEviction) })
	add("reprise_updates_since_last_use", "Updates between two uses of a rollout.",
		func(v *view) *cumulative { return cumulativeCounts(&v.Stats.SinceLastUse) })
	add("reprise_insert_seconds", "Time from the arrival of a record batch to its answer, including waits.",
		func(v *view) *cumulative { return cumulativeLatency(&v.InsertLatency) })
	add("reprise_sample_seconds", "Time from a request to its batch being sent, including waits.",
		func(v *view) *cumulative { return cumulativeLatency(&v.SampleLatency) })
	add("reprise_journal_commit_seconds", "Time of the journal's writes, including syncs.",
		func(v *view) *cumulative {
			if v.Journal == nil {
				return nil
			}
			l := commitLatency(&v.Journal.Stats)
			return cumulativeLatency(&l)
		})
}

// commitLatency converts the time of a journal's writes.
func commitLatency(s *journal.Stats) service.Latency {
	l := service.Latency{Seconds: s.WriteTime.Seconds()}
	for _, w := range s.Writes {
		l.Count += w.Count
		l.Counts = append(l.Counts, w.Count)
		if w.UpTo > 0 {
			l.Bounds = append(l.Bounds, w.UpTo.Seconds())
		}
	}
	if len(l.Counts) == len(l.Bounds) {
		l.Counts = append(l.Counts, 0)
	}
	return l
}

// cumulative is a histogram in Prometheus's form: upTo counts the values at or below each bound.
type cumulative struct {
	count uint64
	sum   float64
	upTo  map[float64]uint64
}

// countBounds are the bounds of histograms of versions, uses and updates.
func countBounds() []float64 {
	return []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256}
}

func cumulativeCounts(h *rollout.Histogram) *cumulative {
	c := &cumulative{count: h.Count(), sum: h.Sum(), upTo: make(map[float64]uint64)}
	bins := h.Bins()
	var below uint64
	for _, bound := range countBounds() {
		for len(bins) > 0 && float64(bins[0].Value) <= bound {
			below += bins[0].Count
			bins = bins[1:]
		}
		c.upTo[bound] = below
	}
	return c
}

func cumulativeLatency(l *service.Latency) *cumulative {
	c := &cumulative{count: l.Count, sum: l.Seconds, upTo: make(map[float64]uint64)}
	var below uint64
	for i, bound := range l.Bounds {
		below += l.Counts[i]
		c.upTo[bound] = below
	}
	return c
}

// labelRange is a range of values [from, to] with its label. A to of -1 has no end.
type labelRange struct {
	label    string
	from, to int64
}

func usesRanges() []labelRange {
	return []labelRange{{"0", 0, 0}, {"1", 1, 1}, {"2", 2, 2}, {"3", 3, 3}, {"4-7", 4, 7}, {"8-15", 8, 15},
		{"16+", 16, -1}}
}

func ageRanges() []labelRange {
	return []labelRange{
		{"0", 0, 0}, {"1", 1, 1}, {"2", 2, 2}, {"3-4", 3, 4}, {"5-8", 5, 8}, {"9-16", 9, 16}, {"17-32", 17, 32},
		{"33+", 33, -1},
	}
}

func (r labelRange) contains(v int64) bool { return v >= r.from && (v <= r.to || r.to == -1) }

// usesIn counts the rollouts whose number of uses is in a range.
func usesIn(r labelRange, h *rollout.Histogram) (n uint64) {
	for _, b := range h.Bins() {
		if r.contains(b.Value) {
			n += b.Count
		}
	}
	return n
}

// essIn returns the effective sample size over a range of ages, which counts a report of several ages at its first; ok
// is false if nothing was reported.
func essIn(r labelRange, ages []replay.AgeESS) (share float64, ok bool) {
	var ess, tokens float64
	for _, a := range ages {
		if r.contains(int64(a.First)) {
			ess += a.ESS * a.Tokens
			tokens += a.Tokens
		}
	}
	return ratio(ess, tokens), tokens > 0
}

// scrape answers with the metrics of the tables that the caller may read.
func (w *Watch) scrape(answer http.ResponseWriter, r *http.Request) {
	o, _ := w.observe()
	registry := prometheus.NewRegistry()
	if err := registry.Register(&collection{w.metrics, &o, w.readable(r.Context(), &o)}); err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	promhttp.HandlerFor(prometheus.Gatherers{w.metrics.process, registry}, promhttp.HandlerOpts{}).ServeHTTP(answer, r)
}

// collection is the metrics of one observation. It implements prometheus.Collector.
type collection struct {
	*metrics
	observed *service.Observation
	readable []*service.TableView
}

// Describe implements prometheus.Collector.
func (c *collection) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collection) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.service {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(c.observed))
	}
	for _, p := range c.observed.Memory {
		out <- prometheus.MustNewConstMetric(c.partUsed, gauge, float64(p.Used), p.Name)
		out <- prometheus.MustNewConstMetric(c.partMost, gauge, float64(p.Most), p.Name)
		out <- prometheus.MustNewConstMetric(c.partRefused, counter, float64(p.Refused), p.Name)
	}
	for method, n := range c.observed.Calls {
		out <- prometheus.MustNewConstMetric(c.calls, counter, float64(n), method)
	}
	for _, e := range c.observed.Errors {
		out <- prometheus.MustNewConstMetric(c.errors, counter, float64(e.Count), string(e.Code))
	}
	for _, v := range c.readable {
		c.collectTable(v, out)
	}
}

func (c *collection) collectTable(v *service.TableView, out chan<- prometheus.Metric) {
	for _, t := range c.tables {
		if x, ok := t.value(v); ok {
			out <- prometheus.MustNewConstMetric(t.desc, t.kind, x, v.Name)
		}
	}
	for _, h := range c.histograms {
		if x := h.value(v); x != nil {
			out <- prometheus.MustNewConstHistogram(h.desc, x.count, x.sum, x.upTo, v.Name)
		}
	}
	for _, cause := range causes() {
		n := v.Stats.Evicted[cause.cause]
		out <- prometheus.MustNewConstMetric(c.evicted, counter, float64(n), v.Name, string(cause.cause))
	}
	for _, r := range usesRanges() {
		n := usesIn(r, &v.Stats.UsesPresent)
		out <- prometheus.MustNewConstMetric(c.byUses, gauge, float64(n), v.Name, r.label)
	}
	for _, r := range ageRanges() {
		if ess, ok := essIn(r, v.ESSByAge); ok {
			out <- prometheus.MustNewConstMetric(c.ess, gauge, ess, v.Name, r.label)
		}
	}
}
