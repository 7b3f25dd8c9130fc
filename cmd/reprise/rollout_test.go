package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/lab/worker"
	"github.com/reprise-rl/reprise/wire"
)

// serveModel serves a model as an engine until the test ends, and returns its address.
func serveModel(t *testing.T, model string) string {
	t.Helper()
	_, out := background(t, "engine", "serve", "--model", model, "--listen", "127.0.0.1:0")
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
}

// rollout fills a durable table, says what it did, serves its metrics, and gives back what it has begun at Ctrl-C.
func TestRolloutFillsATable(t *testing.T) {
	t.Parallel()
	model, dir := modelFolder(t), t.TempDir()
	at := serveModel(t, model)
	service := startServe(t, "--data", dir, "--table", "name=sums,capacity=4096,group_size=4")
	table := service.at.GRPC + "/sums"
	args := []string{"rollout", table, "arithmetic", "--model", model, "--engine", "vllm+" + at, "--group", "4",
		"--in-flight", "8", "--max-tokens", "4"}

	said := succeeds(t, "", append(args, "--groups", "6")...)
	for _, want := range []string{"6 groups of 4 inserted", "waited", "vllm+" + at + ": version 0"} {
		if !strings.Contains(said, want) {
			t.Errorf("the summary lacks %q:\n%s", want, said)
		}
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pages := l.Addr().String()
	l.Close()
	running, lines := background(t, append(args, "--json", "--http", pages)...)
	var s worker.Stats
	for decoder := json.NewDecoder(lines); s.Rollouts == 0; {
		if err := decoder.Decode(&s); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := http.Get("http://" + pages + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	for _, want := range []string{"reprise_worker_inserted_rollouts_total ", "reprise_worker_gate_seconds_total ",
		`reprise_worker_engine_busy_seconds_total{engine="vllm+` + at + `"}`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("/metrics lacks %q: %v", want, err)
		}
	}
	refusesOtherHosts(t, pages, "/metrics")
	if exit := interrupt(t, running); exit != 0 {
		t.Errorf("exit code %d after Ctrl-C", exit)
	}
	var held wire.TableStatistics
	if err := json.Unmarshal([]byte(succeeds(t, "", "table", "stats", table)), &held); err != nil {
		t.Fatal(err)
	}
	if held.Inserted < 24+4 || held.Inserted%4 != 0 || held.Journal == nil {
		t.Errorf("%d rollouts have entered, journal %v", held.Inserted, held.Journal)
	}

	config := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(config, []byte("pipeline: {group: 4, batch: 32}\ngenerate: {max_tokens: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	of := []string{"rollout", table, "--config", config, "--model", model, "--engine", "sglang+" + at, "--groups", "2"}
	if said := succeeds(t, "", of...); !strings.Contains(said, "2 groups of 4 inserted") {
		t.Errorf("with a configuration:\n%s", said)
	}
	for want, wrong := range map[string][]string{
		"--group: 8: want none beside --config":         append(of, "--group", "8"),
		"--positions: -3: want 2 or more":               append(args, "--positions=-3"),
		"--in-flight: 2: want a group of 4 at least":    append(args, "--in-flight", "2"),
		"group: 3: want 4, the group_size of table":     append(args, "--group", "3"),
		"--key-file: open nowhere":                      append(args, "--key-file", "nowhere"),
		"no task: want its name, or --config":           {"rollout", table, "--model", model, "--engine", "vllm+" + at},
		"want DIALECT+http://HOST:PORT":                 append(args, "--engine", "somewhere"),
		"no sampling mask at top_p 0.9: set top_p to 1": append(args, "--top-p", "0.9", "--groups", "1"),
	} {
		fails(t, call(t, "", wrong...), want)
	}
	degraded := succeeds(t, "", append(args, "--top-p", "0.9", "--groups", "1", "--degraded")...)
	if !strings.Contains(degraded, "loses    ratios compare") {
		t.Errorf("with --degraded nothing is said to be lost:\n%s", degraded)
	}
}

// A command of the user's has a server take weights that cannot by HTTP.
func TestReloadRunsACommand(t *testing.T) {
	t.Parallel()
	model, dir := modelFolder(t), t.TempDir()
	at := serveModel(t, model)
	service := startServe(t, "--table", "name=sums,capacity=4096")
	told := filepath.Join(dir, "told")
	weights := filepath.Join(dir, "weights")
	if err := os.MkdirAll(filepath.Join(weights, "v1"), 0o755); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(weights, "v1", "manifest.json")
	if err := os.WriteFile(manifest, []byte(`{"version": 1, "files": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := service.dial(service.at.GRPC, client.Options{})
	defer c.Close()
	if err := c.Table("sums").Advance(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// What the command leaves running, as a server, holds the program's output open.
	run := exec.CommandContext(t.Context(), binary, "rollout", service.at.GRPC+"/sums", "arithmetic", "--model", model,
		"--engine", "llamacpp+"+at, "--group", "2", "--in-flight", "4", "--max-tokens", "4", "--groups", "2", "--weights",
		weights, "--reload", `echo "$REPRISE_ENGINE $REPRISE_VERSION $REPRISE_WEIGHTS" >`+told+`; sleep 600 & echo $! >`+
			filepath.Join(dir, "pid"))
	run.Stdout, run.Stderr = log, log
	if exit := exitOf(t, run.Run()); exit != 0 {
		t.Errorf("exit code %d", exit)
	}
	if pid, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
		_ = exec.Command("kill", strings.TrimSpace(string(pid))).Run()
	}
	text, err := os.ReadFile(told)
	if want := "llamacpp+" + at + " 1 " + filepath.Join(weights, "v1") + "\n"; err != nil || string(text) != want {
		t.Errorf("the command was told %q, %v, want %q", text, err, want)
	}
	if said, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(said), ": version 1, ") {
		t.Errorf("%v:\n%s", err, said)
	}
}
