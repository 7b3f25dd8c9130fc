//go:build !unix

package external

import (
	"os"
	"os/exec"
)

// isolate does nothing: there are no process groups.
func isolate(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() }
