package access

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// recheck is how often files are looked at for changes, at most.
const recheck = time.Second

// reloaded is a value made from files, made anew when they have changed. Nothing runs in between: whoever asks for the
// value looks at the files, once per recheck. It is safe for concurrent use.
type reloaded[T any] struct {
	name string                                                   // of what is loaded, for the log
	load func(read func(path string) ([]byte, error)) (*T, error) // reads every file by the function that it is given
	now  func() time.Time
	log  *slog.Logger

	value   atomic.Pointer[T]
	checked atomic.Int64 // when the files were last looked at, unix nanoseconds

	mu   sync.Mutex        // held while files are read
	seen map[string]string // what each file looked like before it was read
}

// start loads the value for the first time.
func (r *reloaded[T]) start() error {
	if r.now == nil {
		r.now = time.Now
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.checked.Store(r.now().UnixNano())
	return r.reload()
}

// get returns the value as the files had it at most recheck ago.
func (r *reloaded[T]) get() *T {
	last, now := r.checked.Load(), r.now().UnixNano()
	if now-last >= int64(recheck) && r.checked.CompareAndSwap(last, now) && r.changed() {
		if err := r.reload(); err != nil {
			r.log.Error("changed files cannot be used: going on with what they held before", "what", r.name, "error", err)
		} else {
			r.log.Info("read changed files", "what", r.name)
		}
	}
	return r.value.Load()
}

func (r *reloaded[T]) changed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, before := range r.seen {
		if looks(path) != before {
			return true
		}
	}
	return false
}

// reload reads the files now; on an error the value stays what it was.
func (r *reloaded[T]) reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = make(map[string]string)
	value, err := r.load(func(path string) ([]byte, error) {
		r.seen[path] = looks(path)
		return os.ReadFile(path)
	})
	if err != nil {
		return err
	}
	r.value.Store(value)
	return nil
}

// looks describes a file without reading it: time, size and inode.
func looks(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "none"
	}
	return fmt.Sprintf("%d %d %d", info.ModTime().UnixNano(), info.Size(), inode(info))
}
