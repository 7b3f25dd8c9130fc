package sokoban

import (
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// row makes a level of one row of inner cells.
func row(inner string) string {
	wall := strings.Repeat("#", len(inner)+2)
	return wall + "\n#" + inner + "#\n" + wall + "\n"
}

// turned makes levels of the four directions from one to the right, with the actions that go with them.
func turned(inner string) map[direction]string {
	reversed := []byte(inner)
	for i, j := 0, len(reversed)-1; i < j; i, j = i+1, j-1 {
		reversed[i], reversed[j] = reversed[j], reversed[i]
	}
	column := func(inner string) string {
		return "###\n#" + strings.Join(strings.Split(inner, ""), "#\n#") + "#\n###\n"
	}
	return map[direction]string{
		right: row(inner), left: row(string(reversed)), down: column(inner), up: column(string(reversed)),
	}
}

func TestEveryActionDoesAndEarnsWhatGymSokobanSays(t *testing.T) {
	for _, c := range []struct {
		what           string
		before         string // inner cells; the action goes to the right
		pushed, moved  string // what a push and a move leave
		reward, moving float64
		complete       bool
	}{
		{"against a wall", "$.@", "$.@", "$.@", -0.1, -0.1, false},
		{"onto floor", "@ $.", " @$.", " @$.", -0.1, -0.1, false},
		{"onto a target", "@.$", " +$", " +$", -0.1, -0.1, false},
		{"off a target", "$+ ", "$.@", "$.@", -0.1, -0.1, false},
		{"a box to floor", ".@$ ", ". @$", ".@$ ", -0.1, -0.1, false},
		{"a box against a wall", ".@$", ".@$", ".@$", -0.1, -0.1, false},
		{"two boxes", "..@$$ ", "..@$$ ", "..@$$ ", -0.1, -0.1, false},
		{"a box against a box on a target", ".@$* ", ".@$* ", ".@$* ", -0.1, -0.1, false},
		{"the last box onto its target", "@$.", " @*", "@$.", 10.9, -0.1, true},
		{"the last of two boxes onto its target", "*@$.", "* @*", "*@$.", 10.9, -0.1, true},
		{"one of two boxes onto a target", "$.@$.", "$. @*", "$.@$.", 0.9, -0.1, false},
		{"a box off its target", "@* $.", " +$$.", "@* $.", -1.1, -0.1, false},
		{"a box from target to target", "@*.$", " +*$", "@*.$", -0.1, -0.1, false},
		{"the player from a target onto a box's target", "$$+*.", "$$.+*", "$$+*.", -0.1, -0.1, false},
	} {
		for d, before := range turned(c.before) {
			for _, of := range []struct {
				action   Action
				want     string
				reward   float64
				complete bool
			}{
				{push(d), turned(c.pushed)[d], c.reward, c.complete},
				{move(d), turned(c.moved)[d], c.moving, false},
				{NoOperation, before, -0.1, false},
			} {
				l, err := Parse(before)
				if err != nil {
					t.Fatalf("%s: %v", c.what, err)
				}
				b := board{l.room, l.start}
				reward, complete := b.act(of.action)
				if after := b.draw(b.position, 0, marks()); after != of.want || float32(reward) != float32(of.reward) || complete != of.complete {
					t.Errorf("%s, action %d on\n%s%v, complete: %v\n%swant %v, complete: %v\n%s", c.what, of.action, before,
						reward, complete, after, of.reward, of.complete, of.want)
				}
			}
		}
	}
}

func TestActionsHaveGymSokobansNumbers(t *testing.T) {
	names := words{actions: actionsOf(PushMove)}.names()
	want := "No Operation, Push Up, Push Down, Push Left, Push Right, Move Up, Move Down, Move Left, Move Right"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i, a := range actionsOf(PushMove) {
		if int(a) != i {
			t.Errorf("action %d has the number %d", i, a)
		}
	}
}

// Random play against the naive game: every text, reward and end, with texts that are no actions in between.
func TestEpisodesAreThoseOfANaiveGame(t *testing.T) {
	settings := []Settings{
		{MaxSteps: 30},
		{Difficulty: Hard, Size: 6, Actions: PushMove, ActionsPerTurn: 3, MaxSteps: 50, InvalidPenalty: number(-0.5), MaxTurns: 40},
		{Size: 5, MinPushes: 1, MaxSteps: 200},
		{Boxes: 3, Size: 7, MinPushes: 2, Actions: PushMove, Format: Words, ActionsPerTurn: 4},
	}
	complete, cut, invalid := 0, 0, 0
	for _, s := range settings {
		made := newTask(t, s, 1)
		for i := range uint64(150) {
			random := rollout.Stream(7, "play", i)
			p := made.Train(i)
			e := made.Reset(p, i)
			n := newNaive(p.State)
			for taken, turns := 0, 1; ; turns++ {
				actions := make([]Action, 1+random.IntN(made.settings.ActionsPerTurn))
				for k := range actions {
					actions[k] = made.actions[random.IntN(len(made.actions))]
				}
				text := made.notation.write(actions)
				wrong := random.IntN(10) == 0
				if wrong {
					text = []string{"", "x", " " + text, text + "?", strings.Repeat(text, 200)}[random.IntN(5)]
					wrong = len(made.notation.read(text)) == 0 // words stands some of it
				}
				if wrong {
					actions = nil
				}
				want, tenths := task.Step{Invalid: wrong}, 0
				for _, a := range actions {
					gained, done, _ := n.act(int(a))
					tenths += gained
					taken++
					if want.Correct = done; done || taken == made.settings.MaxSteps {
						break
					}
				}
				if wrong {
					taken++
					invalid++
				}
				want.Cut = !want.Correct && (taken >= made.settings.MaxSteps || turns >= made.MaxTurns())
				want.Done = want.Correct || want.Cut
				want.Reward = float32(tenths) / 10
				if wrong {
					want.Reward = float32(*made.settings.InvalidPenalty)
				}
				if !want.Done {
					l, err := Parse(n.String())
					if err != nil {
						t.Fatal(err)
					}
					want.Text = made.notation.answer(&board{l.room, l.start}, !wrong)
				}
				got := e.Step(text)
				if d := got.Reward - want.Reward; d > 1e-5 || d < -1e-5 {
					t.Fatalf("%+v, level %d: reward %v of %q, want %v", s, i, got.Reward, text, want.Reward)
				}
				if got.Reward = want.Reward; got.Text != want.Text || got.Done != want.Done || got.Cut != want.Cut ||
					got.Correct != want.Correct || got.Invalid != want.Invalid || got.Image != nil {
					t.Fatalf("%+v, level %d: %q leads to\n%+v, want\n%+v", s, i, text, got, want)
				}
				if got.Done {
					if got.Correct {
						complete++
					} else {
						cut++
					}
					break
				}
			}
		}
	}
	if complete < 50 || cut < 50 || invalid < 500 {
		t.Errorf("%d episodes complete, %d cut, %d turns invalid: want all of them tried", complete, cut, invalid)
	}
}

func newTask(t testing.TB, s Settings, seed uint64) *Task {
	t.Helper()
	made, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
