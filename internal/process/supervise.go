// Package process starts other programs and keeps them running.
package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// Child is a program that is started again whenever it ends, until [Child.Stop]. It is used from one goroutine, but for
// State.
type Child struct {
	Name string
	// Command returns the command of the next start. Standard output and error are the Child's.
	Command func() (*exec.Cmd, error)
	Log     io.Writer                   // gets both; nil: nothing does
	Output  func(io.Reader) error       // reads standard output instead of Log, to its end; nil: Log gets it
	Done    func(*os.ProcessState) bool // reports whether the program has done its work; nil: it never has
	Ended   func(err error)             // is called at an end that was not asked for; may be nil

	stop   context.CancelFunc
	ended  chan struct{}
	tried  func()
	mu     sync.Mutex
	state  State
	signal chan os.Signal
}

// State is what is known of a child.
type State struct {
	PID      int // 0: it is not running
	Starts   int
	Finished bool  // Done said so
	Failures int   // ends in a row, by a status of the program's own, soon after the start
	Err      error // of the last end that was not asked for
}

// Pauses before a program is started again grow from the first to the longest, until it has run for a while.
const (
	firstPause   = 200 * time.Millisecond
	maxPause     = 5 * time.Second
	healthyAfter = 10 * time.Second
)

// Start starts the program, and starts it again whenever it ends. It returns after the first attempt.
func (c *Child) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop, c.ended, c.signal = cancel, make(chan struct{}), make(chan os.Signal, 1)
	tried := make(chan struct{})
	c.tried = sync.OnceFunc(func() { close(tried) })
	defer func() { <-tried }()
	go func() {
		defer close(c.ended)
		runtime.LockOSThread() // Isolate: the kernel kills the child with this thread
		pause := firstPause
		for ctx.Err() == nil {
			began := time.Now()
			if c.run(ctx) {
				return
			}
			if time.Since(began) > healthyAfter {
				pause = firstPause
				c.update(func(s *State) { s.Failures = 0 })
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, maxPause)
		}
	}()
}

// run runs the program once and reports whether it has done its work.
func (c *Child) run(ctx context.Context) (done bool) {
	cmd, err := c.Command()
	if err != nil {
		c.end(err, false)
		return false
	}
	Isolate(cmd)
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	read := make(chan error, 1)
	if c.Output != nil {
		cmd.Stdout = nil
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			c.end(err, false)
			return false
		}
		go func() { read <- c.Output(pipe) }()
	} else {
		read <- nil
	}
	if err := cmd.Start(); err != nil {
		c.end(err, true)
		return false
	}
	c.update(func(s *State) { s.PID, s.Starts = cmd.Process.Pid, s.Starts+1 })
	c.tried()
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-c.signal:
				_ = cmd.Process.Signal(sig)
			case <-ended:
				return
			}
		}
	}()
	reading := <-read // before Wait, which closes the pipe
	err = cmd.Wait()
	close(ended)
	done = c.Done != nil && c.Done(cmd.ProcessState)
	if err == nil {
		err = reading
	}
	if err == nil && !done {
		err = fmt.Errorf("ended with status %d", cmd.ProcessState.ExitCode())
	}
	if ctx.Err() != nil || done {
		err = nil
	}
	c.end(err, cmd.ProcessState.ExitCode() > 0)
	c.update(func(s *State) { s.Finished = done })
	return done
}

// end notes an end, and the error of one that was not asked for. byItself: it was not killed.
func (c *Child) end(err error, byItself bool) {
	c.update(func(s *State) {
		s.PID = 0
		if err != nil {
			s.Err = err
			if byItself {
				s.Failures++
			}
		}
	})
	c.tried()
	if err != nil && c.Ended != nil {
		c.Ended(err)
	}
}

func (c *Child) update(change func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
}

// State returns what is known of the child. It may be called at any time.
func (c *Child) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Finished is closed when the child will not be started again.
func (c *Child) Finished() <-chan struct{} { return c.ended }

// Stop asks the program to end, kills it if it has not after a while, and returns when it has. It is not started again.
func (c *Child) Stop(grace time.Duration) {
	c.stop()
	select {
	case c.signal <- os.Interrupt:
	default:
	}
	select {
	case <-c.ended:
		return
	case <-time.After(grace):
	}
	select {
	case c.signal <- os.Kill:
	default:
	}
	<-c.ended
}
