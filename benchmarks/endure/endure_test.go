package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// build builds the program whose service is tried.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "reprise")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/reprise").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return program
}

func TestAServiceEndures(t *testing.T) {
	if testing.Short() {
		t.Skip("a soak and some crashes take half a minute and build the program: they run without -short, on CI too")
	}
	program := build(t)
	t.Run("a soak with everything that goes wrong in networks", func(t *testing.T) {
		v, err := soak(t.Context(), SoakSettings{
			Program: program, For: 15 * time.Second, Dir: t.TempDir(), Seed: 1, Producers: 16, Trainers: 4, Vandals: 2, Pace: 40 * time.Millisecond,
			Longest: 1024, Every: 5 * time.Second,
		}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		t.Log("\n", v)
		if err := v.Err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("kill -9 under load", func(t *testing.T) {
		v, err := crash(t.Context(), CrashSettings{
			Program: program, Times: 5, Dir: t.TempDir(), Seed: 1, Inserting: 8, Life: time.Second, Pace: 10 * time.Millisecond, Longest: 512,
		}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		t.Log("\n", v)
		if err := v.Err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a recovery", func(t *testing.T) {
		v, err := recovery(t.Context(), RecoverySettings{Program: program, Dir: t.TempDir(), Rollouts: 2000, Tokens: 100, Within: 30 * time.Second, Times: 2}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		t.Log("\n", v)
		if err := v.Err(); err != nil {
			t.Error(err)
		}
	})
}
