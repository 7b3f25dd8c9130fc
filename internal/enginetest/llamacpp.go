// Package enginetest starts real inference servers for tests.
package enginetest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// StartLlamaCPP starts llama.cpp's server with SmolLM2-135M and returns its address. It skips the test unless `make
// test-engines` has installed them and names the interpreter in REPRISE_ENGINES.
func StartLlamaCPP(t *testing.T) string {
	t.Helper()
	python := os.Getenv("REPRISE_ENGINES")
	if python == "" {
		t.Skip("llama.cpp is not installed: make test-engines installs it")
	}
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command(python, filepath.Join(filepath.Dir(here), "..", "..", "engine", "testdata", "llamacpp.py"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			return lines.Text()
		}
	}
	t.Fatal("llama.cpp ended")
	return ""
}
