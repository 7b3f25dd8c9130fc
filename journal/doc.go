// Package journal keeps what a table holds on disk, so that it survives a crash.
//
// The table works from memory; the journal is written beside it. A [Journal] takes cuts of its table
// (replay.Table.Cut): all that changed since the cut before, as of one moment. Each cut is written in one transaction of a
// bbolt file, so that the file always holds the table as of a moment: rollouts, their uses and priorities, the version, the
// batch ids of insertions, the statistics. Cuts are taken when somebody waits for one ([Journal.Commit], [Journal.Flush]), and
// every [Options].Interval; those who wait at the same time share one. While a transaction is being synced the next cuts are
// encoded, and are then written together.
//
// [Sync] says what an acknowledgement is worth. [Create] begins a journal, [Open] reads one back into a table and says what it
// found. [Verify] reads a file page by page, every checksum included, and names what is damaged; [Salvage] writes what is whole
// into a new one.
//
// # The file
//
// One bbolt file per table, with four buckets: "rollouts" by id, written once, with the uses and priorities of that moment;
// "uses" by id, for rollouts in which those changed since; "requests", the insertions remembered, in order; and "state": the
// table's definition, its books, how many records each bucket has, and the attached blobs. Every value is a record with a
// CRC-32C of its own, because bbolt has none for its pages. A branch page that lies is found by the order of the keys, by pages
// used twice or by those counts.
//
// bbolt maps the file into memory, and trusts it: a damaged file can end the process. So [Open] reads the file with a reader
// of this package first, which takes nothing for granted, and refuses a file in which anything is wrong.
//
// # Promises
//
// Invariant 6: what Commit or Flush returned for is found again, as [Sync] says; uses and priorities may be older by at most
// the interval. After an error of the disk nothing is acknowledged any more: the error stays. Invariant 11 is checked when a table
// is rebuilt. Space of removed rollouts is used again.
//
// What a journal does not hold: draws on lease, which have gone back in a table that is rebuilt, and batches by request id.
package journal
