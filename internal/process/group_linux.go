package process

import (
	"os"
	"os/exec"
	"syscall"
)

// Isolate gives a child a process group of its own, which Ctrl-C in a terminal does not reach. The kernel kills the
// child with the thread that starts it.
func Isolate(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// KillGroup kills a child and what it has started.
func KillGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
