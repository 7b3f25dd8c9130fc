package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

const sidesConfig = "pipeline:\n  workers: 5\n  trainers: 3\n  batch: 256\n  rollout_cost: 5.28\nreplay:\n" +
	"  sampler: unseen\nlearner:\n  learning_rate: 0.001\n  clip: 0.2\nbudget:\n  compute: 300.0\nbaseline:\n" +
	"  workers: 0\n  trainers: 0\n"

func TestAComparisonBeginsWithWhatEachSideHad(t *testing.T) {
	c := madeComparison(t, 2, 300)
	for _, r := range c.Replay {
		r.Config = sidesConfig
	}
	for _, r := range c.Baseline {
		r.Config = strings.NewReplacer("trainers: 3", "trainers: 1", "sampler: unseen", "sampler: fifo",
			"clip: 0.2", "clip: 0.3").Replace(sidesConfig) + "  learner:\n    clip: 0.3\n"
	}
	var page bytes.Buffer
	if err := renderComparison(&page, c); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	sides, headline := strings.Index(text, `id="sides"`), strings.Index(text, `id="headline"`)
	differ, why := strings.Index(text, `id="differences"`), strings.Index(text, `id="costs"`)
	if sides < 0 || headline < sides || differ < headline || why < differ {
		t.Fatalf("the sections stand at %d (sides), %d (headline), %d (differences) and %d (costs)", sides, headline,
			differ, why)
	}
	for _, want := range []string{"do not have the same GPUs: baseline 5&#43;1, replay 5&#43;3", "482k of compute",
		"pipeline.trainers", "the split of the GPUs that stalls least", "no replay", "set by baseline.learner.clip",
		"An update of replay costs"} {
		if !strings.Contains(text[:strings.Index(text, `id="seeds"`)], want) {
			t.Errorf("the page's beginning lacks %q", want)
		}
	}
	if strings.Contains(text[differ:why], "learning_rate") {
		t.Error("a setting that both share is listed as a difference")
	}
}

func TestAPageOfOneArmComparesNothing(t *testing.T) {
	var page bytes.Buffer
	c := madeComparison(t, 1, 40)
	if err := Arms(&page, "", []results.NamedRuns{{Name: "one", Runs: c.Replay}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`id="sides"`, `id="differences"`, `id="costs"`} {
		if strings.Contains(page.String(), id) {
			t.Errorf("the page has %s", id)
		}
	}
}
