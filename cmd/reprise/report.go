package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/study"
)

// reportCommand rewrites the report of a folder, draws a study from its archive, or writes one page over several arms.
type reportCommand struct {
	What  []string `arg:"" sep:"none" name:"folder-or-arm" help:"Folder of a run, a comparison or a study, to rewrite its report.html. Or an archive of a study's runs, NAME.json.gz, to judge it anew, and to draw its page with --out. Or several arms, to write one page over them: each NAME=FOLDER,FOLDER,… with * and ? in folders. The others are compared with the first arm."`
	Out   file     `help:"File of the page over arms, or of an archive's page."`
	Title text     `help:"Title of the page over arms."`
	JSON  bool     `name:"json" help:"Print the table over arms, or the study of an archive, as JSON, and nothing else."`
}

// Run writes the report that was asked for.
func (c *reportCommand) Run() error {
	if len(c.What) == 1 && strings.HasSuffix(c.What[0], ".json.gz") {
		return c.redraw(c.What[0])
	}
	folder := len(c.What) == 1 && isFolder(c.What[0])
	if !folder && c.Out == "" && !c.JSON {
		return c.incomplete()
	}
	if folder {
		return c.rewrite(c.What[0])
	}
	if n := len(c.What); n > report.MostArms && c.Out != "" {
		return fmt.Errorf("%d arms: a page shows at most %d; leave some out, or write several pages", n,
			report.MostArms)
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
		if err := disk.WriteFile(string(c.Out), page.Bytes()); err != nil {
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
	if len(arms) > 1 {
		(&display{out: os.Stdout}).sides(arms...)
		fmt.Println()
	}
	fmt.Printf("%s\n\nreport: %s\n", table.Statement, c.Out)
	return nil
}

// incomplete explains what a call without --out lacks.
func (c *reportCommand) incomplete() error {
	if what := c.What[0]; len(c.What) == 1 && !strings.Contains(what, "=") {
		return fmt.Errorf("%s is no folder: want the folder of a run, a comparison or a study, or arms as "+
			"NAME=FOLDER,… with --out FILE.html", what)
	}
	return errors.New("the page over arms needs a file: add --out FILE.html, or --json for the table alone")
}

// rewrite writes the report of a run, a comparison or a study into its folder.
func (c *reportCommand) rewrite(dir string) error {
	if c.Out != "" || c.Title != "" {
		return fmt.Errorf("%s: the report of a folder has its own file and title: leave --out and --title out, or "+
			"give the folder as an arm: NAME=%s", dir, dir)
	}
	if err := report.Write(dir); err != nil {
		return err
	}
	if !c.JSON {
		fmt.Println("report:", filepath.Join(dir, results.ReportFile))
		return nil
	}
	arms, err := results.ReadArms(dir)
	if err != nil {
		return err
	}
	return printJSON(results.NewTable(arms))
}

// redraw judges the runs of an archive and writes their page.
func (c *reportCommand) redraw(path string) error {
	if c.Title != "" {
		return fmt.Errorf("--title: %q: want none for an archive, whose study has a title", c.Title)
	}
	a, err := results.ReadArchive(path)
	if err != nil {
		return err
	}
	s, err := study.FromArchive(a)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.Out != "" {
		var page bytes.Buffer
		if err := report.Sheet(&page, &s.Sheet); err != nil {
			return err
		}
		if err := disk.WriteFile(string(c.Out), page.Bytes()); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(s)
	}
	(&display{out: os.Stdout}).study(s, string(c.Out))
	return nil
}

// readArms reads the arms of NAME=FOLDER,… arguments, in their order.
func readArms(arguments []string) ([]results.NamedRuns, error) {
	var arms []results.NamedRuns
	var problems []error
	for _, argument := range arguments {
		name, list, found := strings.Cut(argument, "=")
		switch {
		case !found:
			problems = append(problems, fmt.Errorf("%s is no arm: want NAME=FOLDER,…, as in name=%s", argument,
				argument))
			continue
		case name == "":
			problems = append(problems, fmt.Errorf("%s has no name before its '=': want NAME=FOLDER,…", argument))
			continue
		case slices.ContainsFunc(arms, func(a results.NamedRuns) bool { return a.Name == name }):
			problems = append(problems, fmt.Errorf("arm %s is given twice: give its folders in one argument, with "+
				"commas between them", name))
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

// readFolders reads the runs of one arm: folders separated by commas, with * and ? as in file names of a shell.
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
				problems = append(problems, fmt.Errorf("arm %s: %s is given twice: give each run once", name, dir))
				continue
			}
			seen[dir] = true
			r, err := results.ReadBegunRun(dir)
			if err != nil {
				problems = append(problems, fmt.Errorf("arm %s: %w", name, err))
				continue
			}
			runs = append(runs, r)
		}
	}
	return runs, errors.Join(problems...)
}

// expand returns the folders that match a pattern.
func expand(pattern string) ([]string, error) {
	if pattern == "" {
		return nil, errors.New("an empty folder name: want FOLDER,FOLDER,… after the '='")
	}
	if isFolder(pattern) {
		return []string{pattern}, nil
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return nil, fmt.Errorf("%s is no folder: give the folder of a run", pattern)
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want * and ? as wildcards, and every [ closed by ]", pattern, err)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return !isFolder(path) })
	if len(found) == 0 {
		return nil, fmt.Errorf("%s matches no folder: want run folders, relative to the current folder", pattern)
	}
	return found, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
