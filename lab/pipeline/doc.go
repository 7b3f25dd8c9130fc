// Package pipeline schedules a training run: W workers generate groups of rollouts, T trainers take optimizer steps on
// batches of them, a [Buffer] stands between, and new weights flow back to the workers.
//
// A [Machine] is a discrete-event simulation with a virtual clock. The time unit is what one trainer takes for one
// rollout. The cost model in [Options] gives each event its duration: a group of G rollouts takes a worker G mu (or
// Options.GroupTiming), an update on a batch of B takes B/T, and weights and rewards arrive after the configured
// delays. The work itself is real: a generation or a gradient starts in a goroutine when its event starts and is
// awaited when its event ends. So a run with six workers and two trainers on a laptop with two cores has the schedule,
// the staleness and the stalls of eight GPUs.
//
// # Order of events
//
// Events are ordered by (time, kind, worker, number). At one instant a step ends first, then weights arrive, decoding
// ends, rewards arrive, workers start, and trainers draw. All that is computed in goroutines is a pure function of its
// input, so records, rollouts and batches depend on the options and the parts only, not on load, cores or
// [Options.Concurrency]. A run that is stopped after an update ([Machine.Stop], or a hook that returns [ErrStop]),
// saved ([Machine.Snapshot]) and resumed ([Resume]) continues exactly as if it had not been stopped.
//
// At the end of a step the machine calls, in this order: Buffer.Report with the learner's measurements, at the version
// the batches were trained at; Buffer.Advance with the new version; then it publishes the weights, records the [Update]
// and calls the hook. When the buffer has taken a group it calls Prompts.Report, then the hook.
//
// # Prompts, fresh draws and reuse
//
// Job n generates for prompt n of the task, or for the one that [Prompts] choose: package replay/prompts replays the
// prompts that teach most ([PR]). The random draws of a job depend on its own number either way.
// [Answers] may give a job an earlier rollout of its prompt to begin like.
//
// Options.Mix makes every (1+K)-th batch consist of fresh rollouts only, with K replay batches between ([FP] alg. 1).
// Options.FreshShare makes a part of each batch fresh, FreshAt one that follows the version. A draw is fresh if its
// rollout was never handed out as fresh before; the oldest come first. Trainers wait until enough are there. With
// Options.Composed the buffer takes the fresh draws by itself: a table with sources.
//
// Options.Window bounds how far groups may enter the buffer out of the order of their jobs: a window that begins with
// the oldest job whose group has not.
//
// Options.BatchUpdates i takes i updates in a row on each batch; the buffer counts one draw. Together with PublishEvery
// i v this is the schedule (v, i) of [OG], where workers receive weights every v batches.
//
// # Parked rollouts
//
// With Options.OverProvision a turn of synchronous mode begins more groups than it needs. When the buffer has those,
// the others are parked: their time stands still in the trainers' turn, and the next turn resumes them before it begins
// others, with the newest weights, on whichever worker is free ([APRIL]). Options.TokenBudget parks a group within a
// turn ([Kimi]). What is parked costs what it decoded. Weights change between chunks, so a chunk that was interrupted
// ends with the weights that it began with.
//
// # Left to others
//
// The Buffer decides what is kept and drawn: the baseline without replay is a bounded queue in its place. Prompts
// decides what is asked again. [Generator] and [Learner] make text and change weights; package sim has both without a
// model.
package pipeline
