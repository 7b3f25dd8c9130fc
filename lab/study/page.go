package study

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// describe fills in what study.json says of a study's arms, runs and build.
func (r Runner) describe(s *results.Study, p *plan, f *Found) error {
	s.Name, s.Quick, s.Seeds, s.Build = r.Study.Name, r.Options.Quick, r.Options.Seeds, results.ThisBuild()
	for _, digest := range slices.Sorted(maps.Keys(r.ended)) { // a sum depends on its order
		run := r.ended[digest].run
		if n := len(run.Timings); n > 0 {
			s.Seconds += run.Timings[n-1].Elapsed
		}
	}
	differs, err := differences(p.arms)
	if err != nil {
		return err
	}
	for i, a := range p.arms {
		arm := results.StudyArm{Name: a.Name, Differs: differs[i], Folders: []string{},
			Failed: append([]string{}, f.Arms[i].Failed...)}
		for _, digest := range p.of[a.Name] {
			at := r.ended[digest].run.Dir
			if at == "" { // it is an archive's
				continue
			}
			dir, err := filepath.Rel(Folder(r.Dir, r.Study.Name), at)
			if err != nil {
				return err
			}
			arm.Folders = append(arm.Folders, filepath.ToSlash(dir))
		}
		s.Arms = append(s.Arms, arm)
	}
	return nil
}

// distinct returns the runs of a study. A run that several arms share is listed once.
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

// differences returns the settings of each arm, as key: value, that differ from those of the first arm.
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

// sheet returns the study's page.
func (r Runner) sheet(s *results.Study, f *Found, pool pool, j Judgement) results.Sheet {
	sheet := results.Sheet{
		Kind: "Study", Title: cmp.Or(r.Study.Title, r.Study.Name), Lead: slices.Clone(r.Study.Lead),
		Findings: j.Findings, Sections: j.Sections, Facts: r.facts(s, f, pool),
	}
	if s.Quick {
		sheet.Kind = "Rehearsal of a study"
		sheet.Lead = append(sheet.Lead, "This is a rehearsal: batches, budgets and the task are cut so that every run "+
			"ends within seconds. The figures are real but say nothing about the claims. A target may be out of reach "+
			"of so short a run.")
	}
	return sheet
}

// facts are what a reader needs to trust the study, or to repeat it.
func (r Runner) facts(s *results.Study, f *Found, pool pool) []results.Fact {
	runs := f.distinct()
	var seeds []string
	for block := range max(r.Study.Blocks, 1) {
		first := uint64(block*blockSize) + 1
		in := slices.DeleteFunc(r.Study.seeds(s.Seeds), func(seed uint64) bool {
			return (seed-1)/blockSize != first/blockSize
		})
		if n := len(in); n == 1 {
			seeds = append(seeds, fmt.Sprint(first))
		} else if n > 1 {
			seeds = append(seeds, fmt.Sprintf("%d to %d", first, in[n-1]))
		}
	}
	list := []results.Fact{
		{Name: "Source", Text: r.Study.Source},
		{Name: "Seeds", Text: fmt.Sprintf("%s of each of %s", strings.Join(seeds, ", "), words.Plural(len(s.Arms), "arm"))},
		{Name: "Intervals", Text: intervalsFact(bases * max(r.Study.Blocks, 1))},
		{Name: "Runs", Text: runsFact(runs, len(r.ended)-len(runs), pool)},
		{Name: "Configuration", Text: "config.yaml in each run's folder; the table of arms shows how they differ"},
		{Name: "Commit", Text: buildsFact(s, runs)},
		{Name: "Machine", Text: machineFact(s.Machine)},
		{Name: "Time", Text: fmt.Sprintf(
			"ended %s; the last call took %s; all runs together, including those of earlier calls and of other "+
				"studies, took %s; %d at once",
			s.Ended.Format("2006-01-02 15:04 MST"), duration(s.Ended.Sub(s.Began)),
			duration(time.Duration(s.Seconds*float64(time.Second))), s.AtOnce)},
	}
	if r.Command != "" {
		list = append(list, results.Fact{Name: results.CommandFact, Text: r.Command})
	}
	return list
}

// intervalsFact tells what intervals and verdicts mean.
func intervalsFact(bases int) string {
	return fmt.Sprintf("95%% intervals of means over runs, or over pairs of runs of one seed, by the t distribution "+
		"within base models; a claim needs %d. Verdicts by that t test and a sign-flip test, both: a study without any effect "+
		"decides a claim 1 time in %g (Holm). What is found holds for these %d base models.", results.ClaimRuns, 1/falsely,
		bases)
}

// large is the size of a study's runs, in bytes, from which its page mentions it.
const large = 1 << 30

func runsFact(runs []*results.Run, pilots int, pool pool) string {
	failures := 0
	var bytes int64
	for _, r := range runs {
		if failed(r) {
			failures++
		}
		if r.Dir != "" {
			bytes += size(r.Dir)
		}
	}
	text := words.Plural(len(runs), "run")
	if pilots > 0 {
		text += fmt.Sprintf(", and %d of pilots", pilots)
	}
	if pool.dir != "" {
		text += " in " + pool.dir
	}
	if failures > 0 {
		text += fmt.Sprintf("; %d ended with an error", failures)
	}
	if bytes >= large {
		text += fmt.Sprintf("; they take %.1f GB, most of it checkpoints", float64(bytes)/1e9)
	}
	return text
}

// buildsFact names the programs that made the runs, and the one that judged them if it is another.
func buildsFact(s *results.Study, runs []*results.Run) string {
	var list []string
	for _, r := range runs {
		if r.Summary == nil {
			continue
		}
		if b := commit(r.Summary.Build); !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	judge := commit(s.Build)
	switch {
	case len(list) == 0:
		return "judged by " + judge
	case len(list) == 1 && list[0] == judge:
		return judge
	}
	return "runs by " + strings.Join(list, " and ") + "; judged by " + judge
}

// commit names a build.
func commit(b results.Build) string {
	text := "a build that does not know its commit"
	if b.Revision != "" {
		text = b.Revision[:min(12, len(b.Revision))]
	}
	if b.Modified {
		text += " with changes"
	}
	return text + " (" + b.Go + ")"
}

func machineFact(m results.Machine) string {
	text := fmt.Sprintf("%s, %s", m.System, words.Plural(m.Cores, "core"))
	if m.CPU != "" {
		text = m.CPU + ", " + text
	}
	return text
}

// duration writes whole seconds, and whole minutes from an hour up.
func duration(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}

func thisMachine() results.Machine {
	m := results.Machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil { // Linux only
		m.CPU = cpuModel(string(text))
	}
	return m
}

// cpuModel finds the model of the first processor in the text of /proc/cpuinfo, "" if it is not named.
func cpuModel(text string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
