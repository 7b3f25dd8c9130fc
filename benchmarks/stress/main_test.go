package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/benchmarks/process"
	"github.com/reprise-rl/reprise/internal/tests"
)

func TestAServiceKeepsItsPromisesUnderStress(t *testing.T) {
	tests.Long(t)
	program := process.Reprise(t)
	for name, run := range map[string]func(t *testing.T) (*Verdict, error){
		"soak": func(t *testing.T) (*Verdict, error) {
			return soak(t.Context(), SoakSettings{
				Program: program, For: 10 * time.Second, Dir: t.TempDir(), Seed: 1, Producers: 16, Trainers: 4,
				Hostile: 2, Pace: 40 * time.Millisecond,
				Longest: 1024, Every: 5 * time.Second,
			}, t.Output())
		},
		"kill -9 under load": func(t *testing.T) (*Verdict, error) {
			return crash(t.Context(), CrashSettings{
				Program: program, Times: 5, Dir: t.TempDir(), Seed: 1, Inserting: 8, Callers: 4, Life: time.Second,
				Pace: 10 * time.Millisecond, Longest: 512,
			}, t.Output())
		},
		"attack": func(t *testing.T) (*Verdict, error) {
			attackers := filepath.Join(t.TempDir(), "stress")
			if out, err := exec.Command("go", "build", "-o", attackers, ".").CombinedOutput(); err != nil {
				t.Fatalf("build the attackers: %v\n%s", err, out)
			}
			return underAttack(t.Context(), AttackSettings{
				Program: program, Attackers: attackers, Limit: 1e9, Each: time.Second / 2, Mixed: 5 * time.Second,
				Dir: t.TempDir(), Producers: 4, Consumers: 2, Pace: 100 * time.Millisecond,
				// no Least: on a busy machine rates say nothing
			}, t.Output())
		},
		"recovery": func(t *testing.T) (*Verdict, error) {
			return recovery(t.Context(), RecoverySettings{Program: program, Dir: t.TempDir(), Rollouts: 2000,
				Tokens: 100, Within: 30 * time.Second, Times: 2}, t.Output())
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := run(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n", v)
			if err := v.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
