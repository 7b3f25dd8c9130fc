//go:build !unix

package journal

import "os"

// lockShared does nothing: there are no shared locks. A writer still finds bbolt's lock.
func lockShared(*os.File) error { return nil }
