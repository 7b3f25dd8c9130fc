// Package archive keeps rollouts in Arrow IPC files, which pandas, polars, DuckDB and pyarrow open.
//
// A [Writer] writes record batches, usually those of a service's export, and puts the file into its place when it is whole. A
// [Reader] reads such a file, or one that another program made, as insertions for a table: [Reader.Insertions] puts the
// rows of a group together wherever in the file they stand, and leaves out what only sampling adds.
package archive
