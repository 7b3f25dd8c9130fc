//go:build !unix

package process

import (
	"os"
	"os/exec"
)

// Isolate does nothing: there are no process groups.
func Isolate(*exec.Cmd) {}

// KillGroup kills a child and what it has started.
func KillGroup(p *os.Process) { _ = p.Kill() }
