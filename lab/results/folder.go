// Package results is what run folders hold: the types, how they are read and written, and the statistics that compare
// runs.
//
// A run folder:
//
//	config.yaml    the resolved configuration, read by [Settings]
//	notes.json     [Notes]: tags and a note of whoever looks at the run, if there are any
//	metrics.jsonl  one [Update] per optimizer update; virtual time only, so that the same build,
//	               configuration and seed write the same bytes
//	timing.jsonl   one [Timing] per update: wall time, kept apart because it is never the same twice
//	eval.jsonl     one [Eval] per held-out evaluation; virtual time only
//	problems.jsonl one [Problem] that evaluations ask, in their order
//	summary.json   one [Summary], written when the run ends
//	checkpoint/    opaque to this package
//	report.html    written by package report
//
// A comparison folder holds compare.json (one [Compare]), report.html, and a run folder for each arm and seed:
// baseline/seed-1, replay/seed-1, …
//
// A study's folder holds study.json (one [Study]) and report.html. Its runs are in the folder runs beside it, which all
// studies share; study.json lists which are its own. Its page is a [Sheet], numbers and words that package report
// draws. runs.json.gz beside it is an [Archive] of its runs.
//
// A run appends lines to a [Log]; a resumed run opens it with [ResumeLog] at the line count of its checkpoint.
// [ReadRun], [ReadComparison] and [ReadStudy] read whole folders strictly: an unknown field, a value out of range or a
// gap between updates is an error that names file, line and field. Only a torn last line, as kill -9 leaves it, is
// dropped.
//
// The statistics are pure functions with the definitions of docs/METHODS.md: [Isotonic], [ReachOf], [Level],
// [MedianCurve], [Pairs], [MeanPassAtK], and on top of them [NewCompare] for two arms and [NewTable] for any number,
// whose results are an [Effect] each. A quantity that was not measured is a [Number] without a value, null in JSON and
// never 0.
//
// Nothing here knows how a run is made.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
)

// Format is the version of summary.json, live.json and study.json that this package reads and writes.
const Format = 1

// Names within the folders.
const (
	ConfigFile    = "config.yaml"
	MetricsFile   = "metrics.jsonl"
	TimingFile    = "timing.jsonl"
	EvalFile      = "eval.jsonl"
	ProblemsFile  = "problems.jsonl"
	SummaryFile   = "summary.json"
	CompareFile   = "compare.json"
	StudyFile     = "study.json"
	ArchiveFile   = "runs.json.gz"
	ReportFile    = "report.html"
	CheckpointDir = "checkpoint"

	BaselineArm = "baseline"
	ReplayArm   = "replay"
)

// SeedDir returns the run folder of an arm and seed in a comparison folder.
func SeedDir(dir, arm string, seed uint64) string {
	return filepath.Join(dir, arm, fmt.Sprintf("seed-%d", seed))
}

// Run is everything in a run folder. What a run has not written yet is empty.
type Run struct {
	Dir     string
	Seed    uint64 // 0 if neither summary.json nor the folder's place in a comparison tells
	Config  string // text of config.yaml
	Updates []Update
	Timings []Timing
	Evals   []Eval
	// of the evaluations, in their order; none: an earlier build made the run, or no evaluation began
	Problems []Problem
	Summary  *Summary // nil: the run has not ended
	Noise    *Noise   // nil: it was not measured
}

// ReadRun reads a run folder. Only config.yaml must exist.
func ReadRun(dir string) (*Run, error) {
	config, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a run folder, it has no %s: %w", dir, ConfigFile, err)
	}
	if err != nil {
		return nil, err
	}
	run := &Run{Dir: dir, Config: string(config)}
	if run.Updates, err = readLines(dir, MetricsFile, parseUpdates); err != nil {
		return nil, err
	}
	if run.Timings, err = readLines(dir, TimingFile, ParseTimings); err != nil {
		return nil, err
	}
	if run.Evals, err = readLines(dir, EvalFile, ParseEvals); err != nil {
		return nil, err
	}
	if run.Problems, err = readLines(dir, ProblemsFile, parseProblems); err != nil {
		return nil, err
	}
	if run.Summary, err = ReadSummary(dir); err != nil {
		return nil, err
	}
	if run.Summary != nil {
		run.Seed = run.Summary.Seed
		run.Summary.AddAccuracy(run.Evals) // an earlier build may have had other definitions
	}
	return run, nil
}

// ReadSummary reads summary.json from a run folder, and returns nil if there is none.
func ReadSummary(dir string) (*Summary, error) {
	s := new(Summary)
	if err := readJSON(filepath.Join(dir, SummaryFile), s, Format); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

// Comparison is everything in a comparison folder.
type Comparison struct {
	Dir      string
	Compare  *Compare // nil: the runs have not ended
	Baseline []*Run   // by ascending seed
	Replay   []*Run
}

// IsComparison reports whether a folder holds a comparison, started or ended, rather than a run.
func IsComparison(dir string) bool {
	has := func(names ...string) bool {
		found, err := fs.Glob(os.DirFS(dir), path.Join(names...)) // the folder's own name may have a * in it
		return err == nil && len(found) > 0
	}
	return has(CompareFile) || has(ConfigFile) && has(BaselineArm) || has(BaselineArm, "seed-*") ||
		has(ReplayArm, "seed-*")
}

// ReadComparison reads a comparison folder with all its runs.
func ReadComparison(dir string) (*Comparison, error) {
	c := &Comparison{Dir: dir, Compare: new(Compare)}
	err := readJSON(filepath.Join(dir, CompareFile), c.Compare, CompareFormat)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Compare = nil
	case errors.Is(err, errFormat):
		return nil, fmt.Errorf("%w; reprise train --resume --compare --out %s writes it again", err, dir)
	case err != nil:
		return nil, err
	}
	if c.Baseline, err = readArm(dir, BaselineArm); err != nil {
		return nil, err
	}
	if c.Replay, err = readArm(dir, ReplayArm); err != nil {
		return nil, err
	}
	if len(c.Baseline)+len(c.Replay) == 0 {
		return nil, fmt.Errorf("%s is not a comparison folder, it has no %s/seed-… and no %s/seed-…", dir, BaselineArm,
			ReplayArm)
	}
	return c, nil
}

