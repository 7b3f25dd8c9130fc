// Package run is one configured training run: it reads the configuration ([Load], [Config]), makes the parts of the
// other packages from it, and carries them out in a folder ([Train], [Resume], [Comparison]).
//
// A run is reproducible from its configuration and seed: two runs write the same metrics.jsonl, and a run that was
// interrupted and resumed ends in the same bytes as one that was not. What a folder holds is described by package
// results; what the parts do, by theirs. Nothing here decides how rollouts are kept or used.
package run
