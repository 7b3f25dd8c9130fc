package main

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
)

// refusesOtherHosts checks that what listens at an address answers under its own name only: a page of another site may
// have had its name made to resolve to this machine.
func refusesOtherHosts(t *testing.T, at, path string) {
	t.Helper()
	for _, host := range []string{"", "evil.example"} {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 421 ") {
			t.Errorf("Host %q: %.200q, %v: want status 421", host, answer, err)
		}
	}
}

// A served model passes its own probe in the dialects that are whole, and Ctrl-C stops it.
func TestAServedModelPassesTheProbe(t *testing.T) {
	t.Parallel()
	model := modelFolder(t)
	served, out := background(t, "engine", "serve", "--model", model, "--listen", "127.0.0.1:0")
	line, err := out.ReadString('\n')
	at := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || at == "" || !strings.Contains(line, model) {
		t.Fatalf("the first line is %q: %v", line, err)
	}
	for _, c := range []struct {
		args    []string
		exit    int
		printed string
	}{
		{[]string{"vllm+" + at}, 0, "version 0\n  gives token ids"},
		{[]string{"sglang+" + at, "--top-p", "0.9", "--temperature", "0.7"}, 0, "gives token ids"},
		{[]string{"llamacpp+" + at, "--json"}, 0, `"version":0`},
		{[]string{"llamacpp+" + at, "--top-p", "0.9"}, 1, "no sampling mask at top_p 0.9: set top_p to 1"},
		{[]string{"llamacpp+" + at, "--top-p", "0.9", "--degraded"}, 0, "loses    ratios compare"},
		{[]string{"vllm+" + at, "--model", model, "--scores", "--temperature", "0.7"}, 0, "gives token ids"},
		{[]string{"vllm+" + at, "--scores"}, 1, "--scores: want --model FOLDER too"},
		{[]string{"openai+" + at}, 1, "give --model"},
		{[]string{"tgi+" + at}, 1, "dialect: tgi: want vllm, sglang, llamacpp or openai"},
		{[]string{at}, 1, "want DIALECT+http://HOST:PORT"},
	} {
		got := call(t, "", append([]string{"engine", "probe", "--prompt", "12"}, c.args...)...)
		if got.code != c.exit || !strings.Contains(got.stdout+got.stderr, c.printed) {
			t.Errorf("%v: %+v: want exit code %d and %q", c.args, got, c.exit, c.printed)
		}
	}
	refusesOtherHosts(t, strings.TrimPrefix(at, "http://"), "/health")
	if exit := interrupt(t, served); exit != 0 {
		t.Errorf("exit code %d after Ctrl-C", exit)
	}
}
