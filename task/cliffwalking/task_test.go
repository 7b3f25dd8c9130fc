package cliffwalking

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/gridworld"
)

var (
	_ task.Environment = (*Task)(nil)
	_ task.Tabular     = (*Task)(nil)
	_ task.Alphabet    = (*Task)(nil)
)

// common shortens settings of task/gridworld.
func common(s gridworld.Settings) Settings { return Settings{Settings: s} }

func variety() map[string]Settings {
	return map[string]Settings{
		"default":  {},
		"slippery": {Slippery: true},
		"starts":   common(gridworld.Settings{RandomStart: true}),
		"words":    {Slippery: true, Settings: gridworld.Settings{Format: gridworld.Words, ActionsPerTurn: 3, RandomStart: true, HeldOut: 20}},
	}
}

func TestExpertsWalkAlongTheEdgeInThirteenSteps(t *testing.T) {
	for perTurn, want := range map[int]string{1: "U R R R R R R R R R R R D", 5: "URRRR RRRRR RRD", 20: "URRRRRRRRRRRD"} {
		made := newTask(t, common(gridworld.Settings{ActionsPerTurn: perTurn}), 1)
		e := made.Reset(made.HeldOut()[0], 1).(task.Expert)
		var texts []string
		total := float32(0)
		for {
			text := e.Advise()
			texts = append(texts, text)
			step := e.Step(text)
			total += step.Reward
			if step.Done {
				if !step.Correct || step.Cut {
					t.Errorf("it ended with %+v", step)
				}
				break
			}
		}
		if got := strings.Join(texts, " "); got != want || total != -13 {
			t.Errorf("%d per turn: %s for %g, want %s for -13", perTurn, got, total, want)
		}
	}
}

// Naive play beside random play on firm ground, by coordinates.
func TestRandomPlayFollowsTheRules(t *testing.T) {
	made := newTask(t, common(gridworld.Settings{RandomStart: true, MaxSteps: 60}), 3)
	falls, goals := 0, 0
	for seed := range uint64(300) {
		r := rollout.Stream(seed, "cliff test", 0)
		p := made.Train(seed)
		row, column := int(p.Text[0]-'0'), int(p.Text[1]-'a')
		e := made.Reset(p, seed)
		for n := 1; ; n++ {
			action, reward, done := "URDL?"[r.IntN(5)], float32(-1), false
			switch {
			case action == '?':
				reward = -2
			case action == 'U' && row > 0:
				row--
			case action == 'D' && row < 3:
				row++
			case action == 'L' && column > 0:
				column--
			case action == 'R' && column < 11:
				column++
			}
			if row == 3 && column > 0 && column < 11 {
				reward, column = -100, 0
				falls++
			} else if row == 3 && column == 11 {
				done = true
				goals++
			}
			text := string([]byte{'0' + byte(row), 'a' + byte(column)})
			cut := !done && n == 60
			if done || cut {
				text = ""
			}
			if got, want := e.Step(string(action)), (task.Step{Text: text, Reward: reward, Done: done || cut, Cut: cut, Correct: done,
				Invalid: action == '?'}); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d, %q: %+v, want %+v", seed, n, action, got, want)
			}
			if done || cut {
				break
			}
		}
	}
	if falls == 0 || goals == 0 {
		t.Errorf("%d falls and %d goals: the test tries too little", falls, goals)
	}
}

func TestHeldOutStartsAreNeverTrained(t *testing.T) {
	made := newTask(t, common(gridworld.Settings{RandomStart: true}), 1)
	held := map[string]bool{}
	for _, p := range made.HeldOut() {
		held[p.State] = true
	}
	if len(held) != 9 || held["36"] {
		t.Errorf("held out are %v, want 9 without the start of the original", held)
	}
	trained := map[string]bool{}
	for i := range uint64(1000) {
		p := made.Train(i)
		if trained[p.State] = true; held[p.State] {
			t.Fatalf("training prompt %d begins in %s", i, p.State)
		}
	}
	if len(trained) != 37-9 || !trained["36"] {
		t.Errorf("training begins in %d cells, want 28 with the start of the original", len(trained))
	}
	if one := newTask(t, Settings{}, 1); len(one.HeldOut()) != 1 || one.HeldOut()[0].Text != "3a" || one.Train(5).Text != "3a" {
		t.Errorf("without random starts: %+v", one.HeldOut())
	}
	if luck := newTask(t, Settings{Slippery: true}, 1).HeldOut(); len(luck) != 100 || luck[0].ID == luck[1].ID || luck[0].State != luck[1].State {
		t.Errorf("%d slippery prompts", len(luck))
	}
	other := newTask(t, common(gridworld.Settings{RandomStart: true}), 2)
	if !reflect.DeepEqual(made.HeldOut(), other.HeldOut()) {
		t.Error("held-out prompts depend on the seed")
	}
}

