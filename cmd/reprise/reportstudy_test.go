package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// writeStudy writes a study of two arms, of which one run failed before its first update, and returns its folder.
func writeStudy(t *testing.T) string {
	t.Helper()
	pool := twoArms(t, 2)
	dead := filepath.Join(pool, "dead")
	if err := os.MkdirAll(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := results.WriteConfig(dead, []byte("seed: 3\n")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(pool, "buffer-size")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &results.Study{Name: "buffer-size", Seeds: 3, Sheet: results.Sheet{Title: "How large a buffer?"}, Arms: []results.StudyArm{
		{Name: "on-policy", Folders: []string{"../on-s1", "../on-s2"}},
		{Name: "per", Folders: []string{"../per-s1", "../per-s2", "../dead"}, Failed: []string{"seed 3: it never began"}, Differs: []string{"replay.sampler: prioritized"}},
		{Name: "hopeless", Folders: []string{"../dead"}, Failed: []string{"seed 3: it never began"}},
	}}
	if err := results.WriteStudy(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReportRewritesThatOfAStudy(t *testing.T) {
	dir := writeStudy(t)
	page := filepath.Join(dir, results.ReportFile)
	if out := succeeds(t, "", "report", dir); !strings.Contains(out, page) {
		t.Errorf("standard output:\n%s", out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"How large a buffer?", "failed: seed 3: it never began", "replay.sampler: prioritized", `href="./../per-s1/"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestTheTableOfAStudyHasItsArms(t *testing.T) {
	dir := writeStudy(t)
	var table results.Table
	decode(t, succeeds(t, "", "report", "--json", dir), &table)
	if len(table.Arms) != 2 || table.Arms[0].Name != "on-policy" || table.Arms[1].Name != "per" || table.Arms[0].Runs != 2 || table.Arms[1].Runs != 2 {
		t.Errorf("arms %+v, want the two that have runs, with two each", table.Arms)
	}
	for _, run := range []string{"on-s1", "on-s2", "per-s1", "per-s2"} {
		if err := os.RemoveAll(filepath.Join(dir, "..", run)); err != nil {
			t.Fatal(err)
		}
	}
	if got := call(t, "", "report", "--json", dir); got.code == 0 || !strings.Contains(got.stderr, "keep them beside the study's folder") {
		t.Errorf("a study without its runs: exit code %d, %s", got.code, got.stderr)
	}
}
