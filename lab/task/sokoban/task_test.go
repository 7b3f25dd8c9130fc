package sokoban

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

var (
	_ task.Environment = (*Task)(nil)
	_ task.Alphabet    = (*Task)(nil)
	_ task.Expert      = (*episode)(nil)
	_ task.Actor       = (*episode)(nil)
)

// variety is settings that between them reach every source, format and set of actions.
func variety() []Settings {
	return []Settings{
		{},
		{Difficulty: Hard, Settings: gridworld.Settings{HeldOut: 50, Format: task.Words}},
		{Size: 5, MinPushes: 1, Actions: PushMove, Settings: gridworld.Settings{HeldOut: 40, ActionsPerTurn: 3,
			MaxSteps: 30}},
		{Boxes: 2, Actions: PushMove, Settings: gridworld.Settings{HeldOut: 20, Format: task.Words, ActionsPerTurn: 2}},
		{Levels: "testdata/levels.txt", Settings: gridworld.Settings{HeldOut: 2}},
		{Levels: "testdata", Settings: gridworld.Settings{Format: task.Words}},
	}
}

func TestHeldOutLevelsAreDistinctAndNeverTrained(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		tasktest.HeldOut(t, made, max(s.HeldOut, 1), 1500, func(p task.Prompt) string { return p.State })
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	for _, s := range variety() {
		most := 20
		if s.Levels != "" { // there are few
			most = 200
		}
		tasktest.SeedOrdersTraining(t, newTask(t, s, 1), newTask(t, s, 1), newTask(t, s, 2), 200, most)
	}
}

func TestLevelsOfFilesAreGivenOncePerEpochAndHeldOutOnes(t *testing.T) {
	made := newTask(t, Settings{Levels: "testdata/levels.txt", Settings: gridworld.Settings{HeldOut: 1}}, 3)
	for epoch := range uint64(4) {
		seen := map[string]bool{}
		for i := range uint64(3) {
			seen[made.Train(3*epoch+i).ID] = true
		}
		if len(seen) != 3 { // five levels, two of them equal, and one held out
			t.Errorf("epoch %d gives %d levels", epoch, len(seen))
		}
	}
	often := filepath.Join(t.TempDir(), "often.txt")
	text := strings.Repeat(row("@$.")+"\n", 30) + row("@ $.") + "\n" + row("@$ .")
	if err := os.WriteFile(often, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	few := newTask(t, Settings{Levels: often, Settings: gridworld.Settings{HeldOut: 2}}, 3).HeldOut()
	if len(few) != 2 || few[0].ID == few[1].ID {
		t.Errorf("%+v are held out of three levels", few)
	}
	apart := newTask(t, Settings{Levels: "testdata", HeldOutLevels: "testdata/levels.txt",
		Settings: gridworld.Settings{HeldOut: 3}}, 3)
	if n := len(apart.HeldOut()); n != 3 {
		t.Errorf("%d held-out levels, want 3", n)
	}
	if one, two := apart.Train(0), apart.Train(1); one.State != two.State {
		t.Errorf("training gives %s and %s, want the one level that is not held out", one.ID, two.ID)
	}
}

func TestEverythingIsWrittenInTheAlphabet(t *testing.T) {
	for _, s := range variety() {
		tasktest.Characters(t, newTask(t, s, 1), 30)
	}
}

func TestActionsFollowTheSettings(t *testing.T) {
	for set, want := range map[Settings]string{
		{}:                  "U D L R",
		{Actions: PushMove}: "N U D L R u d l r",
		{Settings: gridworld.Settings{Format: task.Words}}: "<answer>Up</answer> " +
			"<answer>Down</answer> <answer>Left</answer> <answer>Right</answer>",
		{Settings: gridworld.Settings{Format: task.Words, ActionsPerTurn: 50}}: "<answer>Up</answer> " +
			"<answer>Down</answer> <answer>Left</answer> <answer>Right</answer>",
	} {
		made := newTask(t, set, 1)
		texts := made.Reset(made.Train(0), 0).(task.Actor).Actions()
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("%+v: %s, want %s", set, got, want)
		}
		for i, text := range texts {
			if got, _ := made.protocol.Parse(text); !slices.Equal(got, []int{i}) {
				t.Errorf("%+v: %s is read as %v", set, text, got)
			}
		}
	}
}

func TestTextsOfTurns(t *testing.T) {
	const terse, words, four, nine = task.Terse, task.Words, Push, PushMove
	for _, c := range []struct {
		format, actions string
		perTurn         int
		text            string
		want            []action
	}{
		{terse, four, 1, "R", []action{pushRight}},
		{terse, four, 1, "r", nil},
		{terse, four, 1, "RR", nil},
		{terse, four, 1, "R\n", nil},
		{terse, four, 1, "", nil},
		{terse, nine, 3, "rNU", []action{moveRight, noOperation, pushUp}},
		{terse, nine, 3, "rNUU", nil},
		{terse, nine, 3, "r N", nil},
		{words, four, 1, "<answer>Up</answer>", []action{pushUp}},
		{words, four, 1, "I think <answer>Up</answer> no, <answer> down\t</answer>.", []action{pushDown}},
		{words, four, 1, "<answer>Up", nil},
		{words, four, 1, "Up", nil},
		{words, four, 1, "Up</answer>", nil},
		{words, four, 1, "</answer><answer>Up", nil},
		{words, four, 1, "<answer></answer>", nil},
		{words, four, 1, "<answer>Up, Up</answer>", nil},
		{words, four, 1, "<answer>Push Up</answer>", nil},
		{words, four, 1, "<answer>No Operation</answer>", nil},
		{words, four, 3, "<answer>UP || left, Right</answer>", []action{pushUp, pushLeft, pushRight}},
		{words, four, 3, "<answer>Up\n\nleft,</answer>", []action{pushUp, pushLeft}},
		{words, four, 3, "<answer>Up  Up\tleft</answer>", []action{pushUp, pushUp, pushLeft}},
		{words, four, 1, "<answer>Up Up</answer>", nil},
		{words, nine, 3, "<answer>Push Up Push Up</answer>", nil},
		{words, four, 3, "<answer>Up, Jump</answer>", nil},
		{words, four, 2, "<answer>Up, Up, Up</answer>", nil},
		{words, nine, 2, "<answer>move  up, no operation</answer>", []action{moveUp, noOperation}},
		{words, nine, 2, "<answer>Up</answer>", nil},
	} {
		if got := read(c.format, c.actions, c.perTurn, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%+v is read as %v", c, got)
		}
	}
}

