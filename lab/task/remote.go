package task

import "io"

// Remote is a Verifier whose verdicts come from outside the process, so that they may be slow, and may fail. After a
// failure every verdict is zero. Whoever asks for verdicts checks Err before using them.
type Remote interface {
	Verifier
	// Open announces questions, until Close. Calls nest. The first forgets an earlier failure, and the last Close frees
	// what gave the verdicts.
	Open()
	io.Closer
	// Err returns the failure, nil if there was none.
	Err() error
}

// Open opens v if it is a Remote, and returns the function that closes it.
func Open(v any) (closeRemote func() error) {
	if r, ok := v.(Remote); ok {
		r.Open()
		return r.Close
	}
	return func() error { return nil }
}

// Err returns the failure of v if it is a Remote.
func Err(v any) error {
	if r, ok := v.(Remote); ok {
		return r.Err()
	}
	return nil
}
