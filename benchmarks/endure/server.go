package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/reprise-rl/reprise/client"
)

// readyTimeout bounds how long a service may take until it answers, stopTimeout until it has ended after SIGTERM.
const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

// server is `reprise serve` in a process of its own, always at the same addresses, so that clients find it again.
type server struct {
	program string
	data    string   // folder of its journals
	listen  string   // host:port of Flight
	web     string   // host:port of HTTP
	more    []string // arguments
	log     *os.File // of all its lives

	command *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	err     error         // with which, once ended is closed
}

// newServer finds free ports, which another program could take before the service does; it then says so.
func newServer(program, dir string, more ...string) (*server, error) {
	s := &server{program: program, data: filepath.Join(dir, "data"), more: more}
	var err error
	if s.listen, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.web, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.log, err = os.OpenFile(filepath.Join(dir, "serve.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644); err != nil {
		return nil, err
	}
	return s, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// address is the service's as clients write it.
func (s *server) address() string { return "grpc://" + s.listen }

// start begins a life and waits until the service answers; it returns how long that took.
func (s *server) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	arguments := append([]string{"serve", "--listen", s.listen, "--http", s.web, "--data", s.data, "--sync", "always"}, s.more...)
	s.command = exec.Command(s.program, arguments...)
	s.command.Stdout, s.command.Stderr = s.log, s.log
	if err := s.command.Start(); err != nil {
		return 0, fmt.Errorf("start the service: %w", err)
	}
	s.ended = make(chan struct{})
	go func(command *exec.Cmd, ended chan struct{}) {
		s.err = command.Wait()
		close(ended)
	}(s.command, s.ended)
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.healthy(ctx)
		if err == nil {
			return time.Since(began), nil
		}
		select {
		case <-again.C:
		case <-s.ended:
			return 0, fmt.Errorf("the service ended before it answered (%v): %s", s.err, s.said())
		case <-ctx.Done():
			s.kill()
			return 0, fmt.Errorf("the service does not answer: %w: %s", err, s.said())
		}
	}
}

// healthy asks once whether the service answers and is well.
func (s *server) healthy(ctx context.Context) error {
	_, err := fetch(ctx, "http://"+s.web+"/healthz")
	return err
}

// alive tells whether the process lives.
func (s *server) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// kill ends the process as a crash does.
func (s *server) kill() {
	s.command.Process.Kill()
	<-s.ended
}

// stop asks the process to end and waits for it: whether it did so well is the error.
func (s *server) stop() error {
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
		if s.err != nil {
			return fmt.Errorf("the service ended with %w: %s", s.err, s.said())
		}
		return nil
	case <-time.After(stopTimeout):
		s.kill()
		return fmt.Errorf("the service did not end within %s of SIGTERM and was killed: %s", stopTimeout, s.said())
	}
}

// close ends what is left of it.
func (s *server) close() {
	if s.command != nil && s.command.Process != nil && s.alive() {
		s.kill()
	}
	s.log.Close()
}

// said is the end of what the process printed.
func (s *server) said() string {
	const tail = 4 << 10
	size, err := s.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(size, tail))
	if _, err := s.log.ReadAt(text, max(0, size-tail)); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// dial connects to the service itself, past the proxy.
func (s *server) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, s.address(), client.Options{})
}

// fetch returns what an HTTP address answers.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // no connection is left that would count as one of the service's
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.300s", url, answer.Status, text)
	}
	return text, nil
}

// workspace makes a folder for a service's data. Leave removes it, unless it is to be kept.
func workspace(below, name string, keep bool, out io.Writer) (dir string, leave func(), err error) {
	if dir, err = os.MkdirTemp(below, name); err != nil {
		return "", nil, err
	}
	if keep {
		fmt.Fprintf(out, "everything is kept in %s\n", dir)
		return dir, func() {}, nil
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}
