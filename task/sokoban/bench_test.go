package sokoban

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// boxoban returns the files of levels that DeepMind published, where they lie beside the repository.
func boxoban(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../../shared/data/boxoban/*.txt")
	if err != nil || len(files) == 0 {
		t.Skip("the public Boxoban levels are not beside the repository as ../shared/data/boxoban; where CI has them there they run, and generated levels are solved everywhere")
	}
	return files
}

func TestBoxobanLevelsAreSolved(t *testing.T) {
	for _, file := range boxoban(t) {
		levels, err := ReadPath(file)
		if err != nil {
			t.Fatal(err)
		}
		solved := 0
		for i := 0; i < len(levels); i += 25 {
			switch plan, outcome := Solve(levels[i]); outcome {
			case Solved:
				play(t, levels[i], plan)
				solved++
			case Unsolvable:
				t.Errorf("%s: unsolvable:\n%s", file, levels[i])
			}
		}
		if want := (len(levels) + 24) / 25; solved < want {
			t.Errorf("%s: %d of %d levels solved", file, solved, want)
		}
	}
}

// BenchmarkBoxoban solves every level once per iteration.
func BenchmarkBoxoban(b *testing.B) {
	for _, file := range boxoban(b) {
		b.Run(filepath.Base(file), func(b *testing.B) {
			levels, err := ReadPath(file)
			if err != nil {
				b.Fatal(err)
			}
			var solved, steps int
			var longest time.Duration
			for b.Loop() {
				solved, steps = 0, 0
				for _, l := range levels {
					begin := time.Now()
					plan, outcome := Solve(l)
					longest = max(longest, time.Since(begin))
					if outcome == Solved {
						solved++
						steps += len(plan)
					}
				}
			}
			b.ReportMetric(float64(solved)/float64(len(levels)), "solved")
			b.ReportMetric(float64(steps)/float64(solved), "steps/level")
			b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N*len(levels)), "ms/level")
			b.ReportMetric(longest.Seconds()*1e3, "ms/longest")
		})
	}
}

func BenchmarkSolve(b *testing.B) {
	for name, s := range map[string]Shape{"simple": {6, 1, 2}, "hard": {8, 2, 4}} {
		b.Run(name, func(b *testing.B) {
			var levels []Level
			for i := uint64(0); len(levels) < 100; i++ {
				if l, ok := Generate(s, rollout.Stream(1, "bench", i)); ok {
					levels = append(levels, l)
				}
			}
			for i := 0; b.Loop(); i++ {
				if _, outcome := Solve(levels[i%100]); outcome != Solved {
					b.Fatal(outcome)
				}
			}
		})
	}
}

func BenchmarkGenerate(b *testing.B) {
	for name, s := range map[string]Shape{"simple": {6, 1, 2}, "hard": {8, 2, 4}, "10x10x4": {10, 4, 8}, "16x16x4": {16, 4, 8}} {
		b.Run(name, func(b *testing.B) {
			levels := 0
			for i := uint64(0); b.Loop(); i++ {
				if _, ok := Generate(s, rollout.Stream(1, "bench", i)); ok {
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
