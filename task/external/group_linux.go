package external

import (
	"os"
	"os/exec"
	"syscall"
)

// isolate gives a child a process group of its own, which Ctrl-C in a terminal does not reach: the run still needs its
// answers to come to the end of the update. The kernel kills the child with the thread that starts it.
func isolate(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
