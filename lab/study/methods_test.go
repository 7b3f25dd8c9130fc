package study

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// few is a competition of some methods on some tasks, with a family without a buffer and the recipe.
func few(t *testing.T, tasks int, names ...string) competition {
	t.Helper()
	x := competition{tasks: []opponentTask{opponentTasks()[0], opponentTasks()[2]}[:tasks],
		families: []family{families()[0], families()[1], families()[4]}}
	for _, name := range names {
		m, err := configs.MethodByName(name)
		if err != nil {
			t.Fatal(err)
		}
		x.methods = append(x.methods, m)
	}
	return x
}

func TestEveryMethodHasAnArmOnEachTask(t *testing.T) {
	var names []string
	for _, a := range publishedMethods().Arms(Options{Seeds: 12}) {
		names = append(names, a.Name)
	}
	want := []string{"queue", "reuse, async", "reuse, sync", "recipe"}
	for _, m := range configs.Methods() {
		if m.Needs == "" {
			want = append(want, m.Name)
		}
	}
	for _, task := range []string{"addition", "countdown"} {
		for _, name := range want {
			if !slices.Contains(names, task+": "+name) {
				t.Errorf("%s has no arm on %s", name, task)
			}
		}
	}
	if len(names) != 2*len(want) {
		t.Errorf("%d arms, want %d", len(names), 2*len(want))
	}
}

// With a batch chosen that all groups divide, everyone is tried as often, on each task.
func TestEveryMethodIsTunedByAsManyTrials(t *testing.T) {
	o := Options{Seeds: 12, chosen: make(map[string]int)}
	s := publishedMethods()
	for _, p := range s.Pilots(o) {
		if strings.HasSuffix(p.Name, ": batch") {
			o.chosen[p.Name] = slices.Index(methodBatches(), methodBatch)
		}
	}
	trials := make(map[string]int)
	for _, p := range s.Pilots(o) {
		trials[strings.Join(strings.Split(p.Name, ": ")[:2], ": ")] += len(p.Arms)
	}
	for name, n := range trials {
		if want := trials["addition: queue"]; n != want {
			t.Errorf("%s has %d trials, want %d", name, n, want)
		}
	}
}

// Every trial has the task's budget in rollouts, and what its file says of the table and of who generates.
func TestAMethodKeepsWhatItsFileSaysInBatchesOfAnySize(t *testing.T) {
	capacities := make(map[string][]int)
	for _, p := range few(t, 1, "arpo", "cispo", "pods", "prompt-replay", "spear").pilots(Options{Seeds: 12}) {
		for _, a := range p.Arms {
			if got := a.Config.Budget.Compute * float64(a.Config.Pipeline.Batch); got != opponentTasks()[0].compute {
				t.Errorf("%s has a budget of %v rollouts", a.Name, got)
			}
			if !strings.HasSuffix(p.Name, ": batch") {
				continue
			}
			name := strings.Split(p.Name, ": ")[1]
			capacities[name] = append(capacities[name], a.Config.Replay.Capacity)
			got := split{a.Config.Pipeline.Workers, a.Config.Pipeline.Trainers}
			want, given := map[string]split{"arpo": {5, 1}, "pods": queueSplit(), "prompt-replay": queueSplit(),
				"cispo": {5, 3}, "spear": {5, 3}}[name]
			if given && got != want {
				t.Errorf("%s has %s, want %s", a.Name, got, want)
			}
		}
	}
	for name, want := range map[string][]int{ // in batches of 120 to 960
		"arpo": {9600, 9600, 9600, 9600}, "cispo": {480, 960, 1920, 3840}, "pods": {240, 480, 960, 1920},
		"prompt-replay": {240, 480, 960, 1920}, "spear": {9600, 9600, 9600, 9600},
	} {
		if !slices.Equal(capacities[name], want) {
			t.Errorf("%s has capacities %v, want %v", name, capacities[name], want)
		}
	}
}

// A method that a task's configuration cannot take is left out and named with the reason.
func TestAMethodThatCannotRunIsNamed(t *testing.T) {
	x := few(t, 1, "vcrl")
	x.methods = append(x.methods, configs.Method{Name: "crowded", Text: []byte("pipeline: {group: 7}\n" +
		"replay: {unit: group, sampler: distinct, capacity: 1920}\n")})
	s := x.study()
	for _, a := range s.Arms(Options{Seeds: 2}) {
		if strings.Contains(a.Name, "crowded") {
			t.Errorf("%s is run", a.Name)
		}
	}
	j := judged(t, s, Options{Seeds: 2}, func(Arm, uint64) behaviour { return usual() })
	text := strings.Join(j.Sections[0].Text, " ")
	if !strings.Contains(text, "These cannot run on this task. crowded: ") || !strings.Contains(text, "replay.unit") {
		t.Error(text)
	}
}

// speedsOf is a world in which runs learn faster by the factor of a part of the arm's name, 1 if it has none.
func speedsOf(speeds map[string]float64) world {
	return func(a Arm, seed uint64) behaviour {
		b := usual()
		b.speed = 1 + 0.02*alternating(seed)
		for name, by := range speeds {
			if strings.Contains(a.Name, name) {
				b.speed *= by
			}
		}
		return b
	}
}

