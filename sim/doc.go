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
// [Trial] runs a schedule around a buffer and returns a [Record] of it: staleness, uses, time since last use, and who waited for how
// long. It is for clusters of thousands of GPUs: rollouts are [Sparse], one token each where weights are taken up by group. Its
// [Workload] says why one group takes longer than another: lengths, how workers batch them, stragglers, and the latency of rewards. The
// means stay what the cost model says, so mu is what it was.
//
// Everything is a pure function of the options, and nothing is timed: what costs how much is for
// pipeline.Options and the workload to say.
package sim
