package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal"
)

// aJournal is a journal of three rollouts.
func aJournal(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "table.journal")
	table, err := replay.New(replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r := &rollout.Rollout{
			PromptID: "p", Tokens: make([]int32, 3000), Mask: make([]uint8, 3000), Logprobs: make([]float32, 3000),
			Versions: make([]rollout.Version, 3000), Temperature: 1, TopP: 1,
		}
		r.Versions[0] = rollout.NoVersion
		for i := 1; i < len(r.Mask); i++ {
			r.Mask[i] = 1
		}
		if _, err := table.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{r}}); err != nil {
			t.Fatal(err)
		}
	}
	j, err := journal.Create(journal.Options{Path: path}, []byte("{}"), table)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAJournalIsVerifiedAndSalvaged(t *testing.T) {
	t.Parallel()
	path := aJournal(t)
	if o := call(t, "", "journal", "verify", path); o.code != 0 || !strings.Contains(o.stdout, "3 rollouts") ||
		!strings.Contains(o.stdout, "whole") {
		t.Fatalf("verifying a whole journal gave %+v", o)
	}
	segments, err := filepath.Glob(filepath.Join(path, "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1 // in a message with rollouts: one or several have them
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	o := call(t, "", "journal", "verify", path)
	missing := regexp.MustCompile(`what is missing had ([1-3]) rollouts`).FindStringSubmatch(o.stdout)
	if o.code != 1 || !strings.Contains(o.stdout, "segment "+filepath.Base(segments[0])+", offset ") || missing == nil ||
		!strings.Contains(o.stderr, "reprise journal salvage "+path) {
		t.Fatalf("verifying a damaged journal gave %+v", o)
	}
	left := fmt.Sprintf("%d rollouts", '3'-missing[1][0])
	out := path + ".new-one"
	if o := call(t, "", "journal", "salvage", path, "--out", out); o.code != 0 ||
		!strings.Contains(o.stdout, left) {
		t.Fatalf("salvaging gave %+v", o)
	}
	if o := call(t, "", "journal", "verify", out); o.code != 0 || !strings.Contains(o.stdout, left) ||
		!strings.Contains(o.stdout, "salvaged") {
		t.Fatalf("verifying what was saved gave %+v", o)
	}
	if o := call(t, "", "journal", "salvage", path, "--out", out); o.code != 1 ||
		!strings.Contains(o.stderr, "file already exists") {
		t.Fatalf("salvaging into a file that exists gave %+v", o)
	}
}