func TestEverythingSaidIsInTheAlphabet(t *testing.T) {
	for name, s := range variety() {
		made := newTask(t, s, 1)
		r := rollout.Stream(1, "alphabet test", 0)
		used := ""
		for i := range uint64(40) {
			p := made.Train(i)
			e := made.Reset(p, i).(task.Actor)
			used += p.Text
			for done := false; !done; {
				text := e.Actions()[r.IntN(4)]
				used += text
				if r.IntN(4) == 0 {
					text = "nonsense"
				}
				step := e.Step(text)
				used += step.Text
				done = step.Done
			}
		}
		if rest := strings.Trim(used, made.Characters()); rest != "" {
			t.Errorf("%s: %q is not in the alphabet %q", name, rest, made.Characters())
		}
	}
	if got := newTask(t, Settings{}, 1).Characters(); got != "0123DLRUabcdefghijkl" {
		t.Errorf("the terse alphabet is %q", got)
	}
}

func TestWordsTellTheRules(t *testing.T) {
	made := newTask(t, common(gridworld.Settings{Format: gridworld.Words}), 1)
	p := made.Train(0)
	for _, part := range []string{"<answer>Up</answer>", "one of Up, Right, Down, Left", "costs as much as 100 steps", "............\nPCCCCCCCCCCG\n"} {
		if !strings.Contains(p.Text, part) {
			t.Errorf("%q is not in %q", part, p.Text)
		}
	}
	e := made.Reset(p, 1)
	if step := e.Step("U"); !step.Invalid || step.Reward != -2 || !strings.Contains(step.Text, "<answer>") {
		t.Errorf("without a tag: %+v", step)
	}
	if step := e.Step("<answer>up</answer>"); step.Invalid || !strings.HasSuffix(step.Text, "P...........\nSCCCCCCCCCCG\n") {
		t.Errorf("with a tag: %+v", step)
	}
	if slips := newTask(t, variety()["words"], 1).Train(0).Text; !strings.Contains(slips, "slippery") || strings.Contains(p.Text, "slippery") {
		t.Error("the instruction does not say whether the ground is slippery")
	}
}

func TestPromptsOfOtherTasksAreRefused(t *testing.T) {
	for _, state := range []string{"", "37", "47", "-1", "SFFF/FHFH/FFFH/HFFG@0"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("an episode begins in %q", state)
				}
			}()
			newTask(t, Settings{}, 1).Reset(task.Prompt{State: state}, 1)
		}()
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		key      string
	}{
		{common(gridworld.Settings{HeldOut: -1}), "held_out"},
		{common(gridworld.Settings{HeldOut: 37, RandomStart: true}), "held_out"},
		{common(gridworld.Settings{MaxSteps: 2000}), "max_steps"},
		{common(gridworld.Settings{Format: "poem"}), "format"},
	} {
		made, err := New(c.settings, 1)
		var e *task.SettingError
		if made != nil || !errors.As(err, &e) || e.Key != c.key {
			t.Errorf("%+v: %v", c.settings, err)
		}
	}
	newTask(t, common(gridworld.Settings{HeldOut: 36, RandomStart: true}), 1).Train(0)
	var s Settings
	if s.Resolve(); s.MaxSteps != 200 || *s.InvalidPenalty != -2 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkEpisode(b *testing.B) {
	made, err := New(Settings{}, 1)
	if err != nil {
		b.Fatal(err)
	}
	steps := 0
	for i := uint64(0); b.Loop(); i++ {
		e := made.Reset(made.Train(i), i)
		for r := rollout.Stream(i, "benchmark", 0); ; {
			steps++
			if e.Step("URDL"[r.IntN(4):][:1]).Done {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
}