// readArm reads the run folders of an arm.
func readArm(dir, arm string) ([]*Run, error) {
	entries, err := os.ReadDir(filepath.Join(dir, arm))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var seeds []uint64
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "seed-")
		if seed, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			seeds = append(seeds, seed)
		}
	}
	slices.Sort(seeds)
	var runs []*Run
	for _, seed := range seeds {
		run, err := ReadRun(SeedDir(dir, arm, seed))
		if err != nil {
			return nil, err
		}
		run.Seed = seed
		runs = append(runs, run)
	}
	return runs, nil
}

// IsStudy reports whether a folder holds a study that has ended.
func IsStudy(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, StudyFile))
	return err == nil
}

// ReadStudy reads study.json from a folder.
func ReadStudy(dir string) (*Study, error) {
	s := new(Study)
	if err := readJSON(filepath.Join(dir, StudyFile), s, Format); err != nil {
		return nil, err
	}
	return s, nil
}

// ReadArms reads the arms of a folder: those of a study, the two of a comparison, or a run as the only arm. Arms
// without runs are left out.
func ReadArms(dir string) ([]NamedRuns, error) {
	if IsStudy(dir) {
		return readStudyArms(dir)
	}
	if !IsComparison(dir) {
		r, err := ReadRun(dir)
		return []NamedRuns{{Name: filepath.Base(dir), Runs: []*Run{r}}}, err
	}
	c, err := ReadComparison(dir)
	if err != nil {
		return nil, err
	}
	arms := []NamedRuns{{Name: BaselineArm, Runs: c.Baseline}, {Name: ReplayArm, Runs: c.Replay}}
	return slices.DeleteFunc(arms, func(a NamedRuns) bool { return len(a.Runs) == 0 }), nil
}

// readStudyArms reads the runs of a study's arms as far as each came. Runs that made no update are left out.
func readStudyArms(dir string) ([]NamedRuns, error) {
	s, err := ReadStudy(dir)
	if err != nil {
		return nil, err
	}
	var arms []NamedRuns
	for _, a := range s.Arms {
		arm := NamedRuns{Name: a.Name}
		for _, folder := range a.Folders {
			r, err := ReadBegunRun(filepath.Join(dir, filepath.FromSlash(folder)))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("arm %s: %w", a.Name, err)
			}
			arm.Runs = append(arm.Runs, r)
		}
		if len(arm.Runs) > 0 {
			arms = append(arms, arm)
		}
	}
	if len(arms) == 0 {
		return nil, fmt.Errorf("%s: the study's runs are not where %s says: keep them beside the study's folder", dir,
			StudyFile)
	}
	return arms, nil
}

// ReadBegunRun reads a run folder that has metrics. Its error wraps [fs.ErrNotExist] if there are none. The seed of a
// run that has not ended is that of its configuration.
func ReadBegunRun(dir string) (*Run, error) {
	if _, err := os.Stat(filepath.Join(dir, MetricsFile)); errors.Is(err, fs.ErrNotExist) {
		if IsComparison(dir) {
			return nil, fmt.Errorf("%s is a comparison: give the runs of one of its arms, as %s", dir,
				filepath.Join(dir, ReplayArm, "seed-*"))
		}
		return nil, fmt.Errorf("%s has no %s: give the folder of a run, or leave it out: %w", dir, MetricsFile,
			fs.ErrNotExist)
	}
	r, err := ReadRun(dir)
	if err != nil || r.Summary != nil {
		return r, err
	}
	if r.Seed, _, err = SeedAndTarget(r.Config); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return r, nil
}

// WriteConfig writes config.yaml.
func WriteConfig(dir string, text []byte) error {
	return disk.WriteFile(filepath.Join(dir, ConfigFile), text)
}

// WriteSummary writes summary.json.
func WriteSummary(dir string, s *Summary) error {
	c := *s
	c.Format = Format
	return writeJSON(filepath.Join(dir, SummaryFile), &c)
}

// WriteCompare writes compare.json.
func WriteCompare(dir string, c *Compare) error { return writeJSON(filepath.Join(dir, CompareFile), c) }

// WriteStudy writes study.json.
func WriteStudy(dir string, s *Study) error {
	s.Format = Format
	return writeJSON(filepath.Join(dir, StudyFile), s)
}

var errFormat = errors.New("another build wrote it")

// readJSON reads a file of a format strictly into v.
func readJSON(path string, v any, format int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var found struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(text, &found) == nil && found.Format != format {
		return fmt.Errorf("%s: format: %d: want %d: %w", path, found.Format, format, errFormat)
	}
	if err := decode(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	text, err := encode(v, "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return disk.WriteFile(path, text)
}
