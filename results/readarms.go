package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// ReadArms reads the arms of a folder: those of a study, the two of a comparison, or a run as the only arm. Arms without runs
// are left out.
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
		return nil, fmt.Errorf("%s: the folders of the study's runs are not where %s says: keep them beside the study's folder", dir, StudyFile)
	}
	return arms, nil
}

// ReadBegunRun reads a run folder that has metrics, an error that wraps [fs.ErrNotExist] if it has none. The seed of a run that
// has not ended is that of its configuration.
func ReadBegunRun(dir string) (*Run, error) {
	if _, err := os.Stat(filepath.Join(dir, MetricsFile)); errors.Is(err, fs.ErrNotExist) {
		if IsComparison(dir) {
			return nil, fmt.Errorf("%s is a comparison: give the runs of one of its arms, as %s", dir, filepath.Join(dir, ReplayArm, "seed-*"))
		}
		return nil, fmt.Errorf("%s has no %s: give the folder of a run, or leave it out: %w", dir, MetricsFile, fs.ErrNotExist)
	}
	r, err := ReadRun(dir)
	if err != nil || r.Summary != nil {
		return r, err
	}
	if m := regexp.MustCompile(`(?m)^seed: *(\d+)$`).FindStringSubmatch(r.Config); m != nil {
		r.Seed, err = strconv.ParseUint(m[1], 10, 64)
	}
	return r, err
}
