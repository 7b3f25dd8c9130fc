package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Sync says what a journal promises of what it acknowledges.
type Sync string

// The promises.
const (
	// Always: what [Journal.Commit] returned for survives a crash of the process and the loss of power. Its transaction was
	// followed by fdatasync, twice: after the pages, and after the page that makes them the file's content.
	Always Sync = "always"

	// Interval: [Journal.Commit] returns at once. Every interval what changed is written in one transaction, synced as with
	// Always; a crash or the loss of power costs at most what came since the last one, and leaves the table as of that.
	Interval Sync = "interval"

	// Off: what [Journal.Commit] returned for was given to the operating system, without fdatasync. It survives the end of
	// the process, kill -9 included. The loss of power may cost any of it, and may leave a damaged file.
	Off Sync = "off"
)

// Defaults of Options.
const (
	DefaultSync        = Always
	DefaultInterval    = time.Second
	DefaultLockTimeout = 2 * time.Second
)

// Options configure a journal. Zero is the documented default in all fields but Path.
type Options struct {
	Path        string        `json:"path" yaml:"path"`                 // of the file
	Sync        Sync          `json:"sync" yaml:"sync"`                 // "": DefaultSync
	Interval    time.Duration `json:"interval" yaml:"interval"`         // between two looks at what nobody waits for: uses, priorities, versions; 0: DefaultInterval
	LockTimeout time.Duration `json:"lock_timeout" yaml:"lock_timeout"` // how long to wait for another process to let the file go; 0: DefaultLockTimeout

	Logger *slog.Logger `json:"-" yaml:"-"` // nil: nothing is logged
}

func (o Options) withDefaults() Options {
	if o.Sync == "" {
		o.Sync = DefaultSync
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns every problem at once, joined; nil if there is none.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s is %v: want %s", key, value, want))
		}
	}
	check(o.Path != "", "path", `""`, "the file of the journal")
	check(o.Sync == Always || o.Sync == Interval || o.Sync == Off, "sync", o.Sync, "always, interval or off")
	check(o.Interval > 0, "interval", o.Interval, "more than 0s")
	check(o.LockTimeout > 0, "lock_timeout", o.LockTimeout, "more than 0s")
	return errors.Join(problems...)
}
