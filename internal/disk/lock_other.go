//go:build !unix

package disk

import "os"

// flock does nothing: there is no flock.
func flock(_ *os.File, _ bool) (held bool, err error) { return true, nil }
