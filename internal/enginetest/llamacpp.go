// Package enginetest starts real inference servers for tests.
package enginetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A LlamaCPP is a server of llama.cpp with SmolLM2-135M.
type LlamaCPP struct {
	Address      string
	cmd          *exec.Cmd
	out          *bufio.Scanner
	scripts      string // the folder of the scripts that start it and convert weights for it
	python       string
	file, tokens string // GGUF files: that of the last Reload, and that of the package
}

// StartLlamaCPP starts a server, which ends with the test. It skips the test unless `make test-engines` has installed
// llama.cpp and names the interpreter in REPRISE_ENGINES.
func StartLlamaCPP(t *testing.T) *LlamaCPP {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	l := &LlamaCPP{python: os.Getenv("REPRISE_ENGINES"), file: filepath.Join(t.TempDir(), "model.gguf"),
		scripts: filepath.Join(filepath.Dir(here), "..", "..", "engine", "testdata")}
	if l.python == "" {
		t.Skip("llama.cpp is not installed: make test-engines installs it")
	}
	l.cmd = exec.Command(l.python, filepath.Join(l.scripts, "llamacpp.py"), l.file)
	l.cmd.Stderr = os.Stderr
	in, err := l.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := l.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	l.out = bufio.NewScanner(out)
	if err := l.listening(); err != nil {
		t.Fatal(err)
	}
	return l
}

// listening waits until the server says its address.
func (l *LlamaCPP) listening() error {
	for l.out.Scan() {
		if strings.HasPrefix(l.out.Text(), "http://") {
			l.Address, l.tokens, _ = strings.Cut(l.out.Text(), " ")
			return nil
		}
	}
	return errors.New("llama.cpp ended")
}

// Reload starts the server again with the weights of a Hugging Face folder, as a user's --reload command would.
func (l *LlamaCPP) Reload(ctx context.Context, folder string) error {
	said, err := exec.CommandContext(ctx, l.python, filepath.Join(l.scripts, "to_gguf.py"), folder, l.tokens,
		l.file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("convert %s: %w: %s", folder, err, said)
	}
	if err := l.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	return l.listening()
}
