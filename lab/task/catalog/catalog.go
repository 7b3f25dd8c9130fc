// Package catalog finds tasks by name, for callers that have a configuration rather than a program.
//
// [Settings] returns the settings of a task, ready to be decoded into. The settings validate themselves and fill in
// their defaults, and [New] makes the task. [Verifier] returns the verifier of a task, which needs no settings.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/arithmetic"
	"github.com/reprise-rl/reprise/lab/task/calculator"
	"github.com/reprise-rl/reprise/lab/task/cliffwalking"
	"github.com/reprise-rl/reprise/lab/task/countdown"
	"github.com/reprise-rl/reprise/lab/task/external"
	"github.com/reprise-rl/reprise/lab/task/frozenlake"
	"github.com/reprise-rl/reprise/lab/task/geometry"
	"github.com/reprise-rl/reprise/lab/task/gsm8k"
	"github.com/reprise-rl/reprise/lab/task/maths"
	"github.com/reprise-rl/reprise/lab/task/search"
	"github.com/reprise-rl/reprise/lab/task/sokoban"
	"github.com/reprise-rl/reprise/lab/task/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Configuration is a pointer to the settings of one task, such as *arithmetic.Settings.
type Configuration interface {
	// Validate reports every problem, each an *option.Error.
	Validate() error
	// Resolve fills in the defaults.
	Resolve()
}

// entry is a task of the catalog.
type entry struct {
	name     string
	settings func() Configuration
	make     func(c Configuration, seed uint64) (task.Task, error)
	verifier task.Verifier // nil: there is none without settings, or it is an environment
}

func entries() []entry {
	return []entry{
		entryOf("arithmetic", arithmetic.New, arithmetic.Verifier{}),
		entryOf("calculator", calculator.New, nil),
		entryOf("cliffwalking", cliffwalking.New, nil),
		entryOf("countdown", countdown.New, countdown.Verifier{}),
		entryOf(external.Name, external.New, nil), // its verifier takes settings
		entryOf("frozenlake", frozenlake.New, nil),
		entryOf("geometry", geometry.New, geometry.Verifier{}),
		entryOf("gsm8k", gsm8k.New, gsm8k.Verifier{}),
		entryOf("math", maths.New, maths.Verifier{}),
		entryOf("search", search.New, nil),
		entryOf("sokoban", sokoban.New, nil),
		entryOf("words", words.New, words.Verifier{}),
	}
}

// entryOf makes an entry from the constructor of a task, whose *S must be a Configuration.
func entryOf[S any, T task.Task](name string, create func(S, uint64) (T, error), v task.Verifier) entry {
	return entry{
		name:     name,
		verifier: v,
		settings: func() Configuration { return any(new(S)).(Configuration) },
		make: func(c Configuration, seed uint64) (task.Task, error) {
			settings, ok := any(c).(*S)
			if !ok {
				return nil, fmt.Errorf("task %s: settings are %T, want %T", name, c, settings)
			}
			t, err := create(*settings, seed)
			if err != nil {
				return nil, err // rather than an interface around a nil pointer
			}
			return t, nil
		},
	}
}

// Names returns the names of all tasks.
func Names() []string { return names(entries()) }

// Settings returns the zero settings of the named task.
func Settings(name string) (Configuration, error) {
	e, err := find(entries(), name)
	if err != nil {
		return nil, err
	}
	return e.settings(), nil
}

// New makes the named task with settings from Settings; the seed orders its training prompts. It may read files.
func New(name string, c Configuration, seed uint64) (task.Task, error) {
	e, err := find(entries(), name)
	if err != nil {
		return nil, err
	}
	return e.make(c, seed)
}

// Verifier returns the verifier of the named task, if it needs no settings. Environments have none.
func Verifier(name string) (task.Verifier, error) {
	e, err := find(slices.DeleteFunc(entries(), func(e entry) bool { return e.verifier == nil }), name)
	return e.verifier, err
}

func find(list []entry, name string) (entry, error) {
	if i := slices.IndexFunc(list, func(e entry) bool { return e.name == name }); i >= 0 {
		return list[i], nil
	}
	return entry{}, &option.Error{Key: "name", Value: name, Want: "one of " + strings.Join(names(list), ", ")}
}

func names(list []entry) []string {
	var all []string
	for _, e := range list {
		all = append(all, e.name)
	}
	return all
}
