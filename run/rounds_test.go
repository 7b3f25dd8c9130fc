package run

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// counted chooses prompts from 10 up and notes what it hears of them.
type counted struct {
	next  uint64
	heard []uint64
}

func (c *counted) Choose(uint64, rollout.Version) (uint64, bool) {
	c.next++
	return 9 + c.next, c.next%2 == 0
}

func (c *counted) Report(_ rollout.Version, prompt uint64, _ bool, _ []*rollout.Rollout) error {
	c.heard = append(c.heard, prompt)
	return nil
}

func TestPromptsWithALimitComeRoundInTheirOrder(t *testing.T) {
	var asked []uint64
	for job := range uint64(7) {
		prompt, replayed := limitedPrompts{limit: 3}.Choose(job, 0)
		if replayed {
			t.Errorf("prompt %d of job %d is called replayed", prompt, job)
		}
		asked = append(asked, prompt)
	}
	if want := []uint64{0, 1, 2, 0, 1, 2, 0}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if err := (limitedPrompts{limit: 3}).Report(0, 1, false, nil); err != nil {
		t.Error(err)
	}
}

func TestLimitHoldsWhereAnotherChoosesWhichHearsWhatBecameOfThem(t *testing.T) {
	c := &counted{}
	var p pipeline.Prompts = limitedPrompts{4, c}
	for job, want := range []uint64{2, 3, 0} { // of 10, 11, 12
		prompt, replayed := p.Choose(uint64(job), 0)
		if prompt != want || replayed != (job == 1) {
			t.Errorf("job %d: prompt %d, replayed %t", job, prompt, replayed)
		}
		if err := p.Report(1, prompt, replayed, nil); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(c.heard, []uint64{2, 3, 0}) {
		t.Errorf("heard of %v", c.heard)
	}
}

func TestRunWithALimitTrainsOnSoManyPromptsFromTheSameWarmStart(t *testing.T) {
	all, few := small(t, "replay.capacity=320"), small(t, "replay.capacity=320", "prompts.limit=2", "prompts.fraction=0.5", "prompts.band=0.5")
	dir := t.TempDir()
	train(t, all, filepath.Join(dir, "all"))
	if chosen := train(t, few, filepath.Join(dir, "few")).PromptReplay; chosen.Fresh+chosen.Replayed == 0 {
		t.Error("prompt replay has chosen nothing among the few")
	}
	if n := len(prompted(t, filepath.Join(dir, "all"))); n <= 2 {
		t.Fatalf("without a limit %d prompts", n)
	}
	if asked := prompted(t, filepath.Join(dir, "few")); len(asked) != 2 {
		t.Errorf("with a limit of 2: %v", asked)
	}
	first := func(name string) string {
		line, _, _ := strings.Cut(written(t, filepath.Join(dir, name))["eval.jsonl"], "\n")
		return line
	}
	if first("all") != first("few") {
		t.Errorf("the warm starts differ:\n%s\n%s", first("all"), first("few"))
	}
}

// prompted returns the prompts of the rollouts that a run's table holds.
func prompted(t *testing.T, dir string) []string {
	t.Helper()
	in, err := Inspect(dir, 320)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range append(in.Top, in.Bottom...) {
		names = append(names, d.Prompt)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestLimitBelowZeroIsRefusedWithEverythingElse(t *testing.T) {
	_, err := Load("", []string{"prompts.limit=-1", "prompts.fraction=2"})
	for _, want := range []string{"prompts.limit: -1: want", "prompts.fraction: 2: want"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
