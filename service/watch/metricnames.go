package watch

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/wire"
)

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// one is 1 for true.
func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) describeService() {
	add := func(kind prometheus.ValueType, name, help string, of func(*service.Observation) float64) {
		m.whole = append(m.whole, serviceNumber{m.desc(name, help), kind, of})
	}
	add(gauge, "reprise_healthy", "1 while no journal has failed.", func(o *service.Observation) float64 { return one(o.Err == nil) })
	add(gauge, "reprise_stopping", "1 while the service stops.", func(o *service.Observation) float64 { return one(o.Stopping) })
	add(gauge, "reprise_start_time_seconds", "When the service started, in seconds since 1970.", func(o *service.Observation) float64 { return float64(o.Started.UnixMilli()) / 1e3 })
	add(gauge, "reprise_tables", "Tables.", func(o *service.Observation) float64 { return float64(len(o.Tables)) })
	add(gauge, "reprise_connections", "Connections.", func(o *service.Observation) float64 { return float64(len(o.Connections)) })
	add(gauge, "reprise_streams", "Calls under way.", func(o *service.Observation) float64 {
		n := 0
		for _, c := range o.Connections {
			n += c.Streams
		}
		return float64(n)
	})
	add(gauge, "reprise_in_flight_bytes", "Bytes of insertions being handled.", func(o *service.Observation) float64 { return float64(o.InFlightBytes) })
	add(gauge, "reprise_max_in_flight_bytes", "Bytes of insertions that may be handled at once.", func(o *service.Observation) float64 { return float64(o.MaxInFlightBytes) })
	add(gauge, "reprise_outgoing_bytes", "Bytes of batches packed and not written out yet.", func(o *service.Observation) float64 { return float64(o.OutgoingBytes) })
	add(gauge, "reprise_max_outgoing_bytes", "Bytes of batches that may be packed and not written out at once.", func(o *service.Observation) float64 { return float64(o.MaxOutgoingBytes) })
	add(counter, "reprise_slow_readers_total", "Connections closed because their reader took nothing.", func(o *service.Observation) float64 { return float64(o.SlowReaders) })
}

// number describes a number that every table has.
func (m *metrics) number(kind prometheus.ValueType, name, help string, of func(*service.TableView) float64) {
	m.numbers = append(m.numbers, tableNumber{m.desc(name, help, "table"), kind, func(v *service.TableView) (float64, bool) { return of(v), true }})
}

