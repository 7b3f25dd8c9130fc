package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// decode fills the settings of a task as a strict decoder does.
func decode(t *testing.T, name, text string) (Configuration, error) {
	t.Helper()
	c, err := Settings(name)
	if err != nil {
		t.Fatal(err)
	}
	return c, yaml.UnmarshalWithOptions([]byte(text), c, yaml.Strict())
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
		"arithmetic":   `{"operations": ["subtract"], "max": 50}`,
		"countdown":    `{"max_numbers": 3, "use": "any"}`,
		"search":       `{"passages": 1, "held_out": 20}`,
		"calculator":   `{"max": 50, "max_turns": 4}`,
		"cliffwalking": `{"slippery": true, "max_steps": 30}`,
		"external":     `{"command": ["cat"], "held_out_fraction": 0.5, "train_file": ` + string(path) + `}`,
		"frozenlake":   `{"size": 8, "slippery": false, "format": "words"}`,
		"geometry":     `{"questions": ["area", "third"], "image_size": 48, "held_out": 20}`,
		"math":         `{"held_out_fraction": 0.5, "train_file": ` + string(path) + `}`,
		"gsm8k":        `{"held_out_fraction": 0.5, "train_file": ` + string(path) + `}`,
		"sokoban":      `{"difficulty": "hard", "max_steps": 40, "held_out": 20}`,
		"words":        `{"words": ["cat"], "held_out": 3}`,
	}
	if len(texts) != len(Names()) {
		t.Fatalf("%d of the tasks %q are tried", len(texts), Names())
	}
	for name, text := range texts {
		c, err := decode(t, name, text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		made, err := New(name, c, 1)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		verifier, err := Verifier(name)
		_, several := made.(task.Environment)
		_, remote := made.(task.Remote) // its verifier needs settings
		if (several || remote) != (err != nil) {
			t.Fatalf("%s: an environment: %v, its verifier: %v", name, several, err)
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
		"arithmetic":   `{"train_file": "x"}`,
		"countdown":    `{"size": 4}`,
		"search":       `{"max": 5}`,
		"calculator":   `{"operations": ["add"]}`,
		"cliffwalking": `{"size": 4}`,
		"frozenlake":   `{"max": 5}`,
		"gsm8k":        `{"max": 5}`,
		"sokoban":      `{"slippery": true}`,
		"words":        `{"operations": []}`,
	} {
		if _, err := decode(t, name, text); err == nil {
			t.Errorf("%s accepts %s", name, text)
		}
	}
}

func TestResolvedSettingsMakeTheSameTask(t *testing.T) {
	for name, text := range map[string]string{"arithmetic": `{}`, "countdown": `{"min_numbers": 5, "format": "words"}`,
		"search": `{"format": "words"}`, "cliffwalking": `{"random_start": true}`, "frozenlake": `{"map": "random"}`,
		"sokoban": `{"boxes": 2}`, "words": `{"per_prompt": 2, "template": "{words}: {opening}"}`} {
		c, err := decode(t, name, text)
		if err != nil {
			t.Fatal(err)
		}
		before, err := New(name, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.Resolve()
		written, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(t, name, string(written))
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		after, err := New(name, again, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before.HeldOut(), after.HeldOut()) ||
			!reflect.DeepEqual(before.Train(5), after.Train(5)) {
			t.Errorf("%s: other prompts from %s", name, written)
		}
	}
}

func TestChatIsWordsInMessages(t *testing.T) {
	path, err := json.Marshal(problems(t))
	if err != nil {
		t.Fatal(err)
	}
	file := `, "held_out_fraction": 0.5, "template": "{question}{problem}", "train_file": ` + string(path)
	for name, more := range map[string]string{"countdown": "", "search": "", "sokoban": "", "frozenlake": "",
		"cliffwalking": "", "gsm8k": strings.Replace(file, "{problem}", "", 1),
		"math":     strings.Replace(file, "{question}", "", 1),
		"external": `, "command": ["cat"]` + strings.Replace(file, "{problem}", "", 1)} {
		play := func(format string) (all []string, chats bool) {
			c, err := decode(t, name, `{"format": "`+format+`"`+more+`}`)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			made, err := New(name, c, 1)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p := made.Train(3)
			e := task.Begin(made, p, 7)
			all = append(all, p.Text)
			for done := false; !done; {
				text := ""
				if expert, ok := e.(task.Expert); ok && name != "external" {
					text = expert.Advise()
				}
				step := e.Step(text)
				all, done = append(all, text, step.Text, fmt.Sprint(step.Reward)), step.Done
			}
			return all, task.Chats(made)
		}
		words, chats := play(task.Words)
		if chats {
			t.Errorf("%s: words are messages", name)
		}
		if messages, chats := play(task.Chat); !chats || !slices.Equal(messages, words) {
			t.Errorf("%s: chat is %v, %q, want %q", name, chats, messages, words)
		}
	}
	for name, want := range map[string]string{"gsm8k": "One and one?\nThink step by step. End with ####",
		"math": "One and one?\nReason step by step"} {
		c, err := decode(t, name, `{"format": "chat", "held_out_fraction": 0.5, "train_file": `+string(path)+`}`)
		if err != nil {
			t.Fatal(err)
		}
		made, err := New(name, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := made.Train(0).Text + made.HeldOut()[0].Text
		if !strings.Contains(got, want) || strings.Contains(got, "Answer:") || strings.Contains(got, "Solution:") {
			t.Errorf("%s asks %q in chat, want %q", name, got, want)
		}
	}
}

func TestUnknownNamesAndBadSettingsAreRefused(t *testing.T) {
	_, settings := Settings("sudoku")
	_, verifier := Verifier("")
	for _, err := range []error{settings, verifier} {
		var e *option.Error
		if !errors.As(err, &e) || e.Key != "name" {
			t.Errorf("%v does not name the setting", err)
		}
	}
	for _, name := range Names() {
		c, err := decode(t, name, `{"held_out": -1}`)
		if err != nil {
			t.Fatal(err)
		}
		var e *option.Error
		if err := c.Validate(); !errors.As(err, &e) {
			t.Errorf("%s accepts -1 held-out prompts: %v", name, err)
		}
		if made, err := New(name, c, 1); made != nil || err == nil {
			t.Errorf("%s made of bad settings: %v, %v", name, made, err)
		}
	}
}