// read reads the actions of a turn.
func read(format, set string, perTurn int, text string) []action {
	s := Settings{Actions: set}
	s.Format, s.ActionsPerTurn = format, perTurn
	actions, p := s.protocol()
	numbers, _ := p.Parse(text)
	var list []action
	for _, n := range numbers {
		list = append(list, actions[n])
	}
	return list
}

func TestRoomsAreWrittenByFormat(t *testing.T) {
	l := mustParse(t, "######\n# $ *#\n#.#@ #\n######\n")
	b := &board{l.room, l.start}
	terse := newTask(t, Settings{}, 1)
	if got, want := terse.opening(b), "_$_*\n.#@_\n"; got != want || terse.observe(b, true) != want {
		t.Errorf("%q and %q, want %q", got, terse.observe(b, true), want)
	}
	room := "# # # # # #\n# _ $ _ * #\n# . # @ _ #\n# # # # # #\n"
	three := newTask(t, Settings{Settings: gridworld.Settings{Format: task.Words, ActionsPerTurn: 3}}, 1)
	if got := three.opening(b); !strings.HasSuffix(got,
		"separated by commas, such as <answer>Right, Up</answer>.\n"+room) {
		t.Errorf("%q", got)
	}
	one := newTask(t, Settings{Settings: gridworld.Settings{Format: task.Words}}, 1)
	if got := one.opening(b); !strings.Contains(got, "one action, such as <answer>Right</answer>.\n"+room) {
		t.Errorf("%q", got)
	}
	if got := one.observe(b, false); got != "\n"+room {
		t.Errorf("%q", got)
	}
	if got := one.observe(b, true); got != "\nThat was no answer of the form asked for.\n"+room {
		t.Errorf("%q", got)
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, Settings.Validate, []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{Difficulty: Hard, Size: 16, Boxes: 4}, ""},
		{Settings{Difficulty: "easy", Size: 4, Boxes: 5, MinPushes: -1, HeldOutLevels: "x"},
			"difficulty size boxes min_pushes held_out_levels"},
		{Settings{Size: 17, Boxes: -1}, "size boxes min_pushes"},
		{Settings{Levels: "x", Difficulty: Simple, Size: 6, Boxes: 1, MinPushes: 2, HeldOutLevels: "x"},
			"difficulty size boxes min_pushes held_out_levels"},
		{Settings{Actions: "pull", Settings: gridworld.Settings{HeldOut: -1, Format: "prose", ActionsPerTurn: -1,
			MaxSteps: -1, InvalidPenalty: number(0.1)}},
			"actions format max_steps actions_per_turn invalid_penalty held_out"},
		{Settings{Settings: gridworld.Settings{HeldOut: 100_001, ActionsPerTurn: 101, MaxSteps: 1001,
			InvalidPenalty: number(math.NaN())}}, "max_steps actions_per_turn invalid_penalty held_out"},
		{Settings{Settings: gridworld.Settings{MaxSteps: 20, MaxTurns: 21}}, "max_turns"},
		{Settings{Settings: gridworld.Settings{MaxTurns: -1, InvalidPenalty: number(-1001)}},
			"max_turns invalid_penalty"},
		{Settings{Settings: gridworld.Settings{MaxTurns: 120, InvalidPenalty: number(0)}}, ""},
	})
}

func number(x float64) *float64 { return &x }

func TestSettingsThatNoLevelsMeetAreRefused(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		want     string
	}{
		{Settings{MinPushes: 60}, "min_pushes: 60: want fewer"},
		{Settings{Size: 5, Settings: gridworld.Settings{HeldOut: 100_000}}, "held_out: 100000: want fewer"},
		{Settings{Levels: "testdata/none.txt"}, "levels: "},
		{Settings{Levels: "testdata/levels.txt", Settings: gridworld.Settings{HeldOut: 4}},
			"levels: testdata/levels.txt: 0 training and 4 held-out levels remain"},
		{Settings{Levels: "testdata", HeldOutLevels: "testdata/none"}, "held_out_levels: "},
		{Settings{Levels: t.TempDir()}, "0 training and 0 held-out levels remain"},
		{Settings{Levels: "task_test.go"}, "levels: task_test.go: level of line 1: "},
	} {
		if made, err := New(c.settings, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v, want %q", c.settings, made, err, c.want)
		}
	}
}

func TestTasksAreUsedConcurrently(t *testing.T) {
	made := newTask(t, Settings{Settings: gridworld.Settings{HeldOut: 10}}, 1)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range uint64(50) {
				e := made.Reset(made.Train(i), i).(*episode)
				for done := false; !done; {
					done = e.Step(e.Advise()).Done
				}
			}
		})
	}
	group.Wait()
}

func TestPromptsOfOtherTasksAreRefused(t *testing.T) {
	tasktest.Refuses(t, newTask(t, Settings{}, 1), "", "##")
}
