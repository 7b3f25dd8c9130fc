package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/study"
)

func TestStudiesAreListedWithTheirSourceAndWhatTheyAsk(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"study"}, {"study", "savings", "--list"}} {
		list := succeeds(t, "", args...)
		narrow(t, list)
		unwrapped := strings.Join(strings.Fields(list), " ")
		for _, s := range study.All() {
			if !strings.Contains(unwrapped, s.Name+" "+s.Title+" ("+s.Source+")") {
				t.Errorf("reprise %v does not list %s:\n%s", args, s.Name, list)
			}
		}
	}
	var all []listed
	decode(t, succeeds(t, "", "study", "--list", "--json"), &all)
	if len(all) != len(study.All()) || all[0].Name != study.All()[0].Name || len(all[0].Asks) == 0 {
		t.Errorf("as JSON: %+v", all)
	}
}

func TestAStudyThatCannotBeCarriedOutIsRefusedByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"study: saving: want one of opponent, opponent-search": {"study", "saving", "--out", dir},
		"--seeds: 0: want 1 or more":                           {"study", "dynamics", "--seeds", "0", "--out", dir},
		"--log: wandb: want tensorboard":                       {"study", "dynamics", "--log", "wandb", "--out", dir},
		"--at-once: -1: want 1 or more":                        {"study", "dynamics", "--at-once=-1", "--out", dir},
	} {
		fails(t, call(t, "", args...), want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestAStudyIsStoppedAndGoesOnByTheSameCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := study.ByName("off-policiness")
	if err != nil {
		t.Fatal(err)
	}
	runs := len(s.Arms(study.Options{Seeds: 1, Quick: true}))
	args := []string{"study", s.Name, "--seeds", "1", "--quick", "--out", dir, "--at-once", "1", "--log",
		"tensorboard"}
	stopped := stop(t, os.Interrupt, filepath.Join(dir, "runs", "*", results.MetricsFile), 1, args)
	if again := "reprise " + strings.Join(args, " "); stopped.code != 130 || !strings.Contains(stopped.stderr, again) {
		t.Fatalf("exit code %d, standard error:\n%s\nwant 130 and %q", stopped.code, stopped.stderr, again)
	}
	if !strings.Contains(stopped.stdout, fmt.Sprintf("%d runs, 0 of them finished before", runs)) {
		t.Errorf("standard output:\n%s", stopped.stdout)
	}
	var printed results.Study
	decode(t, succeeds(t, "", append(args, "--json")...), &printed)
	written, err := results.ReadStudy(filepath.Join(dir, s.Name))
	if err != nil {
		t.Fatal(err)
	}
	if len(printed.Arms) != runs || !printed.Quick || len(printed.Sheet.Findings) == 0 ||
		!printed.Ended.Equal(written.Ended) {
		t.Errorf("printed %d arms, quick %t, %d findings, ended %v; written %v", len(printed.Arms), printed.Quick,
			len(printed.Sheet.Findings), printed.Ended, written.Ended)
	}
	for _, f := range printed.Sheet.Findings {
		if f.Verdict != results.Inconclusive {
			t.Errorf("a rehearsal with one seed makes a claim: %s: %s", f.Claim, f.Verdict)
		}
	}
	for _, a := range printed.Arms {
		files, _ := filepath.Glob(filepath.Join(results.SeedDir(filepath.Join(dir, s.Name, "tensorboard"), a.Name, 1),
			"events.out.tfevents.*"))
		if len(files) == 0 {
			t.Errorf("arm %s has no event file", a.Name)
		}
	}
	page := read(t, dir, s.Name, results.ReportFile)
	for _, want := range []string{printed.Sheet.Title, "rehearsal", string(results.Inconclusive)} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	out := succeeds(t, "", args...) // all runs are there
	for _, want := range []string{fmt.Sprintf("%d runs, %d of them finished before", runs, runs),
		"a rehearsal: it makes no claim", "  verdict  inconclusive", "report: " + filepath.Join(dir, s.Name,
			results.ReportFile)} {
		if !strings.Contains(out, want) {
			t.Errorf("standard output lacks %q:\n%s", want, out)
		}
	}
	if quiet := succeeds(t, "", append(args, "-q")...); quiet != "" {
		t.Errorf("-q prints %q", quiet)
	}
	archive, drawn := filepath.Join(dir, s.Name, results.ArchiveFile), filepath.Join(t.TempDir(), "page.html")
	if out := succeeds(t, "", "report", archive, "--out", drawn); !strings.Contains(out, "  verdict  inconclusive") ||
		!strings.Contains(out, "report: "+drawn) || !strings.Contains(read(t, drawn), printed.Sheet.Title) {
		t.Errorf("from the archive:\n%s", out)
	}
	fails(t, call(t, "", "report", archive, "--title", "mine"), "--title: \"mine\": want none for an archive")
	fails(t, call(t, "", "report", filepath.Join(dir, "none.json.gz"), "--json"), "none.json.gz: no such file")
}

func TestAStudySaysItsNameBeforeItPlans(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The pool of runs cannot be there, which ends the study before its plan is known.
	got := call(t, "", "study", "savings", "--out", filepath.Join(file, "studies"))
	fails(t, got, "not a directory")
	if want := "savings: Does replay reach the same accuracy with less compute?\n"; got.stdout != want {
		t.Errorf("standard output %q, want %q", got.stdout, want)
	}
}

func TestARehearsalHasFiguresToShow(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	dir := t.TempDir()
	var s results.Study
	decode(t, succeeds(t, "", "study", "sampling", "--quick", "--seeds", "1", "--out", dir, "--json"), &s)
	for _, a := range s.Arms {
		r, err := results.ReadRun(filepath.Join(dir, s.Name, a.Folders[0]))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Evals) < 2 || r.Evals[0].Pass1 == 0 {
			t.Errorf("%s: %d evaluations, the first at %g: want a curve", a.Name, len(r.Evals), r.Evals[0].Pass1)
		}
	}
	if page := read(t, dir, s.Name, results.ReportFile); !strings.Contains(page, "say nothing about the claims") {
		t.Error("the page does not say what its figures are worth")
	}
}

