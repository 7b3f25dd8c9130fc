package catalog

import (
	"strings"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/arithmetic"
	"github.com/reprise-rl/reprise/task/gsm8k"
	"github.com/reprise-rl/reprise/task/words"
)

// Names of the tasks.
const (
	ArithmeticName = "arithmetic"
	GSM8KName      = "gsm8k"
	WordsName      = "words"
)

// Names returns the names of all tasks.
func Names() []string { return []string{ArithmeticName, GSM8KName, WordsName} }

// Configuration is the settings of one task: a pointer to Arithmetic, GSM8K or Words.
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
	switch name {
	case ArithmeticName:
		return &Arithmetic{Name: name}, nil
	case GSM8KName:
		return &GSM8K{Name: name}, nil
	case WordsName:
		return &Words{Name: name}, nil
	}
	return nil, unknown(name)
}

// Verifier returns the verifier of the named task.
func Verifier(name string) (task.Verifier, error) {
	switch name {
	case ArithmeticName:
		return arithmetic.Verifier{}, nil
	case GSM8KName:
		return gsm8k.Verifier{}, nil
	case WordsName:
		return words.Verifier{}, nil
	}
	return nil, unknown(name)
}

func unknown(name string) error {
	return &task.SettingError{Key: "name", Value: name, Want: "one of " + strings.Join(Names(), ", ")}
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
