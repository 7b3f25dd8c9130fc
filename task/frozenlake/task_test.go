package frozenlake

import (
	"maps"
	"math"
	"reflect"
	"strconv"
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
	_ task.Seeing      = (*Task)(nil)
)

// common shortens settings of task/gridworld.
func common(s gridworld.Settings) Settings { return Settings{Settings: s} }

// variety is settings that between them reach every kind of map, view and rule.
func variety() map[string]Settings {
	return map[string]Settings{
		"default":          {},
		"8x8, firm":        {Size: 8, Slippery: firm()},
		"random":           {Map: MapRandom},
		"random 6, starts": {Size: 6, Frozen: 0.7, Settings: gridworld.Settings{RandomStart: true, HeldOut: 30}},
		"4x4, starts":      common(gridworld.Settings{RandomStart: true}),
		"rows, two starts": {Rows: []string{"SFFHG", "FFSFF"}},
		"words":            {Map: MapRandom, Settings: gridworld.Settings{Format: gridworld.Words, ActionsPerTurn: 3, HeldOut: 20}},
		"images":           {Map: MapRandom, Images: true, SuccessRate: 0.8, Settings: gridworld.Settings{HeldOut: 20}},
		"images, words":    {Images: true, Tile: 4, Settings: gridworld.Settings{Format: gridworld.Words}},
	}
}

func TestHeldOutPromptsAreDistinctAndNeverTrained(t *testing.T) {
	for name, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		ids, states := map[string]bool{}, map[string]bool{}
		for _, p := range made.HeldOut() {
			ids[p.ID] = true
			l, at, _ := strings.Cut(p.State, "@")
			if s.Map != MapRandom {
				l = at // on a fixed map it is the starts that are held out
			}
			states[l] = true
		}
		disjoint := s.Map == MapRandom || s.RandomStart
		if len(ids) != s.HeldOut || disjoint && len(states) != s.HeldOut {
			t.Errorf("%s: %d ids and %d states of %d held-out prompts", name, len(ids), len(states), s.HeldOut)
		}
		for i := range uint64(2000) {
			p := made.Train(i)
			l, at, _ := strings.Cut(p.State, "@")
			if s.Map != MapRandom {
				l = at
			}
			if ids[p.ID] || disjoint && states[l] {
				t.Fatalf("%s: training prompt %d, %s, is held out", name, i, p.ID)
			}
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{Map: MapRandom}
	one, again, other := newTask(t, s, 1), newTask(t, s, 1), newTask(t, s, 2)
	if !reflect.DeepEqual(one.HeldOut(), other.HeldOut()) {
		t.Error("held-out prompts depend on the seed")
	}
	same := 0
	for i := range uint64(300) {
		if !reflect.DeepEqual(one.Train(i), again.Train(i)) {
			t.Fatalf("training prompt %d differs for one seed", i)
		}
		if one.Train(i).ID == other.Train(i).ID {
			same++
		}
	}
	if same > 30 {
		t.Errorf("%d of 300 training prompts agree between seeds", same)
	}
}

func TestEpisodesBeginWhereTheyMay(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		want     string // states of the training starts, each once, in rising order
	}{
		"the start":           {Settings{}, "0"},
		"any S":               {Settings{Rows: []string{"SFFHG", "FFSFF"}}, "0 7"},
		"anywhere safe":       {common(gridworld.Settings{RandomStart: true, HeldOut: 1}), "1 2 3 4 6 8 9 10 13 14"},
		"not in a dead end":   {Settings{Rows: []string{"FHSG", "HHFF"}, Settings: gridworld.Settings{RandomStart: true, HeldOut: 1}}, "6 7"},
		"but for what is out": {Settings{Rows: []string{"SFFG"}, Settings: gridworld.Settings{RandomStart: true, HeldOut: 2}}, "1"},
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

// Naive play beside random play: the walk is followed on the map as it was shown, and every step must be one of the outcomes
// that the rules allow from there.
func TestRandomPlayIsWhatTheRulesAllow(t *testing.T) {
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
				t.Fatalf("seed %d, step %d: %+v is no outcome of action %d in (%d, %d) of %v", seed, n, step, action, row, column, l)
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
				actions, ok := made.rules.Parse(text)
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

func TestEverythingSaidIsInTheAlphabet(t *testing.T) {
	for name, s := range variety() {
		made := newTask(t, s, 1)
		characters := made.Characters()
		for i, c := range characters {
			if strings.ContainsRune(characters[:i], c) {
				t.Errorf("%s: %q twice", name, c)
			}
		}
		r := rollout.Stream(1, "alphabet test", 0)
		used := ""
		for i := range uint64(40) {
			p := made.Train(i)
			e := made.Reset(p, i).(task.Actor)
			used += p.Text
			for done := false; !done; {
				text := e.Actions()[r.IntN(4)]
				if r.IntN(4) == 0 {
					text = "nonsense"
				} else {
					used += text
				}
				step := e.Step(text)
				used += step.Text
				done = step.Done
			}
		}
		if rest := strings.Trim(used, characters); rest != "" {
			t.Errorf("%s: %q is not in the alphabet %q", name, rest, characters)
		}
		for _, c := range characters {
			if s.Format != gridworld.Words && !strings.ContainsRune(used, c) {
				t.Errorf("%s: %q is never used", name, c)
			}
		}
	}
}

func TestPromptsOfOtherTasksAreRefused(t *testing.T) {
	for _, state := range []string{"", "SFFF/FHFH/FFFH/HFFG", "SFFF/FHFH/FFFH/HFFG@16", "SFFF/FHFH/FFFH/HFFG@x", "SH/HG@0", "36"} {
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
