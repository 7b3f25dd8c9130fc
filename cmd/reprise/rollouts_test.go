package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/replay/browse"
)

func TestRolloutsListsAndShowsTheTableOfARun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	succeeds(t, "", append(small(dir, "replay.sampler=prioritized", "replay.age_decay=8"), "--quiet")...)
	text := succeeds(t, "", "rollouts", dir, "--where", "age >= 0", "--sort", "reward", "--limit", "3")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[4], "1 to 3 of ") {
		t.Fatalf("the list is\n%s", text)
	}
	for _, l := range lines {
		if utf8.RuneCountInString(l) > 80 {
			t.Errorf("a line has more than 80 columns: %s", l)
		}
	}
	var page browse.Page
	decode(t, succeeds(t, "", "rollouts", dir, "--sort", "reward", "--limit", "3", "--json"), &page)
	if len(page.Rows) != 3 || page.Rows[0].Reward < page.Rows[2].Reward {
		t.Errorf("JSON is %+v", page)
	}
	id := strings.Fields(lines[1])[0]
	shown := succeeds(t, "", "rollouts", dir, "--show", id)
	for _, want := range []string{"rollout " + id + " of group", "next draw", "log-prob", "temperature 1"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the rollout lacks %q:\n%s", want, shown)
		}
	}
	for want, arguments := range map[string][]string{
		"use reward":       {"--where", "rewrd > 0"},
		"limit is 2000":    {"--limit", "2000"},
		"does not hold it": {"--show", "99999999"},
	} {
		if out := call(t, "", append([]string{"rollouts", dir}, arguments...)...); out.code != 1 ||
			!strings.Contains(out.stderr, want) || out.stdout != "" {
			t.Errorf("%v gave %+v, want an error with %q", arguments, out, want)
		}
	}
}

// A policy that has not learned since it made a rollout gives its tokens the log-probs that they were drawn with.
func TestTheRatioToThePolicyIsOneUntilItLearns(t *testing.T) {
	t.Parallel()
	dir, learned := filepath.Join(t.TempDir(), "still"), filepath.Join(t.TempDir(), "learned")
	succeeds(t, "", append(small(dir, "learner.learning_rate=1e-30", "generate.temperature=0.7"), "--quiet")...)
	succeeds(t, "", append(small(learned, "learner.learning_rate=0.03", "budget.updates=8"), "--quiet")...)
	var page browse.Page
	decode(t, succeeds(t, "", "rollouts", dir, "--limit", "5", "--json"), &page)
	for _, row := range page.Rows {
		id := fmt.Sprint(row.ID)
		var same, other scoredRollout
		decode(t, succeeds(t, "", "rollouts", dir, "--show", id, "--policy", dir, "--json"), &same)
		decode(t, succeeds(t, "", "rollouts", dir, "--show", id, "--policy", learned, "--json"), &other)
		moved := false
		for i, m := range same.Mask {
			now, then := float64(same.PolicyLogprobs[i]), float64(same.Logprobs[i])
			if (m == 0) != math.IsNaN(now) || m == 1 && math.Abs(now-then) > 1e-3 {
				t.Errorf("rollout %s, token %d with mask %d: log-prob %g by the policy, %g as it was drawn", id, i, m, now, then)
			}
			moved = moved || m == 1 && math.Abs(float64(other.PolicyLogprobs[i])-then) > 0.01
		}
		if !moved {
			t.Errorf("rollout %s has the same log-probs by another policy", id)
		}
	}
	shown := succeeds(t, "", "rollouts", dir, "--show", fmt.Sprint(page.Rows[0].ID), "--policy", dir)
	if !strings.Contains(shown, "advantage      ratio  text") || !strings.Contains(shown, "prompt, decoded") {
		t.Errorf("the rollout is shown as\n%s", shown)
	}
	file := filepath.Join(t.TempDir(), "page.html")
	if said := succeeds(t, "", "rollouts", dir, "--html", file, "--policy", dir, "--limit", "5"); !strings.HasPrefix(said,
		file+": 5 rollouts of "+dir+", in ") {
		t.Errorf("writing a page says %q", said)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), `"scores":{"policy":"`+dir+`"`) != 5 {
		t.Errorf("the page has not 5 rollouts with scores: %v\n%.3000s", err, text)
	}
	for want, arguments := range map[string][]string{
		"add --show ID, or --html FILE":     {"rollouts", dir, "--policy", dir},
		"want it without --show and --json": {"rollouts", dir, "--html", file, "--json"},
		"--policy: ":                        {"rollouts", dir, "--show", "1", "--policy", t.TempDir()},
	} {
		if out := call(t, "", arguments...); out.code != 1 || !strings.Contains(out.stderr, want) {
			t.Errorf("%v gave %+v, want an error with %q", arguments, out, want)
		}
	}
}

