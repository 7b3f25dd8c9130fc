//go:build unix

package external_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task/external"
)

func init() {
	detach = func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
}

func TestADescendantInItsOwnSessionDoesNotHoldUpTheEnd(t *testing.T) {
	for how, want := range map[string]string{"daemon": "<nil>", "daemon and die": "ended (exit status 3)"} {
		t.Run(how, func(t *testing.T) {
			tests.Long(t) // the grace period of two seconds
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pid")
			v, err := external.NewVerifier(settings(how, path))
			if err != nil {
				t.Fatal(err)
			}
			v.Open()
			ask(v, "5", "5")
			failure := "<nil>"
			if err := v.Err(); err != nil {
				failure = err.Error()
			}
			closed := make(chan error)
			go func() { closed <- v.Close() }()
			select {
			case <-closed:
			case <-time.After(time.Minute): // it would read for an hour
				t.Errorf("%s: the verifier is not closed while the descendant has its output", how)
			}
			if !strings.Contains(failure, want) {
				t.Errorf("%s: %s, want %s", how, failure, want)
			}
			if err := syscall.Kill(readPid(t, path), syscall.SIGKILL); err != nil { // it must be alive until here
				t.Errorf("%s: %v", how, err)
			}
		})
	}
}
