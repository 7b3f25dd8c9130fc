package results

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFlipsAreTheProblemsThatOneOfTwoEvaluationsSolved(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{1, 7, 8, 9, 400, MostProblems, MostProblems + 5} {
		var evals [2]Eval
		var solved [2][]bool
		for k := range evals {
			for range n {
				solved[k] = append(solved[k], random.IntN(3) == 0)
			}
			evals[k] = Eval{Problems: n, Solved: NewSolved(n, func(i int) bool { return solved[k][i] })}
		}
		var gained, lost []int
		count := 0
		for i := range min(n, MostProblems) {
			if solved[1][i] {
				count++
			}
			if solved[1][i] && !solved[0][i] {
				gained = append(gained, i)
			} else if solved[0][i] && !solved[1][i] {
				lost = append(lost, i)
			}
		}
		text, err := json.Marshal(evals[1])
		var again Eval
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		g, l := Flips(&evals[0], &again)
		if err != nil || !slices.Equal(g, gained) || !slices.Equal(l, lost) || again.Solved.Count() != count ||
			again.Recorded() != min(n, MostProblems) || len(text) > MostProblems/6+500 {
			t.Errorf("seed %d: of %d problems %d were gained and %d lost, by definition %d and %d; %d bytes, %v", seed, n,
				len(g), len(l), len(gained), len(lost), len(text), err)
		}
	}
	if g, l := Flips(&Eval{Problems: 8}, &Eval{Problems: 8, Solved: Solved{255}}); g != nil || l != nil {
		t.Errorf("an evaluation of an earlier build gave flips %v and %v", g, l)
	}
}

func TestWhatIsRecordedOfProblemsIsBounded(t *testing.T) {
	_, err := ParseEvals([]byte(`{"problems": 9, "solved": "AA=="}` + "\n"))
	if err == nil || !strings.Contains(err.Error(), "solved: 1: want 2 bytes, a bit for each of 9 problems") {
		t.Errorf("a set of too few bits: %v", err)
	}
	dir := t.TempDir()
	long := strings.Repeat("x", problemText-1) + "é"
	list := []Problem{NewProblem("a/1", "1 + 1 < 3\n="), NewProblem(long, long)}
	if err := WriteProblems(dir, list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run, err := ReadRun(dir)
	if err != nil || !reflect.DeepEqual(run.Problems, list) {
		t.Errorf("problems %+v are read as %+v, %v", list, run.Problems, err)
	}
	if p := list[1]; len(p.Text) != problemText-1 || !utf8.ValidString(fmt.Sprint(p)) {
		t.Errorf("the beginning of a long text has %d bytes", len(p.Text))
	}
}
