package run

import (
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
)

func TestInspectionShowsWhatTheTableOfARunHolds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, small(t, "pipeline.mode=sync", "replay.sampler=prioritized", "replay.mix=1", "replay.entry=max",
		"replay.age_decay=10", "replay.priority_base=reward"), dir)
	in, err := Inspect(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if in.Version != sum.Version || in.Inserted != sum.Inserted || in.Used != sum.Used || in.Present == 0 ||
		in.Present != int(in.Ages.Count()) {
		t.Errorf("inspection %+v\nsummary %+v", in, sum)
	}
	if math.Abs(in.HalfLife.Float()-10/0.6*math.Ln2) > 1e-9 ||
		!strings.Contains(in.Sampling, "half-life (tau/alpha) ln 2 = 12 versions") {
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

func TestInspectionOfAUniformSamplerIsOrderedByUses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	train(t, small(t, "replay.sampler=uniform"), dir)
	in, err := Inspect(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	if in.Order != "uses" || len(in.ByAge) != 0 || len(in.Top)+len(in.Bottom) != in.Present ||
		in.Top[0].Uses < in.Top[len(in.Top)-1].Uses {
		t.Errorf("%+v", in)
	}
}

func TestInspectionReportsWhatIsWrongWithAFolder(t *testing.T) {
	if _, err := Inspect(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "config.yaml") {
		t.Errorf("an empty folder gave %v", err)
	}
	if _, err := Inspect(t.TempDir(), -1); err == nil || !strings.Contains(err.Error(), "--rows: -1") {
		t.Errorf("-1 rows gave %v", err)
	}
}

// What a service tells of a table is what the table tells of itself, but for the bases of priorities.
func TestInspectionAsksTheServiceThatHasTheTable(t *testing.T) {
	tests.LongShared(t)
	l := newLab(t)
	for name, assignments := range map[string][]string{
		"weighing": {"replay.sampler=prioritized", "replay.age_decay=10"},
		"groups":   modes()["groups by priority"],
		"uses":     {"replay.sampler=uniform", "pipeline.trainers=1"},
	} {
		if testing.Short() && name != "groups" {
			continue
		}
		c := small(t, assignments...)
		own, remote := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "remote")
		train(t, c, own)
		train(t, l.elsewhere(c, name), remote)
		want, err := Inspect(own, 1000)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Inspect(remote, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if got.Service != l.address(name) || got.Order != want.Order || len(got.Top) != len(want.Top) ||
			len(got.Top) == 0 {
			t.Fatalf("%s: %d rollouts by %s of %q, want %d by %s of %q", name, len(got.Top), got.Order, got.Service,
				len(want.Top), want.Order, l.address(name))
		}
		got.Run, got.Service = want.Run, ""
		for i := range want.Top {
			want.Top[i].Base = results.Number{}
			if c.Replay.Sampler == replay.Prioritized { // its word for the base is missing, too
				reason := regexp.MustCompile(`, (advantage [^,]*|entered at [^,]*, and has it still), age`)
				want.Top[i].Reason = reason.ReplaceAllString(want.Top[i].Reason, ", age")
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", name, got, want)
		}
	}
	l.halt()
	dir := filepath.Join(t.TempDir(), "gone")
	c := small(t)
	if err := createFolder(dir,
		c.WithBuffer(Remote{Address: l.address("lab"),
			Options: client.Options{RetryFor: time.Millisecond}})); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(dir, 3); err == nil || !strings.Contains(err.Error(), l.socket) {
		t.Errorf("without the service: %v", err)
	}
}
