package capture

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics answers /metrics for Prometheus.
func (c *Capture) metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge := func(name, help string, value func(Stats) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "reprise_capture_" + name, Help: help},
			func() float64 { return value(c.Stats()) }))
	}
	counter := func(name, help string, value func(Stats) int64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "reprise_capture_" + name + "_total",
			Help: help}, func() float64 { return float64(value(c.Stats())) }))
	}
	gauge("version", "Table version last seen.", func(s Stats) float64 { return float64(s.Version) })
	gauge("open_sessions", "Sessions that have not ended.", func(s Stats) float64 { return float64(s.Sessions) })
	gauge("held_bytes", "Bytes of sessions and of calls under way.", func(s Stats) float64 { return float64(s.Memory) })
	gauge("memory_bytes", "Most bytes that may be held.", func(Stats) float64 { return float64(c.options.Memory) })
	counter("calls", "Calls recorded.", func(s Stats) int64 { return s.Calls })
	counter("untrained_calls", "Calls recorded whose tokens must not be learned from: settings steered their sampling.",
		func(s Stats) int64 { return s.Untrained })
	counter("replaced_calls", "Calls recorded of which a setting of the sampling was replaced.",
		func(s Stats) int64 { return s.Replaced })
	counter("broken_calls", "Calls that were not recorded: their answer did not reach its end, or came after the reward.",
		func(s Stats) int64 { return s.Broken })
	counter("refused_calls", "Calls refused for lack of memory.", func(s Stats) int64 { return s.Refused })
	counter("branches", "Rollouts that began because a call did not continue the tokens of its session.",
		func(s Stats) int64 { return s.Branches })
	counter("inserted_sessions", "Sessions in the table.", func(s Stats) int64 { return s.Complete })
	counter("inserted_rollouts", "Rollouts inserted.", func(s Stats) int64 { return s.Inserted })
	counter("inserted_tokens", "Tokens of the policy in sessions inserted.", func(s Stats) int64 { return s.Tokens })
	counter("left_out_rollouts", "Rollouts that were left out because of --latest.",
		func(s Stats) int64 { return s.LeftOut })
	counter("lost_sessions", "Sessions whose deadline passed before their reward, or before the rest of their group "+
		"came.",
		func(s Stats) int64 { return s.Lost })
	counter("discarded_sessions", "Sessions that the table refused, or that a client ended.",
		func(s Stats) int64 { return s.Discarded })
	counter("loads", "Versions of the weights that the engine took.", func(s Stats) int64 { return s.Loads })
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
