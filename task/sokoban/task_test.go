package sokoban

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/task"
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
		{Difficulty: Hard, HeldOut: 50, Format: Words},
		{Size: 5, MinPushes: 1, HeldOut: 40, Actions: PushMove, ActionsPerTurn: 3, MaxSteps: 30},
		{Boxes: 2, HeldOut: 20, Format: Words, Actions: PushMove, ActionsPerTurn: 2},
		{Levels: "testdata/levels.txt", HeldOut: 2},
		{Levels: "testdata", Format: Words},
	}
}

func TestHeldOutLevelsAreDistinctAndNeverTrained(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		held := map[string]bool{}
		for _, p := range made.HeldOut() {
			held[p.State] = true
		}
		s.Resolve()
		if want := max(s.HeldOut, 1); len(held) != want || len(made.HeldOut()) != want {
			t.Errorf("%+v: %d distinct held-out levels, want %d", s, len(held), want)
		}
		ids := map[string]string{}
		for i := range uint64(3000) {
			p := made.Train(i)
			if held[p.State] {
				t.Fatalf("%+v: training level %d is held out:\n%s", s, i, p.State)
			}
			if state, known := ids[p.ID]; known && state != p.State {
				t.Fatalf("%+v: %s is the name of\n%sand of\n%s", s, p.ID, state, p.State)
			}
			ids[p.ID] = p.State
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	for _, s := range variety() {
		one, again, other := newTask(t, s, 1), newTask(t, s, 1), newTask(t, s, 2)
		if !reflect.DeepEqual(one.HeldOut(), other.HeldOut()) {
			t.Errorf("%+v: held-out levels depend on the seed", s)
		}
		same := 0
		for i := range uint64(200) {
			if one.Train(i).State != again.Train(i).State {
				t.Fatalf("%+v: training level %d differs for one seed", s, i)
			}
			if one.Train(i).ID == other.Train(i).ID {
				same++
			}
		}
		if s.Levels == "" && same > 20 {
			t.Errorf("%+v: %d of 200 training levels agree between seeds", s, same)
		}
	}
}

func TestLevelsOfFilesAreGivenOncePerEpochAndHeldOutOnes(t *testing.T) {
	made := newTask(t, Settings{Levels: "testdata/levels.txt", HeldOut: 1}, 3)
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
	few := newTask(t, Settings{Levels: often, HeldOut: 2}, 3).HeldOut()
	if len(few) != 2 || few[0].ID == few[1].ID {
		t.Errorf("%+v are held out of three levels", few)
	}
	apart := newTask(t, Settings{Levels: "testdata", HeldOutLevels: "testdata/levels.txt", HeldOut: 3}, 3)
	if n := len(apart.HeldOut()); n != 3 {
		t.Errorf("%d held-out levels, want 3", n)
	}
	if one, two := apart.Train(0), apart.Train(1); one.State != two.State {
		t.Errorf("training gives %s and %s, want the one level that is not held out", one.ID, two.ID)
	}
}

func TestEverythingIsWrittenInTheAlphabet(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 1)
		characters := made.Characters()
		for i, c := range characters {
			if strings.IndexRune(characters, c) != i {
				t.Errorf("%+v: %q occurs twice", s, c)
			}
		}
		for i := range uint64(50) {
			p := made.Train(i)
			e := made.Reset(p, 0)
			texts := p.Text
			for _, text := range append(slices.Clone(e.(task.Actor).Actions()), "?", e.(task.Expert).Advise()) {
				texts += strings.ReplaceAll(text, "?", "")
				texts += e.Step(text).Text
			}
			if rest := strings.Trim(texts, characters); rest != "" {
				t.Fatalf("%+v: %q is not in the alphabet %q", s, rest, characters)
			}
		}
	}
}

