package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Names within a run folder and a comparison folder.
const (
	ConfigFile    = "config.yaml"
	MetricsFile   = "metrics.jsonl"
	TimingFile    = "timing.jsonl"
	EvalFile      = "eval.jsonl"
	SummaryFile   = "summary.json"
	CompareFile   = "compare.json"
	ReportFile    = "report.html"
	CheckpointDir = "checkpoint"

	BaselineArm = "baseline"
	ReplayArm   = "replay"
)

// SeedDir returns the run folder of an arm and seed within a comparison folder.
func SeedDir(dir, arm string, seed uint64) string {
	return filepath.Join(dir, arm, fmt.Sprintf("seed-%d", seed))
}

// Run is everything in a run folder. What a running or killed run has not written yet is empty.
type Run struct {
	Dir     string
	Seed    uint64 // 0 where neither summary.json nor the folder's place in a comparison says
	Config  string // text of config.yaml
	Updates []Update
	Timings []Timing
	Evals   []Eval
	Summary *Summary // nil: the run has not ended
}

// ReadRun reads a run folder. Only config.yaml must be there.
func ReadRun(dir string) (*Run, error) {
	config, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no run folder, it has no %s: %w", dir, ConfigFile, err)
	}
	if err != nil {
		return nil, err
	}
	run := &Run{Dir: dir, Config: string(config)}
	if run.Updates, err = readLines(dir, MetricsFile, ParseUpdates); err != nil {
		return nil, err
	}
	if run.Timings, err = readLines(dir, TimingFile, ParseTimings); err != nil {
		return nil, err
	}
	if run.Evals, err = readLines(dir, EvalFile, ParseEvals); err != nil {
		return nil, err
	}
	if run.Summary, err = ReadSummary(dir); err != nil {
		return nil, err
	}
	if run.Summary != nil {
		run.Seed = run.Summary.Seed
	}
	return run, nil
}

// Comparison is everything in a comparison folder.
type Comparison struct {
	Dir      string
	Compare  *Compare // nil: the runs have not ended
	Baseline []*Run   // in ascending order of seed
	Replay   []*Run
}

// IsComparison reports whether a folder holds a comparison, begun or ended, rather than a run.
func IsComparison(dir string) bool {
	has := func(names ...string) bool {
		found, err := filepath.Glob(filepath.Join(append([]string{dir}, names...)...))
		return err == nil && len(found) > 0
	}
	return has(CompareFile) || has(ConfigFile) && has(BaselineArm) || has(BaselineArm, "seed-*") || has(ReplayArm, "seed-*")
}

// ReadComparison reads a comparison folder with all its runs.
func ReadComparison(dir string) (*Comparison, error) {
	c := &Comparison{Dir: dir, Compare: new(Compare)}
	err := readJSON(filepath.Join(dir, CompareFile), c.Compare)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Compare = nil
	case err != nil:
		return nil, err
	case c.Compare.Format != Format:
		return nil, fmt.Errorf("%s: format is %d, this program reads %d", filepath.Join(dir, CompareFile), c.Compare.Format, Format)
	}
	if c.Baseline, err = readArm(dir, BaselineArm); err != nil {
		return nil, err
	}
	if c.Replay, err = readArm(dir, ReplayArm); err != nil {
		return nil, err
	}
	if len(c.Baseline)+len(c.Replay) == 0 {
		return nil, fmt.Errorf("%s is no comparison folder, it has no %s/seed-… and no %s/seed-…", dir, BaselineArm, ReplayArm)
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

// readLines parses a file of lines; one that is not there has none.
func readLines[T any](dir, name string, parse func([]byte) ([]T, error)) ([]T, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return lines, nil
}

// ReadSummary reads summary.json from a run folder, and returns nil where there is none.
func ReadSummary(dir string) (*Summary, error) {
	s := new(Summary)
	err := readJSON(filepath.Join(dir, SummaryFile), s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && s.Format != Format {
		err = fmt.Errorf("%s: format is %d, this program reads %d", filepath.Join(dir, SummaryFile), s.Format, Format)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := decode(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// WriteConfig writes config.yaml.
func WriteConfig(dir string, text []byte) error {
	return WriteFile(filepath.Join(dir, ConfigFile), text)
}

// WriteSummary writes summary.json.
func WriteSummary(dir string, s *Summary) error {
	c := *s
	c.Format = Format
	return writeJSON(filepath.Join(dir, SummaryFile), &c)
}

func writeJSON(path string, v any) error {
	text, err := encode(v, "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return WriteFile(path, text)
}

// WriteFile replaces a file at once: a reader, or a crash, finds the old content or the new and
// nothing between.
func WriteFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already once renamed
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename within the directory survive power loss.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
