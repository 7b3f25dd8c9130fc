package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startTimeout bounds how long a child may take until it answers, stopTimeout until it has ended after it was told to.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// child is a process that was started for the measurement, and is ended by its id.
type child struct {
	name    string
	command *exec.Cmd
	said    *tail         // the last of what it printed
	ended   chan struct{} // closed when it has ended
	err     error         // with which, once ended is closed
}

// start starts a program.
func start(name, program string, arguments ...string) (*child, error) {
	c := &child{name: name, command: exec.Command(program, arguments...), said: &tail{}, ended: make(chan struct{})}
	c.command.Stdout, c.command.Stderr = c.said, c.said
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.command.Wait()
		close(c.ended)
	}()
	return c, nil
}

// answers waits until try succeeds, which it is called for again and again while the child lives.
func (c *child) answers(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-c.ended:
			return fmt.Errorf("%s ended before it answered (%v): %s", c.name, c.err, c.said)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", c.name, err, c.said)
		}
	}
}

// stop asks the process to end and waits for it; one that does not is killed, which is an error.
func (c *child) stop() error {
	err := c.command.Process.Signal(syscall.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("%s: %w: %s", c.name, c.err, c.said)
		}
		return nil
	case <-time.After(stopTimeout):
		c.command.Process.Kill()
		<-c.ended
		return fmt.Errorf("%s did not end within %s and was killed: %s", c.name, stopTimeout, c.said)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 8 << 10

var _ io.Writer = (*tail)(nil)

// Write keeps the last of p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
