package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/reprise-rl/reprise/service/journal"
)

// journalCommand checks and repairs journals that no service has open.
type journalCommand struct {
	Verify  journalVerifyCommand  `cmd:"" help:"Read a journal through, check every checksum, and name what is damaged."`
	Salvage journalSalvageCommand `cmd:"" help:"Write what is intact of a damaged journal to a new one."`
}

// journalVerifyCommand verifies a journal.
type journalVerifyCommand struct {
	Path string `arg:"" help:"Journal of one table, a folder. No process may have it open."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Run prints the contents and fails if anything is damaged.
func (c *journalVerifyCommand) Run() error {
	r, err := journal.Verify(c.Path)
	if err != nil {
		return err
	}
	if err := showReport(r, c.JSON); err != nil {
		return err
	}
	if !r.Whole() {
		return fmt.Errorf("%s is damaged: keep it, and save what is intact with: reprise journal salvage %s --out NEW",
			c.Path, c.Path)
	}
	return nil
}

// journalSalvageCommand saves what is intact of a journal.
type journalSalvageCommand struct {
	Path string `arg:"" help:"Journal of one table, a folder. No process may have it open. It is not changed."`
	Out  file   `required:"" help:"Journal to write. It must not exist."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Run prints what is damaged and what the new journal holds.
func (c *journalSalvageCommand) Run() error {
	r, err := journal.Salvage(c.Path, string(c.Out))
	if r != nil {
		if e := showReport(r, c.JSON); e != nil {
			return errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s holds what is intact; move it to %s, and the service counts the missing rollouts as "+
		"evicted by damage\n", c.Out, c.Path)
	return nil
}

func showReport(r *journal.Report, asJSON bool) error {
	if asJSON {
		return printJSON(r)
	}
	_, err := fmt.Println(r)
	return err
}
