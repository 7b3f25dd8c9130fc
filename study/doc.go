// Package study runs named experiments: the same claim tried on many configurations and seeds of real runs, with a verdict.
//
// A [Study] is a claim of a source, the arms that try it, and a judge. [All] lists them. A [Runner] carries out the arms' runs, as many
// at once as it is told, and hands what they came to, [Found], to the judge; what comes of it is a results.Study with one page of
// figures. Runs stand in a pool that all studies of a folder share, under a digest of their configuration: a finished run is
// never made again, whichever study asks for it, and an interrupted one goes on from its checkpoint.
//
// Statistics are those of docs/METHODS.md, Evaluation: medians and quartiles over seeds, claims from four seeds on, no interpolation
// of where a target was reached. A run that ends with an error, or diverges, stays in the study as what it is.
package study
