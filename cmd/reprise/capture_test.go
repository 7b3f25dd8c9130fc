package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/capture"
	"github.com/reprise-rl/reprise/rollout"
)

// startCapture starts a capture and returns it with its address.
func startCapture(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	c, out := background(t, append([]string{"capture"}, args...)...)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out)
	return c, regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/v1,`).FindStringSubmatch(line)[1]
}

// post sends a body of JSON until it is answered by status 200, and decodes the answer.
func post(t *testing.T, url string, body, into any) {
	text, err := json.Marshal(body)
	if err != nil {
		t.Error(err)
		return
	}
	last := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		answer, err := http.Post(url, "application/json", bytes.NewReader(text))
		if err != nil {
			last = err.Error()
			continue
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = string(got); err != nil || answer.StatusCode != http.StatusOK {
			continue
		}
		if err := json.Unmarshal(got, into); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		return
	}
	t.Errorf("%s: %s", url, last)
}

// recorded is a session that an agent was told is in the table.
type recorded struct {
	outcome capture.Outcome
	made    [][]int32 // what the engine sampled in each call that was answered
}

// play plays a session of two calls.
func play(t *testing.T, at, name string) recorded {
	var r recorded
	prompt := []int32{3, 4, 5}
	for range 2 {
		var answer struct {
			Choices []struct {
				IDs []int32 `json:"token_ids"`
			}
		}
		post(t, "http://"+at+"/sessions/"+name+"/v1/completions", map[string]any{"prompt": prompt, "max_tokens": 5,
			"return_token_ids": true}, &answer)
		if len(answer.Choices) != 1 {
			return r
		}
		r.made = append(r.made, answer.Choices[0].IDs)
		prompt = append(slices.Concat(prompt, answer.Choices[0].IDs), 6)
	}
	post(t, "http://"+at+"/sessions/"+name+"/reward", map[string]any{"reward": 1}, &r.outcome)
	return r
}

// While capture and the service are killed again and again, agents go on; what they were told is in the table is there
// once, with all that their calls were answered.
func TestCaptureLosesNothingThatItAcknowledged(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	at := serveModel(t, modelFolder(t))
	serve := []string{"--data", dir, "--table", "name=agents,capacity=100000"}
	service := startServe(t, serve...)
	grpc := strings.TrimPrefix(service.at.GRPC, "grpc://")
	args := []string{"--engine", "vllm+" + at, "--table", "grpc://" + grpc + "/agents", "--data", data, "--listen"}
	recorder, where := startCapture(t, append(args, "127.0.0.1:0")...)

	var mu sync.Mutex
	told := make(map[string]recorded)
	var done atomic.Bool
	var agents sync.WaitGroup
	for i := range 4 {
		agents.Go(func() {
			for n := 0; !done.Load() && !t.Failed(); n++ {
				name := fmt.Sprintf("s-%d-%d", i, n)
				r := play(t, where, name)
				mu.Lock()
				told[name] = r
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(told)
	}
	for kill := range 6 {
		enough := count() + 8
		tests.Until(t, "agents go on", func() bool { return count() >= enough })
		if kill%2 == 0 {
			_ = recorder.Process.Kill()
			_ = recorder.Wait()
			recorder, _ = startCapture(t, append(args, where)...)
			continue
		}
		service.kill()
		service = startServe(t, append(serve, "--listen", grpc)...)
	}
	done.Store(true)
	agents.Wait()

	c := service.dial(service.at.GRPC, client.Options{})
	held := make(map[string][]*rollout.Rollout)
	if err := c.Table("agents").Scan(t.Context(), 256, func(draws []rollout.Draw) error {
		for _, d := range draws {
			held[d.Rollout.Meta["session"]] = append(held[d.Rollout.Meta["session"]], d.Rollout)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, r := range told {
		if len(held[name]) != len(r.outcome.Rollouts) || r.outcome.State != capture.Inserted {
			t.Errorf("session %s has %d rollouts in the table, and was told %+v", name, len(held[name]), r.outcome)
		}
		for _, made := range r.made {
			if !slices.ContainsFunc(held[name], func(r *rollout.Rollout) bool { return says(r, made) }) {
				t.Errorf("session %s: no turn of its rollouts is %v", name, made)
			}
		}
	}
	t.Logf("%d sessions, %d in the table", len(told), len(held))
}

// says reports whether a turn of a rollout has these tokens.
func says(r *rollout.Rollout, made []int32) bool {
	return slices.ContainsFunc(r.Turns, func(turn rollout.Turn) bool {
		return slices.Equal(r.Tokens[turn.Start:turn.End], made)
	})
}

func TestCaptureRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	service := startServe(t, "--table", "name=agents,capacity=64,group_size=4")
	at := serveModel(t, modelFolder(t))
	good := []string{"capture", "--engine", "vllm+" + at, "--table", service.at.GRPC + "/agents"}
	for want, args := range map[string][]string{
		"4, the group_size of table agents": nil,
		"greedy tokens":                     {"--group", "4", "--temperature", "0"},
		"vllm+http://HOST:PORT":             {"--group", "4", "--engine", "sglang+" + at},
		"can be reached from other":         {"--group", "4", "--listen", "0.0.0.0:0"},
		"--memory":                          {"--group", "4", "--memory", "4096"},
	} {
		fails(t, call(t, "", append(good, args...)...), want)
	}
}

func TestCaptureLetsInWhoMayWriteTheTable(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "tokens:\n- {name: agent, token_sha256: %x, write: [agents]}\n"+
		"- {name: other, token_sha256: %x, read: ['*'], write: [others]}\n", sha256.Sum256([]byte("right-right-right")),
		sha256.Sum256([]byte("wrong-wrong-wrong"))), 0o600); err != nil {
		t.Fatal(err)
	}
	service := startServe(t, "--table", "name=agents,capacity=64")
	_, where := startCapture(t, "--engine", "vllm+"+serveModel(t, modelFolder(t)), "--table", service.at.GRPC+"/agents",
		"--listen", "127.0.0.1:0", "--tokens", tokens)
	for token, want := range map[string]int{"": 401, "wrong-wrong-wrong": 403, "right-right-right": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+where+"/v1/completions",
			strings.NewReader(`{"prompt": [3, 4], "max_tokens": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("token %q: %d: %s, want %d", token, answer.StatusCode, text, want)
		}
	}
}

