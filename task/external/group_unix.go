//go:build unix && !linux

package external

import (
	"os"
	"os/exec"
	"syscall"
)

// isolate gives a child a process group of its own; see group_linux.go. A child that ignores the end of its input
// survives a killed run here.
func isolate(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
