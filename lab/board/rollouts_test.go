package board_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/board"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	pages "github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
)

// tables makes a table with a rollout of the prompt that stands in a run's checkpoint, and counts how often it does.
func tables(t *testing.T, made *int) board.Tables {
	const file = "checkpoint/table.gob"
	return board.Tables{Files: []string{file}, Last: func(dir string) (pages.Table, string, error) {
		*made++
		prompt, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.HasPrefix(string(prompt), "grpc") {
			return pages.Table{}, string(prompt), err
		}
		table, err := replay.New(replay.Options{Capacity: 8})
		must(t, err)
		_, err = table.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{rollout.New(string(prompt),
			[]int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-1}})}})
		must(t, err)
		return pages.Table{Table: table}, "", nil
	}}
}

// save writes the checkpoint of a run, as of a number of seconds.
func (w *written) save(prompt string, at int64) *written {
	w.t.Helper()
	file := filepath.Join(w.dir, "checkpoint", "table.gob")
	must(w.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(w.t, os.WriteFile(file, []byte(prompt), 0o644))
	must(w.t, os.Chtimes(file, time.Unix(at, 0), time.Unix(at, 0)))
	return w
}

// prompts returns the prompts of the rollouts of a run, or what the board says instead.
func prompts(t *testing.T, b *board.Board, run string) string {
	t.Helper()
	answer := ask(b, "/rollouts/find?limit=10&run="+run, "")
	var found struct {
		Rollouts []struct {
			PromptID string `json:"prompt_id"`
		}
		Error string
	}
	must(t, json.Unmarshal(answer.Body.Bytes(), &found))
	if (answer.Code == http.StatusOK) != (found.Error == "") {
		t.Errorf("%s: %d with error %q", run, answer.Code, found.Error)
	}
	for _, r := range found.Rollouts {
		found.Error += r.PromptID
	}
	return found.Error
}

func TestTheRolloutsOfARunsLastCheckpointAreShown(t *testing.T) {
	dir, made := t.TempDir(), 0
	a := begin(t, dir, "deep/a").train(3, 1).save("sums/1", 1)
	begin(t, dir, "b").train(3, 1).save("sums/2", 1)
	begin(t, dir, "c").train(3, 1).save("sums/3", 1)
	begin(t, dir, "none").train(3, 1)
	begin(t, dir, "served").train(3, 1).save("grpc://127.0.0.1:7447/math", 1)
	b, err := board.Open(dir, tables(t, &made))
	must(t, err)
	defer b.Close()
	for at, want := range map[string]string{"/at/deep/a/": `<a href="/rollouts?run=deep%2Fa">Rollouts</a>`,
		"/rollouts?run=deep%2Fa": "rollouts/page.js"} {
		if page := ask(b, at, ""); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), want) {
			t.Errorf("%s: %d without %s\n%.900s", at, page.Code, want, page.Body)
		}
	}
	for i, c := range []struct {
		run, want string
		made      int // tables so far
	}{
		{"deep/a", "sums/1", 1}, {"deep/a", "sums/1", 1}, {"b", "sums/2", 2}, {"deep/a", "sums/1", 2},
		{"c", "sums/3", 3}, {"deep/a", "sums/1", 4}, // two are kept
		{"none", "no such file", 5}, {"served", "see its dashboard, or call reprise rollouts grpc://127.0.0.1:7447/math", 6},
		{"", "want the folder of a run", 6}, {"nowhere", "is no folder of a run", 6}, {"deep", "is no folder of a run", 6},
	} {
		if got := prompts(t, b, c.run); !strings.Contains(got, c.want) || made != c.made {
			t.Errorf("%d: %s: %q and %d tables made, want %q and %d", i, c.run, got, made, c.want, c.made)
		}
	}
	a.save("sums/4", 2)
	if got := prompts(t, b, "deep/a"); got != "sums/4" {
		t.Errorf("after another checkpoint the rollout is of %s", got)
	}
	must(t, os.Truncate(filepath.Join(a.dir, "checkpoint", "table.gob"), 1<<30+1))
	if got := prompts(t, b, "deep/a"); !strings.Contains(got, "has 1024 MB: the board restores tables of up to 1024 MB") {
		t.Errorf("a large table: %s", got)
	}
}

// constant gives every token the same log-prob.
type constant float32

func (c constant) Score(_ context.Context, r *rollout.Rollout) ([]float32, error) {
	return slices.Repeat([]float32{float32(c)}, len(r.Tokens)), nil
}

