// Package replay keeps rollouts so that they can be learned from again.
//
// A [Table] holds rollouts up to a capacity. Whole groups enter ([Table.Insert]), trainers draw batches
// ([Table.Sample], or [Table.Lease] with [Table.Acknowledge] and [Table.Release] where a batch may be
// lost on its way), the trainer's version goes up ([Table.Advance]), and the table counts what became of
// every rollout ([Table.Stats]). [Options] say what is kept, what is drawn and for how long.
//
// # What is kept
//
// Retention fifo keeps the newest rollouts; positive sets a share of the room aside for the newest
// correct ones ([ER] §4.3). MaxStaleness and MaxUses bound any retention. The queue samplers lifo and
// fifo consume: nothing is evicted to make room, a full queue refuses with rollout.ErrFull.
//
// # What is drawn
//
//   - lifo, fifo: each rollout once, the newest or the oldest first: training without replay;
//   - uniform: independently, with replacement, also within a batch;
//   - distinct: without replacement within a batch ([ER] listing 5);
//   - epoch: without replacement across batches until all present were drawn; arrivals join the epoch
//     that runs; no rollout twice in a batch, also where two epochs meet in it;
//   - unseen: those that were never drawn first, then as distinct;
//   - least_used: those drawn least often first, without replacement within a batch;
//   - prioritized: by a priority that fades with age, with replacement ([Prioritization]): |advantage|, |reward|, |TD
//     error|, a gradient's norm, recency or a function, with importance weights. Trainers report what they measured
//     ([Table.Report]) or give priorities of their own ([Table.Update]).
//
// A request may ask for fresh draws besides: the oldest that were not handed out as fresh before. [Options].Unit says
// what a draw falls on: a rollout, a step of one, or a whole group.
//
// Draw.Probability is the probability with which that draw fell on that unit given the draws of the batch before it: one
// over the number of units it could have fallen on, or its share of their weights; 1 for the queues and for fresh draws.
//
// # Shards
//
// A table of T shards deals groups to them in turn; a request draws from the shard it names.
// Capacity is divided among them; MinSize, probabilities and exhaustion are the shard's own. The ESS by age that an automatic age
// decay follows is the table's.
//
// # Promises
//
// The design's invariants 1-5, 7-9 and 11 hold; each is numbered where it is kept. Insertion costs O(1)
// per rollout, a draw O(1), expiry by staleness O(1) amortised; statistics cost O(1) per use. With sampler
// prioritized insertion, draw and update cost O(log N), a new version nothing. The
// same operations with the same seed give the same draws, evictions and batches, on a table that was
// restored from a snapshot too. A Table may be used by many goroutines; with several of them the order
// in which they meet is theirs to fix.
//
// What it leaves to others: moving rollouts over a network, surviving crashes, and the loss.
package replay
