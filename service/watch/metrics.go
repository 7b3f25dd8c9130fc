package watch

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reprise-rl/reprise/service"
)

// metrics are what /metrics answers with. Of labels there are the tables, and lists that are fixed in the code: causes,
// methods, error codes, and ranges of ages and uses.
type metrics struct {
	process *prometheus.Registry // the Go runtime and the process
	numbers []tableNumber
	spreads []tableSpread
	whole   []serviceNumber
	descs   []*prometheus.Desc

	evicted, byUses, ess, calls, errors *prometheus.Desc
}

// tableNumber is a number of each table.
type tableNumber struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*service.TableView) (value float64, ok bool) // not ok: this table has none
}

// tableSpread is a histogram of each table.
type tableSpread struct {
	desc *prometheus.Desc
	of   func(*service.TableView) (s spread, ok bool)
}

// serviceNumber is a number of the service.
type serviceNumber struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*service.Observation) float64
}

func newMetrics(version string) *metrics {
	m := &metrics{process: prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "reprise_build_info", Help: "1; the label has the version of the program.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	m.describeService()
	m.describeTables()
	m.describeFlow()
	m.describeSpreads()
	m.evicted = m.desc("reprise_evicted_rollouts_total", "Rollouts that left the table.", "table", "cause")
	m.byUses = m.desc("reprise_present_rollouts_by_uses", "Rollouts in the table by how often they have been used.", "table", "uses")
	m.ess = m.desc("reprise_ess_ratio", "Effective sample size as a share of the tokens, by age in versions, as trainers reported it.", "table", "age")
	m.calls = m.desc("reprise_calls_total", "Calls begun, by Flight method.", "method")
	m.errors = m.desc("reprise_errors_total", "Calls and requests that ended in an error, by its code.", "code")
	return m
}

func (m *metrics) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	m.descs = append(m.descs, d)
	return d
}

// scrape answers with the metrics of the tables that the caller may read.
func (w *Watch) scrape(answer http.ResponseWriter, r *http.Request) {
	o, _ := w.observe()
	one := prometheus.NewRegistry()
	if err := one.Register(&collection{w.metrics, &o, w.readable(r.Context(), &o)}); err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	promhttp.HandlerFor(prometheus.Gatherers{w.metrics.process, one}, promhttp.HandlerOpts{}).ServeHTTP(answer, r)
}

// collection is the metrics of one observation.
type collection struct {
	*metrics
	observed *service.Observation
	tables   []*service.TableView
}

// Describe names all metrics that there can be.
func (c *collection) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect turns the observation into metrics.
func (c *collection) Collect(out chan<- prometheus.Metric) {
	for _, n := range c.whole {
		out <- prometheus.MustNewConstMetric(n.desc, n.kind, n.of(c.observed))
	}
	for method, n := range c.observed.Calls {
		out <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(n), method)
	}
	for _, e := range c.observed.Errors {
		out <- prometheus.MustNewConstMetric(c.errors, prometheus.CounterValue, float64(e.Count), string(e.Code))
	}
	for _, v := range c.tables {
		c.collectTable(v, out)
	}
}

func (c *collection) collectTable(v *service.TableView, out chan<- prometheus.Metric) {
	for _, n := range c.numbers {
		if x, ok := n.of(v); ok {
			out <- prometheus.MustNewConstMetric(n.desc, n.kind, x, v.Name)
		}
	}
	for _, s := range c.spreads {
		if x, ok := s.of(v); ok {
			out <- prometheus.MustNewConstHistogram(s.desc, x.count, x.sum, x.upTo, v.Name)
		}
	}
	for _, cause := range causes() {
		out <- prometheus.MustNewConstMetric(c.evicted, prometheus.CounterValue, float64(v.Stats.Evicted[cause.cause]), v.Name, string(cause.cause))
	}
	for _, u := range usesClasses(&v.Stats.UsesPresent) {
		out <- prometheus.MustNewConstMetric(c.byUses, prometheus.GaugeValue, float64(u.n), v.Name, u.name)
	}
	for _, a := range essClasses(v.ESSByAge) {
		out <- prometheus.MustNewConstMetric(c.ess, prometheus.GaugeValue, a.ess, v.Name, a.name)
	}
}