func (m *metrics) describeTables() {
	type view = service.TableView
	m.number(gauge, "reprise_rollouts", "Rollouts in the table.", func(v *view) float64 { return float64(v.Stats.Present) })
	m.number(gauge, "reprise_capacity_rollouts", "Rollouts that the table has room for; 0: no bound.", func(v *view) float64 { return float64(v.Definition.Capacity) })
	m.number(gauge, "reprise_bytes", "Bytes of payload in the table.", func(v *view) float64 { return float64(v.Stats.PresentBytes) })
	m.number(gauge, "reprise_capacity_bytes", "Bytes of payload that the table has room for; 0: no bound.", func(v *view) float64 { return float64(v.Definition.CapacityBytes) })
	m.number(gauge, "reprise_version", "Version of the weights that the table was last told.", func(v *view) float64 { return float64(v.Stats.Version) })
	m.number(gauge, "reprise_never_used_ratio", "Share of the rollouts in the table that have no use.", func(v *view) float64 { return v.NeverUsed })
	m.number(gauge, "reprise_on_lease_draws", "Draws handed out and not settled.", func(v *view) float64 { return float64(v.OnLease) })
	m.number(counter, "reprise_inserted_rollouts_total", "Rollouts inserted since the table was made.", func(v *view) float64 { return float64(v.Stats.Inserted) })
	m.number(counter, "reprise_inserted_groups_total", "Groups inserted since the table was made.", func(v *view) float64 { return float64(v.Stats.InsertedGroups) })
	m.number(counter, "reprise_refused_rollouts_total", "Rollouts of insertions refused for good by the table.", func(v *view) float64 { return float64(v.Stats.Refused) })
	m.number(counter, "reprise_drawn_rollouts_total", "Draws handed out.", func(v *view) float64 { return float64(v.Stats.Drawn) })
	m.number(counter, "reprise_acknowledged_draws_total", "Draws that became uses.", func(v *view) float64 { return float64(v.Stats.Acknowledged) })
	m.number(counter, "reprise_returned_draws_total", "Draws that went back unused.", func(v *view) float64 { return float64(v.Stats.Returned) })
	m.number(counter, "reprise_ignored_updates_total", "Priority updates of rollouts that had left.", func(v *view) float64 { return float64(v.Stats.UpdatesIgnored) })
	m.number(gauge, "reprise_evicted_unused_rollouts", "Rollouts that left without a use; falls when a draw is acknowledged after its rollout left.", func(v *view) float64 { return float64(v.Stats.NeverUsed) })
	for _, c := range []struct {
		name, help string
		of         func(*service.Counters) uint64
	}{
		{"reprise_insert_requests_total", "Record batches inserted.", func(c *service.Counters) uint64 { return c.InsertRequests }},
		{"reprise_inserted_tokens_total", "Tokens inserted.", func(c *service.Counters) uint64 { return c.InsertedTokens }},
		{"reprise_inserted_bytes_total", "Bytes of payload inserted.", func(c *service.Counters) uint64 { return c.InsertedBytes }},
		{"reprise_received_bytes_total", "Bytes of messages of insertions, as they came.", func(c *service.Counters) uint64 { return c.ReceivedBytes }},
		{"reprise_repeated_inserts_total", "Record batches whose batch_id had been inserted before.", func(c *service.Counters) uint64 { return c.RepeatedInserts }},
		{"reprise_refused_inserts_total", "Record batches refused for good.", func(c *service.Counters) uint64 { return c.RefusedInserts }},
		{"reprise_samples_total", "Batches handed out.", func(c *service.Counters) uint64 { return c.Samples }},
		{"reprise_sampled_rollouts_total", "Rollouts in batches handed out.", func(c *service.Counters) uint64 { return c.SampledRows }},
		{"reprise_sampled_tokens_total", "Tokens in batches handed out.", func(c *service.Counters) uint64 { return c.SampledTokens }},
		{"reprise_sampled_bytes_total", "Bytes of batches handed out, packed.", func(c *service.Counters) uint64 { return c.SampledBytes }},
		{"reprise_redrawn_batches_total", "Prefetched batches that were too old or gone at hand-over.", func(c *service.Counters) uint64 { return c.Redrawn }},
		{"reprise_lapsed_batches_total", "Batches whose lease was over when they were acknowledged.", func(c *service.Counters) uint64 { return c.Lapsed }},
		{"reprise_starved_samples_total", "Samples that timed out for lack of rollouts, or held back by the limiter.", func(c *service.Counters) uint64 { return c.Starved }},
		{"reprise_full_inserts_total", "Insertions that timed out for lack of room, or held back by the limiter.", func(c *service.Counters) uint64 { return c.Full }},
	} {
		m.number(counter, c.name, c.help, func(v *view) float64 { return float64(c.of(&v.Counters)) })
	}
}

// describeFlow has what only some tables have: a limiter, a gate, a journal, priorities, prompts.
func (m *metrics) describeFlow() {
	type view = service.TableView
	m.number(gauge, "reprise_waiting_inserts", "Insertions that wait for room or the limiter.", func(v *view) float64 { return float64(v.InsertsWaiting) })
	m.number(gauge, "reprise_waiting_samples", "Samples that wait for rollouts or the limiter.", func(v *view) float64 { return float64(v.SamplesWaiting) })
	m.number(gauge, "reprise_waiting_starts", "Starts that wait for the gate.", func(v *view) float64 { return float64(v.StartsWaiting) })
	m.numbers = append(m.numbers, tableNumber{m.desc("reprise_age_decay_versions", "Tau of a prioritized sampler's age decay.", "table"), gauge,
		func(v *view) (float64, bool) { return v.AgeDecay, v.AgeDecay > 0 && !math.IsInf(v.AgeDecay, 0) }})

	limiter := func(kind prometheus.ValueType, name, help string, of func(*wire.LimiterState) float64) {
		m.numbers = append(m.numbers, tableNumber{m.desc(name, help, "table"), kind, func(v *view) (float64, bool) {
			if v.Limiter == nil {
				return 0, false
			}
			return of(v.Limiter), true
		}})
	}
	limiter(gauge, "reprise_limiter_balance", "Inserted x samples_per_insert - drawn.", func(l *wire.LimiterState) float64 { return l.Balance })
	limiter(gauge, "reprise_limiter_min", "Balance below which samples wait.", func(l *wire.LimiterState) float64 { return l.Min })
	limiter(gauge, "reprise_limiter_max", "Balance above which insertions wait.", func(l *wire.LimiterState) float64 { return l.Max })
	limiter(gauge, "reprise_limiter_inserts_held", "1 while the limiter holds insertions back.", func(l *wire.LimiterState) float64 { return one(l.InsertsHeld) })
	limiter(gauge, "reprise_limiter_samples_held", "1 while the limiter holds samples back.", func(l *wire.LimiterState) float64 { return one(l.SamplesHeld) })
	limiter(counter, "reprise_limiter_held_inserts_total", "Insertions that the limiter made wait.", func(l *wire.LimiterState) float64 { return float64(l.HeldInserts) })
	limiter(counter, "reprise_limiter_held_samples_total", "Samples that the limiter made wait.", func(l *wire.LimiterState) float64 { return float64(l.HeldSamples) })

	gate := func(kind prometheus.ValueType, name, help string, of func(*wire.GateState) float64) {
		m.numbers = append(m.numbers, tableNumber{m.desc(name, help, "table"), kind, func(v *view) (float64, bool) {
			if v.Gate == nil {
				return 0, false
			}
			return of(v.Gate), true
		}})
	}
	gate(prometheus.GaugeValue, "reprise_gate_allowed_rollouts", "Rollouts that may have been started up to now.", func(g *wire.GateState) float64 { return float64(g.Allowed) })
	gate(prometheus.GaugeValue, "reprise_gate_started_rollouts", "Rollouts inserted or granted.", func(g *wire.GateState) float64 { return float64(g.Started) })
	gate(prometheus.GaugeValue, "reprise_gate_outstanding_rollouts", "Rollouts granted, and neither inserted nor given back.", func(g *wire.GateState) float64 { return float64(g.Outstanding) })
	gate(prometheus.GaugeValue, "reprise_gate_grants", "Grants that are outstanding.", func(g *wire.GateState) float64 { return float64(g.Grants) })
	gate(counter, "reprise_gate_granted_rollouts_total", "Rollouts granted.", func(g *wire.GateState) float64 { return float64(g.Granted) })
	gate(counter, "reprise_gate_abandoned_rollouts_total", "Rollouts granted and given back.", func(g *wire.GateState) float64 { return float64(g.Abandoned) })
	gate(counter, "reprise_gate_expired_rollouts_total", "Rollouts granted that never came.", func(g *wire.GateState) float64 { return float64(g.Expired) })
	m.describeJournal()
	m.describePrompts()
}

