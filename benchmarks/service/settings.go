package service

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Off, as a setting, leaves a peer out; Auto takes it if it is there.
const (
	Off  = "off"
	Auto = "auto"
)

// Defaults of Settings.
const (
	DefaultBatch   = 64
	DefaultRounds  = 5
	DefaultSeconds = 2.0
)

// Settings say what is measured. Program must be given; the zero value of all else is a default.
type Settings struct {
	Program string   // whose `serve` is measured, and whose `bench floor` is its floor: this binary's path
	Tokens  []int    // lengths of rollouts, prompt included; nil: 256, 4096, 32768
	Batch   int      // rollouts in a batch or insertion; 0: DefaultBatch
	Seconds float64  // for each contender, over all rounds; 0: DefaultSeconds
	Rounds  int      // 0: DefaultRounds
	Over    []string // transports: tcp, unix; nil: both
	Durable bool     // measure a durable table too, and insertions by many clients beside the disk

	Redis  string // auto, off, or the path of a redis-server, or host:port of one that runs; "": auto
	Python string // auto, off, or an interpreter that can import reprise; "": auto
	Dir    string // for the journals and the disk's own file; "": a temporary folder

	ServerProfile string // file for a processor profile of the server that is not durable; "": none
}

// SettingError is a setting out of its range.
type SettingError struct{ Key, Value, Allowed string }

// Error reads: --batch 0: want …
func (e *SettingError) Error() string {
	return fmt.Sprintf("--%s %s: want %s", e.Key, e.Value, e.Allowed)
}

// Validate reports every setting out of its range.
func (s Settings) Validate() error {
	s = s.withDefaults()
	var errs []error
	refuse := func(ok bool, key string, value any, allowed string) {
		if !ok {
			errs = append(errs, &SettingError{key, fmt.Sprint(value), allowed})
		}
	}
	refuse(s.Program != "", "program", `""`, "the path of a reprise binary")
	for _, n := range s.Tokens {
		refuse(n >= 8 && n <= 1<<20, "tokens", n, "lengths from 8 to 1048576")
	}
	refuse(s.Batch >= 1 && s.Batch <= 1<<16, "batch", s.Batch, "1 to 65536 rollouts")
	refuse(s.Seconds > 0 && s.Seconds <= 3600, "seconds", s.Seconds, "more than 0, at most 3600")
	refuse(s.Rounds >= 1 && s.Rounds <= 1000, "rounds", s.Rounds, "1 to 1000")
	for _, o := range s.Over {
		refuse(slices.Contains([]string{TCP, Unix}, o), "over", o, "tcp or unix")
	}
	return errors.Join(errs...)
}

func (s Settings) withDefaults() Settings {
	orElse(&s.Batch, DefaultBatch)
	orElse(&s.Seconds, DefaultSeconds)
	orElse(&s.Rounds, DefaultRounds)
	orElse(&s.Redis, Auto)
	orElse(&s.Python, Auto)
	if len(s.Tokens) == 0 {
		s.Tokens = []int{256, 4096, 32768}
	}
	if len(s.Over) == 0 {
		s.Over = []string{TCP, Unix}
	}
	return s
}

// turn is how long a contender goes on in one round.
func (s Settings) turn() time.Duration {
	return time.Duration(s.Seconds / float64(s.Rounds) * float64(time.Second))
}

func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
