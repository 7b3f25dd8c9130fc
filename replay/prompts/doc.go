// Package prompts keeps prompts so that they can be asked again ([PR], Prompt Replay).
//
// What a group of rollouts teaches depends on how often the policy answers its prompt correctly: with a pass rate
// p of 0 or 1 all advantages are 0, and the expected squared gradient is proportional to p(1-p), greatest at one
// half. A [Buffer] holds the prompts whose pass rate was near one half when they were last asked, and hands the
// nearest out again. Only prompts are replayed: their responses are generated anew by the policy of the day, so that
// training stays as much on-policy as it was.
//
// [Buffer.Report] tells a buffer what came of a prompt, [Buffer.Next] takes prompts for a batch from it, and
// [Options] say how much of a batch may be replayed, how far from one half is near, how long a prompt rests between
// two uses and how often it is replayed. A [Chooser] fills batches for whoever generates them group by group:
// prompts from a buffer first, then fresh ones in order; *Chooser is a pipeline.Prompts.
//
// # Time
//
// The clock is the trainers' version. The version at which a prompt was last used is that of the Next that handed it
// out, or, if it was asked as a fresh one later, the version that the results of that are reported at: a fresh prompt
// was in that version's batch. [Result] says which of the two its prompt was, as the same one may be in flight as
// both. With Cooldown c a prompt used at version v is handed out at v+c again, not before. When Next is called with a
// version below that of the Next before, the trainer has gone back to a checkpoint: what was used or estimated at the
// versions taken back counts as of the one returned to.
//
// # Promises
//
// Distances from one half are compared as fractions, and a pass rate on the edge of the band is within it as the
// decimal numbers say: 1/5 with Band 0.3. Order is total (distance, then the version of the estimate, then the
// order of reports), so that the same calls hand out the same prompts, also on a buffer restored from a snapshot.
// Reuse counts survive removal: a prompt that left and came back is replayed MaxReuse times in all. Prompts that are
// neither held nor were ever replayed are forgotten, so memory is that of the prompts within the band or replayed
// once. Next and Report cost O(log n) per prompt, amortised; going back costs O(n). A Buffer may be used by many
// goroutines.
//
// What it leaves to others: the prompts' texts, which it knows by name and number only, and what is correct.
package prompts