func TestRolloutsOfAJournalAreListed(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := startServe(t, "--http", "off", "--data", data, "--table", "name=lab,capacity=100")
	s.fill(t, "lab", 2)
	s.stop()
	text := succeeds(t, "", "rollouts", filepath.Join(data, "tables", "lab.journal"), "--where", "age == 4")
	if !strings.Contains(text, "3 rollouts, version 4") {
		t.Errorf("the list is\n%s", text)
	}
}

func TestRolloutsOfATableInPartsAreListedTogether(t *testing.T) {
	t.Parallel()
	var at []string
	for range 2 {
		s := startServe(t, "--http", "off", "--table", "name=lab,capacity=100")
		s.fill(t, "lab", 2)
		at = append(at, s.at.GRPC+"/lab")
	}
	source := strings.Join(at, ",")
	text := succeeds(t, "", "rollouts", source, "--limit", "3", "--sort", "reward")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 5 || lines[4] != "1 to 3 of 12 rollouts, version 4" {
		t.Fatalf("the list is\n%s", text)
	}
	var page browse.Page
	decode(t, succeeds(t, "", "rollouts", source, "--json"), &page)
	last := page.Rows[len(page.Rows)-1]
	if len(page.Rows) != 12 || last.ID != 1<<48+1 {
		t.Errorf("all are %+v", page)
	}
	for _, l := range strings.Split(succeeds(t, "", "rollouts", source), "\n") {
		if utf8.RuneCountInString(l) > 80 {
			t.Errorf("a line has more than 80 columns: %s", l)
		}
	}
	if shown := succeeds(t, "", "rollouts", source, "--show", fmt.Sprint(last.ID)); !strings.HasPrefix(shown,
		fmt.Sprintf("rollout %d of group %d", last.ID, last.Group)) {
		t.Errorf("rollout %d is shown as\n%s", last.ID, shown)
	}
	for want, arguments := range map[string][]string{
		"is in parts: export one after the other": {"export", source, "--out", filepath.Join(t.TempDir(), "x.arrow")},
		"ask for the first 1000":                  {"rollouts", source, "--skip", "990"},
		"want parts of one table":                 {"rollouts", at[0] + "," + at[1] + "s"},
	} {
		if out := call(t, "", arguments...); out.code != 1 || !strings.Contains(out.stderr, want) {
			t.Errorf("%v gave %+v, want an error with %q", arguments, out, want)
		}
	}
	down := at[0] + ",grpc://127.0.0.1:1/lab"
	if out := call(t, "", "rollouts", down); out.code != 0 || out.stderr != "" || !strings.HasSuffix(out.stdout,
		"6 rollouts, version 4\nwithout those of 1 part that did not answer: 1\n") {
		t.Errorf("with a part down: %+v", out)
	}
}

func TestRolloutsOfNoSourceSayWhatOneIs(t *testing.T) {
	out := call(t, "", "rollouts", filepath.Join(t.TempDir(), "nope"))
	if out.code != 1 || !strings.Contains(out.stderr, "want grpc://host:port/table, the folder of a run") {
		t.Errorf("%+v", out)
	}
}

func TestRolloutsOfHostileTextsFitATerminal(t *testing.T) {
	hostile := "a \x1b[2J\x9b1m\u202e\r\n\x07 \"b\" \\ " + strings.Repeat("long ", 100)
	for _, text := range []string{quoted(hostile), cell(hostile, 20, true)} {
		if strings.ContainsAny(text, "\x1b\x07\r\n\u202e") || !utf8.ValidString(text) {
			t.Errorf("%q would reach the terminal", text)
		}
	}
	if text := cell(hostile, 20, true); utf8.RuneCountInString(text) != 20 || !strings.HasPrefix(text, `a \x1b[2J`) {
		t.Errorf("in 20 columns it is %q", text)
	}
	if text := cell("é", 4, true); text != "é   " {
		t.Errorf("filled up it is %q", text)
	}
}
