// Package task says what a policy is asked and what its answers are worth.
//
// A [Task] gives training prompts without end, a fixed set of held-out prompts disjoint from them,
// and a verdict on every response. A [Demonstrator] can also show how a prompt is answered, for
// supervised warm-up, and an [Alphabet] is small enough for a character vocabulary of its own. The
// families live in packages below: arithmetic, gsm8k and words; catalog finds them by name.
//
// Everything here is a pure function of settings, seed and arguments and safe for concurrent use.
// Training prompts depend on the seed of the run, held-out prompts never do, so that runs with
// different seeds are measured on the same problems.
//
// Beside the tasks stand what they share: [Order] visits a list in a fresh order every epoch,
// [Latency] simulates rewards that take time, [VerifyLines] rewards a stream of JSON lines, and
// [SettingError] names a setting that cannot be used.
package task
