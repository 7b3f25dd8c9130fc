package frozenlake

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	_ task.Environment = (*Task)(nil)
	_ task.Tabular     = (*Task)(nil)
	_ task.Alphabet    = (*Task)(nil)
	_ task.Seeing      = (*Task)(nil)
)

func firm() *bool { return new(bool) }

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

// variety is settings that between them reach every kind of map, view and rule.
func variety() map[string]Settings {
	return map[string]Settings{
		"default":          {},
		"8x8, firm":        {Size: 8, Slippery: firm()},
		"random":           {Map: MapRandom},
		"random 6, starts": {Size: 6, Frozen: 0.7, RandomStart: true, Settings: gridworld.Settings{HeldOut: 30}},
		"4x4, starts":      {RandomStart: true},
		"rows, two starts": {Rows: []string{"SFFHG", "FFSFF"}},
		"words": {Map: MapRandom, Settings: gridworld.Settings{Format: task.Words, ActionsPerTurn: 3,
			HeldOut: 20}},
		"images":        {Map: MapRandom, Images: true, SuccessRate: 0.8, Settings: gridworld.Settings{HeldOut: 20}},
		"images, words": {Images: true, Tile: 4, Settings: gridworld.Settings{Format: task.Words}},
	}
}

func TestHeldOutPromptsAreDistinctAndNeverTrained(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		key := func(p task.Prompt) string { return p.ID } // one start on a fixed map has nothing to hold out
		if s.Map == MapRandom || s.RandomStart {
			key = func(p task.Prompt) string {
				l, at, _ := strings.Cut(p.State, "@")
				if s.Map == MapRandom {
					return l
				}
				return at
			}
		}
		tasktest.HeldOut(t, made, s.HeldOut, 2000, key)
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{Map: MapRandom}
	tasktest.SeedOrdersTraining(t, newTask(t, s, 1), newTask(t, s, 1), newTask(t, s, 2), 300, 30)
}

func TestEpisodesBeginWhereTheyMay(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		want     string // states of the training starts, each once, in rising order
	}{
		"the start": {Settings{}, "0"},
		"any S":     {Settings{Rows: []string{"SFFHG", "FFSFF"}}, "0 7"},
		"anywhere safe": {Settings{RandomStart: true, Settings: gridworld.Settings{HeldOut: 1}},
			"1 2 3 4 6 8 9 10 13 14"},
		"not in a dead end": {Settings{Rows: []string{"FHSG", "HHFF"}, RandomStart: true,
			Settings: gridworld.Settings{HeldOut: 1}}, "6 7"},
		"but for what is out": {Settings{Rows: []string{"SFFG"}, RandomStart: true,
			Settings: gridworld.Settings{HeldOut: 2}}, "1"},
	} {
		made := newTask(t, c.settings, 1)
		seen := map[string]bool{}
		for i := range uint64(500) {
			_, at, _ := strings.Cut(made.Train(i).State, "@")
			seen[at] = true
		}
		got := len(seen)
		for _, at := range strings.Fields(c.want) {
			if !seen[at] {
				t.Errorf("%s: no episode begins in %s", name, at)
			}
		}
		if got != len(strings.Fields(c.want)) {
			t.Errorf("%s: %v, want %s", name, seen, c.want)
		}
	}
}

// Naive play beside random play: the walk is followed on the map as it was shown, and every step must be one of the
// outcomes that the rules allow from there.
func TestRandomPlayFollowsTheRules(t *testing.T) {
	made := newTask(t, Settings{Map: MapRandom, SuccessRate: 0.5, RewardSchedule: []float64{2, -1, -0.25}}, 3)
	turns := [][2]int{{0, -1}, {1, 0}, {0, 1}, {-1, 0}} // counterclockwise: row and column of left, down, right, up
	ways := map[string]int{}
	for seed := range uint64(400) {
		r := rollout.Stream(seed, "play test", 0)
		p := made.Train(seed)
		l := strings.Split(strings.TrimSuffix(p.State, "@0"), "/")
		e := made.Reset(p, seed)
		row, column, text := 0, 0, p.Text
		for n := 1; ; n++ {
			if text[row*5+column] != 'P' || strings.Count(text, "P") != 1 {
				t.Fatalf("seed %d: not in (%d, %d):\n%s", seed, row, column, text)
			}
			action := r.IntN(4)
			step := e.Step("LDRU"[action : action+1])
			went := ""
			for i, way := range []string{"counterclockwise", "as meant", "clockwise"} {
				d := turns[(action+3+i)%4]
				y, x := min(max(row+d[0], 0), 3), min(max(column+d[1], 0), 3)
				tile := l[y][x]
				if step.Correct == (tile == 'G') && step.Done == (tile == 'G' || tile == 'H' || n == 100) &&
					step.Reward == map[byte]float32{'G': 2, 'H': -1, 'F': -0.25, 'S': -0.25}[tile] &&
					(step.Done || step.Text[y*5+x] == 'P') {
					row, column, went = y, x, way
					break
				}
			}
			if went == "" {
				t.Fatalf("seed %d, step %d: %+v is no outcome of action %d in (%d, %d) of %v", seed, n, step, action,
					row, column, l)
			}
			ways[went]++
			if step.Done {
				break
			}
			text = step.Text
		}
	}
	if len(ways) != 3 {
		t.Errorf("steps went %v only", ways)
	}
}

