package sokoban

import (
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

func TestGeneratedLevelsAreSolvableWithEnoughPushes(t *testing.T) {
	for _, c := range []struct {
		shape     shape
		levels    int
		different int // of them
		longer    int // of them need more than the fewest pushes
	}{
		{shape{size: 6, boxes: 1, minPushes: 2}, 600, 570, 120},
		{shape{size: 5, boxes: 1, minPushes: 1}, 300, 150, 20},
		{shape{size: 6, boxes: 2, minPushes: 4}, 100, 97, 20},
		{shape{size: 7, boxes: 1, minPushes: 5}, 60, 58, 10},
	}[tests.Count(0, 2):] {
		seen := map[string]bool{}
		made, longer := 0, 0
		for i := uint64(0); made < c.levels; i++ {
			l, ok := generate(c.shape, rollout.Stream(3, "test", i))
			if !ok {
				continue
			}
			made++
			seen[l.String()] = true
			again, _ := generate(c.shape, rollout.Stream(3, "test", i))
			if again.String() != l.String() {
				t.Fatalf("%+v: stream %d gives\n%sand then\n%s", c.shape, i, l, again)
			}
			if parsed, err := parse(l.String()); err != nil || parsed.start != l.start ||
				*roomOf(parsed) != *roomOf(l) {
				t.Fatalf("%+v: %v is not what is read of\n%s", c.shape, err, l)
			}
			n := newNaive(l.String())
			if r, columns := l.room.rows, l.room.columns; r != c.shape.size || columns != c.shape.size ||
				n.count("$") != c.shape.boxes || n.count("*") != 0 {
				t.Fatalf("%+v:\n%s", c.shape, l)
			}
			pushes := n.fewest(true)
			if pushes < c.shape.minPushes {
				t.Fatalf("%+v: %d pushes solve\n%s", c.shape, pushes, l)
			}
			if pushes > c.shape.minPushes {
				longer++
			}
		}
		if len(seen) < c.different || longer < c.longer {
			t.Errorf("%+v: %d of %d levels differ, %d need more pushes than the least", c.shape, len(seen),
				made, longer)
		}
	}
}

// comparableRoom is a room without its list of targets, which the rest determines.
type comparableRoom struct {
	rows, columns, boxes int
	wall, target         [maxCells]bool
}

func roomOf(l level) *comparableRoom {
	r := l.room
	return &comparableRoom{r.rows, r.columns, r.boxes, r.wall, r.target}
}

// In large rooms not all positions are gone through.
func TestLargeGeneratedLevelsNeedEnoughPushes(t *testing.T) {
	for _, s := range []shape{{size: 8, boxes: 2, minPushes: 4}, {size: 10, boxes: 4, minPushes: 8},
		{size: 16, boxes: 4, minPushes: 12}} {
		made, pushes := 0, 0
		for i := uint64(0); made < 20; i++ {
			if i == 200 {
				t.Fatalf("%+v: %d levels of %d rooms", s, made, i)
			}
			l, ok := generate(s, rollout.Stream(4, "test", i))
			if !ok {
				continue
			}
			made++
			plan, outcome := newSearch(l.room, newDistances(l.room), false, pushPositions).run(l.start)
			if outcome != solved {
				t.Fatalf("%+v: %d for\n%s", s, outcome, l)
			}
			of := play(t, l, plan)
			if of < s.minPushes {
				t.Errorf("%+v: %d pushes solve\n%s", s, of, l)
			}
			pushes += of
		}
		if mean := pushes / made; mean < s.minPushes+2 {
			t.Errorf("%+v: %d pushes in the mean", s, mean)
		}
	}
}
