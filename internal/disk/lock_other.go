//go:build !unix

package disk

import "os"

// flock does nothing: there is no flock.
func flock(*os.File) (held bool, err error) { return true, nil }
