//go:build !unix

package study

// lock is nothing where files have no such locks: there, one study at a time may use a folder.
type lock struct{}

func takeLock(string) (*lock, error) { return &lock{}, nil }

func (l *lock) close() error { return nil }
