package frozenlake

import (
	"bytes"
	"encoding/json"
	"image/png"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/rollout"
)

// Lines of Gymnasium's table, written out by hand from its rules.
func TestTransitionsAreThoseOfGymnasium(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		want     map[[2]int]string // by state and action
	}{
		"4x4, slippery": {Settings{Size: 4}, map[[2]int]string{
			// up, left, down: two outcomes stay, not merged
			{0, 0}:  "[[⅓,0,0,false],[1/3,0,0,false],[⅓,4,0,false]]",
			{0, 2}:  "[[⅓,4,0,false],[1/3,1,0,false],[⅓,0,0,false]]",    // down, right, up
			{14, 2}: "[[⅓,14,0,false],[1/3,15,1,true],[⅓,10,0,false]]",  // down, right, up
			{14, 1}: "[[⅓,13,0,false],[1/3,14,0,false],[⅓,15,1,true]]",  // left, down, right
			{6, 3}:  "[[⅓,7,0,true],[1/3,2,0,false],[⅓,5,0,true]]",      // right, up, left
			{5, 1}:  "[[1,5,0,true]]",                                   // in a hole
			{15, 3}: "[[1,15,0,true]]",                                  // at the goal
			{3, 3}:  "[[⅓,3,0,false],[1/3,3,0,false],[⅓,2,0,false]]",    // right, up, left
			{13, 0}: "[[⅓,9,0,false],[1/3,12,0,true],[⅓,13,0,false]]",   // up, left, down
			{11, 0}: "[[1,11,0,true]]",                                  // a hole at the edge
			{10, 1}: "[[⅓,9,0,false],[1/3,14,0,false],[⅓,11,0,true]]",   // left, down, right
			{12, 2}: "[[1,12,0,true]]",                                  // a hole in the corner
			{2, 0}:  "[[⅓,2,0,false],[1/3,1,0,false],[⅓,6,0,false]]",    // up, left, down
			{9, 3}:  "[[⅓,10,0,false],[1/3,5,0,true],[⅓,8,0,false]]",    // right, up, left
			{8, 0}:  "[[⅓,4,0,false],[1/3,8,0,false],[⅓,12,0,true]]",    // up, left, down
			{1, 1}:  "[[⅓,0,0,false],[1/3,5,0,true],[⅓,2,0,false]]",     // left, down, right
			{4, 2}:  "[[⅓,8,0,false],[1/3,5,0,true],[⅓,0,0,false]]",     // down, right, up
			{0, 1}:  "[[⅓,0,0,false],[1/3,4,0,false],[⅓,1,0,false]]",    // left, down, right
			{0, 3}:  "[[⅓,1,0,false],[1/3,0,0,false],[⅓,0,0,false]]",    // right, up, left
			{14, 0}: "[[⅓,10,0,false],[1/3,13,0,false],[⅓,14,0,false]]", // up, left, down
			{14, 3}: "[[⅓,15,1,true],[1/3,10,0,false],[⅓,13,0,false]]",  // right, up, left
			{3, 2}:  "[[⅓,7,0,true],[1/3,3,0,false],[⅓,3,0,false]]",     // down, right, up
			{10, 2}: "[[⅓,14,0,false],[1/3,11,0,true],[⅓,6,0,false]]",   // down, right, up
			{13, 2}: "[[⅓,13,0,false],[1/3,14,0,false],[⅓,9,0,false]]",  // down, right, up
		}},
		"8x8, not slippery": {Settings{Size: 8, Slippery: firm()}, map[[2]int]string{
			{0, 0}:  "[[1,0,0,false]]",
			{0, 1}:  "[[1,8,0,false]]",
			{7, 2}:  "[[1,7,0,false]]",
			{18, 2}: "[[1,19,0,true]]",
			{55, 1}: "[[1,63,1,true]]",
			{62, 2}: "[[1,63,1,true]]",
			{63, 0}: "[[1,63,0,true]]",
		}},
		"success rate": {Settings{Size: 4, SuccessRate: 0.75}, map[[2]int]string{
			{0, 0}:  "[[0.125,0,0,false],[0.75,0,0,false],[0.125,4,0,false]]",
			{14, 2}: "[[0.125,14,0,false],[0.75,15,1,true],[0.125,10,0,false]]",
		}},
		"reward schedule": {Settings{Size: 4, Slippery: firm(), RewardSchedule: []float64{10, -5, -0.5}},
			map[[2]int]string{
				{0, 0}:  "[[1,0,-0.5,false]]",
				{1, 1}:  "[[1,5,-5,true]]",
				{14, 2}: "[[1,15,10,true]]",
				{5, 3}:  "[[1,5,0,true]]",
			}},
	} {
		table := newTask(t, c.settings, 1).Transitions()
		for at, want := range c.want {
			got, err := json.Marshal(table[at[0]][at[1]])
			if err != nil {
				t.Fatal(err)
			}
			third := 1.0 / 3 // in float64: (1-third)/2 is not the same number
			side, _ := json.Marshal((1 - third) / 2)
			meant, _ := json.Marshal(third)
			want = strings.NewReplacer("⅓", string(side), "1/3", string(meant)).Replace(want)
			if string(got) != want {
				t.Errorf("%s: state %d, action %d: %s, want %s", name, at[0], at[1], got, want)
			}
		}
	}
}

