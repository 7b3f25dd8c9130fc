package results

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSettingsAreReadByTheirKeys(t *testing.T) {
	config := "name: addition\ntask:\n  min: 0\n  operations:\n  - add\n  - sub\n  levels:\n    - 1\n    - 2\n" +
		"  max: 50\npolicy:\n  vision:\n    patch: 0\n  tied: false\nlearner:\n  correction: []\n  lr: 1e-05 \n" +
		"note: |\n  task:\n  min: 7\n" +
		"# comment: 1\nempty:\nlast: \"a: b\"\n"
	want := map[string]string{"name": "addition", "task.min": "0", "task.operations": "- add - sub",
		"task.levels": "- 1 - 2", "task.max": "50", "policy.vision.patch": "0", "policy.tied": "false",
		"learner.correction": "[]", "learner.lr": "1e-05", "note": "| task: min: 7", "empty": "", "last": `"a: b"`}
	if got := Settings(config); !maps.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// writtenSettings writes settings as a run does, and what is to be read.
func writtenSettings(random *rand.Rand, prefix string, depth int, config *strings.Builder, want map[string]string) {
	for i := range 1 + random.IntN(4) {
		key := fmt.Sprintf("key%d", i)
		indent := strings.Repeat("  ", depth)
		switch kind := random.IntN(4); {
		case kind == 0 && depth < 4:
			fmt.Fprintf(config, "%s%s:\n", indent, key)
			writtenSettings(random, prefix+key+".", depth+1, config, want)
		case kind == 1:
			fmt.Fprintf(config, "%s%s:\n%s- %d\n%s- b\n", indent, key, indent, i, indent)
			want[prefix+key] = fmt.Sprintf("- %d - b", i)
		default:
			want[prefix+key] = fmt.Sprint(random.IntN(100))
			fmt.Fprintf(config, "%s%s: %s\n", indent, key, want[prefix+key])
		}
	}
}

func TestNestedSettingsAreReadAsTheyWereWritten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var config strings.Builder
		want := make(map[string]string)
		writtenSettings(random, "", 0, &config, want)
		if got := Settings(config.String()); !maps.Equal(got, want) {
			t.Fatalf("seed %d:\n%s\nread %q, want %q", seed, config.String(), got, want)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("a: 1\nb:\n  c: 2\n  d:\n  - 3\n")
	f.Add("- a\n:\n a\n  : b\n")
	f.Fuzz(func(t *testing.T, config string) {
		for key, value := range Settings(config) {
			if key == "" || strings.ContainsAny(key+value, "\n") {
				t.Errorf("%q: %q", key, value)
			}
		}
	})
}

// configured is an arm of one run with a configuration.
func configured(name, config string) NamedRuns {
	return NamedRuns{Name: name, Runs: []*Run{{Config: config}}}
}

func TestDifferencesAreOfWhatDecidesARun(t *testing.T) {
	a := configured("a", "name: a\nseed: 1\nlearner:\n  rate: 1\n  clip: 0.2\nreplay:\n  mix: 1\ncheckpoint:\n"+
		"  every: 5\n")
	b := configured("b", "name: b\nseed: 2\nlearner:\n  rate: 1.0\n  clip: 0.3\ncheckpoint:\n  every: 6\n")
	var got []string
	for _, d := range Differences([]NamedRuns{a, b}) {
		got = append(got, d.Key+" "+strings.Join(d.Values, " "))
	}
	if want := []string{"learner.clip 0.2 0.3", "replay.mix 1 –"}; !slices.Equal(got, want) {
		t.Errorf("the differences are %q, want %q", got, want)
	}
}

func TestASetupTellsGPUsBatchBudgetAndBothClocks(t *testing.T) {
	a := configured("baseline", "pipeline:\n  workers: 5\n  trainers: 1\n  batch: 30\n  rollout_cost: 5.0\nbudget:\n"+
		"  compute: 100.0\n  updates: 0\n")
	a.Runs[0].Updates = []Update{{Update: 1, Compute: 180, Clock: 90}}
	a.Runs[0].Timings = []Timing{{Update: 1, Elapsed: 75}}
	other := *a.Runs[0]
	other.Updates, other.Timings = []Update{{Update: 1, Compute: 180, Clock: 110}}, nil
	a.Runs = append(a.Runs, &other)
	b := configured("replay", "pipeline:\n  workers: 5\n  trainers: 3\n  batch: 240\nbudget:\n  updates: 40\n")
	var got []string
	for _, s := range Setups([]NamedRuns{a, b, {Name: "none"}}) {
		got = append(got, s.String())
	}
	want := []string{"baseline: 5+1 GPUs (inference + training), batches of 30, 18k of compute; virtual clock 100, " +
		"wall clock 1 min 15 s", "replay: 5+3 GPUs (inference + training), batches of 240, 40 updates",
		"none: – GPUs (inference + training), batches of –, –"}
	if !slices.Equal(got, want) {
		t.Errorf("the setups are %q, want %q", got, want)
	}
}
