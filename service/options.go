package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/wire"
)

// Defaults of Options.
const (
	DefaultMaxMessageBytes  = 256 << 20
	DefaultMaxInFlightBytes = 1 << 30
	DefaultMaxOutgoingBytes = 1 << 30
	DefaultSendTimeout      = time.Minute
	DefaultMaxStreams       = 1024
	DefaultMaxTables        = 1000
)

// Options configure a service. The zero value is a service without tables that keeps nothing.
type Options struct {
	Data     string        `yaml:"data" json:"data"`         // folder of journals and checkpoints; "": nothing is durable
	Sync     journal.Sync  `yaml:"sync" json:"sync"`         // of the journals; "": journal.Always
	Interval time.Duration `yaml:"interval" json:"interval"` // of journal.Interval; 0: the journal's default

	MaxMessageBytes  int64         `yaml:"max_message_bytes" json:"max_message_bytes"`     // of one message, and of what it comes to decompressed; 0: DefaultMaxMessageBytes
	MaxInFlightBytes int64         `yaml:"max_in_flight_bytes" json:"max_in_flight_bytes"` // of insertions being handled at once; further ones wait; 0: DefaultMaxInFlightBytes
	MaxOutgoingBytes int64         `yaml:"max_outgoing_bytes" json:"max_outgoing_bytes"`   // of batches packed and not written out yet; further ones wait; 0: DefaultMaxOutgoingBytes
	SendTimeout      time.Duration `yaml:"send_timeout" json:"send_timeout"`               // after which a reader that takes nothing is disconnected; 0: DefaultSendTimeout
	MaxStreams       uint32        `yaml:"max_streams" json:"max_streams"`                 // calls at once on one connection; 0: DefaultMaxStreams

	MaxTables int `yaml:"max_tables" json:"max_tables"` // that clients may make; 0: DefaultMaxTables

	Tables []wire.Table `yaml:"tables" json:"tables"` // made at the start where they are not there yet

	Access Access                           `yaml:"-" json:"-"` // nil: everybody may do everything
	Caller func(ctx context.Context) string `yaml:"-" json:"-"` // names who makes a call, for those who look; nil: nobody has a name
	Logger *slog.Logger                     `yaml:"-" json:"-"` // nil: slog.Default()
	Clock  func() time.Time                 `yaml:"-" json:"-"` // of leases and grants; nil: time.Now
}

// Access says who may do what. It may be called concurrently.
type Access interface {
	// Authorize returns an error with code wire.Unauthenticated or wire.Denied if whoever makes the call of a context may not read a
	// table, or write to it. Reading is sampling with its settlement, export, listing and statistics; writing is everything else.
	Authorize(ctx context.Context, table string, write bool) error
}

func (o Options) withDefaults() Options {
	orElse(&o.Sync, journal.Always)
	orElse(&o.MaxMessageBytes, DefaultMaxMessageBytes)
	orElse(&o.MaxInFlightBytes, DefaultMaxInFlightBytes)
	orElse(&o.MaxOutgoingBytes, DefaultMaxOutgoingBytes)
	orElse(&o.SendTimeout, DefaultSendTimeout)
	orElse(&o.MaxStreams, DefaultMaxStreams)
	orElse(&o.MaxTables, DefaultMaxTables)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

func orElse[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate returns every problem at once, joined; nil if there is none.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := func(ok bool, key string, value any, want string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s: %v: want %s", key, value, fmt.Sprintf(want, args...)))
		}
	}
	check(o.Sync == journal.Always || o.Sync == journal.Interval || o.Sync == journal.Off, "sync", o.Sync, "always, interval or off")
	check(o.Interval >= 0, "interval", o.Interval, "0s (the default) or more")
	check(o.MaxMessageBytes >= 1<<10 && o.MaxMessageBytes <= math.MaxInt32, "max_message_bytes", o.MaxMessageBytes, "1024 to %d", math.MaxInt32)
	check(o.MaxInFlightBytes >= o.MaxMessageBytes, "max_in_flight_bytes", o.MaxInFlightBytes, "max_message_bytes (%d) or more", o.MaxMessageBytes)
	check(o.MaxOutgoingBytes >= 1<<20, "max_outgoing_bytes", o.MaxOutgoingBytes, "%d or more", 1<<20)
	check(o.MaxTables > 0, "max_tables", o.MaxTables, "1 or more")
	check(o.SendTimeout > 0, "send_timeout", o.SendTimeout, "more than 0s")
	names := make(map[string]bool)
	for i, d := range o.Tables {
		check(!names[d.Name], fmt.Sprintf("tables[%d].name", i), d.Name, "a name that no other table has")
		names[d.Name] = true
		if _, err := define(d); err != nil {
			problems = append(problems, fmt.Errorf("tables[%d]: %w", i, err))
		}
	}
	return errors.Join(problems...)
}
