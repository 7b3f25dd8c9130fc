//go:build unix

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests run themselves as the program: it prints its process id, and ends as its first argument says.
func TestMain(m *testing.M) {
	if how := os.Getenv("REPRISE_TEST_CHILD"); how != "" {
		fmt.Println(os.Getpid())
		switch how {
		case "finish":
			os.Exit(0)
		case "fail":
			os.Exit(3)
		}
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

func child(how string) *Child {
	return &Child{Name: how, Command: func() (*exec.Cmd, error) {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "REPRISE_TEST_CHILD="+how)
		return c, nil
	}}
}

func TestAProgramThatEndsIsStartedAgain(t *testing.T) {
	c := child("wait")
	ends := make(chan error, 10)
	c.Ended = func(err error) { ends <- err }
	c.Start()
	for i := range 3 {
		pid := c.State().PID
		for ; pid == 0; pid = c.State().PID {
			time.Sleep(time.Millisecond)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-ends; err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("kill %d: %v", i, err)
		}
	}
	c.Stop(time.Minute)
	if s := c.State(); s.Starts < 3 || s.PID != 0 || s.Finished || s.Err == nil || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAProgramThatHasDoneItsWorkIsNot(t *testing.T) {
	c := child("finish")
	c.Done = func(s *os.ProcessState) bool { return s.Success() }
	var said strings.Builder
	c.Output = func(r io.Reader) error { _, err := io.Copy(&said, r); return err }
	c.Start()
	<-c.Finished()
	if s := c.State(); s.Starts != 1 || !s.Finished || s.Err != nil || strings.TrimSpace(said.String()) == "" {
		t.Errorf("%+v; it said %q", s, said.String())
	}
	c.Stop(time.Second)
}

func TestAProgramThatCannotStartIsTriedAgain(t *testing.T) {
	attempts := make(chan struct{}, 10)
	c := &Child{Name: "nothing", Command: func() (*exec.Cmd, error) {
		attempts <- struct{}{}
		return nil, errors.New("no weights yet")
	}}
	c.Start()
	for range 2 {
		<-attempts
	}
	if s := c.State(); s.Starts != 0 || s.Err == nil {
		t.Errorf("%+v", s)
	}
	c.Stop(time.Second)
	f := child("fail")
	f.Start()
	for f.State().Starts < 2 {
		time.Sleep(time.Millisecond)
	}
	f.Stop(time.Minute)
	if s := f.State(); !strings.Contains(fmt.Sprint(s.Err), "3") || s.Failures < 1 {
		t.Errorf("%+v", s)
	}
}
