package study

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/reprise-rl/reprise/results"
)

// account writes what a study ran, without what it found.
func (r Runner) account(p *plan, pool pool, f *Found) (*results.Study, error) {
	s := &results.Study{
		Name: r.Study.Name, Quick: r.Options.Quick, Seeds: r.Options.Seeds,
		Machine: thisMachine(), Build: results.ThisBuild(), AtOnce: r.AtOnce, Seconds: seconds(f),
	}
	differs, err := differences(p.arms)
	if err != nil {
		return nil, err
	}
	for i, a := range p.arms {
		arm := results.StudyArm{Name: a.Name, Differs: differs[i], Failed: append([]string{}, f.Arms[i].Failed...)}
		for _, digest := range p.of[a.Name] {
			dir, err := filepath.Rel(Folder(r.Dir, r.Study.Name), pool.folder(digest))
			if err != nil {
				return nil, err
			}
			arm.Folders = append(arm.Folders, filepath.ToSlash(dir))
		}
		s.Arms = append(s.Arms, arm)
	}
	return s, nil
}

// distinct returns the runs of a study, those that arms share once.
func (f *Found) distinct() []*results.Run {
	var list []*results.Run
	seen := make(map[*results.Run]bool)
	for _, a := range f.Arms {
		for _, r := range a.Runs {
			if !seen[r] {
				seen[r] = true
				list = append(list, r)
			}
		}
	}
	return list
}

// seconds sums the wall time of a study's runs.
func seconds(f *Found) (sum float64) {
	for _, r := range f.distinct() {
		if n := len(r.Timings); n > 0 {
			sum += r.Timings[n-1].Elapsed
		}
	}
	return sum
}

// differences returns where the configuration of each arm is not that of the first, as key: value.
func differences(arms []Arm) ([][]string, error) {
	var first map[string]string
	list := make([][]string, len(arms))
	for i, a := range arms {
		a.Config.Seed = 1
		settings, err := a.Config.Settings()
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", a.Name, err)
		}
		if i == 0 {
			first = settings
		}
		list[i] = []string{}
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if value := settings[key]; value != first[key] {
				list[i] = append(list[i], key+": "+value)
			}
		}
	}
	return list, nil
}
