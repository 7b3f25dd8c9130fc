// Package task says what a policy is asked and what its answers are worth.
//
// A [Task] gives training prompts without end and a fixed set of held-out prompts disjoint from them. It is a [Verifier],
// which rewards one response to a prompt, or an [Environment], whose [Episode] takes turns with the policy and rewards each. [Begin]
// makes an episode of either. A [Demonstrator] shows how a prompt is answered and an [Expert] what to do in an episode, for
// supervised warm-up and as a bound; an [Actor] lists its actions; an [Alphabet] is small enough for a character vocabulary of its own;
// the prompts and observations of a [Seeing] task come with images. A [Tabular] one is a table of transitions. The families live in
// packages below; catalog finds them by name.
//
// Tasks are pure functions of settings, seed and arguments and safe for concurrent use; an episode is used from one goroutine.
// Training prompts depend on the seed of the run, held-out prompts never do, so that runs with different seeds are measured on the
// same problems.
//
// Beside the tasks stand what they share: [Order] visits a list in a fresh order every epoch, [Latency] simulates rewards that take
// time, [VerifyLines] rewards a stream of JSON lines, [Files] is the settings of problems that stand in files, and [SettingError]
// names a setting that cannot be used.
package task
