package results

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
)

// reaching returns evaluations that are at 0.65 at the i-th grid step of compute 100, below before and above after it
// (never for i < 0).
func reaching(seed uint64, i int) SeedEvals {
	accuracies := make([]float64, 12)
	for j := range accuracies {
		switch {
		case i < 0 || j < i:
			accuracies[j] = 0.4
		case j == i:
			accuracies[j] = 0.65
		default:
			accuracies[j] = 0.7
		}
	}
	return SeedEvals{seed, evalsAt(100, accuracies...)}
}

// arm returns seeds 1, 2, … that reach the target at these grid steps.
func arm(steps ...int) []SeedEvals {
	var runs []SeedEvals
	for i, s := range steps {
		runs = append(runs, reaching(uint64(i+1), s))
	}
	return runs
}

func compared(t *testing.T, baseline, replay []SeedEvals) *Compare {
	t.Helper()
	c, err := NewCompare(Protocol{Name: "x", Target: 0.65, Baseline: baseline, Replay: replay})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRatiosAreTakenSeedBySeed(t *testing.T) {
	// Ratios 1/2 four times, 1/4 and 1 twice. Their logarithms to base 2 are -1, -2 and 0: the mean is -1, the squares
	// about it sum to 4, the standard error is sqrt(4/7/8) = 0.26726 and, with t = 2.36462 at 7 degrees of freedom, half
	// an interval 0.63197.
	c := compared(t, arm(8, 8, 8, 8, 8, 8, 8, 8), arm(4, 4, 4, 4, 2, 2, 8, 8))
	for name, r := range map[string]Effect{"formula": c.Ratio, "busy": c.RatioBusy, "all": c.RatioAll,
		"clock": c.RatioClock} {
		if r.Seeds != 8 || !near(r.Mean.Float(), 0.5) || math.Abs(math.Log2(r.Low.Float())+1.63197) > 1e-5 ||
			math.Abs(math.Log2(r.High.Float())+0.36803) > 1e-5 {
			t.Errorf("ratio by %s %+v, want 0.5 within 2^(-1 ± 0.63197)", name, r)
		}
	}
	if !c.Claim {
		t.Error("8 seeds make no claim")
	}
	if s := c.Seeds[4]; s.Seed != 5 || s.Baseline.Compute != Num(800) || !near(s.Ratio.Float(), 0.25) ||
		!near(s.ReplayLevel.Float(), 0.7) {
		t.Errorf("seed 5: %+v", s)
	}
	want := "Replay reached 0.65 held-out pass@1 with 0.50 of the baseline's compute: 50% saved (ratio over 8 seeds: " +
		"95% interval 0.32 to 0.77)."
	if c.Statement != want {
		t.Errorf("statement\n%s\nwant\n%s", c.Statement, want)
	}
}

func TestTheStatementNamesTheOpponentOfARatio(t *testing.T) {
	state := func(p Protocol) string {
		c, err := NewCompare(p)
		if err != nil {
			t.Fatal(err)
		}
		return c.Statement
	}
	p := Protocol{Target: 0.65, Batch: 3840, Updates: 3, Baseline: arm(10), Replay: arm(5)}
	want := "50% saved. The baseline makes 3 updates on each batch of 3840 rollouts. With other batches, or other " +
		"numbers of updates, it may need less compute: they are not compared here."
	if got := state(p); !strings.HasSuffix(got, want) {
		t.Errorf("statement %q, want it to end with %q", got, want)
	}
	if p.Baseline, p.Replay = arm(-1), arm(-1); strings.Contains(state(p), "3840") {
		t.Errorf("statement %q names an opponent, but nothing was saved against it", state(p))
	}
}

func TestATargetThatWasNotReachedCostsAtLeastWhatWasSpent(t *testing.T) {
	for _, c := range []struct {
		name             string
		baseline, replay []SeedEvals
		bound            Side
		mean             Number // of the ratio
		seeds            int
		statement        string
	}{
		// runs end at a compute of 1,100
		{"replay fails on one of four", arm(10, 10, 10, 10), arm(5, -1, 5, 5), AtLeast, Num(math.Pow(0.1375, 0.25)), 4,
			"Replay takes at least 0.61 of the baseline's compute to reach 0.65 held-out pass@1: what is saved is not " +
				"known; raise the budget (ratio over 4 seeds: 95% interval from 0.33). The interval includes 1: a " +
				"difference is not established. On seed 2 only the baseline reached the target (replay counts with all " +
				"that it spent)."},
		{"replay fails on all", arm(5, 5, 5), arm(-1, -1, -1), AtLeast, Num(2.2), 3,
			"Replay takes at least 2.20 times the baseline's compute to reach 0.65 held-out pass@1: nothing saved " +
				"(ratio over 3 seeds: 95% interval from 2.20)."},
		{"the baseline fails on one of four", arm(10, -1, 10, 10), arm(5, 5, 5, 5), AtMost, Num(0.5 * math.Pow(1/1.1, 0.25)), 4,
			"Replay reached 0.65 held-out pass@1 with at most 0.49 of the baseline's compute: 51% saved or more (ratio " +
				"over 4 seeds: 95% interval up to 0.53). On seed 2 only replay reached the target (the baseline counts " +
				"with all that it spent)."},
		{"both fail, on different seeds", arm(10, -1, 10), arm(5, 5, -1), Exactly, Number{}, 3,
			"Replay missed 0.65 held-out pass@1 on some seeds and the baseline on others: what is saved is not known; " +
				"raise the budget. On seed 2 only replay"},
		// Ratios 0.5 and 0.6: their logarithms lie 0.09116 from the mean, which is the standard error; t is 12.706 at
		// one degree of freedom, and exp(-0.09116*12.706) = 0.314.
		{"neither reaches it on one seed", arm(10, -1, 10), arm(5, -1, 6), Exactly, Num(math.Sqrt(0.3)), 2,
			"with 0.55 of the baseline's compute: 45% saved (ratio over 2 seeds: 95% interval 0.17 to 1.74). The " +
				"interval includes 1: a difference is not established; 2 seeds that vary like these would have shown a " +
				"ratio of 0.31 or less. On seed 2 neither did (no ratio)."},
		{"both begin at it on one seed", arm(10, 0, 10), arm(5, 0, 6), Exactly, Num(math.Sqrt(0.3)), 2,
			"On seed 2 both reached it before their first update (no ratio)."},
		{"both begin at it", arm(0, 0), arm(0, 0), Exactly, Number{}, 0, "Both arms have reached 0.65 held-out pass@1 before " +
			"their first update: savings cannot be measured; set a higher target"},
		{"neither ever", arm(-1, -1), arm(-1, -1), Exactly, Number{}, 0, "Neither arm reached 0.65 held-out pass@1 on any seed"},
	} {
		got := compared(t, c.baseline, c.replay)
		if r := got.Ratio; !near(r.Mean.Float(), c.mean.Float()) || r.Mean.Known() != c.mean.Known() ||
			r.Seeds != c.seeds || r.Bound != c.bound {
			t.Errorf("%s: ratio %+v, want mean %v of %d seeds", c.name, r, c.mean, c.seeds)
		}
		if got.Claim {
			t.Errorf("%s: claims with fewer than 8 seeds", c.name)
		}
		if !strings.Contains(got.Statement, c.statement) {
			t.Errorf("%s: statement %q, want it to say %q", c.name, got.Statement, c.statement)
		}
	}
}

func TestTheStatementClaimsNoMoreThanTheSeedsAllow(t *testing.T) {
	for _, c := range []struct {
		baseline, replay []SeedEvals
		want             string
	}{
		{arm(10), arm(5), "One seed: no claim. Replay reached 0.65 held-out pass@1 with 0.50 of the baseline's " +
			"compute: 50% saved."},
		{arm(10, 10), arm(5, 5), "2 seeds: an indication, no claim; a claim needs 8."},
		{arm(9, 9, 9, 9, 9, 9, 9, -1), arm(5, 5, 5, 5, 5, 5, 5, -1), "Only 7 of 8 seeds have a ratio: no claim; a " +
			"claim needs 8."},
		// The ratios' logarithms to base 2 are 1 and -1: standard error sqrt(8/7/8) = 0.37796, half an interval 0.89374.
		{arm(8, 8, 8, 8, 4, 4, 4, 4), arm(4, 4, 4, 4, 8, 8, 8, 8), "Replay reached 0.65 held-out pass@1 with the " +
			"baseline's compute: nothing saved (ratio over 8 seeds: 95% interval 0.54 to 1.86). The interval includes 1: " +
			"a difference is not established; 8 seeds that vary like these would have shown a ratio of 0.54 or less."},
		{arm(5, 5, 5, 5), arm(10, 10, 10, 10), "with 2.00 times the baseline's compute: nothing saved"},
		{arm(5, 5, 5, -1, -1, -1), arm(5, 5, 5, 5, 5, 5), "On seeds 4, 5 and 6 only replay reached the target " +
			"(the baseline counts with all that it spent)."},
		{arm(5, 5, 5, 5), arm(5, 5, 5, 5), "with the baseline's compute: nothing saved (ratio over 4 seeds: " +
			"95% interval 1.00 to 1.00). The interval includes 1: a difference is not established."},
	} {
		if got := compared(t, c.baseline, c.replay).Statement; !strings.Contains(got, c.want) {
			t.Errorf("statement %q, want it to say %q", got, c.want)
		}
	}
}

func TestAComparisonOfUnequalArmsIsRefused(t *testing.T) {
	other := arm(5)
	other[0].Evals[3].Problems = 100
	for _, c := range []struct {
		name string
		p    Protocol
		want string
	}{
		{"no target", Protocol{Baseline: arm(5), Replay: arm(5)}, "target: 0: want above 0"},
		{"no seeds", Protocol{Target: 0.5}, "0 seeds"},
		{"a seed more", Protocol{Target: 0.5, Baseline: arm(5, 5), Replay: arm(5)},
			"baseline has 2 seeds and replay 1"},
		{"other seeds", Protocol{Target: 0.5, Baseline: arm(5), Replay: []SeedEvals{reaching(9, 5)}},
			"seed 1 of baseline is paired with seed 9 of replay"},
		{"a seed twice", Protocol{Target: 0.5, Baseline: append(arm(5), arm(5)...), Replay: append(arm(5), arm(5)...)},
			"each seed once"},
		{"another evaluation set", Protocol{Target: 0.5, Baseline: arm(5), Replay: other},
			"one evaluation has 100 problems, another 400"},
	} {
		if _, err := NewCompare(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestAComparisonFolderReadsBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	c := compared(t, arm(10, -1, 10), arm(5, 6, -1))
	for _, name := range []string{BaselineArm, ReplayArm} {
		for _, seed := range []uint64{10, 9} {
			run := SeedDir(dir, name, seed)
			if err := os.MkdirAll(run, 0o755); err != nil {
				t.Fatal(err)
			}
			summary := &Summary{
				Name: name, Seed: seed, Pass1Last: Num(0.7), Uses: Histogram{{0, 3}, {2, 1}},
				UsesPresent:    Histogram{{1, 5}},
				TokenStaleness: Histogram{{0, 2}}, Evicted: map[string]uint64{"capacity": 4},
				WorkerTimes: []GPU{{Busy: 3, Stalled: 2, Idle: 1}}, Build: Build{Go: "go1.27.1"},
			}
			if err := WriteConfig(run, []byte(fmt.Sprintf("seed: %d\n", seed))); err != nil {
				t.Fatal(err)
			}
			if err := WriteSummary(run, summary); err != nil {
				t.Fatal(err)
			}
			summary.Format = Format
			got, err := ReadRun(run)
			if err != nil || !reflect.DeepEqual(got.Summary, summary) {
				t.Fatalf("error %v, summary %+v, want %+v", err, got.Summary, summary)
			}
		}
	}
	if err := WriteCompare(dir, c); err != nil {
		t.Fatal(err)
	}
	got, err := ReadComparison(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Compare, c) {
		t.Errorf("read %+v, want %+v", got.Compare, c)
	}
	if len(got.Baseline) != 2 || got.Baseline[0].Seed != 9 || got.Replay[1].Seed != 10 ||
		got.Replay[1].Config != "seed: 10\n" {
		t.Errorf("read arms %v and %v, want seeds 9 and 10 in each", got.Baseline, got.Replay)
	}
	if m := c.Seeds[2]; !near(m.Ratio.Float(), 1.1) || m.Replay.Reached {
		t.Errorf("seed 3 has ratio %v, want 1.1 at least, of all that replay spent", m.Ratio)
	}
}

func TestReadErrorsNameTheFolderFileAndLine(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "not a run folder") {
		t.Errorf("empty folder as run: error %v", err)
	}
	if _, err := ReadComparison(dir); err == nil || !strings.Contains(err.Error(), "not a comparison folder") {
		t.Errorf("empty folder as comparison: error %v", err)
	}
	if err := disk.WriteFile(filepath.Join(dir, ConfigFile), nil); err != nil {
		t.Fatal(err)
	}
	if run, err := ReadRun(dir); err != nil || run.Summary != nil || run.Updates != nil {
		t.Errorf("a run that has only begun: %+v, error %v", run, err)
	}
	if err := disk.WriteFile(filepath.Join(dir, SummaryFile), []byte(`{"format": 9}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "format: 9: want 1") {
		t.Errorf("another format: error %v", err)
	}
	for _, err := range []error{os.MkdirAll(SeedDir(dir, ReplayArm, 1), 0o755),
		disk.WriteFile(filepath.Join(dir, CompareFile), []byte(`{"format": 1, "compute": {}}`))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadComparison(dir); err == nil || !strings.Contains(err.Error(), "compare.json: format: 1: want 3") ||
		!strings.Contains(err.Error(), "reprise train --resume --compare --out "+dir) {
		t.Errorf("a comparison of an earlier build: error %v, want one with the remedy", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); left != nil {
		t.Errorf("temporary files stay: %v", left)
	}
	if err := disk.WriteFile(filepath.Join(dir, MetricsFile), []byte("{\"update\":2,\"x\":1}\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), MetricsFile+": line 1") {
		t.Errorf("a bad line: error %v, want one that names file and line", err)
	}
}
