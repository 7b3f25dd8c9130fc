package run

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func TestInspectionShowsWhatTheTableOfARunHolds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, small(t, "pipeline.mode=sync", "replay.sampler=prioritized", "replay.mix=1", "replay.entry=max", "replay.age_decay=10", "replay.priority_base=reward"), dir)
	in, err := Inspect(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if in.Version != sum.Version || in.Inserted != sum.Inserted || in.Used != sum.Used || in.Present == 0 || in.Present != int(in.Ages.Count()) {
		t.Errorf("inspection %+v\nsummary %+v", in, sum)
	}
	if math.Abs(in.HalfLife.Float()-10/0.6*math.Ln2) > 1e-9 || !strings.Contains(in.Sampling, "half-life (tau/alpha) ln 2 = 12 versions") {
		t.Errorf("half-life %v in %q", in.HalfLife, in.Sampling)
	}
	total, rewards := 0.0, 0
	for _, a := range in.ByAge {
		total += a.Probability
	}
	for _, r := range in.Rewards {
		rewards += r.Count
	}
	if math.Abs(total-1) > 1e-9 || rewards != in.Present {
		t.Errorf("probabilities add up to %v, rewards to %d of %d", total, rewards, in.Present)
	}
	if len(in.Top) != 3 || len(in.Bottom) != 3 || in.Top[0].Probability.Float() < in.Bottom[2].Probability.Float() {
		t.Errorf("top %+v, bottom %+v", in.Top, in.Bottom)
	}
	for _, want := range []string{"x the mean", "age ", "by decay"} {
		if !strings.Contains(in.Top[0].Reason, want) {
			t.Errorf("reason %q lacks %q", in.Top[0].Reason, want)
		}
	}
}

func TestInspectionOfASamplerThatDoesNotWeighIsByUses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	train(t, small(t, "replay.sampler=uniform"), dir)
	in, err := Inspect(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	if in.Order != "uses" || len(in.ByAge) != 0 || len(in.Top)+len(in.Bottom) != in.Present || in.Top[0].Uses < in.Top[len(in.Top)-1].Uses {
		t.Errorf("%+v", in)
	}
}

func TestInspectionNamesWhatIsWrongWithAFolder(t *testing.T) {
	if _, err := Inspect(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "config.yaml") {
		t.Errorf("an empty folder gave %v", err)
	}
	if _, err := Inspect(t.TempDir(), -1); err == nil || !strings.Contains(err.Error(), "--rows: -1") {
		t.Errorf("-1 rows gave %v", err)
	}
}