// An agent of the openai package, which knows nothing of Reprise but its base URL, calls a tool through a capture, and
// the trainer learns from what it did.
func TestAgentsOfTheOpenAIPackageAreTrainedOn(t *testing.T) {
	python := os.Getenv("REPRISE_AGENTS")
	if python == "" {
		t.Skip("the openai package is not installed: make test-agents installs it")
	}
	dir := t.TempDir()
	root := filepath.Join("..", "..")
	service := startServe(t, "--data", filepath.Join(dir, "service"))
	table, weights := service.at.GRPC+"/agents", filepath.Join(dir, "weights")
	trainer, _ := background(t, "train", "-c", filepath.Join(root, "configs", "calculator.yaml"), "--set",
		"budget.updates=3", "--buffer", table, "--publish", weights, "--out", filepath.Join(dir, "run"))
	first := filepath.Join(weights, "v0")
	for _, err := os.Stat(first); err != nil; _, err = os.Stat(first) { // the warm-up takes minutes on busy machines
		if t.Context().Err() != nil || trainer.ProcessState != nil {
			t.Fatal("the trainer published nothing")
		}
		time.Sleep(100 * time.Millisecond)
	}
	_, out := background(t, "engine", "serve", "--model", first, "--listen", "127.0.0.1:0", "--chat-template",
		filepath.Join(root, "examples", "agent", "calculator.jinja"))
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
	_, where := startCapture(t, "--engine", "vllm+"+at, "--table", table, "--listen", "127.0.0.1:0", "--group", "8",
		"--latest",
		"--weights", weights)
	for i, more := range [][]string{{"--problems", "30"}, {"--problems", "2", "--stream"}} {
		agent := exec.Command(python, append([]string{filepath.Join(root, "examples", "agent", "agent.py"), "--capture",
			"http://" + where, "--seed", fmt.Sprint(i)}, more...)...)
		said, err := agent.CombinedOutput()
		t.Logf("%s", said)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && strings.Contains(string(said), "mean reward 0.000") {
			t.Error("no session of the agent was right")
		}
	}
	if code := exitOf(t, trainer.Wait()); code != 0 {
		t.Errorf("the trainer's exit code is %d", code)
	}
	c := service.dial(service.at.GRPC, client.Options{})
	turns := 0
	if err := c.Table("agents").Scan(t.Context(), 256, func(draws []rollout.Draw) error {
		for _, d := range draws {
			turns = max(turns, len(d.Rollout.Turns))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if turns < 2 {
		t.Errorf("the longest rollout has %d turns: want a call of the tool and an answer", turns)
	}
}
