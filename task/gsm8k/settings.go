package gsm8k

import "github.com/reprise-rl/reprise/task"

// Slot is where a template takes the question.
const Slot = "{question}"

// Settings of the task. Only TrainFile is needed: JSON lines with question and answer.
type Settings task.Files

// DefaultTemplate is the prompt of a model that has not been taught a chat format.
const DefaultTemplate = "Question: " + Slot + "\nAnswer:\n"

// Resolve fills in the defaults.
func (s *Settings) Resolve() { (*task.Files)(s).Resolve(DefaultTemplate) }

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError. It does not look into the
// files.
func (s Settings) Validate() error {
	s.Resolve()
	return task.Files(s).Validate("JSON lines with question and answer", Slot)
}