// Over 20,000 episodes the standard deviation of the share is 0.0031: four of them on either side.
func TestExpertsSucceedAsOftenAsValueIterationSays(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	p := made.Train(0)
	const episodes = 20_000
	won := 0
	for seed := range uint64(episodes) {
		e := made.Reset(p, seed).(task.Expert)
		for {
			if step := e.Step(e.Advise()); step.Done {
				if step.Correct {
					won++
				}
				break
			}
		}
	}
	if share := float64(won) / episodes; math.Abs(share-0.7442) > 0.0124 {
		t.Errorf("%.4f of episodes, want 0.7442", share)
	}
}

func TestExpertsCrossFirmIceByAShortestPath(t *testing.T) {
	for name, s := range variety() {
		s.Slippery = firm()
		made := newTask(t, s, 2)
		for i := range uint64(50) {
			p := made.Train(i)
			e := made.Reset(p, i).(task.Expert)
			written, _, _ := strings.Cut(p.State, "@")
			l := lake(strings.Split(written, "/"))
			w := e.(*gridworld.Walk)
			steps := 0
			for done := false; !done; {
				text := w.Advise()
				actions, ok := made.protocol.Parse(text)
				step := w.Step(text)
				if !ok || step.Invalid || step.Done && !step.Correct {
					t.Fatalf("%s: the expert wrote %q and got %+v", name, text, step)
				}
				steps += len(actions)
				done = step.Done
			}
			if want := distance(l, p.State); steps != want {
				t.Errorf("%s: %s in %d steps, want %d", name, p.State, steps, want)
			}
		}
	}
}

// distance is the length of the shortest path from the state of a prompt, by widening rings.
func distance(l lake, state string) int {
	_, at, _ := strings.Cut(state, "@")
	ring := map[int]bool{}
	for s := range l.states() {
		if strconv.Itoa(s) == at {
			ring[s] = true
		}
	}
	for n := 0; ; n++ {
		wider := maps.Clone(ring)
		for s := range ring {
			if l.tile(s) == goal {
				return n
			}
			for a := range 4 {
				if m := l.move(s, a); l.tile(m) != hole {
					wider[m] = true
				}
			}
		}
		ring = wider
	}
}

func TestTheAlphabetIsWhatIsWritten(t *testing.T) {
	for name, s := range variety() {
		made := newTask(t, s, 1)
		written := tasktest.Characters(t, made, 40)
		for _, c := range made.Characters() {
			if s.Format != task.Words && !strings.ContainsRune(written, c) {
				t.Errorf("%s: %q is never used", name, c)
			}
		}
	}
}

func TestPromptsOfOtherTasksAreRefused(t *testing.T) {
	tasktest.Refuses(t, newTask(t, Settings{}, 1),
		"", "SFFF/FHFH/FFFH/HFFG", "SFFF/FHFH/FFFH/HFFG@16", "SFFF/FHFH/FFFH/HFFG@x", "SH/HG@0", "36")
}

