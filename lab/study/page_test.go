package study

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/results"
)

func TestThePageHasWhatAReaderNeedsToRepeatTheStudy(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	times := []time.Time{began, began.Add(90 * time.Minute)}
	r := Runner{
		Study: trial("facts", sizes(t, "32", "48")...), Options: Options{Seeds: 2}, Dir: t.TempDir(), AtOnce: 2,
		Command: "reprise study facts --seeds 2",
		Now:     func() time.Time { now := times[0]; times = times[1:]; return now },
	}
	s, err := r.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Source": "[T] fig. 1", "Seeds": "1 to 2 of each of 2 arms", "Runs": "4 runs in ",
		"Configuration": results.ConfigFile, "Commit": "(go",
		"Machine": s.Machine.System, "Time": "ended 2026-11-20 13:30 UTC; the last call took 1h30m;",
		"Command": "reprise study facts --seeds 2",
	} {
		if got := factOf(s, name); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", name, got, want)
		}
	}
	if s.Sheet.Title != "A trial" || s.Sheet.Kind != "Study" || !slices.Equal(s.Sheet.Lead, r.Study.Lead) ||
		len(s.Sheet.Findings) != 1 {
		t.Errorf("page %+v", s.Sheet)
	}
	var sum float64
	for _, a := range s.Arms {
		for _, folder := range a.Folders {
			found, err := results.ReadRun(Folder(r.Dir, s.Name) + "/" + folder)
			if err != nil {
				t.Fatal(err)
			}
			sum += found.Timings[len(found.Timings)-1].Elapsed
		}
	}
	if math.Abs(s.Seconds-sum) > 1e-9 || sum <= 0 {
		t.Errorf("%g s, the runs' timings say %g", s.Seconds, sum)
	}
}

func TestThePageOfARehearsalIsMarked(t *testing.T) {
	r := Runner{Study: trial("rehearsed", sizes(t, "32")...), Options: Options{Seeds: 1, Quick: true}, Dir: t.TempDir()}
	s, _ := runStudy(t, r)
	if lead := s.Sheet.Lead; !s.Quick || len(lead) != 2 || !strings.Contains(lead[1], "rehearsal") ||
		len(r.Study.Lead) != 1 {
		t.Errorf("lead %q", lead)
	}
	if fact := factOf(s, "Seeds"); fact != "1 of each of 1 arm" {
		t.Errorf("seeds: %s", fact)
	}
}

func TestThePageNamesEveryBuildOnce(t *testing.T) {
	made := func(revision string, modified bool) *results.Run {
		return &results.Run{Summary: &results.Summary{Build: results.Build{Go: "go1", Revision: revision,
			Modified: modified}}}
	}
	old, now := made("0123456789abcdef", false), made("fedcba9876543210", true)
	judge := func(r *results.Run) *results.Study { return &results.Study{Build: r.Summary.Build} }
	for _, c := range []struct {
		judge *results.Study
		runs  []*results.Run
		want  string
	}{
		{judge(now), []*results.Run{now, now}, "fedcba987654 with changes (go1)"},
		{judge(now), []*results.Run{old, now, old, {}}, "runs by 0123456789ab (go1) and fedcba987654 with changes " +
			"(go1); judged by fedcba987654 with changes (go1)"},
		{judge(now), []*results.Run{old}, "runs by 0123456789ab (go1); judged by fedcba987654 with changes (go1)"},
		{judge(old), []*results.Run{{}}, "judged by 0123456789ab (go1)"},
		{judge(made("", false)), []*results.Run{made("", false)}, "a build that does not know its commit (go1)"},
	} {
		if got := buildsFact(c.judge, c.runs); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

func TestTheCPUModelIsThatOfTheFirstProcessor(t *testing.T) {
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: A: fast one\nprocessor\t: 1\nmodel name\t: B\n": "A: fast one",
		"processor\t: 0\nBogoMIPS\t: 50.00\n":                                          "",
		"":                                                                             "",
	} {
		if got := cpuModel(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTheTableOfArmsListsTheSettingsThatDiffer(t *testing.T) {
	a, b := Arm{"a", tiny(t)},
		Arm{"b", tiny(t, "learner.learning_rate=0.01", "task.max=12", "name=b", "checkpoint.every=9",
			"baseline.sampler=fifo")}
	list, err := differences([]Arm{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"learner.learning_rate: 0.01", "task.max: 12"}; !slices.Equal(list[1], want) ||
		len(list[0]) != 0 {
		t.Errorf("differences %q, want %q", list, want)
	}
}

func TestThePageTellsHowFarToTrustAnInterval(t *testing.T) {
	if want := "decides a claim 1 time in 20 (Holm). What is found holds for these 3 base models."; !strings.HasSuffix(
		intervalsFact(3), want) {
		t.Errorf("%q, want %q at its end", intervalsFact(3), want)
	}
}
