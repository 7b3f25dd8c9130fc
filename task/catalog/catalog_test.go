package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

// decode fills the settings of a task as a strict decoder does.
func decode(t *testing.T, name, text string) (Configuration, error) {
	t.Helper()
	c, err := Settings(name)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	return c, d.Decode(c)
}

// problems is a file of two questions.
func problems(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "problems.jsonl")
	lines := `{"question": "One and one?", "answer": "#### 2"}` + "\n" + `{"question": "One and two?", "answer": "#### 3"}`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEveryNamedTaskIsMadeFromItsFlatSettings(t *testing.T) {
	path, err := json.Marshal(problems(t))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"arithmetic":   `{"name": "arithmetic", "operations": ["subtract"], "max": 50}`,
		"countdown":    `{"name": "countdown", "max_numbers": 3, "use": "any"}`,
		"search":       `{"name": "search", "passages": 1, "held_out": 20}`,
		"cliffwalking": `{"name": "cliffwalking", "slippery": true, "max_steps": 30}`,
		"frozenlake":   `{"name": "frozenlake", "size": 8, "slippery": false, "format": "words"}`,
		"geometry":     `{"name": "geometry", "questions": ["area", "third"], "image_size": 48, "held_out": 20}`,
		"math":         `{"name": "math", "held_out_fraction": 0.5, "train_file": ` + string(path) + `}`,
		"gsm8k":        `{"name": "gsm8k", "held_out_fraction": 0.5, "train_file": ` + string(path) + `}`,
		"sokoban":      `{"name": "sokoban", "difficulty": "hard", "max_steps": 40, "held_out": 20}`,
		"words":        `{"name": "words", "words": ["cat"], "held_out": 3}`,
	}
	if len(texts) != len(Names()) {
		t.Fatalf("%d of the tasks %q are tried", len(texts), Names())
	}
	for name, text := range texts {
		c, err := decode(t, name, text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		made, err := c.New(1)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		verifier, err := Verifier(name)
		if _, ok := made.(task.Environment); ok != (err != nil) {
			t.Fatalf("%s: an environment: %v, its verifier: %v", name, ok, err)
		}
		if err != nil {
			continue
		}
		for _, p := range append(made.HeldOut(), made.Train(0)) {
			if v := verifier.Verify(p, p.Answer); !v.Correct || v != made.(task.Verifier).Verify(p, p.Answer) {
				t.Errorf("%s: %q answered with %q: %+v", name, p.Text, p.Answer, v)
			}
		}
	}
}

func TestKeysOfOtherTasksAreUnknown(t *testing.T) {
	for name, text := range map[string]string{
		"arithmetic":   `{"name": "arithmetic", "train_file": "x"}`,
		"countdown":    `{"name": "countdown", "size": 4}`,
		"search":       `{"name": "search", "max": 5}`,
		"cliffwalking": `{"name": "cliffwalking", "size": 4}`,
		"frozenlake":   `{"name": "frozenlake", "max": 5}`,
		"gsm8k":        `{"name": "gsm8k", "max": 5}`,
		"sokoban":      `{"name": "sokoban", "slippery": true}`,
		"words":        `{"name": "words", "operations": []}`,
	} {
		if _, err := decode(t, name, text); err == nil {
			t.Errorf("%s accepts %s", name, text)
		}
	}
}

func TestResolvedSettingsMakeTheSameTask(t *testing.T) {
	for name, text := range map[string]string{"arithmetic": `{}`, "countdown": `{"min_numbers": 5, "format": "words"}`, "search": `{"format": "words"}`, "cliffwalking": `{"random_start": true}`, "frozenlake": `{"map": "random"}`, "sokoban": `{"boxes": 2}`, "words": `{"per_prompt": 2, "template": "{words}: {opening}"}`} {
		c, err := decode(t, name, text)
		if err != nil {
			t.Fatal(err)
		}
		before, err := c.New(1)
		if err != nil {
			t.Fatal(err)
		}
		c.Resolve()
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(t, name, string(written))
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		after, err := again.New(1)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before.HeldOut(), after.HeldOut()) || !reflect.DeepEqual(before.Train(5), after.Train(5)) {
			t.Errorf("%s: other prompts from %s", name, written)
		}
	}
}

func TestUnknownNamesAndBadSettingsAreRefused(t *testing.T) {
	_, settings := Settings("sudoku")
	_, verifier := Verifier("")
	for _, err := range []error{settings, verifier} {
		var e *task.SettingError
		if !errors.As(err, &e) || e.Key != "name" {
			t.Errorf("%v does not name the setting", err)
		}
	}
	for _, name := range Names() {
		c, err := decode(t, name, `{"held_out": -1}`)
		if err != nil {
			t.Fatal(err)
		}
		var e *task.SettingError
		if err := c.Validate(); !errors.As(err, &e) {
			t.Errorf("%s accepts -1 held-out prompts: %v", name, err)
		}
		if made, err := c.New(1); made != nil || err == nil {
			t.Errorf("%s made of bad settings: %v, %v", name, made, err)
		}
	}
}
