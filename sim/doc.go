// Package sim has generators, learners and a task without a model behind them, for schedules of any
// size: who generates, waits, trains and how stale rollouts get depends on the pipeline's costs and
// not on what the rollouts say.
//
// [Generator] makes valid rollouts of seeded lengths ([Constant], [Lognormal]) whose tokens are a
// digest of everything they may depend on: the seed, the job, the number of its prompt, and the weights
// and positions they were decoded with. So a pipeline that loses its place, or resumes with other weights
// or prompts, makes other tokens. [Task] rewards a response at random, always the same response alike,
// and prompts may differ in difficulty; [Learner] counts steps; its weights are their version and nothing
// else.
//
// Everything is a pure function of the options, and nothing is timed: what costs how much is for
// pipeline.Options to say.
package sim
