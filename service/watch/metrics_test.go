package watch_test

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

// scraped are the metrics of an observation by name, as Prometheus reads them.
func scraped(t *testing.T, o service.Observation) map[string]*dto.MetricFamily {
	t.Helper()
	answer := get(open(t, o), "/metrics", "")
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// with returns the metric of a family that has these labels, given as name=value.
func with(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) *dto.Metric {
	t.Helper()
	if families[name] == nil {
		t.Errorf("there is no metric %s", name)
		return &dto.Metric{}
	}
next:
	for _, m := range families[name].Metric {
		have := make(map[string]string)
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		for _, l := range labels {
			key, value, _ := strings.Cut(l, "=")
			if have[key] != value {
				continue next
			}
		}
		return m
	}
	t.Errorf("metric %s has no %v", name, labels)
	return &dto.Metric{}
}

func TestMetricsReportTheObservation(t *testing.T) {
	o := busy(302)
	o.Stopping = true
	f := scraped(t, o)
	v := &o.Tables[0]
	const table = "table=math-prioritized"
	for name, want := range map[string]float64{
		"reprise_rollouts": 38_412, "reprise_capacity_rollouts": 50_000, "reprise_bytes": 1.236e9,
		"reprise_version":          1843,
		"reprise_never_used_ratio": 0.118,
		"reprise_on_lease_draws":   128, "reprise_limiter_balance": 4890, "reprise_limiter_min": 3072,
		"reprise_limiter_max":          5120,
		"reprise_limiter_inserts_held": 1, "reprise_limiter_samples_held": 0, "reprise_gate_allowed_rollouts": 948_224,
		"reprise_gate_outstanding_rollouts": 1_024,
		"reprise_waiting_inserts":           2, "reprise_waiting_samples": 0, "reprise_waiting_starts": 1,
		"reprise_journal_file_bytes": 1.61e9, "reprise_journal_waiting": 3,
		"reprise_journal_damage": 0, "reprise_journal_verified_time_seconds": float64(epoch().Unix()) + 302 - 3600,
		"reprise_journal_healthy": 1, "reprise_age_decay_versions": 6.2, "reprise_prompts_held": 412,
	} {
		if got := with(t, f, name, table).GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]uint64{
		"reprise_inserted_rollouts_total": v.Stats.Inserted, "reprise_drawn_rollouts_total": v.Stats.Drawn,
		"reprise_acknowledged_draws_total": v.Stats.Acknowledged,
		"reprise_returned_draws_total":     32, "reprise_refused_rollouts_total": 3,
		"reprise_insert_requests_total": v.Counters.InsertRequests,
		"reprise_inserted_tokens_total": v.Counters.InsertedTokens,
		"reprise_sampled_bytes_total":   v.Counters.SampledBytes, "reprise_redrawn_batches_total": 19,
		"reprise_starved_samples_total": 2, "reprise_full_inserts_total": 5,
		"reprise_limiter_held_inserts_total": 211, "reprise_gate_expired_rollouts_total": 2,
		"reprise_journal_written_bytes_total": v.Journal.Stats.Bytes,
	} {
		if got := with(t, f, name, table).GetCounter().GetValue(); got != float64(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for labels, want := range map[string]float64{"cause=capacity": 48_220, "cause=staleness": 9_310,
		"cause=uses":     2_118,
		"cause=consumed": 0, "cause=rewind": 0, "cause=damage": 2} {
		if got := with(t, f, "reprise_evicted_rollouts_total", table, labels).GetCounter().GetValue(); got != want {
			t.Errorf("evicted by %s: %v, want %v", labels, got, want)
		}
	}
	for name, want := range map[string]float64{"reprise_tables": 2, "reprise_connections": 4, "reprise_streams": 3,
		"reprise_healthy": 1, "reprise_stopping": 1, "reprise_disk_full": 0, "reprise_disk_free_bytes": 0} {
		if got := with(t, f, name).GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := with(t, f, "reprise_memory_part_bytes", "part=insertions").GetGauge().GetValue(); got != 12_400_000 {
		t.Errorf("memory of insertions: %v", got)
	}
	if got := with(t, f, "reprise_calls_total", "method=DoPut").GetCounter().GetValue(); got != 16 {
		t.Errorf("calls of DoPut: %v", got)
	}
	if got := with(t, f, "reprise_errors_total", "code=full").GetCounter().GetValue(); got != 5 {
		t.Errorf("errors full: %v", got)
	}
	with(t, f, "reprise_build_info", "version=1.2.3")
	with(t, f, "go_goroutines")
}

func TestMetricsOfMissingPartsAreAbsent(t *testing.T) {
	for name, family := range scraped(t, busy(302)) {
		optional := strings.HasPrefix(name, "reprise_limiter_") || strings.HasPrefix(name, "reprise_gate_") ||
			strings.HasPrefix(name, "reprise_journal_") ||
			strings.HasPrefix(name, "reprise_prompts_") || name == "reprise_ess_ratio" ||
			name == "reprise_age_decay_versions"
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if l.GetName() == "table" && l.GetValue() == "code" && optional {
					t.Errorf("%s speaks of a table that has none", name)
				}
			}
		}
	}
}

func TestHistogramBucketsAreCumulative(t *testing.T) {
	o := busy(302)
	v := &o.Tables[0]
	f := scraped(t, o)
	for name, want := range map[string]*rollout.Histogram{"reprise_staleness_versions": &v.Stats.Staleness,
		"reprise_updates_since_last_use": &v.Stats.SinceLastUse, "reprise_uses_at_eviction": &v.Stats.UsesAtEviction} {
		h := with(t, f, name, "table=math-prioritized").GetHistogram()
		if h.GetSampleCount() != want.Count() || h.GetSampleSum() != want.Sum() || len(h.Bucket) < 10 {
			t.Errorf("%s: %d values with sum %v in %d buckets", name, h.GetSampleCount(), h.GetSampleSum(),
				len(h.Bucket))
		}
		for _, b := range h.Bucket {
			var below uint64
			for _, bin := range want.Bins() {
				if float64(bin.Value) <= b.GetUpperBound() {
					below += bin.Count
				}
			}
			if b.GetCumulativeCount() != below {
				t.Errorf("%s: %d at or below %v, want %d", name, b.GetCumulativeCount(), b.GetUpperBound(), below)
			}
		}
	}
	h := with(t, f, "reprise_insert_seconds", "table=math-prioritized").GetHistogram()
	if got := h.Bucket[2].GetCumulativeCount(); got != 12+210+610 || h.Bucket[2].GetUpperBound() != 0.004 ||
		h.GetSampleCount() != 1000 {
		t.Errorf("inserts within 4 ms: %d of %d", got, h.GetSampleCount())
	}
	commits := with(t, f, "reprise_journal_commit_seconds", "table=math-prioritized").GetHistogram()
	if commits.GetSampleCount() != 25_811 || commits.Bucket[1].GetCumulativeCount() != 22_000 ||
		commits.GetSampleSum() != 41 {
		t.Errorf("commits: %v", commits)
	}
}

func TestRangesOfUsesAndAgesCoverEveryValue(t *testing.T) {
	o := busy(302)
	o.Tables[0].Stats.UsesPresent.Add(40)
	f := scraped(t, o)
	all := 0.0
	for _, m := range f["reprise_present_rollouts_by_uses"].Metric {
		if m.Label[0].GetValue() == "math-prioritized" {
			all += m.GetGauge().GetValue()
		}
	}
	if want := float64(o.Tables[0].Stats.UsesPresent.Count()); all != want {
		t.Errorf("%v rollouts by uses, want %v", all, want)
	}
	uses := o.Tables[0].Stats.UsesPresent
	if got, want := with(t, f, "reprise_present_rollouts_by_uses", "table=math-prioritized",
		"uses=4-7").GetGauge().GetValue(), float64(uses.Of(4)+uses.Of(5)+uses.Of(6)+uses.Of(7)); got != want {
		t.Errorf("4 to 7 uses: %v, want %v", got, want)
	}
	if got := with(t, f, "reprise_ess_ratio", "table=math-prioritized",
		"age=1").GetGauge().GetValue(); math.Abs(got-math.Exp(-1./14)) > 1e-9 {
		t.Errorf("ESS at age 1: %v", got)
	}
}

// TestLabelsAreBounded holds the number of series to the tables and to lists that are fixed.
func TestLabelsAreBounded(t *testing.T) {
	for name, family := range scraped(t, busy(302)) {
		if strings.HasPrefix(name, "reprise_") && len(family.Metric) > 2*8 {
			t.Errorf("%s has %d series of two tables", name, len(family.Metric))
		}
	}
}

// TestTheGrafanaDashboardUsesExistingMetrics reads docs/grafana.json.
func TestTheGrafanaDashboardUsesExistingMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		Inputs []struct{ Name, PluginID string } `json:"__inputs"`
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	families := scraped(t, busy(302))
	names := regexp.MustCompile(`\b(?:reprise|process|go)_[a-z_]+`)
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	asked := make(map[string]bool)
	ids := make(map[int]bool)
	type cell struct{ x, y int }
	taken := make(map[cell]string)
	for _, p := range board.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %q has number %d, as another has", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[cell{x, y}]; other != "" || x >= 24 {
					t.Errorf("panel %q lies on %q", p.Title, other)
				}
				taken[cell{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			found := names.FindAllString(target.Expr, -1)
			if len(found) == 0 {
				t.Errorf("panel %q asks for none of our metrics: %s", p.Title, target.Expr)
			}
			for _, name := range found {
				family := families[name]
				if base := suffix.ReplaceAllString(name, ""); family == nil && base != name &&
					families[base].GetType() == dto.MetricType_HISTOGRAM {
					family = families[base]
				}
				if family == nil {
					t.Errorf("panel %q asks for %s, which does not exist", p.Title, name)
				}
				asked[name] = true
			}
		}
	}
	if board.Title == "" || len(board.Inputs) != 1 || len(asked) < 30 {
		t.Errorf("dashboard %q with %d inputs asks for %d metrics: %v", board.Title, len(board.Inputs), len(asked),
			slices.Sorted(maps.Keys(asked)))
	}
}
