package results

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCondensedRunsHaveALineForEachEvaluation(t *testing.T) {
	r := &Run{Seed: 3, Summary: &Summary{Seed: 3}, Evals: []Eval{{Update: 0}, {Update: 2, Pass1: 1.0 / 3}, {Update: 4}}}
	for i := 1; i <= 5; i++ {
		u := Update{Update: i, Compute: 10 * float64(i), Inserted: uint64(i), Loss: Num(float64(i) + 1.0/3),
			Dropped: Num(float64(i)), Other: map[string]Number{"nll": Num(float64(i))}}
		if i == 3 {
			u.Loss = Number{}
		}
		r.Updates = append(r.Updates, u)
		r.Timings = append(r.Timings, Timing{Update: i, Elapsed: float64(i), Generate: 1, Learn: 2, Evaluate: 3, Tokens: 4})
	}
	c := Condense(r)
	want := []Update{
		{Update: 2, Compute: 20, Inserted: 2, Loss: Num(1.8333), Dropped: Num(2), Other: map[string]Number{"nll": Num(1.5)}},
		{Update: 4, Compute: 40, Inserted: 4, Loss: Num(4.3333), Dropped: Num(4), Other: map[string]Number{"nll": Num(3.5)}},
		{Update: 5, Compute: 50, Inserted: 5, Loss: Num(5.3333), Dropped: Num(5), Other: map[string]Number{"nll": Num(5)}},
	}
	if !reflect.DeepEqual(c.Updates, want) || !reflect.DeepEqual(c.Evals, r.Evals) {
		t.Errorf("%+v", c)
	}
	if want := (Timing{Update: 5, Elapsed: 5, Generate: 5, Learn: 10, Evaluate: 15, Tokens: 20}); c.Timing != want {
		t.Errorf("%+v", c.Timing)
	}
	again := c.Run()
	if again.Seed != 3 || !reflect.DeepEqual(Condense(again), c) {
		t.Errorf("condensed twice: %+v", Condense(again))
	}
	if r.Updates[4].Other["nll"] != Num(5) {
		t.Error("the run was changed")
	}
}

func TestArchivesAreReadAsTheyWereWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), ArchiveFile)
	a := &Archive{Study: "s", Seeds: 2, Runs: map[string]*CondensedRun{"d": {Failed: "why",
		Evals: []Eval{{Grid: math.Pi, Pass1: 0.25}}, Updates: []Update{{Update: 1, Loss: Num(1)}}}}}
	if err := WriteArchive(path, a); err != nil {
		t.Fatal(err)
	}
	got, err := ReadArchive(path)
	if err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%+v, %v, want %+v", got, err, a)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteArchive(path, a); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(path); err != nil || string(first) != string(second) {
		t.Errorf("written again the file differs, %v", err)
	}
	for name, text := range map[string]string{
		"no gzip": "{}", "cut": string(first[:len(first)/2]),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadArchive(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
