package maths

import "github.com/reprise-rl/reprise/task"

// Slot is where a template takes the problem.
const Slot = "{problem}"

// Settings of the task. Only TrainFile is needed: .json or .jsonl, also with .gz; see ReadFile.
type Settings task.Files

// DefaultTemplate is the prompt of a model that has not been taught a chat format.
const DefaultTemplate = "Problem: " + Slot + "\nReason step by step, and put the final answer in \\boxed{}.\nSolution:\n"

// Resolve fills in the defaults.
func (s *Settings) Resolve() { (*task.Files)(s).Resolve(DefaultTemplate) }

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError. It does not look into the
// files.
func (s Settings) Validate() error {
	s.Resolve()
	return task.Files(s).Validate("problems with answers, .json or .jsonl", Slot)
}
