package watch_test

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// epoch is when the services of tests started.
func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// fake is a service that a test observes.
type fake struct {
	mu sync.Mutex
	o  service.Observation
}

func (f *fake) observe() service.Observation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.o
}

func (f *fake) set(o service.Observation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.o = o
}

// counted is a histogram with the given number of each value.
func counted(counts ...int) rollout.Histogram {
	var h rollout.Histogram
	for v, n := range counts {
		for range n {
			h.Add(int64(v))
		}
	}
	return h
}

// empty is a service that has just started, with one table that nobody has used.
func empty() service.Observation {
	return service.Observation{
		At: epoch().Add(3 * time.Second), Started: epoch(), MemoryBytes: 8 << 30,
		Tables: []service.TableView{{
			Name: "math", Created: epoch(), Definition: wire.Table{Name: "math",
				Options: replay.Options{Capacity: 4096, Sampler: "uniform", Retention: "fifo"}},
			Stats: rollout.Stats{Evicted: map[rollout.Cause]uint64{}},
		}},
	}
}

// bell is how many of a hundred thousand fall on each value below n around a middle.
func bell(n int, middle, width float64, scale float64) rollout.Histogram {
	counts := make([]int, n)
	for v := range counts {
		d := (float64(v) - middle) / width
		counts[v] = int(scale * math.Exp(-d*d/2))
	}
	return counted(counts...)
}

