package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func TestInspectShowsTheTableInWordsAndAsJSON(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	succeeds(t, "", append(small(dir, "replay.sampler=prioritized", "replay.age_decay=8"), "--quiet")...)
	text := succeeds(t, "", "inspect", dir, "--rows", "2")
	for _, want := range []string{
		"effective half-life (tau/alpha) ln 2 = 9 versions", "inserted", "evicted", "priority against age",
		"first by probability", "last by probability", "x the mean, advantage",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("output lacks %q:\n%s", want, text)
		}
	}
	var in run.Inspection
	decode(t, succeeds(t, "", "inspect", dir, "--rows", "2", "--json"), &in)
	var sum results.Summary
	decode(t, read(t, dir, results.SummaryFile), &sum)
	if in.Version != sum.Version || len(in.Top) != 2 || len(in.Bottom) != 2 || in.Inserted != sum.Inserted {
		t.Errorf("JSON is %+v", in)
	}
}

func TestInspectNamesWhatIsNoRun(t *testing.T) {
	t.Parallel()
	if out := call(t, "", "inspect", t.TempDir()); out.code != 1 || !strings.Contains(out.stderr, "config.yaml") ||
		out.stdout != "" {
		t.Errorf("an empty folder gave %+v", out)
	}
}
