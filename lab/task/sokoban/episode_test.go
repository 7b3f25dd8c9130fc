package sokoban

import (
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout"
)

func TestTheExpertCompletesEveryLevelInTheFewestSteps(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 3)
		for i := range uint64(40) {
			p := made.Train(i)
			l := mustParse(t, p.State)
			plan, _ := solve(l.room, l.start)
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
	made := newTask(t, Settings{Difficulty: Hard, Size: 7, Actions: PushMove,
		Settings: gridworld.Settings{ActionsPerTurn: 2}}, 3)
	left, dead := 0, 0
	for i := range uint64(300) {
		random := rollout.Stream(5, "leave", i)
		p := made.Train(i)
		e := made.Reset(p, 0).(*episode)
		for {
			plan, outcome := solve(e.board.room, e.board.position)
			advice := e.Advise()
			if outcome == unsolvable {
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
			numbers, _ := made.protocol.Parse(advice)
			for _, k := range numbers {
				_, complete = now.act(made.actions[k])
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
	made := newTask(t, Settings{Settings: gridworld.Settings{MaxSteps: 50}}, 1)
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

func TestAdviceDoesNoHarmInDeadlocks(t *testing.T) {
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
	made := newTask(t, Settings{Settings: gridworld.Settings{ActionsPerTurn: 5, MaxSteps: 4}}, 1)
	begin := func() task.Episode { return made.Reset(task.Prompt{State: row("@ $. ")}, 0) }
	s := begin().Step("RRLLL")
	if want := (task.Step{Reward: 10.8, Done: true, Correct: true}); s.Reward != want.Reward || s.Done != want.Done ||
		s.Correct != want.Correct || s.Cut != want.Cut || s.Text != "" {
		t.Errorf("%+v, want %+v", s, want)
	}
	s = begin().Step("LLLLR")
	if want := (task.Step{Reward: -0.4, Done: true, Cut: true}); s.Reward != want.Reward || s.Done != want.Done ||
		s.Correct != want.Correct || s.Cut != want.Cut || s.Text != "" {
		t.Errorf("%+v, want %+v", s, want)
	}
	made = newTask(t, Settings{Settings: gridworld.Settings{ActionsPerTurn: 5, MaxSteps: 20, MaxTurns: 2}}, 1)
	e := begin()
	e.Step("L")
	if s = e.Step("?"); !s.Done || !s.Cut || !s.Invalid || s.Reward != -0.2 {
		t.Errorf("the last turn: %+v", s)
	}
	made = newTask(t, Settings{Settings: gridworld.Settings{ActionsPerTurn: 2, MaxSteps: 4}}, 1)
	e = begin()
	e.Step("LL")
	if s = e.Step("RR"); !s.Correct || s.Cut {
		t.Errorf("completed with the last step: %+v", s)
	}
}

func mustParse(t *testing.T, text string) level {
	t.Helper()
	l, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

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

func TestActionsHaveGymSokobansEffectsAndRewards(t *testing.T) {
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
				action   action
				want     string
				reward   float64
				complete bool
			}{
				{push(d), turned(c.pushed)[d], c.reward, c.complete},
				{move(d), turned(c.moved)[d], c.moving, false},
				{noOperation, before, -0.1, false},
			} {
				l, err := parse(before)
				if err != nil {
					t.Fatalf("%s: %v", c.what, err)
				}
				b := board{l.room, l.start}
				reward, complete := b.act(of.action)
				if after := b.draw(b.position, 0, marks); after != of.want || float32(reward) != float32(of.reward) ||
					complete != of.complete {
					t.Errorf("%s, action %d on\n%s%v, complete: %v\n%swant %v, complete: %v\n%s", c.what,
						of.action, before,
						reward, complete, after, of.reward, of.complete, of.want)
				}
			}
		}
	}
}

func TestActionsHaveGymSokobansNumbers(t *testing.T) {
	actions, p := Settings{Actions: PushMove}.protocol()
	want := "No Operation, Push Up, Push Down, Push Left, Push Right, Move Up, Move Down, Move Left, Move Right"
	if got := strings.Join(p.Names, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i, a := range actions {
		if int(a) != i {
			t.Errorf("action %d has the number %d", i, a)
		}
	}
}

// Random play against the naive game: every text, reward and end, with invalid texts in between.
func TestEpisodesAreThoseOfANaiveGame(t *testing.T) {
	settings := []Settings{
		{Settings: gridworld.Settings{MaxSteps: 30}},
		{Difficulty: Hard, Size: 6, Actions: PushMove, Settings: gridworld.Settings{ActionsPerTurn: 3, MaxSteps: 50,
			InvalidPenalty: number(-0.5), MaxTurns: 40}},
		{Size: 5, MinPushes: 1, Settings: gridworld.Settings{MaxSteps: 200}},
		{Boxes: 3, Size: 7, MinPushes: 2, Actions: PushMove, Settings: gridworld.Settings{Format: task.Words,
			ActionsPerTurn: 4}},
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
				numbers := make([]int, 1+random.IntN(made.settings.ActionsPerTurn))
				for k := range numbers {
					numbers[k] = random.IntN(len(made.actions))
				}
				text := made.protocol.Write(numbers...)
				wrong := random.IntN(10) == 0
				if wrong {
					text = []string{"", "x", " " + text, text + "?", strings.Repeat(text, 200)}[random.IntN(5)]
					_, ok := made.protocol.Parse(text) // words accept some of it
					wrong = !ok
				}
				if wrong {
					numbers = nil
				}
				want, tenths := task.Step{Invalid: wrong}, 0
				for _, k := range numbers {
					gained, done, _ := n.act(int(made.actions[k]))
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
					l, err := parse(n.String())
					if err != nil {
						t.Fatal(err)
					}
					want.Text = made.observe(&board{l.room, l.start}, wrong)
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

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

// naive is the game once more, on rows of characters, for the tests: it shares nothing with the package but the
// notation of levels.
type naive struct{ rows []string }

func newNaive(text string) naive {
	return naive{strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
}

func (n naive) String() string { return strings.Join(n.rows, "\n") + "\n" }

func (n naive) count(marks string) int {
	total := 0
	for _, row := range n.rows {
		for _, c := range row {
			total += strings.Count(marks, string(c))
		}
	}
	return total
}

func (n naive) at(i, j int) byte { return n.rows[i][j] }

// exchange replaces what stands on a cell (a space: nothing) by something else, the floor or target below it staying.
func (n *naive) exchange(i, j int, thing byte) {
	target := strings.IndexByte(".*+", n.at(i, j)) >= 0
	on := map[byte]string{' ': " .", '$': "$*", '@': "@+"}[thing]
	k := 0
	if target {
		k = 1
	}
	row := []byte(n.rows[i])
	row[j] = on[k]
	rows := append([]string{}, n.rows...)
	rows[i] = string(row)
	n.rows = rows
}

func (n naive) player() (int, int) {
	for i, row := range n.rows {
		if j := strings.IndexAny(row, "@+"); j >= 0 {
			return i, j
		}
	}
	panic("no player")
}

// act plays an action by gym-sokoban's number and returns its reward in tenths.
func (n *naive) act(action int) (tenths int, complete, pushed bool) {
	di := []int{0, -1, 1, 0, 0, -1, 1, 0, 0}[action]
	dj := []int{0, 0, 0, -1, 1, 0, 0, -1, 1}[action]
	before := n.count("*")
	if i, j := n.player(); action > 0 {
		next := n.at(i+di, j+dj)
		switch {
		case next == ' ' || next == '.':
			n.exchange(i, j, ' ')
			n.exchange(i+di, j+dj, '@')
		case (next == '$' || next == '*') && action <= 4:
			if beyond := n.at(i+2*di, j+2*dj); beyond == ' ' || beyond == '.' {
				n.exchange(i+2*di, j+2*dj, '$')
				n.exchange(i+di, j+dj, '@')
				n.exchange(i, j, ' ')
				pushed = true
			}
		}
	}
	tenths = -1
	if after := n.count("*"); after > before {
		tenths += 10
	} else if after < before {
		tenths -= 10
	}
	if n.count("$") == 0 {
		return tenths + 100, true, pushed
	}
	return tenths, false, pushed
}

// fewest returns the fewest steps, or pushes, that solve a level, -1 if there is no way: breadth first through every
// position of player and boxes, free steps before costly ones.
func (n naive) fewest(pushes bool) int {
	costs := map[string]int{n.String(): 0}
	now := []naive{n}
	for cost := 0; len(now) > 0; cost++ {
		var later []naive
		for k := 0; k < len(now); k++ {
			here := now[k]
			if costs[here.String()] < cost {
				continue
			}
			if here.count("$") == 0 {
				return cost
			}
			for action := 1; action <= 4; action++ {
				next := here
				_, _, pushed := next.act(action)
				price := cost
				if pushed || !pushes {
					price++
				}
				if known, met := costs[next.String()]; met && known <= price {
					continue
				}
				costs[next.String()] = price
				if price == cost {
					now = append(now, next)
				} else {
					later = append(later, next)
				}
			}
		}
		now = later
	}
	return -1
}
