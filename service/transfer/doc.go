// Package transfer copies the contents of tables to and from Arrow IPC files.
//
// [Export] writes a table of a running service, [ExportJournal] the table in a journal that no service has open, and
// [Import] inserts a file's rollouts into a table. An export followed by an import into an empty table gives the same
// table again: groups, advantages and versions are kept. The file format is that of package wire/archive.
package transfer