func TestEpisodesDependOnTheirSeedOnly(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	course := func(seed uint64) string {
		e, text := made.Reset(made.Train(0), seed), ""
		for range 100 {
			step := e.Step("R")
			text += step.Text
			if step.Done {
				break
			}
		}
		return text
	}
	different := map[string]bool{}
	for seed := range uint64(20) {
		first, second := course(seed), course(seed)
		if first != second {
			t.Fatalf("seed %d gives two courses", seed)
		}
		different[first] = true
	}
	if len(different) < 10 {
		t.Errorf("%d courses of 20 seeds", len(different))
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{Size: 8}, ""},
		{Settings{Size: 8, Map: Map4x4}, "size"},
		{Settings{Size: 1}, "size"},
		{Settings{Size: -4}, "size"},
		{Settings{Size: 17}, "size"},
		{Settings{Size: 16}, ""},
		{Settings{Map: "5x5"}, "map"},
		{Settings{Map: MapRows}, "rows"},
		{Settings{Map: MapRandom, Rows: []string{"SG"}}, "rows"},
		{Settings{Rows: []string{"SG"}}, ""},
		{Settings{Rows: []string{"SG"}, Size: 3}, "size"},
		{Settings{Rows: []string{"SG"}, Images: true}, "images"},
		{Settings{Rows: []string{"SF", "FG"}, Images: true}, ""},
		{Settings{Rows: []string{"SF", "G"}}, "rows"},
		{Settings{Rows: []string{""}}, "rows"},
		{Settings{Rows: []string{"SFP", "FFG"}}, "rows"},
		{Settings{Rows: []string{"SH", "HG"}}, "rows"},
		{Settings{Rows: []string{"FF", "FG"}}, "rows"},
		{Settings{Rows: []string{"SHS", "HHG"}}, "rows"},
		{Settings{Rows: []string{strings.Repeat("F", 16) + "SG"}}, "rows"},
		{Settings{Frozen: 0.4, SuccessRate: 1.5, RewardSchedule: []float64{1}, Tile: 65,
			Settings: gridworld.Settings{Format: "x", HeldOut: -1}},
			"frozen success_rate reward_schedule tile format held_out"},
		{Settings{Frozen: math.NaN(), SuccessRate: math.NaN(), RewardSchedule: []float64{1, math.Inf(1), math.NaN()}},
			"frozen success_rate reward_schedule reward_schedule"},
		{Settings{RandomStart: true, Settings: gridworld.Settings{HeldOut: 11}}, "held_out"},
		{Settings{RandomStart: true, Settings: gridworld.Settings{HeldOut: 10}}, ""},
		{Settings{Settings: gridworld.Settings{MaxSteps: 20, MaxTurns: 21}}, "max_turns"},
	})
}

func TestNoMoreMapsAreHeldOutThanThereAre(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{Size: 2}, "held_out"},                                           // three maps in all
		{Settings{Size: 2, Settings: gridworld.Settings{HeldOut: 3}}, "held_out"}, // nothing would be left to train on
		{Settings{Size: 2, Settings: gridworld.Settings{HeldOut: 1}}, ""},
		{Settings{Map: MapRandom, Frozen: 1}, "held_out"},
		{Settings{Size: 3, Frozen: 0.95, Settings: gridworld.Settings{HeldOut: 60}}, "held_out"},
	})
}

func TestDefaultsAreThoseOfGymnasium(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		size     int
		kind     string
		steps    int
		heldOut  int
	}{
		{Settings{}, 4, Map4x4, 100, 100},
		{Settings{Size: 8}, 8, Map8x8, 200, 100},
		{Settings{Map: Map8x8, Slippery: firm()}, 8, Map8x8, 200, 1},
		{Settings{Size: 6}, 6, MapRandom, 200, 200},
		{Settings{Map: MapRandom}, 4, MapRandom, 100, 200},
		{Settings{Size: 3}, 3, MapRandom, 100, 200},
		{Settings{Rows: []string{"SFFFFG"}}, 6, MapRows, 200, 100},
		{Settings{RandomStart: true}, 4, Map4x4, 100, 2},
	} {
		s := c.settings
		s.Resolve()
		if s.Size != c.size || s.Map != c.kind || s.MaxSteps != c.steps || s.MaxTurns != c.steps ||
			s.HeldOut != c.heldOut {
			t.Errorf("%+v: resolved to %+v", c.settings, s)
		}
	}
	var s Settings
	s.Resolve()
	if !*s.Slippery || s.SuccessRate != 1.0/3 || s.Frozen != 0.8 || s.Tile != 8 || *s.InvalidPenalty != -0.1 ||
		len(s.RewardSchedule) != 3 || s.RewardSchedule[0] != 1 || s.RewardSchedule[1] != 0 || s.RewardSchedule[2] != 0 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkEpisode(b *testing.B) {
	for name, s := range map[string]Settings{"text": {Map: MapRandom}, "images": {Map: MapRandom, Images: true}} {
		b.Run(name, func(b *testing.B) {
			made, err := New(s, 1)
			if err != nil {
				b.Fatal(err)
			}
			steps := 0
			for i := uint64(0); b.Loop(); i++ {
				e := made.Reset(made.Train(i), i)
				for r := rollout.Stream(i, "benchmark", 0); ; {
					steps++
					if e.Step("LDRU"[r.IntN(4):][:1]).Done {
						break
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
		})
	}
}
