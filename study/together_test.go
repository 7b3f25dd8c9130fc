package study

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// together watches how many runs are under way.
type together struct {
	mu        sync.Mutex
	now, most int
	many      chan struct{} // closed once so many are under way as wanted
}

// watch has a runner tell when its runs begin and end. Until so many are under way as wanted, none goes on.
func (w *together) watch(r Runner, wanted int) Runner {
	w.many = make(chan struct{})
	r.Hooks = func(string, uint64, run.Config) run.Hooks {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now++
		w.most = max(w.most, w.now)
		if w.now == wanted && w.most == wanted {
			close(w.many)
			wanted = -1 // once
		}
		return run.Hooks{OnUpdate: func(results.Update) { <-w.many }}
	}
	r.OnEnd = func(Ended) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}
	return r
}

func TestAsManyRunsAsAskedForAreUnderWayAtOnce(t *testing.T) {
	for _, atOnce := range []int{1, 2, 3} {
		r := Runner{Study: trial("sizes", sizes(t, "32", "36", "40", "44", "48")...), Options: Options{Seeds: 1}, Dir: t.TempDir(), AtOnce: atOnce}
		w := new(together)
		s, _ := carryOut(t, w.watch(r, atOnce))
		if w.most != atOnce || s.AtOnce != atOnce {
			t.Errorf("%d runs at once, want %d", w.most, atOnce)
		}
	}
}

func TestARunThatSomebodyElseCarriesOutIsLeftForLater(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32", "40", "48")...), Options: Options{Seeds: 1}, Dir: t.TempDir(), AtOnce: 1}
	plan, err := newPlan(r.Study, r.Options)
	if err != nil {
		t.Fatal(err)
	}
	held, err := newPool(r.Dir).take(plan.jobs[0].digest)
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	r.OnEnd = func(e Ended) {
		if e.Count == 2 {
			held.close()
		}
	}
	_, l := carryOut(t, r)
	if got, want := l.names(), []string{"arm buffer 40, seed 1", "arm buffer 48, seed 1", "arm buffer 32, seed 1"}; !slices.Equal(got, want) {
		t.Errorf("ended %v, want %v", got, want)
	}
}

func TestAStudyThatWaitsForSomebodyElsesRunCanBeStopped(t *testing.T) {
	r := Runner{Study: trial("sizes", sizes(t, "32")...), Options: Options{Seeds: 1}, Dir: t.TempDir()}
	plan, err := newPlan(r.Study, r.Options)
	if err != nil {
		t.Fatal(err)
	}
	held, err := newPool(r.Dir).take(plan.jobs[0].digest)
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	defer held.close()
	ctx, cancel := context.WithCancel(context.Background())
	r.OnPlan = func(int, int) { cancel() }
	if _, err := r.Run(ctx); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

// childDir tells the test program that it is the second process of a test, and where that carries out its study.
const childDir = "REPRISE_STUDY_CHILD"

// shared is the study that two processes carry out at the same time.
func shared(t testing.TB, dir string) Runner {
	return Runner{Study: trial("shared", sizes(t, "32", "36", "40", "44", "48", "52")...), Options: Options{Seeds: 2}, Dir: dir, AtOnce: 2}
}

func TestTheOtherProcessOfTwo(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" { // nobody asks for it; a study of its own passes too
		dir = t.TempDir()
	}
	_, l := carryOut(t, shared(t, dir))
	for _, name := range l.begun {
		fmt.Println("\nbegan:", name)
	}
}

func TestTwoProcessesMakeEachRunOfAPoolOnce(t *testing.T) {
	dir := t.TempDir()
	other := exec.Command(os.Args[0], "-test.run", "^TestTheOtherProcessOfTwo$")
	other.Env = append(os.Environ(), childDir+"="+dir)
	var said strings.Builder
	other.Stdout, other.Stderr = &said, &said
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	_, l := carryOut(t, shared(t, dir))
	if err := other.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	begun := slices.Clone(l.begun)
	for lines := bufio.NewScanner(strings.NewReader(said.String())); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "began: "); ok {
			begun = append(begun, name)
		}
	}
	slices.Sort(begun)
	if unique := slices.Compact(slices.Clone(begun)); len(begun) != 12 || len(unique) != 12 {
		t.Errorf("%d runs were begun, %d different ones, want each of 12 once: %v", len(begun), len(unique), begun)
	}
	t.Logf("this process made %d runs, the other %d", len(l.begun), 12-len(l.begun))
	alone := shared(t, t.TempDir())
	carryOut(t, alone)
	got := written(t, dir)
	for name, text := range written(t, alone.Dir) {
		if got[name] != text {
			t.Errorf("%s differs from that of one process alone", name)
		}
	}
}
