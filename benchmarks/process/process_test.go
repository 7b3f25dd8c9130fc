package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAProcessThatEndsAtOnceIsReportedWithItsOutput(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no such port >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	p, err := Start("the server", &log, program)
	if err != nil {
		t.Fatal(err)
	}
	err = p.AwaitReady(t.Context(), func(context.Context) error { return errors.New("refused") })
	if err == nil || !strings.Contains(err.Error(), "the server ended before it answered") ||
		!strings.Contains(err.Error(), "no such port") {
		t.Error(err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") || p.Alive() ||
		log.String() != "no such port\n" {
		t.Errorf("stop: %v, alive %v, log %q", err, p.Alive(), log.String())
	}
}

func TestATailKeepsTheEnd(t *testing.T) {
	var out Tail
	for range 1000 {
		out.Write([]byte(strings.Repeat("a", 99) + "\n"))
	}
	out.Write([]byte("the end"))
	if text := out.String(); len(text) > tailBytes || !strings.HasSuffix(text, "the end") {
		t.Errorf("%d bytes, ending in %q", len(text), text[max(len(text)-10, 0):])
	}
}
