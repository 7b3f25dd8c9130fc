package watch

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

func TestNumberFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{seconds(0), "0 s"}, {seconds(12e-6), "12 µs"}, {seconds(0.00155), "1.55 ms"}, {seconds(2.5), "2.5 s"},
		{seconds(130), "2 min 10 s"},
		{words.Span(59 * time.Second), "59 s"}, {words.Span(61 * time.Second), "1 min 1 s"}, {words.Span(25 * time.Hour), "1 d 1 h"},
		{words.Span(-time.Second), "0 s"},
		{percent(0), "0%"}, {percent(0.0002), "< 0.1%"}, {percent(0.014), "1.4%"}, {percent(0.5), "50%"},
		{percent(0.9999), "> 99.9%"}, {percent(1), "100%"}, {percent(math.NaN()), "–"},
		{signed(1), "+1"}, {signed(-0.5), "−0.5"}, {signed(0), "0"},
	} {
		if c.got != c.want {
			t.Errorf("%q: want %q", c.got, c.want)
		}
	}
}

func TestRatesAreIncreasesPerSecond(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	points := []point{{at: at(0), inserted: 100}, {at: at(2), inserted: 140}, {at: at(4), inserted: 140},
		{at: at(14), inserted: 240}, {at: at(16), inserted: 300}}
	inserted := func(p point) uint64 { return p.inserted }
	var got []float64
	for _, r := range rates(points, inserted) {
		got = append(got, r.value)
	}
	if want := []float64{20, 0, 10, 30}; !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
	for while, want := range map[time.Duration]float64{time.Second: 30, 10 * time.Second: 30,
		12 * time.Second: 160. / 12,
		time.Hour:        200. / 16} {
		if got := current(points, while, inserted); math.Abs(got-want) > 1e-9 {
			t.Errorf("over %v: %v, want %v", while, got, want)
		}
	}
	again := []point{{at: at(0), inserted: 100}, {at: at(2), inserted: 5}}
	if len(rates(again, inserted)) != 0 || current(again, time.Minute, inserted) != 0 ||
		current(again[:1], time.Minute, inserted) != 0 {
		t.Error("a counter that began anew has a rate")
	}
}

func TestHistoryIsBoundedAndDropsDeletedTables(t *testing.T) {
	h := history{limit: 3}
	observe := func(s int, tables ...service.TableView) *service.Observation {
		return &service.Observation{At: time.Unix(int64(s), 0), Tables: tables}
	}
	table := func(name string, created int, rows uint64) service.TableView {
		return service.TableView{Name: name, Created: time.Unix(int64(created), 0),
			Counters: service.Counters{InsertedRows: rows}}
	}
	for s := range 10 {
		h.record(observe(s, table("a", 0, uint64(s)), table("b", 0, 0)))
		h.record(observe(s, table("a", 0, uint64(s)), table("b", 0, 0))) // the same moment twice counts once
	}
	now := table("a", 0, 12)
	var got []uint64
	for _, p := range h.of(time.Unix(12, 0), &now).points {
		got = append(got, p.inserted)
	}
	if !slices.Equal(got, []uint64{7, 8, 9, 12}) {
		t.Errorf("remembered %v", got)
	}
	other := table("a", 11, 1)
	if got := h.of(time.Unix(12, 0), &other).points; len(got) != 1 {
		t.Errorf("a new table of an old name remembers %v", got)
	}
	h.record(observe(13, other, table("b", 0, 0)))
	if got := h.of(time.Unix(14, 0), &other).points; len(got) != 2 || got[0].inserted != 1 {
		t.Errorf("a new table of an old name is remembered as %v", got)
	}
	h.record(observe(20, table("b", 0, 0)))
	if len(h.tables) != 1 {
		t.Errorf("%d tables are remembered", len(h.tables))
	}
}

// What was counted between two points of a day is what the table counted, whatever was thinned between them.
func TestADayOfHistoryIsKeptByMinutesInBoundedMemory(t *testing.T) {
	h := history{limit: 151}
	counted := uint64(0)
	random := rollout.Stream(3, "history", 0)
	at := time.Unix(0, 0)
	var v service.TableView
	for ; at.Before(time.Unix(30*3600, 0)); at = at.Add(2 * time.Second) {
		counted += uint64(random.IntN(20))
		v = service.TableView{Name: "a", Counters: service.Counters{InsertedRows: counted},
			SamplesWaiting: int(at.Unix()/3600) % 2}
		h.record(&service.Observation{At: at, Tables: []service.TableView{v}})
	}
	p := h.of(at, &v)
	if n := len(p.points); n != 152 {
		t.Errorf("%d points of the last five minutes, want 151 and the present one", n)
	}
	if n := len(p.before); n < 1430 || n > 1440 {
		t.Errorf("%d points of the day before, want one a minute", n)
	}
	day := p.over(daySpan)
	if n := len(day); n < 100 || n > 200 {
		t.Errorf("a day is drawn by %d points", n)
	}
	if first := day[0].at; at.Sub(first) < daySpan-15*time.Minute || at.Sub(first) > daySpan+time.Minute {
		t.Errorf("the day begins %s ago", at.Sub(first))
	}
	sum, waited := 0.0, time.Duration(0)
	for i := 1; i < len(day); i++ {
		sum += perSecond(func(p point) uint64 { return p.inserted })(day[i-1], day[i]) * day[i].at.Sub(day[i-1].at).Seconds()
		waited += day[i].samplesWaited - day[i-1].samplesWaited
	}
	if want := float64(counted - day[0].inserted); math.Abs(sum-want) > 1e-6*want {
		t.Errorf("the rates of the day add up to %g rollouts, want %g", sum, want)
	}
	if share := waited.Hours() / 24; share < 0.47 || share > 0.53 {
		t.Errorf("callers waited for %g of the day, want half of it", share)
	}
}

