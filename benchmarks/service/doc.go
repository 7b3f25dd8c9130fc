// Package service measures `reprise serve` beside what bounds it: a raw socket that moves the same bytes, the disk, and
// a Redis server that stores and fetches them. [Run] starts the servers, each in a process of its own, lets the contenders take
// turns, and returns a [Result]; [Result.Write] prints it with the targets the service is held to.
//
// # What is measured
//
// The clients live in this process: one connection and one goroutine each, but for the durable insertions, which are those of
// many clients at once. A figure is the median over rounds; within a round every contender has the same time, one after the
// other, and ratios are medians of ratios within a round. So what disturbs the machine for a while disturbs all of
// them. Latencies are of all operations of all rounds.
//
// Bytes are those of the payload, [github.com/reprise-rl/reprise/rollout.Rollout.Bytes]. The floor moves just as many, through a
// protocol without any structure: a request of 16 bytes, and the block, or the block and an answer of one byte. Its server goes
// around in as much memory as the service's table takes, its client uses one buffer again and again, and nobody looks at what is in
// them. An insertion by the client begins with rollouts in memory and ends when the
// service has said their ids; a sample ends with rollouts in memory.
//
// The disk's own bandwidth is that of writing files from front to end with fdatasync after each block, the best of several
// sizes of block: of new files, as a log writes its segments, which the target is about, and of a file that has its blocks already.
package service