func TestProbabilitiesAddUpAndEveryStateHasFourActions(t *testing.T) {
	for _, s := range []Settings{{Size: 4}, {Size: 8}, {Size: 6}, {SuccessRate: 0.9}, {Slippery: firm()},
		{Rows: []string{"SFFHG", "FFFFF"}}} {
		table := newTask(t, s, 3).Transitions()
		for state, actions := range table {
			if len(actions) != 4 {
				t.Errorf("%+v: state %d has %d actions", s, state, len(actions))
			}
			for a, outcomes := range actions {
				sum := 0.0
				for _, o := range outcomes {
					sum += o.Probability
					if o.Next < 0 || o.Next >= len(table) {
						t.Errorf("%+v: state %d leads to %d", s, state, o.Next)
					}
				}
				if math.Abs(sum-1) > 1e-12 {
					t.Errorf("%+v: state %d, action %d: probabilities add up to %g", s, state, a, sum)
				}
			}
		}
	}
}

// The published optima: 0.7442 in 100 steps on the 4x4 map, 0.9132 in 200 on the 8x8.
func TestValueIterationGivesTheKnownChancesOfSuccess(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		want     float64
	}{
		{Settings{Size: 4}, 0.7442},
		{Settings{Size: 8}, 0.9132},
		{Settings{Size: 4, Slippery: firm()}, 1},
		// the goal is six steps away
		{Settings{Size: 4, Slippery: firm(), Settings: gridworld.Settings{MaxSteps: 5}}, 0},
	} {
		made := newTask(t, c.settings, 1)
		got := gridworld.Solve(made.Transitions(), made.MaxTurns()).Value(0)
		if math.Abs(got-c.want) > 5e-5 {
			t.Errorf("%+v: %.5f in %d steps, want %.4f", c.settings, got, made.MaxTurns(), c.want)
		}
	}
}

// reaches is a naive search for a path: the cells that can be reached grow until they do not.
func reaches(l []string, from, to [2]int) bool {
	reached := map[[2]int]bool{from: true}
	for grown := true; grown; {
		grown = false
		for c := range reached {
			for _, d := range [][2]int{{0, 1}, {1, 0}, {0, -1}, {-1, 0}} {
				n := [2]int{c[0] + d[0], c[1] + d[1]}
				if n[0] < 0 || n[1] < 0 || n[0] >= len(l) || n[1] >= len(l[0]) || reached[n] || l[n[0]][n[1]] == 'H' {
					continue
				}
				reached[n], grown = true, true
			}
		}
	}
	return reached[to]
}

func TestRandomMapsHaveAPathAndAreDrawnAsInGymnasium(t *testing.T) {
	const size, p, draws = 4, 0.8, 4000
	// The chance of each map, by trying all: frozen tiles have probability p, maps without a path are drawn again.
	chances, total := map[string]float64{}, 0.0
	for bits := range 1 << (size*size - 2) {
		tiles, chance := []byte("S"), 1.0
		for i := range size*size - 2 {
			if bits>>i&1 == 1 {
				tiles, chance = append(tiles, 'H'), chance*(1-p)
			} else {
				tiles, chance = append(tiles, 'F'), chance*p
			}
		}
		tiles = append(tiles, 'G')
		l := []string{string(tiles[:4]), string(tiles[4:8]), string(tiles[8:12]), string(tiles[12:])}
		if reaches(l, [2]int{}, [2]int{size - 1, size - 1}) {
			chances[lake(l).String()] = chance
			total += chance
		}
	}
	counts := map[string]float64{}
	r := rollout.Stream(1, "random map test", 0)
	for range draws {
		l := random(r, size, p)
		if _, ok := chances[l.String()]; !ok {
			t.Fatalf("%s has no path from S to G", l)
		}
		counts[l.String()]++
	}
	// Chi-square over the maps that are expected 20 times, and the rest together.
	chi, cells, restExpected, restCounted := 0.0, 0, 0.0, 0.0
	for l, chance := range chances {
		expected := chance / total * draws
		if expected < 20 {
			restExpected += expected
			restCounted += counts[l]
			continue
		}
		chi += math.Pow(counts[l]-expected, 2) / expected
		cells++
	}
	chi += math.Pow(restCounted-restExpected, 2) / restExpected
	// The 99.9% quantile of chi-square with k degrees of freedom, by Wilson and Hilferty.
	k := float64(cells)
	limit := k * math.Pow(1-2/(9*k)+3.09*math.Sqrt(2/(9*k)), 3)
	if cells < 10 || chi > limit {
		t.Errorf("chi-square %.1f of %d maps over %.1f", chi, cells, limit)
	}
}