func TestActionsAreThoseOfTheSettingsAndAreRead(t *testing.T) {
	for set, want := range map[Settings]string{
		{}:                                  "U D L R",
		{Actions: PushMove}:                 "N U D L R u d l r",
		{Format: Words}:                     "<answer>Up</answer> <answer>Down</answer> <answer>Left</answer> <answer>Right</answer>",
		{Format: Words, ActionsPerTurn: 50}: "<answer>Up</answer> <answer>Down</answer> <answer>Left</answer> <answer>Right</answer>",
	} {
		made := newTask(t, set, 1)
		texts := made.Reset(made.Train(0), 0).(task.Actor).Actions()
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("%+v: %s, want %s", set, got, want)
		}
		for i, text := range texts {
			if got := made.notation.read(text); len(got) != 1 || got[0] != made.actions[i] {
				t.Errorf("%+v: %s is read as %v", set, text, got)
			}
		}
	}
}

func TestTextsOfTurns(t *testing.T) {
	four, nine := actionsOf(Push), actionsOf(PushMove)
	for _, c := range []struct {
		notation notation
		text     string
		want     []Action
	}{
		{terse{four, 1}, "R", []Action{PushRight}},
		{terse{four, 1}, "r", nil},
		{terse{four, 1}, "RR", nil},
		{terse{four, 1}, "R\n", nil},
		{terse{four, 1}, "", nil},
		{terse{nine, 3}, "rNU", []Action{MoveRight, NoOperation, PushUp}},
		{terse{nine, 3}, "rNUU", nil},
		{terse{nine, 3}, "r N", nil},
		{words{four, 1}, "<answer>Up</answer>", []Action{PushUp}},
		{words{four, 1}, "I think <answer>Up</answer> no, <answer> down\t</answer>.", []Action{PushDown}},
		{words{four, 1}, "<answer>Up", nil},
		{words{four, 1}, "Up", nil},
		{words{four, 1}, "Up</answer>", nil},
		{words{four, 1}, "</answer><answer>Up", nil},
		{words{four, 1}, "<answer></answer>", nil},
		{words{four, 1}, "<answer>Up, Up</answer>", nil},
		{words{four, 1}, "<answer>Push Up</answer>", nil},
		{words{four, 1}, "<answer>No Operation</answer>", nil},
		{words{four, 3}, "<answer>UP || left, Right</answer>", []Action{PushUp, PushLeft, PushRight}},
		{words{four, 3}, "<answer>Up\n\nleft,</answer>", []Action{PushUp, PushLeft}},
		{words{four, 3}, "<answer>Up  Up\tleft</answer>", []Action{PushUp, PushUp, PushLeft}},
		{words{four, 1}, "<answer>Up Up</answer>", nil},
		{words{nine, 3}, "<answer>Push Up Push Up</answer>", nil},
		{words{four, 3}, "<answer>Up, Jump</answer>", nil},
		{words{four, 2}, "<answer>Up, Up, Up</answer>", nil},
		{words{nine, 2}, "<answer>move  up, no operation</answer>", []Action{MoveUp, NoOperation}},
		{words{nine, 2}, "<answer>Up</answer>", nil},
	} {
		if got := c.notation.read(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q is read as %v, want %v", c.notation, c.text, got, c.want)
		}
	}
}

func FuzzTurnsAreReadAsTheyAreWritten(f *testing.F) {
	f.Add("<answer>Up, Left</answer>")
	f.Add("UrN")
	f.Add("<answer><answer>||No Operation,</answer></answer>")
	f.Fuzz(func(t *testing.T, text string) {
		for _, n := range []notation{terse{actionsOf(Push), 2}, words{actionsOf(Push), 2}, terse{actionsOf(PushMove), 3}, words{actionsOf(PushMove), 3}} {
			actions := n.read(text)
			if len(actions) == 0 {
				continue
			}
			if again := n.read(n.write(actions)); !slices.Equal(again, actions) {
				t.Errorf("%+v: %q is %v, written and read %v", n, text, actions, again)
			}
		}
	})
}

