// Package faults turns panics into errors, so that a defect ends one piece of work and not the process.
package faults

import (
	"fmt"
	"runtime/debug"
)

// Error is a panic.
type Error struct {
	Part  string // of the program
	Found any    // what the panic was called with
	Stack []byte // of the goroutine that panicked, for the log
}

// Error says what happened, without the stack.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: a fault in the program: %v: its log has the stack; report it", e.Part, e.Found)
}

// Recovered runs a part of the program, and returns its error, or its panic as an [Error]. A panic of a goroutine that
// the part starts still ends the process.
func Recovered(part string, run func() error) (err error) {
	defer func() {
		if found := recover(); found != nil {
			err = &Error{part, found, debug.Stack()}
		}
	}()
	return run()
}
