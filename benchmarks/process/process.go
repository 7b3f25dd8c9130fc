// Package process runs the programs that a benchmark or a stress test needs as child processes: it starts one, waits
// until it answers, keeps the end of its output for error messages, and stops or kills it. [Reprise] finds the program
// under test.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bounds on how long a process may take until it answers, and to end after SIGTERM.
const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

// Process is a child process. Its methods may be called concurrently.
type Process struct {
	name    string
	command *exec.Cmd
	output  *Tail
	ended   chan struct{} // closed when the process has ended
	err     error         // how it ended, once ended is closed
}

// Start starts a program. The name stands in errors. Log, if not nil, gets everything that the program prints.
func Start(name string, log io.Writer, program string, arguments ...string) (*Process, error) {
	p := &Process{name: name, command: exec.Command(program, arguments...), output: &Tail{}, ended: make(chan struct{})}
	out := io.Writer(p.output)
	if log != nil {
		out = io.MultiWriter(p.output, log)
	}
	p.command.Stdout, p.command.Stderr = out, out
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// AwaitReady calls ready again and again until it succeeds, the process ends, or the context does.
func (p *Process) AwaitReady(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-p.ended:
			return fmt.Errorf("%s ended before it answered (%v): %s", p.name, p.err, p.output)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", p.name, err, p.output)
		}
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Output is the end of what the process printed.
func (p *Process) Output() string { return p.output.String() }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Alive reports whether the process runs.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Stop asks the process to end and waits for it. A process that ends with an error, or must be killed, is an error.
func (p *Process) Stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return p.Err()
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed: %s", p.name, stopTimeout, p.output)
	}
}

// Err says how a process that has ended did so, nil for exit code 0.
func (p *Process) Err() error {
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, p.err, p.output)
	}
	return nil
}

// Kill ends the process as a crash does, and waits for it.
func (p *Process) Kill() {
	p.command.Process.Kill()
	<-p.ended
}

// tailBytes is how much of a program's output is kept.
const tailBytes = 8 << 10

// Tail keeps the end of what is written to it.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end of p.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// FreeAddress returns a free port of the loopback interface, as host:port. Another program may take it before the one
// that it is meant for.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Reprise returns the program under test: the one that REPRISE names, as `make test` does, or one built from this
// module. The test cache sees a change of a program within the module.
func Reprise(t testing.TB) string {
	t.Helper()
	if program := os.Getenv("REPRISE"); program != "" {
		if _, err := os.Stat(program); err != nil {
			t.Fatal(err)
		}
		return program
	}
	program := filepath.Join(t.TempDir(), "reprise")
	if out, err := exec.Command("go", "build", "-o", program,
		"github.com/reprise-rl/reprise/cmd/reprise").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return program
}
