package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/reprise-rl/reprise/journal"
)

// journalCommand looks after the journals of a service that is not running.
type journalCommand struct {
	Verify  journalVerifyCommand  `cmd:"" help:"Read a whole journal, every checksum included, and name what is damaged."`
	Salvage journalSalvageCommand `cmd:"" help:"Write what is whole of a damaged journal into a new one."`
}

// journalVerifyCommand reads a journal.
type journalVerifyCommand struct {
	File string `arg:"" help:"Journal of one table, which no process has open."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Run prints what the file holds. It fails if anything is damaged.
func (c *journalVerifyCommand) Run() error {
	r, err := journal.Verify(c.File)
	if err != nil {
		return err
	}
	if err := showReport(r, c.JSON); err != nil {
		return err
	}
	if !r.Whole() {
		return fmt.Errorf("%s is damaged: keep it, and save the rest of it with: reprise journal salvage %s --out NEW", c.File, c.File)
	}
	return nil
}

// journalSalvageCommand saves what is whole.
type journalSalvageCommand struct {
	File string `arg:"" help:"Journal of one table, which no process has open. It is not changed."`
	Out  file   `required:"" help:"Journal to write, which must not exist."`
	JSON bool   `name:"json" help:"Print the report as JSON."`
}

// Run prints what was damaged and what is in the new file.
func (c *journalSalvageCommand) Run() error {
	r, err := journal.Salvage(c.File, string(c.Out))
	if r != nil {
		if e := showReport(r, c.JSON); e != nil {
			return errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s holds what is whole; put it in the place of %s, and the service counts what is missing as evicted by damage\n", c.Out, c.File)
	return nil
}

func showReport(r *journal.Report, asJSON bool) error {
	if asJSON {
		return printJSON(r)
	}
	_, err := fmt.Println(r)
	return err
}
