package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/internal/limits"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/study"
)

// studyCommand runs a named study or all of them, or lists them.
type studyCommand struct {
	Name   string `arg:"" optional:"" predictor:"study" help:"Name of the study, or all, which takes hours. Without one, list the studies."`
	List   bool   `help:"List the studies: name, source of the claim, and question."`
	Seeds  int    `default:"12" help:"Runs of each arm, on three base models in turn. A claim takes 8 or more, one of many more than that."`
	Quick  bool   `help:"Rehearse: cut the budgets so that every run ends within seconds. Makes no claim."`
	Out    dir    `default:"runs/studies" help:"Folder of all studies and their runs."`
	From   []file `help:"Archives of studies, such as docs/studies/savings.json.gz: runs that they have are not made again."`
	AtOnce int    `name:"at-once" default:"0" help:"Runs at the same time; 0: one per core."`
	Log    format `help:"Also log the runs for another program, into NAME/tensorboard/ARM/seed-N: tensorboard."`
	Quiet  bool   `short:"q" help:"Print nothing but errors."`
	JSON   bool   `name:"json" help:"Print study.json, or the list with --list, and nothing else."`
}

// Run runs the study and writes its page, or lists the studies.
func (c *studyCommand) Run(ctx context.Context, on *screen) error {
	if c.List || c.Name == "" {
		return c.list(os.Stdout)
	}
	if c.AtOnce < 0 {
		return fmt.Errorf("--at-once: %d: want 1 or more, or 0 for the number of cores", c.AtOnce)
	}
	if err := c.Log.check(); err != nil {
		return err
	}
	studies := study.All()
	if c.Name != allStudies {
		s, err := study.ByName(c.Name)
		if err != nil {
			return err
		}
		studies = []study.Study{s}
	}
	whileRunning, end := context.WithCancel(ctx)
	defer end()
	go limits.BoundGarbage(whileRunning, minGarbage)
	for _, s := range studies {
		if err := c.carryOut(ctx, on, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// allStudies is the name that stands for every study.
const allStudies = "all"

// carryOut carries out one study.
func (c *studyCommand) carryOut(ctx context.Context, on *screen, s study.Study) error {
	dir := study.Folder(string(c.Out), s.Name)
	show := newStudyDisplay(newDisplay(on, os.Stdout, c.Quiet || c.JSON))
	defer show.end()
	show.wrapped("", s.Name+": "+s.Title) // before the plan, which makes the task of every arm
	defer show.onInterrupt(ctx, "stopping, to save checkpoints of the runs in progress; a second Ctrl-C kills")()
	var from []*results.Archive
	for _, path := range c.From {
		a, err := results.ReadArchive(string(path))
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		from = append(from, a)
	}
	found, err := study.Runner{
		Study: s, From: from, Options: study.Options{Seeds: c.Seeds, Quick: c.Quick}, Dir: string(c.Out), AtOnce: c.AtOnce,
		Command: c.command(s.Name), OnPlan: show.planned, OnEnd: show.ended, Warmup: show.warmup,
		Hooks: func(arm string, seed uint64, config run.Config) run.Hooks {
			logs := results.SeedDir(filepath.Join(dir, string(c.Log)), strings.ReplaceAll(arm, "/", "-"), seed)
			return c.Log.into(logs, show.hooks(arm, seed, config))
		},
	}.Run(ctx)
	show.end()
	if errors.Is(err, context.Canceled) {
		again := "stopped; finished runs are kept, the others have checkpoints; continue with: " + c.command(c.Name)
		archive := filepath.Join(dir, study.UnfinishedFile)
		if _, err := os.Stat(archive); err == nil {
			again += "; elsewhere with --from " + archive
		}
		return interruption(again)
	}
	if err != nil {
		return err
	}
	if err := report.Write(dir); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(found)
	}
	show.study(found, filepath.Join(dir, results.ReportFile))
	return nil
}

// command is the command line that continues a study.
func (c *studyCommand) command(name string) string {
	line := []string{"reprise", "study", name, "--seeds", fmt.Sprint(c.Seeds)}
	if c.Quick {
		line = append(line, "--quick")
	}
	if c.Out != "runs/studies" {
		line = append(line, "--out", shellWord(string(c.Out)))
	}
	if c.AtOnce > 0 {
		line = append(line, "--at-once", fmt.Sprint(c.AtOnce))
	}
	return strings.Join(line, " ") + c.Log.flag()
}

// shellWord quotes a word for a shell where it needs quotes.
func shellWord(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return r != '/' && !strings.ContainsRune("._-+,:@%=", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// listed is a study in the list.
type listed struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Source string   `json:"source"`
	Asks   []string `json:"asks"`
}

func (c *studyCommand) list(w io.Writer) error {
	var all []listed
	for _, s := range study.All() {
		all = append(all, listed{s.Name, s.Title, s.Source, s.Lead})
	}
	if c.JSON {
		return printJSON(all)
	}
	widest := 0
	for _, s := range all {
		widest = max(widest, len(s.Name))
	}
	for _, s := range all {
		fmt.Fprint(w, words.Wrap(fmt.Sprintf("%-*s  ", widest, s.Name), s.Title+" ("+s.Source+")"))
	}
	_, err := fmt.Fprintln(w, "\nreprise study NAME runs one.")
	return err
}
