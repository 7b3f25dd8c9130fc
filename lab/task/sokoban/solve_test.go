package sokoban

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

func solveLevel(l level) ([]action, outcome) { return solve(l.room, l.start) }

// play plays a plan in the naive game, has to complete it with its last action, and returns the pushes. Moves must not
// be stopped, and pushes must push.
func play(t *testing.T, l level, plan []action) (pushes int) {
	t.Helper()
	n := newNaive(l.String())
	for i, a := range plan {
		before := n.String()
		_, complete, pushed := n.act(int(a))
		if n.String() == before || pushed != a.pushes() || complete != (i == len(plan)-1) {
			t.Fatalf("action %d, %d of plan %v: pushed %v, complete %v, before\n%s", i, a, plan, pushed,
				complete, before)
		}
		if pushed {
			pushes++
		}
	}
	return pushes
}

// scatter makes a room with boxes, targets and a player anywhere in it: solvable or not.
func scatter(size, boxes int, seed uint64) (level, bool) {
	random := rollout.Stream(seed, "scatter", 0)
	r, floor := dig(size, random)
	if len(floor) < 2*boxes+1 {
		return level{}, false
	}
	rows := newNaive(level{room: r, start: position{player: floor[0]}}.String())
	rows.exchange(int(floor[0])/size, int(floor[0])%size, ' ')
	random.Shuffle(len(floor), func(i, j int) { floor[i], floor[j] = floor[j], floor[i] })
	text := []byte(rows.String())
	place := func(at cell, plain, onTarget byte) {
		i := int(at)/size*(size+1) + int(at)%size
		if text[i] == '.' {
			text[i] = onTarget
		} else {
			text[i] = plain
		}
	}
	for _, at := range floor[:boxes] {
		place(at, '.', '.')
	}
	random.Shuffle(len(floor), func(i, j int) { floor[i], floor[j] = floor[j], floor[i] })
	for _, at := range floor[:boxes] {
		place(at, '$', '*')
	}
	place(floor[boxes], '@', '+')
	l, err := parse(string(text))
	return l, err == nil
}

func TestSolutionsHaveTheFewestStepsAndPushes(t *testing.T) {
	tests.Long(t)
	solvable, unsolvable, detours := 0, 0, 0
	for _, c := range []struct{ size, boxes, levels int }{{5, 1, 250}, {6, 1, 300}, {7, 2, 40}, {6, 2, 250},
		{5, 3, 200}, {6, 3, 30}} {
		for seed := range uint64(c.levels) {
			l, ok := scatter(c.size, c.boxes, seed)
			if !ok {
				continue
			}
			n := newNaive(l.String())
			steps, pushes := n.fewest(false), n.fewest(true)
			plan, outcome := solveLevel(l)
			if (outcome == solved) != (steps >= 0) || outcome == tooLarge {
				t.Fatalf("outcome %d, but %d steps solve\n%s", outcome, steps, l)
			}
			least, outcome := newSearch(l.room, newDistances(l.room), false, pushPositions).run(l.start)
			if (outcome == solved) != (steps >= 0) {
				t.Fatalf("outcome %d of the fewest pushes, but %d steps solve\n%s", outcome, steps, l)
			}
			if steps < 0 {
				unsolvable++
				continue
			}
			solvable++
			if play(t, l, plan); len(plan) != steps {
				t.Fatalf("%d steps, want %d of\n%s", len(plan), steps, l)
			}
			if got := play(t, l, least); got != pushes {
				t.Fatalf("%d pushes, want %d of\n%s", got, pushes, l)
			}
			if len(least) > steps {
				detours++
			}
		}
	}
	if solvable < 100 || unsolvable < 100 || detours < 2 {
		t.Errorf("%d solvable, %d unsolvable, %d where fewer pushes take more steps: want all of them tried", solvable,
			unsolvable, detours)
	}
}

func TestDeadlocksAreRecognized(t *testing.T) {
	for _, c := range []struct {
		text string
		lock bool // the box at row 2, column 2, both counted from 0, is frozen
	}{
		{"######\n#    #\n# $$ #\n# $$ #\n#@...#\n#   .#\n######\n", true},
		{"######\n#    #\n# ** #\n# ** #\n#@.$ #\n#    #\n######\n", false}, // frozen, but all on targets
		{"######\n#    #\n# *$ #\n# ** #\n#@.  #\n#    #\n######\n", true},  // one of those that hold it is not
		// both on targets, the one on the right free
		{"#######\n#     #\n#**$ .#\n###   #\n#@ $ .#\n#######\n", false},
		{"######\n#@   #\n# $  #\n#    #\n#  . #\n######\n", false},
		{"######\n#@   #\n# $$ #\n#    #\n# .. #\n######\n", false}, // can be pushed up and down
		{"######\n# #  #\n# $$ #\n# .@ #\n#   .#\n######\n", false}, // the other can be pushed down
		{"######\n# ## #\n# $$ #\n# .@ #\n#   .#\n######\n", true},  // a wall beside both
	} {
		l, err := parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		d := newDistances(l.room)
		f := freeze{room: l.room, dead: &d.dead, occupied: l.room.occupied(&l.start)}
		if got := f.locks(cell(2*l.room.columns + 2)); got != c.lock {
			t.Errorf("locked: %v, want %v:\n%s", got, c.lock, c.text)
		}
	}
}

