package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/reprise-rl/reprise/report"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/study"
)

// studyCommand carries out a named study, or lists them.
type studyCommand struct {
	Name   string `arg:"" optional:"" help:"Name of the study; without one the studies are listed."`
	List   bool   `help:"List the studies: what each is called, where its claim stands and what it asks."`
	Seeds  int    `default:"4" help:"Seeds of each arm, from 1; 4 or more make a claim."`
	Quick  bool   `help:"Rehearse: budgets cut so that every run ends within seconds; makes no claim."`
	Out    dir    `default:"runs/studies" help:"Folder of all studies and their runs."`
	AtOnce int    `name:"at-once" default:"0" help:"Runs side by side; 0: as many as there are cores."`
	Quiet  bool   `short:"q" help:"Print nothing but errors."`
	JSON   bool   `name:"json" help:"Print study.json and nothing else; with --list, the list."`
}

// Run carries out the study that is named and writes its page, or lists the studies.
func (c *studyCommand) Run(ctx context.Context) error {
	if c.List || c.Name == "" {
		return c.list(os.Stdout)
	}
	if c.AtOnce < 0 {
		return fmt.Errorf("--at-once: %d: want 1 or more, or 0 for the number of cores", c.AtOnce)
	}
	s, err := study.ByName(c.Name)
	if err != nil {
		return err
	}
	show := newStudyDisplay(newDisplay(c.Quiet || c.JSON))
	defer show.end()
	found, err := study.Runner{
		Study: s, Options: study.Options{Seeds: c.Seeds, Quick: c.Quick}, Dir: string(c.Out), AtOnce: c.AtOnce, Command: c.command(),
		OnPlan: show.planned, OnEnd: show.ended, Hooks: show.hooks, Warmup: show.warmup,
	}.Run(ctx)
	show.end()
	if errors.Is(err, context.Canceled) {
		return interruption("stopped; runs that have ended stay, the others have checkpoints; go on with: " + c.command())
	}
	if err != nil {
		return err
	}
	dir := study.Folder(string(c.Out), s.Name)
	if err := report.Write(dir); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(found)
	}
	show.study(found, dir)
	return nil
}

// command is the call as it can be given again.
func (c *studyCommand) command() string {
	words := []string{"reprise", "study", c.Name, "--seeds", fmt.Sprint(c.Seeds)}
	if c.Quick {
		words = append(words, "--quick")
	}
	if c.Out != "runs/studies" {
		words = append(words, "--out", shellWord(string(c.Out)))
	}
	if c.AtOnce > 0 {
		words = append(words, "--at-once", fmt.Sprint(c.AtOnce))
	}
	return strings.Join(words, " ")
}

// shellWord writes a word as a shell reads it back.
func shellWord(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return r != '/' && !strings.ContainsRune("._-+,:@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
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
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Source, s.Title)
	}
	fmt.Fprintln(table, "\nreprise study NAME carries one out.")
	return table.Flush()
}

// study prints what a study found.
func (d *display) study(s *results.Study, dir string) {
	d.printf("\n%s\n", s.Sheet.Title)
	if s.Quick {
		d.printf("a rehearsal: it makes no claim\n")
	}
	for _, f := range s.Sheet.Findings {
		d.printf("\n%s\n  claim    %s\n  found    %s\n  verdict  %s\n", f.Source, f.Claim, f.Found, f.Verdict)
	}
	for _, a := range s.Arms {
		for _, why := range a.Failed {
			d.printf("\narm %s, %s\n", a.Name, why)
		}
	}
	d.printf("\nreport: %s\n", filepath.Join(dir, results.ReportFile))
}
