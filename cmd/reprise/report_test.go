package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// writeArmRun writes the folder of a run with evaluations at equal steps of compute. A run that has not ended has no
// summary.
func writeArmRun(t *testing.T, dir string, seed uint64, last float64, ended bool) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	metrics, err := results.CreateLog[results.Update](filepath.Join(dir, results.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	evals, err := results.CreateLog[results.Eval](filepath.Join(dir, results.EvalFile))
	if err != nil {
		t.Fatal(err)
	}
	for u := 0; u <= 10; u++ {
		if u > 0 {
			err = metrics.Append(results.Update{Update: u, Version: u, Compute: 100 * float64(u),
				Reward: results.Num(0.5), ESS: results.Num(0.9), ReplayRatio: results.Num(2)})
		}
		if err == nil && u%2 == 0 {
			at := 100 * float64(u)
			err = evals.Append(results.Eval{Update: u, Grid: at, Compute: at, Problems: 50,
				Pass1: 0.4 + (last-0.4)*float64(u)/10})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if ended {
		if err := results.WriteSummary(dir, &results.Summary{Name: "study", Task: "arithmetic", Seed: seed,
			Ended: "budget", Updates: 10}); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{metrics.Close(), evals.Close(), results.WriteConfig(dir, fmt.Appendf(nil, "seed: %d\n",
		seed))} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// twoArms writes the runs of two arms to one folder and returns it.
func twoArms(t *testing.T, seeds int) string {
	t.Helper()
	dir := t.TempDir()
	for seed := 1; seed <= seeds; seed++ {
		writeArmRun(t, filepath.Join(dir, fmt.Sprintf("on-s%d", seed)), uint64(seed), 0.6, true)
		writeArmRun(t, filepath.Join(dir, fmt.Sprintf("per-s%d", seed)), uint64(seed), 0.7, true)
	}
	return dir
}

func TestReportWritesAPageOverArms(t *testing.T) {
	t.Parallel()
	dir := twoArms(t, 8)
	file := filepath.Join(dir, "page.html")
	out := succeeds(t, "", "report", "--out", file, "--title", "A & B", "per="+filepath.Join(dir, "per-s*"),
		"on-policy="+filepath.Join(dir, "on-s1")+","+filepath.Join(dir, "on-s[2-8]"))
	if want := "on-policy ended 0.100 below per in held-out pass@1 (8 seeds, 95% interval"; !strings.Contains(out, want) ||
		!strings.Contains(out, "report: "+file) {
		t.Errorf("standard output lacks %q or the file:\n%s", want, out)
	}
	page := read(t, file)
	if first, second := strings.Index(page, ">per</th>"), strings.Index(page, ">on-policy</th>"); first < 0 ||
		second < first || !strings.Contains(page, "<h1>A &amp; B</h1>") {
		t.Errorf("the page has its arms at %d and %d, or not its title", first, second)
	}
	var table results.Table
	decode(t, succeeds(t, "", "report", "--json", "on-policy="+filepath.Join(dir, "on-*"),
		"per="+filepath.Join(dir, "per-*")), &table)
	if len(table.Arms) != 2 || table.Arms[0].Name != "on-policy" || !table.Claim || len(table.Arms[1].Seeds) != 8 ||
		table.Arms[1].ReplayRatio.Float() != 2 {
		t.Errorf("table %+v", table)
	}
}

func TestReportRewritesTheReportOfAFolder(t *testing.T) {
	t.Parallel()
	dir := twoArms(t, 1)
	run := filepath.Join(dir, "per-s1")
	if out := succeeds(t, "", "report", run); !strings.Contains(out, filepath.Join(run, results.ReportFile)) {
		t.Errorf("standard output:\n%s", out)
	}
	if page := read(t, run, results.ReportFile); !strings.Contains(page, "<h1>study</h1>") {
		t.Errorf("page of %d bytes lacks its title", len(page))
	}
	both := t.TempDir()
	for _, arm := range []string{results.BaselineArm, results.ReplayArm} {
		writeArmRun(t, results.SeedDir(both, arm, 1), 1, 0.6, true)
	}
	var table results.Table
	decode(t, succeeds(t, "", "report", "--json", both), &table)
	if len(table.Arms) != 2 || table.Arms[1].Name != results.ReplayArm ||
		!strings.Contains(read(t, both, results.ReportFile), "Replay against no replay") {
		t.Errorf("table %+v", table)
	}
}

func TestReportWarnsOfAnUnfinishedRunByItsSeed(t *testing.T) {
	t.Parallel()
	dir := twoArms(t, 1)
	writeArmRun(t, filepath.Join(dir, "per-s2"), 2, 0.5, false)
	got := call(t, "", "report", "--out", filepath.Join(dir, "page.html"), "on-policy="+filepath.Join(dir, "on-s1"),
		"per="+filepath.Join(dir, "per-*"))
	if got.code != 0 || !strings.Contains(got.stderr, "warning: per, seed 2 has not ended: it failed, was killed or "+
		"is still running; last seen at update 10.") {
		t.Errorf("exit code %d, standard error:\n%s", got.code, got.stderr)
	}
}

func TestReportNamesWhatIsWrongWithItsArguments(t *testing.T) {
	t.Parallel()
	dir := twoArms(t, 1)
	run := filepath.Join(dir, "on-s1")
	empty := t.TempDir()
	both := t.TempDir()
	writeArmRun(t, results.SeedDir(both, results.ReplayArm, 1), 1, 0.6, true)
	page := filepath.Join(dir, "page.html")
	arms := func(what ...string) []string { return append([]string{"report", "--out", page}, what...) }
	for want, args := range map[string][]string{
		"nowhere is no folder: want the folder of a run, a comparison or a study": {"report", "nowhere"},
		"add --out FILE.html":                              {"report", "a=" + run},
		"leave --out and --title out":                      {"report", "--title", "x", run},
		run + " is no arm: want NAME=FOLDER":               arms("a="+run, run),
		"has no name before its '='":                       arms("=" + run),
		"arm a is given twice":                             arms("a="+run, "a="+run),
		run + " is given twice":                            arms("a=" + run + "," + run),
		"on-z* matches no folder":                          arms("a=" + filepath.Join(dir, "on-z*")),
		"an empty folder name":                             arms("a=" + run + ","),
		"elsewhere is no folder: give the folder of a run": arms("a=elsewhere"),
		empty + " has no metrics.jsonl":                    arms("a=" + empty),
		"is a comparison: give the runs of one of":         arms("a=" + both),
		"9 arms: a page shows at most 8; leave some out": arms(strings.Split(strings.Repeat("a="+run+" ", 8)+"b="+run,
			" ")...),
	} {
		fails(t, call(t, "", args...), want)
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("a page was written")
	}
}

// writeStudy writes a study with three arms and returns its folder. One run failed before its first update.
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
	s := &results.Study{Name: "buffer-size", Seeds: 3, Sheet: results.Sheet{Title: "How large a buffer?"},
		Arms: []results.StudyArm{
			{Name: "on-policy", Folders: []string{"../on-s1", "../on-s2"}},
			{Name: "per", Folders: []string{"../per-s1", "../per-s2", "../dead"},
				Failed: []string{"seed 3: it never began"}, Differs: []string{"replay.sampler: prioritized"}},
			{Name: "hopeless", Folders: []string{"../dead"}, Failed: []string{"seed 3: it never began"}},
		}}
	if err := results.WriteStudy(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReportRewritesTheReportOfAStudy(t *testing.T) {
	t.Parallel()
	dir := writeStudy(t)
	page := filepath.Join(dir, results.ReportFile)
	if out := succeeds(t, "", "report", dir); !strings.Contains(out, page) {
		t.Errorf("standard output:\n%s", out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"How large a buffer?", "failed: seed 3: it never began",
		"replay.sampler: prioritized", `href="./../per-s1/"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestReportJSONOfAStudyHasItsArms(t *testing.T) {
	t.Parallel()
	dir := writeStudy(t)
	var table results.Table
	decode(t, succeeds(t, "", "report", "--json", dir), &table)
	if len(table.Arms) != 2 || table.Arms[0].Name != "on-policy" || table.Arms[1].Name != "per" ||
		table.Arms[0].Runs != 2 || table.Arms[1].Runs != 2 {
		t.Errorf("arms %+v, want the two that have runs, with two each", table.Arms)
	}
	for _, run := range []string{"on-s1", "on-s2", "per-s1", "per-s2"} {
		if err := os.RemoveAll(filepath.Join(dir, "..", run)); err != nil {
			t.Fatal(err)
		}
	}
	if got := call(t, "", "report", "--json", dir); got.code == 0 ||
		!strings.Contains(got.stderr, "keep them beside the study's folder") {
		t.Errorf("a study without its runs: exit code %d, %s", got.code, got.stderr)
	}
}