// Crowded rooms, where boxes hold one another in many ways. They are made by playing backwards, so there is a way.
func TestCrowdedLevelsAreNotTakenForDeadlocks(t *testing.T) {
	for _, s := range []shape{{size: 6, boxes: 4, minPushes: 1}, {size: 7, boxes: 6, minPushes: 1}} {
		made := 0
		for i := range uint64(400) {
			l, ok := generate(s, rollout.Stream(8, "crowd", i))
			if !ok {
				continue
			}
			made++
			plan, outcome := solveLevel(l)
			if outcome != solved {
				t.Fatalf("outcome %d of\n%s", outcome, l)
			}
			play(t, l, plan)
		}
		if made < 20 {
			t.Errorf("%+v: %d levels", s, made)
		}
	}
}

func TestDistancesCountPushesThroughTheRoom(t *testing.T) {
	l := mustParse(t, "########\n#@ $   #\n#  ### #\n#     .#\n#  #   #\n########\n")
	d := newDistances(l.room)
	want := "" + // pushes to the target; - where a box is lost
		"########\n" +
		"#------#\n" +
		"#-5###1#\n" +
		"#-43210#\n" +
		"#--#---#\n" +
		"########\n"
	var got strings.Builder
	for i := range l.room.rows * l.room.columns {
		at := cell(i)
		switch {
		case l.room.wall[at]:
			got.WriteByte('#')
		case d.dead[at] != (d.to[0][at] == far):
			t.Errorf("cell %d: dead: %v, distance %d", at, d.dead[at], d.to[0][at])
		case d.dead[at]:
			got.WriteByte('-')
		default:
			got.WriteByte('0' + byte(d.to[0][at]))
		}
		if i%l.room.columns == l.room.columns-1 {
			got.WriteByte('\n')
		}
	}
	if got.String() != want {
		t.Errorf("\n%swant\n%s", got.String(), want)
	}
}

func TestASearchThatIsTooLargeEndsWithoutAnAnswer(t *testing.T) {
	l, ok := generate(shape{size: 8, boxes: 2, minPushes: 4}, rollout.Stream(1, "large", 0))
	if !ok {
		t.Fatal("no level")
	}
	if plan, outcome := newSearch(l.room, newDistances(l.room), true, 3).run(l.start); outcome != tooLarge ||
		plan != nil {
		t.Errorf("%v, %d", plan, outcome)
	}
}

// boxoban returns the files of levels that DeepMind published, which may be in a folder next to the repository.
func boxoban(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../../../shared/data/boxoban/*.txt")
	if err != nil || len(files) == 0 {
		t.Skip("the public Boxoban levels are not in ../shared/data/boxoban")
	}
	return files
}

func TestBoxobanLevelsAreSolved(t *testing.T) {
	for _, file := range boxoban(t) {
		levels, err := readPath(file)
		if err != nil {
			t.Fatal(err)
		}
		completed, every := 0, tests.Count(25, 250)
		for i := 0; i < len(levels); i += every {
			switch plan, outcome := solveLevel(levels[i]); outcome {
			case solved:
				play(t, levels[i], plan)
				completed++
			case unsolvable:
				t.Errorf("%s: unsolvable:\n%s", file, levels[i])
			}
		}
		if want := (len(levels) + every - 1) / every; completed < want {
			t.Errorf("%s: %d of %d levels solved", file, completed, want)
		}
	}
}

// BenchmarkBoxoban solves every level once per iteration.
func BenchmarkBoxoban(b *testing.B) {
	for _, file := range boxoban(b) {
		b.Run(filepath.Base(file), func(b *testing.B) {
			levels, err := readPath(file)
			if err != nil {
				b.Fatal(err)
			}
			var completed, steps int
			var longest time.Duration
			for b.Loop() {
				completed, steps = 0, 0
				for _, l := range levels {
					begin := time.Now()
					plan, outcome := solveLevel(l)
					longest = max(longest, time.Since(begin))
					if outcome == solved {
						completed++
						steps += len(plan)
					}
				}
			}
			b.ReportMetric(float64(completed)/float64(len(levels)), "solved")
			b.ReportMetric(float64(steps)/float64(completed), "steps/level")
			b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N*len(levels)), "ms/level")
			b.ReportMetric(longest.Seconds()*1e3, "ms/longest")
		})
	}
}

func BenchmarkSolve(b *testing.B) {
	for name, s := range map[string]shape{"simple": {6, 1, 2}, "hard": {8, 2, 4}} {
		b.Run(name, func(b *testing.B) {
			var levels []level
			for i := uint64(0); len(levels) < 100; i++ {
				if l, ok := generate(s, rollout.Stream(1, "bench", i)); ok {
					levels = append(levels, l)
				}
			}
			for i := 0; b.Loop(); i++ {
				if _, outcome := solveLevel(levels[i%100]); outcome != solved {
					b.Fatal(outcome)
				}
			}
		})
	}
}

func BenchmarkGenerate(b *testing.B) {
	for name, s := range map[string]shape{"simple": {6, 1, 2}, "hard": {8, 2, 4}, "10x10x4": {10, 4, 8},
		"16x16x4": {16, 4, 8}} {
		b.Run(name, func(b *testing.B) {
			levels := 0
			for i := uint64(0); b.Loop(); i++ {
				if _, ok := generate(s, rollout.Stream(1, "bench", i)); ok {
					levels++
				}
			}
			b.ReportMetric(float64(levels)/b.Elapsed().Seconds(), "levels/s")
		})
	}
}

func BenchmarkStep(b *testing.B) {
	made := newTask(b, Settings{}, 1)
	p := made.HeldOut()[0]
	e := made.Reset(p, 0)
	texts := strings.Split("ULDR", "")
	for i := 0; b.Loop(); i++ {
		if e.Step(texts[i%4]).Done {
			e = made.Reset(p, 0)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}
