package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bench "github.com/reprise-rl/reprise/benchmarks/service"
)

func TestBenchServiceMeasuresEverythingInAFewSeconds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	got := call(t, "", "bench", "service", "--tokens", "32,64", "--batch", "8", "--seconds", "0.02", "--rounds", "2", "--python", "off",
		"--dir", t.TempDir(), "--json", path)
	if got.code != 0 {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var result bench.Result
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	type key struct {
		what, who, over string
		tokens          int
	}
	seen := make(map[key]bench.Transfer)
	for _, line := range result.Transfers {
		seen[key{line.What, line.Who, line.Over, line.Tokens}] = line
		if line.GBs <= 0 || line.Rollouts <= 0 || line.P50 <= 0 || line.P99 < line.P50 || line.OfFloor <= 0 || line.Batch != 8 {
			t.Errorf("%+v", line)
		}
	}
	for _, over := range []string{bench.TCP, bench.Unix} {
		for _, tokens := range []int{32, 64} {
			for _, who := range []string{"raw socket", "service", "service, durable"} {
				for _, what := range []string{bench.Sample, bench.Insert} {
					if line, ok := seen[key{what, who, over, tokens}]; !ok || who == "raw socket" && line.OfFloor != 1 {
						t.Errorf("%s by %s over %s of %d tokens: %+v", what, who, over, tokens, line)
					}
				}
			}
			if _, ok := seen[key{bench.Sample, "service, no prefetch", over, tokens}]; !ok {
				t.Errorf("no stream without prefetch over %s", over)
			}
		}
	}
	if len(result.Durable) != 2 || len(result.Disk) == 0 || len(result.Targets) != 2 {
		t.Errorf("%d durable, %d disk, %d targets", len(result.Durable), len(result.Disk), len(result.Targets))
	}
	for _, want := range []string{"sample 8 x 64 tokens", "targets", "not measured: the Python client: --python off"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, got.stdout)
		}
	}
}

func TestBenchServiceNamesSettingsOutOfRange(t *testing.T) {
	fails(t, call(t, "", "bench", "service", "--tokens", "4", "--batch", "0", "--no-unix"), "--tokens 4")
	fails(t, call(t, "", "bench", "service", "--no-unix", "--no-tcp"), "leave one of them")
	fails(t, call(t, "", "bench", "service", "--redis", "example.org:1", "--python", "off", "--no-durable"), "--redis example.org:1")
}
