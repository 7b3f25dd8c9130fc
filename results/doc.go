// Package results is what a run folder holds: its types, their reading and their writing, and the
// statistics that compare runs.
//
// A run folder:
//
//	config.yaml    the resolved configuration, opaque to this package
//	metrics.jsonl  one [Update] per optimizer update; virtual time only, so that the same build,
//	               configuration and seed write the same bytes
//	timing.jsonl   one [Timing] per update: wall time, kept apart because it is never the same twice
//	eval.jsonl     one [Eval] per held-out evaluation; virtual time only
//	summary.json   one [Summary], written when the run ends
//	checkpoint/    opaque to this package
//	report.html    written by package report
//
// A comparison folder holds compare.json (one [Compare]), report.html, and a run folder per arm and
// seed: baseline/seed-1, replay/seed-1, …
//
// The folder of a study holds study.json (one [Study]) and report.html. Its runs are run folders in the folder runs beside it, which all
// studies share; study.json says which are whose. What its page shows stands in study.json as numbers and words, a [Sheet], as does what
// a calculation shows; [Sheet.Validate] says what keeps one from being drawn.
//
// Lines are appended to a [Log], which a resumed run opens with [ResumeLog] at the line count that
// its checkpoint remembers. [ReadRun], [ReadComparison] and [ReadStudy] read whole folders, strictly: an unknown
// field, a value outside its range or a gap between updates is an error that names file, line and
// field. Only a torn last line, as kill -9 leaves it, is dropped.
//
// The statistics are pure functions of numbers, with the definitions of docs/METHODS.md: [PassAtK],
// [Quantile], [FirstReach], [ComputeToShare], [MedianCurve], [Bootstrap], [BootstrapOf] and, on top of them,
// [NewCompare] for two arms and [NewTable] for any number. What a run says of the noise of its gradient is a [Noise]. A quantity that was
// not measured is a [Number] without a value, null in JSON and never 0.
//
// Nothing here knows how a run is made; the package depends on nothing but the standard library.
package results
