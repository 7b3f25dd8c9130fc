// Package transfer copies the contents of tables to and from files.
//
// [Export] writes a table of a running service, one of this process ([Local]), or with [WithJournal] that of a journal
// which no service has open. [Import] inserts the rollouts of files into a table. An export followed by an import into
// an empty table gives the same table again: groups, advantages and versions are kept. The formats are those of package
// wire/archive.
package transfer