func TestPathsAreFoundAsByANaiveSearch(t *testing.T) {
	r := rollout.Stream(2, "path test", 0)
	found := 0
	for range 2000 {
		rows, columns := 1+r.IntN(5), 1+r.IntN(5)
		l := make(lake, rows)
		for i := range l {
			for range columns {
				l[i] += string("FFH"[r.IntN(3)])
			}
		}
		to := r.IntN(rows * columns)
		l[to/columns] = l[to/columns][:to%columns] + "G" + l[to/columns][to%columns+1:]
		for s := range l.states() {
			at := [2]int{s / columns, s % columns}
			want := l.tile(s) != hole && reaches(l, at, [2]int{to / columns, to % columns})
			if got := l.crossable(s); got != want {
				t.Fatalf("%s from %d: %v, want %v", l, s, got, want)
			} else if got {
				found++
			}
		}
	}
	if found < 2000 {
		t.Errorf("%d paths found: the test tries too little", found)
	}
}

func TestATaskIsTabular(t *testing.T) {
	var made task.Tabular = newTask(t, Settings{Map: MapRandom}, 5)
	first := made.Train(0).State
	if got := len(made.Transitions()); got != 16 {
		t.Errorf("%d states", got)
	}
	l := lake(strings.Split(strings.TrimSuffix(first, "@0"), "/"))
	for s, actions := range made.Transitions() {
		if stays := len(actions[0]) == 1; stays != l.ends(s) {
			t.Errorf("state %d is not that of the first training map, %s", s, first)
		}
	}
}

func TestWordsExplainTheRules(t *testing.T) {
	made := newTask(t, Settings{SuccessRate: 0.5, Settings: gridworld.Settings{Format: task.Words, ActionsPerTurn: 2}},
		1)
	p := made.Train(0)
	for _, part := range []string{"probability 0.5, and with 0.25 each", "<answer>Left, Down</answer>",
		"1 to 2 of Left, Down, Right, Up", "PFFF\nFHFH\nFFFH\nHFFG\n"} {
		if !strings.Contains(p.Text, part) {
			t.Errorf("%q is not in %q", part, p.Text)
		}
	}
	if p := newTask(t, Settings{Slippery: firm(), Settings: gridworld.Settings{Format: task.Words}},
		1).Train(0); strings.Contains(p.Text, "slippery") {
		t.Errorf("firm ice is slippery in %q", p.Text)
	}
	e := made.Reset(p, 1)
	if step := e.Step("Left"); !step.Invalid || step.Reward != -0.1 || !strings.Contains(step.Text, "<answer>") ||
		!strings.HasSuffix(step.Text, "PFFF\nFHFH\nFFFH\nHFFG\n") {
		t.Errorf("without a tag: %+v", step)
	}
	if step := e.Step("So: <answer>up</answer>"); step.Invalid || strings.Contains(step.Text, "<answer>") {
		t.Errorf("with a tag: %+v", step)
	}
}

func TestPicturesDistinguishEveryCellAndTile(t *testing.T) {
	for _, tile := range []int{4, 8, 16} {
		made := newTask(t, Settings{Images: true, Tile: tile}, 1)
		if made.ImageSize() != 4*tile {
			t.Fatalf("image size %d, want %d", made.ImageSize(), 4*tile)
		}
		seen := map[string]string{}
		for _, l := range []lake{{"SF", "HG"}, {"FF", "HG"}, {"HF", "HG"}, {"GF", "HG"}} {
			for at := range 4 {
				_, file := made.opening(l, at)
				_, after := made.observe(l, at, false)
				if !bytes.Equal(file, after) {
					t.Errorf("%s at %d looks otherwise after a turn", l, at)
				}
				what := strings.Join(l.drawn(at, 'P'), "/")
				if l.tile(at) == hole {
					what = strings.Join(l.drawn(at, 'X'), "/")
				}
				if before, ok := seen[string(file)]; ok && before != what {
					t.Errorf("%s looks like %s", what, before)
				}
				seen[string(file)] = what
			}
		}
		if len(seen) != 14 { // a player at the upper left corner, not in a hole, looks the same three times
			t.Errorf("%d pictures, want 14", len(seen))
		}
		p := made.Train(0)
		picture, err := png.Decode(bytes.NewReader(p.Image))
		if err != nil || picture.Bounds().Dx() != made.ImageSize() || picture.Bounds().Dy() != made.ImageSize() {
			t.Errorf("the prompt's picture: %v", err)
		}
		e := made.Reset(p, 1)
		if step := e.Step("R"); p.Text != cue || step.Text != cue || step.Image == nil {
			t.Errorf("beside pictures it says %q and %q", p.Text, step.Text)
		}
	}
	if made := newTask(t, Settings{}, 1); made.ImageSize() != 0 || made.Train(0).Image != nil {
		t.Error("a task in text has pictures")
	}
}