func TestMethodsAreJudgedAgainstTheStrongestWithoutABuffer(t *testing.T) {
	x := few(t, 2, "vcrl", "spear", "er", "luffy")
	yes, no, open := results.Holds, results.DoesNotHold, results.Inconclusive
	for _, c := range []struct {
		name   string
		speeds map[string]float64
		want   []results.Verdict // of the recipe, vcrl, spear and er on addition, then on countdown
	}{
		{"both tasks alike", map[string]float64{"recipe": 2, "vcrl": 1.5, "er": 0.5, "luffy": 9},
			[]results.Verdict{yes, yes, open, no, yes, yes, open, no}},
		{"ahead on one task", map[string]float64{"addition: spear": 2, "countdown: spear": 0.5, "recipe": 1},
			[]results.Verdict{open, open, yes, open, open, open, no, open}},
		{"reuse is stronger", map[string]float64{"reuse": 2, "vcrl": 1.5, "spear": 3},
			[]results.Verdict{no, no, yes, no, no, no, yes, no}},
	} {
		findings := judged(t, x.study(), Options{Seeds: 12}, speedsOf(c.speeds)).Findings
		if len(findings) != len(c.want) {
			t.Fatalf("%d findings, want %d: experts have no rank", len(findings), len(c.want))
		}
		for i, f := range findings {
			if f.Verdict != c.want[i] {
				t.Errorf("%s: %q: %s, want %s: %s", c.name, f.Claim, f.Verdict, c.want[i], f.Found)
			}
		}
	}
}

// Pilots choose the opponent, whatever the runs that judge say.
func TestTheOpponentIsChosenByPilotsAlone(t *testing.T) {
	x := few(t, 1, "vcrl")
	w := func(a Arm, seed uint64) behaviour {
		b := usual()
		if pilot := seed > pilotSeed; strings.Contains(a.Name, "reuse") == pilot {
			b.speed *= 2
		}
		return b
	}
	j := judged(t, x.study(), Options{Seeds: 12}, w)
	if text := j.Sections[0].Text[0]; !strings.HasPrefix(text, "The opponent is “reuse, async”.") {
		t.Error(text)
	}
}

// The table is in the order of the effects, with what would have been shown; experts stand apart.
func TestTheOrderOfMethodsIsThatOfTheirEffects(t *testing.T) {
	x := few(t, 1, "luffy", "pope", "er", "vcrl", "spear")
	j := judged(t, x.study(), Options{Seeds: 12},
		speedsOf(map[string]float64{"spear": 3, "vcrl": 2, "er": 0.5, "luffy": 9, "pope": 8}))
	order, beside := j.Sections[0].Grids[0], j.Sections[0].Grids[1]
	var names []string
	for _, row := range order.Rows {
		names = append(names, row[0]+" "+row[1]+" "+row[4])
	}
	if want := []string{"1 spear ahead", "2 vcrl ahead", "3 er behind"}; !slices.Equal(names, want) {
		t.Errorf("the order is %v, want %v", names, want)
	}
	names = nil
	for _, row := range beside.Rows {
		names = append(names, row[0])
	}
	if want := []string{"queue", "luffy", "pope", "recipe", "reuse, async"}; !slices.Equal(slices.Sorted(slices.Values(names)),
		slices.Sorted(slices.Values(want))) || names[0] != "queue" {
		t.Errorf("beside it are %v, want %v", names, want)
	}
	for _, cell := range [][2]string{{order.Rows[0][10], "right answers kept"}, {order.Rows[1][10], "prompts chosen"}} {
		if !strings.Contains(cell[0], cell[1]) {
			t.Errorf("it says %q, want %q in it", cell[0], cell[1])
		}
	}
}

// What methods have in common that are ahead is found, and said to be no cause.
func TestAnIngredientThatGoesWithTheOrderIsFound(t *testing.T) {
	x := few(t, 1, "vcrl", "greso", "recall", "problem-priority", "cispo", "tis", "icepop", "spear", "er")
	j := judged(t, x.study(), Options{Seeds: 12}, func(a Arm, seed uint64) behaviour {
		b := usual()
		b.level = 0.5 + 0.01*float64(len(a.Name)%3)
		if a.Config.Prompts.Fraction > 0 || a.Config.Prompts.Skip != "" {
			b.level += 0.3
		}
		return b
	})
	s := j.Sections[1]
	if !strings.Contains(s.Text[0], "correlation, not cause") {
		t.Error(s.Text)
	}
	gains := make(map[string]string)
	for _, row := range s.Grids[0].Rows {
		gains[row[0]] = row[1] + " " + row[2]
	}
	if got := gains["prompts chosen"]; !strings.HasPrefix(got, "4 of 9 +0.2") || strings.Contains(got, "−") {
		t.Errorf("prompts chosen: %s", got)
	}
	if got := gains["a buffer"]; !strings.HasPrefix(got, "5 of 9 −0.2") {
		t.Errorf("a buffer: %s", got)
	}
	if _, listed := gains["experts"]; listed {
		t.Error("an ingredient that no method has is listed")
	}
}

// A rehearsal with two methods, whole: every stage chooses, every arm runs, and a second call makes no run again.
func TestARehearsalOfTwoMethodsRuns(t *testing.T) {
	tests.Long(t)
	x := few(t, 1, "spear", "vcrl")
	x.families = slices.Delete(x.families, 1, 2)
	made := 0
	r := Runner{Study: x.study(), Options: Options{Seeds: 1, Quick: true}, Dir: t.TempDir(), AtOnce: 1, // made is counted
		Hooks: func(string, uint64, run.Config) run.Hooks { made++; return run.Hooks{} }}
	s, err := r.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Arms) != 4 || len(s.Sheet.Findings) != 3 {
		t.Errorf("%d arms and %d findings", len(s.Arms), len(s.Sheet.Findings))
	}
	for _, a := range s.Arms {
		if len(a.Failed) > 0 {
			t.Errorf("%s: %v", a.Name, a.Failed)
		}
	}
	first := made
	if _, err := r.Run(context.Background()); err != nil || first == 0 || made != first {
		t.Errorf("%d runs, and %d after a second call: %v", first, made, err)
	}
}