func TestManyTablesShareTheMemoryOfHistories(t *testing.T) {
	h := history{limit: 151}
	var tables []service.TableView
	for i := range 2000 {
		tables = append(tables, service.TableView{Name: fmt.Sprint(i)})
	}
	for s := range 400 {
		h.record(&service.Observation{At: time.Unix(int64(100*s), 0), Tables: tables})
	}
	n := 0
	for _, s := range h.tables {
		n += len(s.points) + len(s.before)
	}
	if n > maxRecent+maxCoarse || n < 2000*10 {
		t.Errorf("%d points of 2,000 tables, want at most %d", n, maxRecent+maxCoarse)
	}
}

func TestBucketsCountEveryValueOnce(t *testing.T) {
	random := rollout.Stream(11, "buckets", 0)
	for range tests.Count(2000, 400) {
		var h rollout.Histogram
		scale := int64(1) << random.IntN(20)
		for range 1 + random.IntN(200) {
			h.Add(random.Int64N(scale))
		}
		if random.IntN(3) == 0 {
			h.Add(1 << 40)
		}
		list := bucketsOf(&h)
		if len(list) > maxBars+1 || len(list) == 0 {
			t.Fatalf("%d buckets of values up to %d", len(list), h.Max())
		}
		var all uint64
		for i, b := range list {
			all += b.n
			if i > 0 && b.from != list[i-1].to+1 {
				t.Fatalf("bucket %d begins at %d, the one before ends at %d", i, b.from, list[i-1].to)
			}
			var within uint64
			for _, bin := range h.Bins() {
				if bin.Value >= b.from && (bin.Value <= b.to || b.to == -1) {
					within += bin.Count
				}
			}
			if within != b.n {
				t.Fatalf("bucket %s has %d, want %d", b.about(), b.n, within)
			}
		}
		if all != h.Count() {
			t.Fatalf("buckets have %d of %d values", all, h.Count())
		}
	}
	if bucketsOf(&rollout.Histogram{}) != nil {
		t.Error("nothing has buckets")
	}
}

func TestLatencyQuantilesLieInTheirBucket(t *testing.T) {
	l := service.Latency{Count: 100, Bounds: []float64{1, 2, 4}, Counts: []uint64{50, 40, 8, 2}}
	for q, want := range map[float64]float64{0: 0, 0.25: 0.5, 0.5: 1, 0.9: 2, 0.94: 3, 0.98: 4, 1: 4} {
		if got := quantile(&l, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := medianAndP99(&service.Latency{}); got != "–" {
		t.Errorf("of nothing: %s", got)
	}
}

func TestBarsByAgeKeepSharesAndMeans(t *testing.T) {
	var shares []replay.AgeShare
	var reported []replay.AgeESS
	for age := range 300 {
		shares = append(shares, replay.AgeShare{Age: age, Units: 1, Base: 1, Probability: 1. / 300})
		reported = append(reported, replay.AgeESS{First: age, Last: age, ESS: 0.5, Tokens: 10})
	}
	list := priorityBars(shares)
	sum := 0.0
	for _, b := range list {
		sum += b.value
	}
	if math.Abs(sum-1) > 1e-9 || len(list) > maxBars {
		t.Errorf("%d bars with %v of the draws", len(list), sum)
	}
	for _, b := range essBars(reported) {
		if math.Abs(b.value-0.5) > 1e-9 {
			t.Errorf("%s: ESS %v, want 0.5", b.label, b.value)
		}
	}
	if got := meanESS(&service.TableView{ESSByAge: reported}); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("mean ESS %v", got)
	}
	wide := essBars([]replay.AgeESS{{First: 0, Last: 9, ESS: 0.2, Tokens: 10},
		{First: 10, Last: 99, ESS: 0.8, Tokens: 90}})
	if math.Abs(wide[0].value-0.2) > 1e-9 || math.Abs(wide[len(wide)-1].value-0.8) > 1e-9 {
		t.Errorf("ranges of ages: %v … %v", wide[0], wide[len(wide)-1])
	}
}
