package worker

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics answers /metrics for Prometheus.
func (w *Worker) Metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{w, numbers(), engineNumbers()})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// collector gives Prometheus the worker's stats.
type collector struct {
	worker  *Worker
	own     []number[Stats]
	engines []number[EngineStats]
}

// number is a metric of a worker, or of each of its engines.
type number[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*T) float64
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func metric[T any](kind prometheus.ValueType, name, help string, value func(*T) float64, labels ...string) number[T] {
	return number[T]{prometheus.NewDesc("reprise_worker_"+name, help, labels, nil), kind, value}
}

func numbers() []number[Stats] {
	return []number[Stats]{
		metric(gauge, "version", "Table version last seen.",
			func(s *Stats) float64 { return float64(s.Version) }),
		metric(counter, "inserted_groups_total", "Groups inserted.", func(s *Stats) float64 { return float64(s.Groups) }),
		metric(counter, "inserted_rollouts_total", "Rollouts inserted.",
			func(s *Stats) float64 { return float64(s.Rollouts) }),
		metric(counter, "inserted_tokens_total", "Tokens of the policy in rollouts inserted.",
			func(s *Stats) float64 { return float64(s.Tokens) }),
		metric(gauge, "reward_mean", "Mean reward of the rollouts inserted.", func(s *Stats) float64 { return s.Reward }),
		metric(counter, "truncated_rollouts_total", "Rollouts inserted that ended for lack of room.",
			func(s *Stats) float64 { return float64(s.Truncated) }),
		metric(counter, "too_old_rollouts_total", "Rollouts that left the table at once, older than max_staleness.",
			func(s *Stats) float64 { return float64(s.TooOld) }),
		metric(gauge, "generating_groups", "Groups being generated.",
			func(s *Stats) float64 { return float64(s.Generating) }),
		metric(gauge, "inserting_groups", "Finished groups that wait to enter the table.",
			func(s *Stats) float64 { return float64(s.Inserting) }),
		metric(counter, "cut_groups_total", "Groups cut at the deadline.", func(s *Stats) float64 { return float64(s.Cut) }),
		metric(counter, "too_long_groups_total", "Groups whose prompt left no room for a completion.",
			func(s *Stats) float64 { return float64(s.TooLong) }),
		metric(counter, "continued_completions_total",
			"Completions that an engine aborted, or that spent the token budget, and that went on.",
			func(s *Stats) float64 { return float64(s.Continued) }),
		metric(counter, "gate_seconds_total", "Time in which the gate kept the worker from starting a group.",
			func(s *Stats) float64 { return s.GateSeconds }),
		metric(counter, "insert_seconds_total", "Time of finished groups until they were inserted, summed.",
			func(s *Stats) float64 { return s.InsertSeconds }),
		metric(counter, "generate_seconds_total", "Time of groups until they were finished, summed.",
			func(s *Stats) float64 { return s.GenerateSeconds }),
	}
}

func engineNumbers() []number[EngineStats] {
	add := func(kind prometheus.ValueType, name, help string, value func(*EngineStats) float64) number[EngineStats] {
		return metric(kind, "engine_"+name, help, value, "engine")
	}
	return []number[EngineStats]{
		add(gauge, "ready", "1 if requests go to the engine.", func(s *EngineStats) float64 {
			if s.Ready {
				return 1
			}
			return 0
		}),
		add(gauge, "version", "Version of its weights.", func(s *EngineStats) float64 { return float64(s.Version) }),
		add(gauge, "outstanding_completions", "Completions being made.",
			func(s *EngineStats) float64 { return float64(s.Outstanding) }),
		add(counter, "completions_total", "Completions made.",
			func(s *EngineStats) float64 { return float64(s.Completions) }),
		add(counter, "tokens_total", "Tokens made.", func(s *EngineStats) float64 { return float64(s.Tokens) }),
		add(counter, "busy_seconds_total", "Time with a completion to make.",
			func(s *EngineStats) float64 { return s.BusySeconds }),
		add(counter, "failures_total", "Requests that failed and were repeated.",
			func(s *EngineStats) float64 { return float64(s.Failures) }),
		add(counter, "loads_total", "Versions of the weights taken.",
			func(s *EngineStats) float64 { return float64(s.Loads) }),
		add(counter, "load_seconds_total", "Time of taking them.", func(s *EngineStats) float64 { return s.LoadSeconds }),
	}
}

// Describe and Collect make a collector a prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, n := range c.own {
		out <- n.desc
	}
	for _, n := range c.engines {
		out <- n.desc
	}
}

// Collect sends the numbers of this moment.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.worker.Stats()
	for _, n := range c.own {
		out <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(&s))
	}
	for i := range s.Engines {
		for _, n := range c.engines {
			out <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(&s.Engines[i]), s.Engines[i].Engine)
		}
	}
}