func TestRolloutsAreScoredByThePolicyOfTheirCheckpoint(t *testing.T) {
	dir, made, read := t.TempDir(), 0, 0
	a, other := begin(t, dir, "a").train(3, 1).save("sums/1", 1), begin(t, dir, "other").train(3, 1).save("sums/2", 1)
	const weights = "checkpoint/model.safetensors"
	all := tables(t, &made)
	meanwhile := func() {}
	all.PolicyFiles = []string{weights}
	all.Policy = func(dir string) (board.Scorer, error) {
		read++
		text, err := os.ReadFile(filepath.Join(dir, weights))
		meanwhile()
		return constant(-len(text)), err
	}
	put := func(w *written, text string) {
		must(t, os.WriteFile(filepath.Join(w.dir, weights), []byte(text), 0o644))
	}
	put(a, "1")
	put(other, "22")
	b, err := board.Open(dir, all)
	must(t, err)
	defer b.Close()
	score := func(run, want string, reads int) {
		t.Helper()
		got := ask(b, "/rollouts/score?id=1&run="+run, "").Body.String()
		if !strings.Contains(got, want) || read != reads {
			t.Errorf("%s: %s after %d reads, want %s after %d", run, got, read, want, reads)
		}
	}
	const byA = `{"policy":"the policy of the last checkpoint of a","logprobs":[null,-1]}`
	score("a", byA, 1)
	score("a", byA, 1) // kept
	score("other", `"logprobs":[null,-2]`, 2)
	score("a", byA, 3) // one policy is kept
	put(a, "333")
	a.save("sums/1", 2)
	score("a", `"logprobs":[null,-3]`, 4)
	put(a, "4444")
	a.save("sums/1", 3)
	meanwhile = func() { a.save("sums/1", 4) }
	score("a", "saved another checkpoint meanwhile: ask again", 5)
	meanwhile = func() {}
	score("a", `"logprobs":[null,-4]`, 6)
	if shown := ask(b, "/rollouts/one?id=1&run=a", "").Body.String(); !strings.Contains(shown, `"scorable":true`) {
		t.Errorf("the page does not offer the ratio: %s", shown)
	}
	if got := ask(b, "/rollouts/score?id=9&run=a", "").Body.String(); !strings.Contains(got, "the table does not hold it") {
		t.Errorf("a rollout that is not there: %s", got)
	}
	// A reader who leaves does not wait until another's policy has been read.
	put(a, "55555")
	meanwhile = func() {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		answer := httptest.NewRecorder()
		b.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet,
			"http://localhost:6007/rollouts/score?id=1&run=a", nil))
		if got := answer.Body.String(); !strings.Contains(got, "context canceled") {
			t.Errorf("a reader who left is answered %s", got)
		}
	}
	a.save("sums/1", 5)
	score("a", `"logprobs":[null,-5]`, 7)
	meanwhile = func() {}
	must(t, os.Truncate(filepath.Join(other.dir, weights), 2<<30+1))
	score("other", "reads policies of up to 2048 MB: call reprise rollouts", 7)
	must(t, os.Remove(filepath.Join(other.dir, weights)))
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o644))
	must(t, os.Symlink(outside, filepath.Join(other.dir, weights)))
	score("other", "error", 7)
}

func TestAttackNoTableOutsideTheFolderIsRestored(t *testing.T) {
	top, made := t.TempDir(), 0
	dir, outside := filepath.Join(top, "runs"), filepath.Join(top, "outside")
	begin(t, outside).save("the secret", 1)
	begin(t, dir, "good").save("sums/1", 1)
	begin(t, dir, "stolen")
	must(t, os.Symlink(filepath.Join(outside, "checkpoint"), filepath.Join(dir, "stolen", "checkpoint")))
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	begin(t, dir, "both", results.ReplayArm, "seed-1").save("sums/1", 1)
	b, err := board.Open(dir, tables(t, &made))
	must(t, err)
	defer b.Close()
	for _, run := range []string{"../outside", "..%2foutside", "good/../../outside", outside, "link", "stolen", "both",
		"good%00", "good/", "..", "%ff"} {
		if got := prompts(t, b, run); made > 0 || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, %d tables made", run, got, made)
		}
	}
	if got := prompts(t, b, "both/replay/seed-1"); got != "sums/1" {
		t.Errorf("a run of a comparison: %s", got)
	}
	plain := open(t, dir)
	if at := ask(plain, "/at/good/", "").Body.String(); strings.Contains(at, "/rollouts") ||
		ask(plain, "/rollouts?run=good", "").Code != http.StatusNotFound {
		t.Error("a board that cannot restore tables links their pages")
	}
}