func TestRoomsAreWrittenAsTheFormatsSay(t *testing.T) {
	l, err := Parse("######\n# $ *#\n#.#@+#\n######\n")
	if err == nil {
		t.Fatalf("two players in\n%s", l)
	}
	l, err = Parse("######\n# $ *#\n#.#@ #\n######\n")
	if err != nil {
		t.Fatal(err)
	}
	b := &board{l.room, l.start}
	if got, want := (terse{}).opening(b), "_$_*\n.#@_\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (terse{}).answer(b, false); got != (terse{}).opening(b) {
		t.Errorf("%q after a turn", got)
	}
	room := "# # # # # #\n# _ $ _ * #\n# . # @ _ #\n# # # # # #\n"
	w := words{actionsOf(Push), 3}
	if got := w.opening(b); !strings.HasSuffix(got, "separated by commas, such as <answer>Right, Up</answer>.\n"+room) {
		t.Errorf("%q", got)
	}
	if got := (words{actionsOf(Push), 1}).opening(b); !strings.Contains(got, "one action, such as <answer>Right</answer>.\n"+room) {
		t.Errorf("%q", got)
	}
	if got := w.answer(b, true); got != "\n"+room {
		t.Errorf("%q", got)
	}
	if got := w.answer(b, false); got != "\nThat was no answer of the form asked for.\n"+room {
		t.Errorf("%q", got)
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
		{Settings{}, ""},
		{Settings{Difficulty: Hard, Size: 16, Boxes: 4}, ""},
		{Settings{Difficulty: "easy", Size: 4, Boxes: 5, MinPushes: -1, HeldOutLevels: "x"}, "difficulty size boxes min_pushes held_out_levels"},
		{Settings{Size: 17, Boxes: -1}, "size boxes min_pushes"},
		{Settings{Levels: "x", Difficulty: Simple, Size: 6, Boxes: 1, MinPushes: 2, HeldOutLevels: "x"}, "difficulty size boxes min_pushes held_out_levels"},
		{Settings{HeldOut: -1, Format: "prose", Actions: "pull", ActionsPerTurn: -1, MaxSteps: -1, InvalidPenalty: number(0.1)},
			"held_out format actions max_steps actions_per_turn invalid_penalty"},
		{Settings{HeldOut: 100_001, ActionsPerTurn: 101, MaxSteps: 1001, InvalidPenalty: number(math.NaN())}, "held_out max_steps actions_per_turn invalid_penalty"},
		{Settings{MaxSteps: 20, MaxTurns: 21}, "max_turns"},
		{Settings{MaxTurns: -1, InvalidPenalty: number(-1001)}, "max_turns invalid_penalty"},
		{Settings{MaxTurns: 120, InvalidPenalty: number(0)}, ""},
	} {
		err := c.settings.Validate()
		var keys []string
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				var setting *task.SettingError
				if !errors.As(e, &setting) || setting.Want == "" {
					t.Errorf("%v is no complete setting error", e)
					continue
				}
				keys = append(keys, setting.Key)
			}
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%+v: problems with %q, want %q (%v)", c.settings, got, c.keys, err)
		}
		if made, _ := New(c.settings, 0); (made == nil) != (c.keys != "") {
			t.Errorf("%+v: New makes %v", c.settings, made)
		}
	}
}

func number(x float64) *float64 { return &x }

func TestSettingsThatNoLevelsMeetAreRefused(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		want     string
	}{
		{Settings{MinPushes: 60}, "min_pushes: 60: want fewer"},
		{Settings{Size: 5, HeldOut: 100_000}, "held_out: 100000: want fewer"},
		{Settings{Levels: "testdata/none.txt"}, "levels: "},
		{Settings{Levels: "testdata/levels.txt", HeldOut: 4}, "levels: testdata/levels.txt: 0 training and 4 held-out levels remain"},
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
	made := newTask(t, Settings{HeldOut: 10}, 1)
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

func TestAStateThatIsNoLevelPanics(t *testing.T) {
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "sokoban: the state of prompt x: ") {
			t.Errorf("%q", said)
		}
	}()
	newTask(t, Settings{}, 1).Reset(task.Prompt{ID: "x", State: "##"}, 1)
}
