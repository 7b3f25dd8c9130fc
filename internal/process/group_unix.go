//go:build unix && !linux

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// Isolate gives a child a process group of its own; see group_linux.go. A child survives a parent that is killed,
// unless it notices the end of its input.
func Isolate(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// KillGroup kills a child and what it has started.
func KillGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
