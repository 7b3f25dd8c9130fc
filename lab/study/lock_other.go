//go:build !unix

package study

// lock does nothing where files cannot be locked. There, only one study at a time may use a folder.
type lock struct{}

func takeLock(string) (*lock, error) { return &lock{}, nil }

func (l *lock) close() error { return nil }
