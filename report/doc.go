// Package report turns results into one HTML file: what a run or a comparison found, in words, in
// plots and in tables.
//
// [Write] reads a run folder or a comparison folder and puts report.html into it; [Run] and
// [Comparison] write the same page for results already read, and [Arms] one over up to eight
// configurations of several seeds each. The page is self-contained: inline
// SVG, one style sheet, no script, nothing from the network. It follows the reader's light or
// dark setting, a narrow screen, and print, where the configuration is written out. The same
// results give the same bytes.
//
// What is missing is said rather than drawn: a run that was killed has no summary and so no
// histograms, one with fewer than two evaluations has not reached a target, a metric that was
// never measured has no plot. Lines of thousands of updates are thinned so that peaks and
// collapses stay visible.
//
// Definitions are those of docs/METHODS.md; the numbers are computed by package results, and
// this package only draws and words them.
package report
