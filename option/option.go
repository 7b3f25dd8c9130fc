// Package option says what is wrong with a setting.
//
// Every package that takes options reports each problem as an [*Error] that names the key, the value and what is allowed.
// [Problems] collects them, so that a user sees all of them at once, and [Under] puts a section before their keys when one
// package's options are part of another's configuration. What it leaves to others: defaults, decoding, and the options.
package option

import (
	"errors"
	"fmt"
)

// Error is one setting out of its range.
type Error struct {
	Key   string // as a configuration spells it, sections included: replay.max_staleness
	Value any    // as given
	Want  string // what is allowed: "0 (not bounded) or more"
}

// Error reads: replay.max_staleness: -1: want 0 (not bounded) or more
func (e *Error) Error() string { return fmt.Sprintf("%s: %v: want %s", e.Key, e.Value, e.Want) }

// Problems collects what is wrong with a set of options. The zero value has none.
type Problems []error

// Check adds an [*Error] unless ok.
func (p *Problems) Check(ok bool, key string, value any, want string, args ...any) {
	if !ok {
		*p = append(*p, &Error{Key: key, Value: value, Want: fmt.Sprintf(want, args...)})
	}
}

// Add adds errors, joined ones one by one, and leaves nil out.
func (p *Problems) Add(errs ...error) {
	for _, err := range errs {
		*p = append(*p, Each(err)...)
	}
}

// Err returns the problems joined, nil if there are none.
func (p Problems) Err() error { return errors.Join(p...) }

// Each returns the errors that [errors.Join] joined, err alone if it is not joined, none if it is nil.
func Each(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Each(e)...)
		}
		return all
	}
	return []error{err}
}

// Under puts "section." before the key of each [*Error] in err. Other errors are wrapped as they are.
func Under(section string, err error) error {
	var all []error
	for _, e := range Each(err) {
		var problem *Error
		if errors.As(e, &problem) {
			e = &Error{Key: section + "." + problem.Key, Value: problem.Value, Want: problem.Want}
		} else {
			e = fmt.Errorf("%s: %w", section, e)
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}