func (m *metrics) describeJournal() {
	add := func(kind prometheus.ValueType, name, help string, of func(*journal.Stats) float64) {
		m.numbers = append(m.numbers, tableNumber{m.desc(name, help, "table"), kind, func(v *service.TableView) (float64, bool) {
			if v.Journal == nil {
				return 0, false
			}
			return of(&v.Journal.Stats), true
		}})
	}
	m.numbers = append(m.numbers, tableNumber{m.desc("reprise_journal_healthy", "1 while the journal works.", "table"), gauge, func(v *service.TableView) (float64, bool) {
		return one(v.Journal != nil && v.Journal.Err == nil), v.Journal != nil
	}})
	add(gauge, "reprise_journal_file_bytes", "Bytes of the journal's file.", func(s *journal.Stats) float64 { return float64(s.FileBytes) })
	add(gauge, "reprise_journal_free_bytes", "Bytes of the file that will be used again.", func(s *journal.Stats) float64 { return float64(s.FreeBytes) })
	add(gauge, "reprise_journal_waiting", "Callers that wait for the journal.", func(s *journal.Stats) float64 { return float64(s.Pending) })
	add(counter, "reprise_journal_written_bytes_total", "Bytes of records written.", func(s *journal.Stats) float64 { return float64(s.Bytes) })
	add(counter, "reprise_journal_written_rollouts_total", "Rollouts written.", func(s *journal.Stats) float64 { return float64(s.Rollouts) })
	add(counter, "reprise_journal_written_removals_total", "Removals written.", func(s *journal.Stats) float64 { return float64(s.Removals) })
	add(counter, "reprise_journal_written_uses_total", "Uses and priorities written.", func(s *journal.Stats) float64 { return float64(s.Uses) })
}

func (m *metrics) describePrompts() {
	add := func(kind prometheus.ValueType, name, help string, of func(*service.TableView) float64) {
		m.numbers = append(m.numbers, tableNumber{m.desc(name, help, "table"), kind, func(v *service.TableView) (float64, bool) {
			if v.Prompts == nil {
				return 0, false
			}
			return of(v), true
		}})
	}
	add(gauge, "reprise_prompts_held", "Prompts whose pass rate is within the band.", func(v *service.TableView) float64 { return float64(v.Prompts.Held) })
	add(gauge, "reprise_prompts_eligible", "Prompts that would be handed out.", func(v *service.TableView) float64 { return float64(v.Prompts.Eligible) })
	add(counter, "reprise_prompts_reported_total", "Results of prompts.", func(v *service.TableView) float64 { return float64(v.Prompts.Reported) })
	add(counter, "reprise_prompts_replayed_total", "Prompts handed out.", func(v *service.TableView) float64 { return float64(v.Prompts.Replayed) })
}