func TestTheCommandToGoOnByIsOneForAShell(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]studyCommand{
		"reprise study mu --seeds 4": {Name: "mu", Seeds: 4, Out: "runs/studies"},
		"reprise study mu --seeds 5 --quick --out x --at-once 3": {Name: "mu", Seeds: 5, Quick: true, Out: "x",
			AtOnce: 3},
		"reprise study mu --seeds 5 --out /tmp/a-b_c.1": {Name: "mu", Seeds: 5, Out: "/tmp/a-b_c.1"},
		"reprise study mu --seeds 5 --out 'my runs'":    {Name: "mu", Seeds: 5, Out: "my runs"},
		`reprise study mu --seeds 5 --out 'it'\''s'`:    {Name: "mu", Seeds: 5, Out: "it's"},
		"reprise study mu --seeds 4 --log tensorboard":  {Name: "mu", Seeds: 4, Out: "runs/studies", Log: tensorBoard},
	} {
		if got := c.command(c.Name); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// endedRun is a run that has ended with an accuracy.
func endedRun(count int, reach results.Reach) study.Ended {
	return study.Ended{Arm: "buffer", Seed: 2, Count: count, Total: 12,
		Result: &results.Summary{Pass1Best: results.Num(0.75), Target: results.Num(0.65), ToTarget: reach}}
}

func TestEachRunOfAStudyThatEndsIsALineWithItsResultAndTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := newStudyDisplay(&display{out: &out})
		d.planned(false, 12, 4)
		c := run.Default()
		hooks := d.hooks("buffer", 2, c)
		d.hooks("queue", 2, c)
		if d.warmup("buffer", 2, c) != nil {
			t.Error("a warm-up is watched where there are no bars")
		}
		time.Sleep(10 * time.Second)
		d.ended(endedRun(5, results.Reach{Reached: true, Compute: results.Num(1234)}))
		d.ended(endedRun(6, results.Reach{}))
		hooks = d.hooks("half", 2, c)
		hooks.OnUpdate(results.Update{Update: 1, Compute: budget(c) / 2})
		hooks.OnEval(results.Eval{Pass1: 0.5})
		d.ended(study.Ended{Arm: "queue", Seed: 2, Count: 7, Total: 12, Failed: "the norm is NaN"})
		want := []string{
			"12 runs, 4 of them finished before",
			"5/12  buffer, seed 2  best pass@1 0.750  0.65 at compute 1234  ETA 1m10s", // one in 10 s, 7 are left
			"6/12  buffer, seed 2  best pass@1 0.750  0.65 not reached  ETA 30s",
			// three and a half in 10 s, four and a half are left
			"7/12  queue, seed 2  failed: the norm is NaN  ETA 13s",
		}
		if got := strings.TrimSpace(out.String()); got != strings.Join(want, "\n") {
			t.Errorf("printed:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
		}
	})
}

func TestAStudyHasABarAndSoHasEachRunUnderWay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	refresh := make(chan any)
	d := newStudyDisplay(&display{out: &out, on: new(screen), bars: mpb.New(mpb.WithOutput(&out), mpb.WithWidth(200),
		mpb.WithManualRefresh(refresh))})
	d.planned(false, 12, 4)
	c := run.Default()
	report := d.warmup("buffer", 2, c)
	report(1, 0.5)
	refresh <- time.Now()
	d.hooks("buffer", 2, c).OnUpdate(results.Update{Update: 3, Compute: budget(c) / 2})
	refresh <- time.Now()
	refresh <- time.Now()
	if n := len(d.active); n != 1 {
		t.Errorf("%d runs are under way, want 1", n)
	}
	d.ended(endedRun(5, results.Reach{}))
	whole := d.hooks("whole", 2, c) // to the end of its budget
	whole.OnUpdate(results.Update{Update: 9, Compute: budget(c)})
	refresh <- time.Now()
	d.setActive("whole, seed 2", activeRun{})
	refresh <- time.Now()
	refresh <- time.Now()
	d.end()
	if len(d.active) != 0 {
		t.Errorf("under way: %v", d.active)
	}
	for _, want := range []string{"study", "4/12 runs", "5/12 runs", "warm-up", "buffer, seed 2", "update 3",
		"update 9"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the screen lacks %q:\n%s", want, out.String())
		}
	}
	screens := strings.Split(out.String(), "study  ")
	if last := screens[len(screens)-1]; strings.Contains(last, "buffer") || strings.Contains(last, "whole") ||
		!strings.Contains(last, "5/12 runs") {
		t.Errorf("the last screen is:\n%s", fmt.Sprintf("%q", last))
	}
}

// budget returns the compute at which a run ends.
func budget(c run.Config) float64 {
	o, _ := c.Schedule()
	return o.ComputeBudget
}
