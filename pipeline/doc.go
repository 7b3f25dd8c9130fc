// Package pipeline decides who does what when: W workers generate groups of rollouts, T trainers
// take optimizer steps on batches of them, a [Buffer] stands between, and weight versions flow back.
//
// It is one event machine with a virtual clock ([Machine]). An event's duration comes from a cost
// model ([Options]): in the time that one trainer takes for one rollout, a group of G takes a worker
// G mu, or what Options.GroupTiming says of it, an update over a batch of B takes B/T, and weights and rewards travel as long as configured.
// What happens in an event is really computed meanwhile: a generation or a gradient starts in a
// goroutine when its event starts and is awaited when its end is due. So a run with six workers and
// two trainers on a laptop's two cores has the schedule, the staleness and the stalls of eight GPUs.
//
// # Promises
//
// Events are ordered by (time, kind, worker, number), and whatever is computed is a function of what
// it was given. So records, rollouts and batches depend on the options and the parts alone, not on
// the machine's load, its number of cores, or [Options.Concurrency]. At one instant things happen in
// this order: a step ends, weights arrive, decoding ends, rewards arrive, workers start, trainers
// draw. A run that was interrupted at the end of an update ([Machine.Stop], or a hook that returns
// [ErrStop]), saved ([Machine.Snapshot]) and resumed ([Resume]) goes on exactly as it would have.
//
// When a step ends, the [Buffer] hears first what the learner measured of the draws (Report), at the version
// they were learned from at, and then of the new version (Advance); then the weights are published, the
// [Update] is written, and the hook is called. When the buffer has taken a group, [Prompts] hear of it
// (Report), then the hook.
//
// # What is asked, and what is new
//
// Job n asks prompt n of the task, or the one that [Prompts] choose, which hear what came of it: so prompts
// can be asked again where they teach most ([PR]; package replay/prompts). What a job draws at random
// derives from its own number all the same.
//
// Updates take what the buffer gives them, unless Mix in [Options] has every (1+K)-th train on a batch of
// fresh rollouts only, with K replay updates between ([FP] alg. 1), or FreshShare has a part of each
// batch be fresh: of rollouts that no trainer was given as fresh before, the oldest first. Trainers wait
// until there are enough.
//
// With BatchUpdates i each batch is used for i updates in a row, as if it had been drawn i times, but that the buffer counts one
// draw. With PublishEvery i v it is the schedule (v, i) of [OG]: workers take weights every v batches.
//
// # What it leaves to others
//
// What is kept and what is drawn is the Buffer's affair: the baseline without replay is a bounded
// queue in its place, and the pipeline does not know. Which prompts are worth asking again is the affair
// of Prompts. How text is made and weights are changed is the affair of [Generator] and [Learner]; package
// sim has both without a model.
package pipeline
