// Package replay keeps rollouts so that they can be learned from again.
//
// A [Table] holds rollouts up to a capacity. Workers insert whole groups ([Table.Insert]). Trainers draw batches
// ([Table.Sample], or [Table.Lease] with [Table.Acknowledge] and [Table.Release] if a batch may be lost on its way),
// raise the version ([Table.Advance]) and report what they measured ([Table.Report]). [Table.Stats] counts what became
// of every rollout. [Options] define what is kept, what is drawn and for how long.
// [ServiceView], [JournalView] and [Inspection] are for services, journals and monitoring.
//
// # What is kept
//
// Retention fifo keeps the newest rollouts. Retention scored keeps those of the largest score, an expression. Retention
// positive reserves a share of the room for the newest correct ones ([ER] §4.3). max_staleness and max_uses bound all;
// what meets pin may be older. The queue samplers lifo and fifo consume: they evict nothing to make room, and a full
// queue refuses with rollout.ErrFull.
//
// # What is drawn
//
//   - lifo, fifo: each rollout once, the newest or the oldest first: training without replay;
//   - uniform: independently, with replacement, also within a batch;
//   - distinct: without replacement within a batch ([ER] listing 5);
//   - epoch: without replacement across batches until all were drawn; arrivals join the running epoch, and no rollout comes twice
//     in a batch, even where two epochs meet;
//   - unseen: those that were never drawn first, then as distinct;
//   - least_used: those drawn least often first, without replacement within a batch;
//   - ordered: by an expression, the largest first, without replacement within a batch, with a rest after each use;
//   - prioritized: by a priority that fades with age, with replacement ([Options]): |advantage|, |reward|, |TD
//     error|, a gradient's norm, recency, an expression or a function, with importance weights. Trainers report what
//     they measured ([Table.Report]) or give priorities of their own ([Table.Update]).
//
// A request may also ask for fresh draws: the oldest rollouts that were never handed out as fresh. The unit of a draw
// is a rollout, a step of one, or a whole group.
//
// Before the sampler, sources ([Source]) draw their parts of a batch: fresh, reserved, or what meets a condition, by
// weight.
//
// A request may name prompts instead: it gets up to a number of rollouts of each, filtered and ordered by expressions
// (package formula). These draws count like any others.
//
// Draw.Probability is the probability of that unit given the earlier draws of the batch: one over the number of
// drawable units, or the unit's share of their weights; 1 for queues, fresh draws, sampler ordered and draws by prompt
// in an order; without one, one over the number of the prompt's rollouts that are left. A source's draw has the unit's
// share of the weights of what the source can still draw.
//
// # Shards
//
// A table of T shards deals groups to them in turn, and a request draws from the shard it names. Capacity is divided
// among the shards; min_size, probabilities and exhaustion are each shard's own. The ESS by age that target_ess follows
// is the table's.
//
// # Promises
//
// Invariants 1-5, 7-9 and 11 of ARCHITECTURE.md hold, each marked where it is kept. Insertion and a draw cost O(1),
// expiry by staleness amortised O(1), statistics O(1) per use; with sampler prioritized insertion, draw and update cost
// O(log N), and a new version nothing; each source adds O(log N) to every insertion and draw. Expressions that read age
// or since_use, of sources or priorities, add O(N) to the first draw at a version. The same operations with the same
// seed give the same draws, evictions and batches, on a restored table too. A Table may be used by many goroutines; the
// order of their calls is then their own.
//
// What it leaves to others: moving rollouts over a network, surviving crashes, and the loss.
package replay
