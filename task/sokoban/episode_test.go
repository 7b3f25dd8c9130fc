package sokoban

import (
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

func TestTheExpertCompletesEveryLevelInTheFewestSteps(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 3)
		for i := range uint64(40) {
			p := made.Train(i)
			plan, _ := Solve(mustParse(t, p.State))
			e := made.Reset(p, 0).(task.Expert)
			var reward float64
			var last task.Step
			turns := 0
			for !last.Done {
				last = e.Step(e.Advise())
				turns++
				if reward += float64(last.Reward); last.Invalid {
					t.Fatalf("%+v: its advice on turn %d is no action:\n%s", s, turns, p.State)
				}
			}
			per := max(s.ActionsPerTurn, 1)
			if last.Cut || len(plan) <= made.MaxTurns() && (!last.Correct || turns != (len(plan)+per-1)/per) {
				t.Fatalf("%+v: %+v after %d turns, want %d steps:\n%s", s, last, turns, len(plan), p.State)
			}
			n := newNaive(p.State)
			want := 0
			for _, a := range plan {
				gained, _, _ := n.act(int(a))
				want += gained
			}
			if d := reward - float64(want)/10; d > 1e-4 || d < -1e-4 {
				t.Fatalf("%+v: %v, want %v of\n%s", s, reward, float64(want)/10, p.State)
			}
		}
	}
}

// The plan is asked for, left at random, and asked for again: it is always the shortest from there.
func TestTheExpertAdvisesFromWhereTheEpisodeStands(t *testing.T) {
	made := newTask(t, Settings{Difficulty: Hard, Size: 7, Actions: PushMove, ActionsPerTurn: 2}, 3)
	left, dead := 0, 0
	for i := range uint64(300) {
		random := rollout.Stream(5, "leave", i)
		p := made.Train(i)
		e := made.Reset(p, 0).(*episode)
		for {
			plan, outcome := solve(e.board.room, e.board.position)
			advice := e.Advise()
			if outcome == Unsolvable {
				dead++
				before := e.board.position
				e.Step(advice)
				if e.board.position.boxes != before.boxes {
					t.Fatalf("%q pushes a box where there is no hope", advice)
				}
				break
			}
			now := e.board
			complete := false
			for _, a := range made.notation.read(advice) {
				_, complete = now.act(a)
			}
			if rest, _ := solve(now.room, now.position); !complete && len(rest) != len(plan)-len(advice) {
				t.Fatalf("%d steps are left after %q, want %d less than %d", len(rest), advice, len(advice), len(plan))
			}
			text := advice
			if random.IntN(2) == 0 {
				text = []string{"u", "d", "l", "r", "U", "D", "L", "R", "?", "N"}[random.IntN(10)]
				left++
			}
			if e.Step(text).Done {
				break
			}
		}
	}
	if left < 500 || dead < 20 {
		t.Errorf("the plan was left %d times, and hope %d times: want both tried", left, dead)
	}
}

func TestAPlanIsKeptWhileItIsFollowed(t *testing.T) {
	made := newTask(t, Settings{MaxSteps: 50}, 1)
	e := made.Reset(task.Prompt{State: "#######\n#@    #\n#  $ .#\n#     #\n#######\n"}, 0).(*episode)
	first := e.Advise()
	plan := e.guide.actions
	for _, text := range []string{"L", "?", "U"} { // against walls, and no action
		if e.Step(text); len(e.guide.actions) != len(plan) {
			t.Errorf("%q, which changes nothing, leaves %d of %d actions", text, len(e.guide.actions), len(plan))
		}
	}
	if e.Step(first); len(e.guide.actions) != len(plan)-1 || !e.guide.known {
		t.Errorf("%d of %d actions are left after the first", len(e.guide.actions), len(plan))
	}
	back := map[string]string{"D": "U", "R": "L"}[first]
	if e.Step(back); e.guide.known {
		t.Errorf("%q goes back, and %d actions are left", back, len(e.guide.actions))
	}
}

func TestWhereNothingCanBeDoneTheAdviceDoesNoHarm(t *testing.T) {
	for text, want := range map[string]string{
		row("$@ ."):                    "U", // against the wall, as nothing else comes first
		"#####\n#$ .#\n#@  #\n#####\n": "U", // against the box in the corner
		"######\n#$  .#\n#  $ #\n# $@ #\n#.  .#\n######\n": "D",
	} {
		made := newTask(t, Settings{}, 1)
		e := made.Reset(task.Prompt{State: text}, 0).(*episode)
		before := e.board.position
		if got := e.Advise(); got != want {
			t.Errorf("%q, want %q on\n%s", got, want, text)
		}
		if e.Step(e.Advise()); e.board.position.boxes != before.boxes {
			t.Errorf("a box was pushed on\n%s", text)
		}
	}
	e := newTask(t, Settings{Actions: PushMove}, 1).Reset(task.Prompt{State: row("$@ .")}, 0).(*episode)
	if got := e.Advise(); got != "N" {
		t.Errorf("%q, want N", got)
	}
}

func TestATurnEndsWithTheEpisode(t *testing.T) {
	made := newTask(t, Settings{ActionsPerTurn: 5, MaxSteps: 4}, 1)
	begin := func() task.Episode { return made.Reset(task.Prompt{State: row("@ $. ")}, 0) }
	s := begin().Step("RRLLL")
	if want := (task.Step{Reward: 10.8, Done: true, Correct: true}); s.Reward != want.Reward || s.Done != want.Done || s.Correct != want.Correct || s.Cut != want.Cut || s.Text != "" {
		t.Errorf("%+v, want %+v", s, want)
	}
	s = begin().Step("LLLLR")
	if want := (task.Step{Reward: -0.4, Done: true, Cut: true}); s.Reward != want.Reward || s.Done != want.Done || s.Correct != want.Correct || s.Cut != want.Cut || s.Text != "" {
		t.Errorf("%+v, want %+v", s, want)
	}
	made = newTask(t, Settings{ActionsPerTurn: 5, MaxSteps: 20, MaxTurns: 2}, 1)
	e := begin()
	e.Step("L")
	if s = e.Step("?"); !s.Done || !s.Cut || !s.Invalid || s.Reward != -0.2 {
		t.Errorf("the last turn: %+v", s)
	}
	made = newTask(t, Settings{ActionsPerTurn: 2, MaxSteps: 4}, 1)
	e = begin()
	e.Step("LL")
	if s = e.Step("RR"); !s.Correct || s.Cut {
		t.Errorf("completed with the last step: %+v", s)
	}
}

func mustParse(t *testing.T, text string) Level {
	t.Helper()
	l, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
