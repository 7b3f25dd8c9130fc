package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/report"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// reportCommand writes reports of runs that are there: anew into their own folder, or one over any number of arms.
type reportCommand struct {
	What  []string `arg:"" sep:"none" name:"folder-or-arm" help:"A folder of a run, a comparison or a study, whose report.html is written anew; or, for one page over several arms, each as NAME=FOLDER,FOLDER,… with * and ? in folders; the first arm is what the others are compared with."`
	Out   file     `help:"File of the page over arms."`
	Title text     `help:"Title of the page over arms."`
	JSON  bool     `name:"json" help:"Print the table over arms as JSON, and nothing else."`
}

// Run writes the report that was asked for.
func (c *reportCommand) Run() error {
	folder := len(c.What) == 1 && isFolder(c.What[0])
	if !folder && c.Out == "" && !c.JSON {
		return c.incomplete()
	}
	if folder {
		return c.rewrite(c.What[0])
	}
	if n := len(c.What); n > report.MostArms && c.Out != "" {
		return fmt.Errorf("%d arms: a page shows at most %d; leave some out, or write several pages", n, report.MostArms)
	}
	arms, err := readArms(c.What)
	if err != nil {
		return err
	}
	if c.Out != "" {
		var page bytes.Buffer
		if err := report.Arms(&page, string(c.Title), arms); err != nil {
			return err
		}
		if err := results.WriteFile(string(c.Out), page.Bytes()); err != nil {
			return err
		}
	}
	table := results.NewTable(arms)
	if c.JSON {
		return printJSON(table)
	}
	for _, w := range table.Warnings {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	fmt.Printf("%s\n\nreport: %s\n", table.Statement, c.Out)
	return nil
}

// incomplete says what a call without --out lacks.
func (c *reportCommand) incomplete() error {
	if what := c.What[0]; len(c.What) == 1 && !strings.Contains(what, "=") {
		return fmt.Errorf("%s is no folder: want that of a run, a comparison or a study, or arms as NAME=FOLDER,… beside --out FILE.html", what)
	}
	return errors.New("arms need a file for their page: add --out FILE.html, or --json for the table alone")
}

// rewrite writes the report of a run, a comparison or a study into its folder.
func (c *reportCommand) rewrite(dir string) error {
	if c.Out != "" || c.Title != "" {
		return fmt.Errorf("%s: the report of a folder has its own place and title: leave --out and --title out, or make an arm of it: NAME=%s", dir, dir)
	}
	if err := report.Write(dir); err != nil {
		return err
	}
	if !c.JSON {
		fmt.Println("report:", filepath.Join(dir, results.ReportFile))
		return nil
	}
	arms, err := armsOf(dir)
	if err != nil {
		return err
	}
	return printJSON(results.NewTable(arms))
}

// armsOf returns the arms of a folder: a study's, a comparison's two, or the run as the only one.
func armsOf(dir string) ([]results.NamedRuns, error) {
	if results.IsStudy(dir) {
		return studyArms(dir)
	}
	if !results.IsComparison(dir) {
		r, err := results.ReadRun(dir)
		return []results.NamedRuns{{Name: filepath.Base(dir), Runs: []*results.Run{r}}}, err
	}
	comparison, err := results.ReadComparison(dir)
	if err != nil {
		return nil, err
	}
	arms := []results.NamedRuns{{Name: results.BaselineArm, Runs: comparison.Baseline}, {Name: results.ReplayArm, Runs: comparison.Replay}}
	return slices.DeleteFunc(arms, func(a results.NamedRuns) bool { return len(a.Runs) == 0 }), nil
}

// studyArms reads the runs of a study's arms, those that failed as far as they came; a run that made no update is left out, and so is an
// arm without runs.
func studyArms(dir string) ([]results.NamedRuns, error) {
	s, err := results.ReadStudy(dir)
	if err != nil {
		return nil, err
	}
	var arms []results.NamedRuns
	for _, a := range s.Arms {
		arm := results.NamedRuns{Name: a.Name}
		for _, folder := range a.Folders {
			r, err := readArmRun(filepath.Join(dir, filepath.FromSlash(folder)))
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
		return nil, fmt.Errorf("%s: the folders of the study's runs are not where %s says: keep them beside the study's folder", dir, results.StudyFile)
	}
	return arms, nil
}

// readArms reads the arms of NAME=FOLDER,… arguments, in their order.
func readArms(arguments []string) ([]results.NamedRuns, error) {
	var arms []results.NamedRuns
	var problems []error
	for _, argument := range arguments {
		name, list, found := strings.Cut(argument, "=")
		switch {
		case !found:
			problems = append(problems, fmt.Errorf("%s is no arm: want NAME=FOLDER,…, as in name=%s", argument, argument))
			continue
		case name == "":
			problems = append(problems, fmt.Errorf("%s has no name before its '=': want NAME=FOLDER,…", argument))
			continue
		case slices.ContainsFunc(arms, func(a results.NamedRuns) bool { return a.Name == name }):
			problems = append(problems, fmt.Errorf("arm %s is there twice: give its folders in one argument, with commas between them", name))
			continue
		}
		runs, err := readFolders(name, list)
		if err != nil {
			problems = append(problems, err)
		}
		arms = append(arms, results.NamedRuns{Name: name, Runs: runs})
	}
	return arms, errors.Join(problems...)
}

// readFolders reads the runs of one arm: folders with commas between them, in which * and ? stand for any text.
func readFolders(name, list string) ([]*results.Run, error) {
	var runs []*results.Run
	var problems []error
	seen := make(map[string]bool)
	for _, pattern := range strings.Split(list, ",") {
		folders, err := expand(pattern)
		if err != nil {
			problems = append(problems, fmt.Errorf("arm %s: %w", name, err))
		}
		for _, dir := range folders {
			if dir = filepath.Clean(dir); seen[dir] {
				problems = append(problems, fmt.Errorf("arm %s: %s is there twice: give each run once", name, dir))
				continue
			}
			seen[dir] = true
			r, err := readArmRun(dir)
			if err != nil {
				problems = append(problems, fmt.Errorf("arm %s: %w", name, err))
				continue
			}
			runs = append(runs, r)
		}
	}
	return runs, errors.Join(problems...)
}

// expand returns the folders that a pattern stands for, a plain path standing for itself.
func expand(pattern string) ([]string, error) {
	if pattern == "" {
		return nil, errors.New("an empty folder name: want FOLDER,FOLDER,… after the '='")
	}
	if isFolder(pattern) {
		return []string{pattern}, nil
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return nil, fmt.Errorf("%s is no folder: give that of a run", pattern)
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want * or ? for any text, and [ only with its ]", pattern, err)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return !isFolder(path) })
	if len(found) == 0 {
		return nil, fmt.Errorf("%s matches no folder: mind that it starts from here, and give run folders", pattern)
	}
	return found, nil
}

// readArmRun reads a run folder that has made an update.
func readArmRun(dir string) (*results.Run, error) {
	if _, err := os.Stat(filepath.Join(dir, results.MetricsFile)); errors.Is(err, fs.ErrNotExist) {
		if results.IsComparison(dir) {
			return nil, fmt.Errorf("%s is a comparison: give the runs of one of its arms, as %s", dir, filepath.Join(dir, results.ReplayArm, "seed-*"))
		}
		return nil, fmt.Errorf("%s has no %s: give the folder of a run, or leave it out: %w", dir, results.MetricsFile, fs.ErrNotExist)
	}
	r, err := results.ReadRun(dir)
	if err != nil || r.Summary != nil {
		return r, err
	}
	if config, err := run.LoadFolder(dir, nil); err == nil { // its seed is in no summary yet
		r.Seed = config.Seed
	}
	return r, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
