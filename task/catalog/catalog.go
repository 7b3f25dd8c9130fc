package catalog

import (
	"strings"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/arithmetic"
	"github.com/reprise-rl/reprise/task/countdown"
	"github.com/reprise-rl/reprise/task/geometry"
	"github.com/reprise-rl/reprise/task/gsm8k"
	"github.com/reprise-rl/reprise/task/maths"
	"github.com/reprise-rl/reprise/task/sokoban"
	"github.com/reprise-rl/reprise/task/words"
)

// entry is a task of the catalog.
type entry struct {
	name     string
	settings func(name string) Configuration
	verifier task.Verifier // nil: an environment, which rewards turns instead of responses
}

func entries() []entry {
	return []entry{
		{"arithmetic", func(n string) Configuration { return &Arithmetic{Name: n} }, arithmetic.Verifier{}},
		{"cliffwalking", func(n string) Configuration { return &CliffWalking{Name: n} }, nil},
		{"countdown", func(n string) Configuration { return &Countdown{Name: n} }, countdown.Verifier{}},
		{"frozenlake", func(n string) Configuration { return &FrozenLake{Name: n} }, nil},
		{"geometry", func(n string) Configuration { return &Geometry{Name: n} }, geometry.Verifier{}},
		{"gsm8k", func(n string) Configuration { return &GSM8K{Name: n} }, gsm8k.Verifier{}},
		{"math", func(n string) Configuration { return &Math{Name: n} }, maths.Verifier{}},
		{"search", func(n string) Configuration { return &Search{Name: n} }, nil},
		{"sokoban", func(n string) Configuration { return &Sokoban{Name: n} }, nil},
		{"words", func(n string) Configuration { return &Words{Name: n} }, words.Verifier{}},
	}
}

// Names returns the names of all tasks.
func Names() []string {
	return names(func(entry) bool { return true })
}

// Verifiers returns the names of the tasks that have a verifier.
func Verifiers() []string {
	return names(func(e entry) bool { return e.verifier != nil })
}

func names(wanted func(entry) bool) []string {
	var list []string
	for _, e := range entries() {
		if wanted(e) {
			list = append(list, e.name)
		}
	}
	return list
}

// Configuration is the settings of one task: a pointer to Arithmetic, GSM8K, Words, …
type Configuration interface {
	// Validate reports everything that is wrong, each problem a *task.SettingError.
	Validate() error
	// Resolve fills in the defaults, so that what is written down is what runs.
	Resolve()
	// New makes the task; the seed orders its training prompts. It may read files.
	New(seed uint64) (task.Task, error)
}

// Settings returns the settings of the named task: its name, and otherwise zero.
func Settings(name string) (Configuration, error) {
	for _, e := range entries() {
		if e.name == name {
			return e.settings(name), nil
		}
	}
	return nil, unknown(name, Names())
}

// Verifier returns the verifier of the named task.
func Verifier(name string) (task.Verifier, error) {
	for _, e := range entries() {
		if e.name == name && e.verifier != nil {
			return e.verifier, nil
		}
	}
	return nil, unknown(name, Verifiers())
}

func unknown(name string, known []string) error {
	return &task.SettingError{Key: "name", Value: name, Want: "one of " + strings.Join(known, ", ")}
}

// Arithmetic is the configuration of the arithmetic task.
type Arithmetic struct {
	Name                string `yaml:"name" json:"name"`
	arithmetic.Settings `yaml:",inline"`
}

// New makes the task.
func (c *Arithmetic) New(seed uint64) (task.Task, error) {
	return made(arithmetic.New(c.Settings, seed))
}

// GSM8K is the configuration of the gsm8k task.
type GSM8K struct {
	Name           string `yaml:"name" json:"name"`
	gsm8k.Settings `yaml:",inline"`
}

// New reads the files and makes the task.
func (c *GSM8K) New(seed uint64) (task.Task, error) { return made(gsm8k.New(c.Settings, seed)) }

// Sokoban is the configuration of the sokoban task.
type Sokoban struct {
	Name             string `yaml:"name" json:"name"`
	sokoban.Settings `yaml:",inline"`
}

// New makes the task; it reads levels from files if the settings name some.
func (c *Sokoban) New(seed uint64) (task.Task, error) { return made(sokoban.New(c.Settings, seed)) }

// Words is the configuration of the words task.
type Words struct {
	Name           string `yaml:"name" json:"name"`
	words.Settings `yaml:",inline"`
}

// New makes the task.
func (c *Words) New(seed uint64) (task.Task, error) { return made(words.New(c.Settings, seed)) }

// made turns a task that was not made into none, rather than into an interface around a nil pointer.
func made[T task.Task](t T, err error) (task.Task, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}
