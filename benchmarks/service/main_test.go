package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/benchmarks/process"
)

// runProgram, in the environment, makes this test binary the program, whose floor runs in a process of its own.
const runProgram = "BENCH_SERVICE_TEST_RUN_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Setenv(runProgram, "1")
	os.Exit(m.Run())
}

func TestEverythingIsMeasured(t *testing.T) {
	settings := &runCommand{
		Program: process.Reprise(t), Tokens: []int{32,
			64}, Batch: 8, Seconds: 0.02, Rounds: 2, TCP: true, Unix: true, Durable: true,
		Draws: []int{64, 5000}, DrawTokens: 16,
		Redis: auto, Python: off, Dir: t.TempDir(), diskBytes: 4 << 20, durableTokens: []int{50, 200},
	}
	if err := settings.validate(); err != nil {
		t.Fatal(err)
	}
	result, err := settings.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := result.print(&page); err != nil {
		t.Fatal(err)
	}
	type key struct {
		what, who, over string
		tokens          int
	}
	seen := make(map[key]Transfer)
	for _, line := range result.Transfers {
		seen[key{line.What, line.Who, line.Over, line.Tokens}] = line
		if line.GBs <= 0 || line.Rollouts <= 0 || line.P50 <= 0 || line.P99 < line.P50 || line.OfFloor <= 0 ||
			line.Batch != 8 {
			t.Errorf("%+v", line)
		}
	}
	for _, over := range []string{tcp, unix} {
		for _, tokens := range []int{32, 64} {
			for _, who := range []string{"raw socket", "service", "service, durable"} {
				for _, what := range []string{sample, insert} {
					if line, ok := seen[key{what, who, over, tokens}]; !ok || who == "raw socket" && line.OfFloor != 1 {
						t.Errorf("%s by %s over %s of %d tokens: %+v", what, who, over, tokens, line)
					}
				}
			}
			if _, ok := seen[key{sample, "service, no prefetch", over, tokens}]; !ok {
				t.Errorf("no stream without prefetch over %s", over)
			}
		}
	}
	if len(result.Durable) != 2 || len(result.Disk) != 5 || len(result.Targets) != 4 {
		t.Errorf("%d durable, %d disk, %d targets", len(result.Durable), len(result.Disk), len(result.Targets))
	}
	for i, d := range result.Draws {
		if how := []string{plainDraw, byPrompt, bySources}[i%3]; d.How != how || d.Who != goClient || d.Batch != 8 ||
			d.Held != []int{64, 5000}[i/3] || d.P50 <= 0 || (d.OfPlain == 1) != (how == plainDraw) {
			t.Errorf("%+v", d)
		}
	}
	if len(result.Draws) != 6 {
		t.Errorf("%d ways to draw", len(result.Draws))
	}
	for _, want := range []string{"sample 8 x 64 tokens", "draws of 8 x 16 tokens, from 5,000 rollouts, over tcp", "insertions acknowledged after fdatasync",
		"not measured: the Python client: --python off"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing in\n%s", want, page.String())
		}
	}
}

func TestSettingsOutOfRangeAreNamedTogether(t *testing.T) {
	err := (&runCommand{Tokens: []int{4}, Batch: -1, Seconds: -2, Rounds: -3, Draws: []int{3}}).validate()
	if err == nil {
		t.Fatal("they were accepted")
	}
	for _, want := range []string{"--tokens: 4: want", "--batch: -1: want", "--seconds: -2: want", "--rounds: -3: want",
		"--draws: 3: want", "--draw-tokens: 0: want",
		"--no-tcp: with --no-unix: want"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %q", want, err)
		}
	}
}

func TestAutoAllowsPeersToBeMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := startRedis(t.Context(), auto, t.TempDir()); !errors.Is(err, errMissing) ||
		!strings.Contains(err.Error(), "redis-server") {
		t.Errorf("redis: %v", err)
	}
	if _, err := startPython(auto, t.TempDir()); !errors.Is(err, errMissing) {
		t.Errorf("python: %v", err)
	}
	var l lab
	if err := l.allowMissing(errMissing, auto); err != nil || len(l.missing) != 1 {
		t.Errorf("what auto does not find ends the run: %v", err)
	}
	if err := l.allowMissing(errMissing, "/usr/bin/redis-server"); err == nil {
		t.Error("what was asked for by name may be missing")
	}
}

func TestAPythonProcessThatDoesNotAnswerIsAnError(t *testing.T) {
	program := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nread task\necho '{\"error\": \"it broke\"}'\nread task\n"+
		"echo oh >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := runPython(program, "client.py")
	if err != nil {
		t.Fatal(err)
	}
	c := p.contender(python, pythonTask{What: sample})
	for _, want := range []string{"it broke", "EOF"} {
		if _, err := c.run(context.Background(), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	if err := p.close(); err == nil || !strings.Contains(err.Error(), "oh") {
		t.Errorf("close: %v", err)
	}
}
