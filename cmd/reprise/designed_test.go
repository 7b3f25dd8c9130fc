package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/run"
)

var assignments = regexp.MustCompile(`--set (\S+)`)

func TestTheCommandThatDesignPrintsRunsTheConfigurationInTheLaboratory(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--gpus", "2", "--batch", "1"},
		{"--gpus", "9", "--batch", "360", "--group", "6", "--rollout-cost", "0.7"},
		{"--gpus", "40", "--batch", "96", "--group", "16", "--rollout-cost", "20", "--correlation", "0"},
		{"--noise-exponent", "0", "--most-capacity", "5000"},
		{"--noise-exponent", "1.5"},
		{"--gpus", "8192", "--batch", "8192"},
	} {
		w, text := works(t, args...), succeeds(t, "", append([]string{"design"}, args...)...)
		var set []string
		for _, m := range assignments.FindAllStringSubmatch(text[strings.Index(text, "\nto train so"):], -1) {
			set = append(set, m[1])
		}
		config, err := run.Load("", set)
		if err != nil {
			t.Errorf("%v: the laboratory refuses %q: %v", args, set, err)
			continue
		}
		p, c := config.Pipeline, w.Configuration
		if p.Workers != c.Workers || p.Trainers != c.Trainers || p.Batch != c.Batch || p.Group != c.Group || p.RolloutCost != w.RolloutCost || config.Replay.Capacity != c.Capacity {
			t.Errorf("%v: the laboratory reads %+v with a buffer of %d, want %+v", args, p, config.Replay.Capacity, c)
		}
		if want := "reprise train --set " + strings.Join(set, " --set "); w.Command != want {
			t.Errorf("%v: the JSON has the command %s, the words %s", args, w.Command, want)
		}
	}
}

func TestDesignAdvisesABatchThatDividesBetterAndKeepsItsPromise(t *testing.T) {
	args := []string{"--profile", profiled(t, "[1, 1.5, 2, 2.2]")}
	w := works(t, args...)
	advice := regexp.MustCompile(`--batch (\d+) would let (\d+) workers and (\d+) trainers save ([\d.]+)% instead of ([\d.]+)%`)
	found := advice.FindStringSubmatch(strings.Join(w.Warnings, "\n"))
	if found == nil {
		t.Fatalf("no advice in:\n%s", strings.Join(w.Warnings, "\n"))
	}
	taken := works(t, append(args, "--batch", found[1])...)
	got := []string{fmt.Sprint(taken.Configuration.Workers), fmt.Sprint(taken.Configuration.Trainers), fmt.Sprintf("%.1f", 100*taken.Configuration.Savings), fmt.Sprintf("%.1f", 100*w.Configuration.Savings)}
	if !slices.Equal(got, found[2:]) {
		t.Errorf("the advice %q comes to %v", found[0], got)
	}
}

func TestDesignMeasuresARunAndRecommendsAChangeOfItsConfiguration(t *testing.T) {
	dir := whole(t)
	from := func(args ...string) worked {
		t.Helper()
		got := call(t, "", append([]string{"design", "--json", "--from", dir}, args...)...)
		var w worked
		if err := json.Unmarshal([]byte(got.stdout), &w); err != nil || got.code != 0 {
			t.Fatalf("exit code %d, %v:\n%s%s", got.code, err, got.stdout, got.stderr)
		}
		return w
	}
	w := from()
	if c := w.Configuration; c.Workers+c.Trainers != 5 || c.Batch != 16 || c.Group != 4 {
		t.Errorf("the run has 5 GPUs, batches of 16 and groups of 4, the recommendation %+v", c)
	}
	if w.Origins["rollout_cost"] != "measured" || w.Origins["noise"] != "measured" || len(w.Measured) == 0 {
		t.Errorf("measured: %v, %q", w.Origins, w.Measured)
	}
	if want := "reprise train -c " + filepath.Join(dir, "config.yaml") + " --set pipeline.workers="; !strings.HasPrefix(w.Command, want) {
		t.Errorf("the command is %s, want it to begin with %s", w.Command, want)
	}
	var set []string
	for _, m := range assignments.FindAllStringSubmatch(w.Command, -1) {
		set = append(set, m[1])
	}
	config, err := run.Load(filepath.Join(dir, "config.yaml"), set)
	if err != nil || config.Pipeline.Workers != w.Configuration.Workers || config.Replay.Capacity != w.Configuration.Capacity || config.Policy.Hidden != 16 {
		t.Errorf("the laboratory reads %+v, %v", config, err)
	}
	given := from("--rollout-cost=7", "--correlation=0.3", "--noise-exponent=0.1", "--gpus=6", "--batch=12", "--group=2")
	if given.RolloutCost != 7 || given.Correlation != 0.3 || *given.NoiseExponent != 0.1 || given.Origins["noise"] != "given" ||
		given.Configuration.Workers+given.Configuration.Trainers != 6 || given.Configuration.Batch != 12 || given.Configuration.Group != 2 {
		t.Errorf("flags beside --from are not what counts: %+v", given)
	}
	const noise, correlation = "both profiles are flat", "0.1 is supposed"
	if !said(w.Warnings, noise) || !said(w.Warnings, correlation) || said(given.Warnings, noise) || said(given.Warnings, correlation) {
		t.Errorf("measured it warns %q, and where flags stand for the measurements %q", w.Warnings, given.Warnings)
	}
}

func TestARecommendationFromARunWithoutReplayTurnsReplayOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("replay: {sampler: lifo, capacity: 2048}\npipeline: {mode: sync, batch: 1024}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	base, err := run.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := &calculation{config: path, cost: 5.28, plan: design.Plan{Configuration: design.Configuration{Workers: 6, Trainers: 2, Capacity: 3000, Batch: 1000}, Group: 10}}
	found.recommend(base)
	config, err := run.Load(path, found.assigned)
	if err != nil || found.refused != nil || !config.Replays() || config.Pipeline.Mode != "async" || config.Pipeline.Group != 10 || config.Replay.Capacity != 3000 {
		t.Errorf("the laboratory reads %+v, %v, %v", config, err, found.refused)
	}
	found.plan.Group = 4000
	if found.recommend(base); found.refused == nil || !strings.Contains(found.refused.Error(), "pipeline.group: 4000") {
		t.Errorf("a group larger than a trainer's part of the buffer is refused with: %v", found.refused)
	}
}

func TestWordsOfACommandAreQuotedWhereAShellWouldSplitThem(t *testing.T) {
	for word, want := range map[string]string{"runs/a-1/config.yaml": "runs/a-1/config.yaml", "my run": "'my run'", "": "''", "it's": `'it'\''s'`, "$HOME": "'$HOME'"} {
		if got := quoted(word); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}
