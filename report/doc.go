// Package report turns results into one HTML file: what a run, a comparison, a study or a
// calculation found, in words, in plots and in tables.
//
// [Write] reads a folder of a run, a comparison or a study and puts report.html into it; [Run],
// [Comparison] and [Study] write the same page for results already read, [Arms] one over up to eight
// configurations of several seeds each, and [Sheet] one of findings, figures and tables that are
// given as numbers and words. The page is self-contained: inline
// SVG, one style sheet, no script, nothing from the network. It follows the reader's light or
// dark setting, a narrow screen, and print, where the configuration is written out. The same
// results give the same bytes.
//
// What is missing is said rather than drawn: a run that was killed has no summary and so no
// histograms, one with fewer than two evaluations has not reached a target, a metric that was
// never measured has no plot. Lines of thousands of updates are thinned so that peaks and
// collapses stay visible.
//
// Curves of a sheet differ in hue and in the shape of their points, so that forty are told apart;
// dashes say that a line was computed, thin lines are single seeds. Every verdict has a word and a
// sign beside its colour, and the numbers in a map's cells can be read on all its fills.
// Figures side by side whose axes are alike have one range, and long tables are shown on demand, in print in full.
//
// Definitions are those of docs/METHODS.md; the numbers are computed by package results, and
// this package only draws and words them.
package report