// busy is a service at work, the given seconds after it started.
func busy(after int) service.Observation {
	at := float64(after)
	rows := func(perSecond float64) uint64 {
		return uint64(perSecond*at + 60*math.Sin(at/9)*math.Min(1, perSecond/50) + 30)
	}
	math1 := service.TableView{
		Name: "math-prioritized", Created: epoch(), OnLease: 128, AgeDecay: 6.2, NeverUsed: 0.118,
		Definition: wire.Table{Name: "math-prioritized",
			Options: replay.Options{Capacity: 50_000, CapacityBytes: 2_000_000_000, Sampler: "prioritized",
				Retention: "positive_bias", MaxStaleness: 16, MaxUses: 12, GroupSize: 16, Unit: "rollout"}},
		Stats: rollout.Stats{
			Version: 1843, Present: 38_412, PresentBytes: 1_236_000_000, Inserted: rows(412),
			InsertedGroups: rows(412) / 16,
			Drawn:          rows(1648), Acknowledged: rows(1648) - 160,
			Returned: 32, Refused: 3, NeverUsed: 1204, UpdatesIgnored: 77,
			Evicted: map[rollout.Cause]uint64{rollout.EvictedByCapacity: 48_220, rollout.EvictedByStaleness: 9_310,
				rollout.EvictedByUses: 2_118, rollout.EvictedByDamage: 2},
			Staleness: bell(17, 2.2, 2.6, 40_000), UsesPresent: bell(13, 3.4, 2.4, 6_000),
			UsesAtEviction: bell(13, 7.5, 2.4, 6_000), SinceLastUse: bell(60, 8, 11, 9_000),
		},
		Counters: service.Counters{
			InsertRequests: rows(412) / 16, InsertedRows: rows(412), InsertedTokens: rows(412) * 1_060,
			InsertedBytes: rows(412) * 16_800, ReceivedBytes: rows(412) * 17_100,
			RepeatedInserts: 4, RefusedInserts: 1, RefusedRows: 3, Samples: rows(1648) / 64, SampledRows: rows(1648),
			SampledTokens: rows(1648) * 1_060, SampledBytes: rows(1648) * 17_000,
			Redrawn: 19, Lapsed: 1, Starved: 2, Full: 5,
		},
		InsertLatency: service.Latency{Count: 1000, Seconds: 4.1, Bounds: []float64{0.001, 0.002, 0.004, 0.008, 0.016},
			Counts: []uint64{12, 210, 610, 150, 16, 2}},
		SampleLatency: service.Latency{Count: 5000, Seconds: 6.2, Bounds: []float64{0.0005, 0.001, 0.002, 0.004},
			Counts: []uint64{820, 3100, 1010, 60, 10}},
		InsertsWaiting: 2, StartsWaiting: 1,
		Limiter: &wire.LimiterState{SamplesPerInsert: 4, Min: 3072, Max: 5120, Balance: 4890, Inserted: rows(412),
			Drawn: rows(1648), HeldInserts: 211, HeldSamples: 34, InsertsHeld: true},
		Gate: &wire.GateState{RolloutsPerUpdate: 512, MaxStaleness: 8, Allowed: 948_224, Started: 947_712,
			Outstanding: 1_024, Grants: 7, Granted: 60_000, Abandoned: 16, Expired: 2},
		Prompts: &prompts.Stats{Held: 412, Eligible: 288, Spent: 31, Reported: 8_120, ZeroVariance: 3_410,
			Replayed: 1_207},
		Journal: &service.JournalState{Path: "/data/math.journal", Sync: journal.Always, Stats: journal.Stats{
			Commits: 25_811, Rollouts: rows(412), Removals: 59_648, Uses: 160_000, Bytes: rows(412) * 16_900,
			LogBytes: 1_610_000_000, Pending: 3,
			Writes: []journal.Latency{{UpTo: time.Millisecond, Count: 2_000},
				{UpTo: 2 * time.Millisecond, Count: 20_000},
				{UpTo: 4 * time.Millisecond, Count: 3_700}, {Count: 111}},
			WriteTime: 41 * time.Second, Verified: epoch().Add(time.Duration(after-3600) * time.Second),
		}},
	}
	for age := range 17 {
		math1.ByAge = append(math1.ByAge, replay.AgeShare{Age: age, Units: 2_600 - 90*age,
			Base:        0.8 + 0.02*float64(age),
			Probability: 0.16 * math.Exp(-float64(age)/6.2)})
		math1.ESSByAge = append(math1.ESSByAge,
			replay.AgeESS{First: age, Last: age, ESS: math.Exp(-float64(age) / 14),
				Tokens: 40_000 * math.Exp(-float64(age)/5)})
	}
	texts := []string{
		"Let x be the number of apples that Tom has. Then 3x + 4 = 19, so 3x = 15 and x = 5.\n\n" +
			"The answer is \\boxed{5}.",
		"We have 12 eggs in a dozen and use 3 for breakfast and 4 for muffins, so 12 - 3 - 4 = 5 are left. At $2 " +
			"each that makes $10 a day.\n#### 10",
		"First I compute the area: 7 * 8 = 54. Then I subtract the border, which gives 54 - 30 = 24.\n" +
			"So the area is <b>24</b> & nothing else </pre><script>alert(1)</script>",
		"Hmm, let me try again. Wait. Suppose that the train leaves at noon. Then it travels for 3 hours at 80 km/h, " +
			"which makes 240 km. But the question asks for miles, so 240 / 1.609 = 149. Hmm, let me check this " +
			"again, because the numbers should come out round. Suppose instead that the train leaves at one. Then it " +
			"travels for 2 hours only",
		"東京タワーの高さは333メートルです。したがって答えは 333 です。",
		"42",
	}
	for i, text := range texts {
		math1.Recent = append(math1.Recent, service.Recent{
			ID: rollout.ID(90_000 - i), PromptID: fmt.Sprintf("gsm8k/train/%d", 4711+13*i), Text: text, Cut: i == 3,
			Truncated: i == 3,
			Reward:    float32([]int{1, 1, 0, 0, 1, -1}[i]), Version: rollout.Version(1843 - i/3), Tokens: 38 + 61*i,
			At: epoch().Add(time.Duration(after-i*7) * time.Second),
		})
	}
	code := service.TableView{
		Name: "code", Created: epoch(), Definition: wire.Table{Name: "code",
			Options: replay.Options{Capacity: 2_048, Sampler: "queue", Retention: "refuse", MaxUses: 1}},
		Stats: rollout.Stats{
			Version: 1843, Present: 1_871, PresentBytes: 310_000_000, Inserted: rows(55), Drawn: rows(54),
			Acknowledged: rows(54), Evicted: map[rollout.Cause]uint64{rollout.EvictedByConsume: rows(54)},
			Staleness: counted(0, 4_000, 900, 120, 7), UsesPresent: counted(1871),
		},
		Counters: service.Counters{InsertRequests: rows(7), InsertedRows: rows(55), InsertedTokens: rows(55) * 8_200,
			InsertedBytes: rows(55) * 131_000, Samples: rows(1), SampledRows: rows(54), SampledTokens: rows(54) * 8_200,
			SampledBytes: rows(54) * 131_000},
		NeverUsed: 1,
	}
	return service.Observation{
		At: epoch().Add(time.Duration(after) * time.Second), Started: epoch().Add(-31 * time.Hour),
		Tables:      []service.TableView{math1, code},
		MemoryBytes: 8 << 30, Memory: []service.MemoryPart{
			{Name: "insertions", Used: 12_400_000, Most: 1 << 30, Refused: 2},
			{Name: "outgoing", Used: 71_000_000, Most: 1 << 30},
			{Name: "tables", Used: 3_100_000_000, Most: 5 << 30},
		},
		SlowReaders: 1,
		Errors:      []service.ErrorCount{{Code: wire.Full, Count: 5}, {Code: wire.Invalid, Count: 1}},
		Calls:       map[string]uint64{"DoPut": 16, "DoExchange": 4, "DoAction": 1843},
		Connections: []service.Connection{
			{Peer: "10.1.0.7:51334", Caller: "trainer", Since: epoch().Add(-2 * time.Hour), ReceivedBytes: 21_000_000,
				SentBytes: 1_830_000_000_000, Streams: 2, Tables: []string{"code", "math-prioritized"}},
			{Peer: "10.1.0.21:40112", Caller: "generators", Since: epoch().Add(-40 * time.Minute),
				ReceivedBytes: 77_000_000_000,
				SentBytes:     3_100_000, Streams: 1, Tables: []string{"math-prioritized"}},
			{Peer: "[2001:db8:0:17:a1b2:c3d4:e5f6:1234]:40113", Caller: "generators-of-the-other-cluster",
				Since:         epoch(),
				ReceivedBytes: 912_000, SentBytes: 2_100, Streams: 0},
			{Peer: "unix 4", Since: epoch(), ReceivedBytes: 912, SentBytes: 2_100, Streams: 0},
		},
	}
}
