package task

import "fmt"

// SettingError is one setting that cannot be used. The Validate methods of the tasks join all they
// find with errors.Join, so that a caller can walk them through Unwrap() []error and prefix Key
// with the place of the task in its own configuration.
type SettingError struct {
	Key   string // as in the configuration file
	Value any    // as given
	Want  string // the allowed range, and what to do
}

// Error says "key: value: want ...".
func (e *SettingError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s: %q: want %s", e.Key, s, e.Want)
	}
	return fmt.Sprintf("%s: %v: want %s", e.Key, e.Value, e.Want)
}
