package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

// tableCommand manages the tables of a running service.
type tableCommand struct {
	Create tableCreate `cmd:"" help:"Create a table."`
	List   tableList   `cmd:"" help:"List the tables that you may read."`
	Drop   tableDrop   `cmd:"" help:"Remove a table with all its rollouts and its journal. Its checkpoints stay."`
	Stats  tableStats  `cmd:"" help:"Print the statistics of a table, as JSON."`
	Scrub  tableScrub  `cmd:"" help:"Have the service read all of a table's journal and check it; in a cluster every node's copy."`
}

type tableCreate struct {
	Service    address    `arg:"" help:"grpc://host:port."`
	Definition text       `arg:"" help:"KEY=VALUE,… as for serve --table: name=math,capacity=4096,sampler=prioritized."`
	Connection connection `embed:""`
}

// Run creates the table. One of the same definition that exists already is left as it is.
func (c *tableCreate) Run(ctx context.Context) error {
	definition, err := server.ParseTable(string(c.Definition))
	if err != nil {
		return err
	}
	var info wire.TableInfo
	connected, err := c.Connection.owner(ctx, string(c.Service), func(at *client.Client) (err error) {
		info, err = at.Create(ctx, definition)
		return err
	})
	if err != nil {
		return err
	}
	defer connected.Close()
	fmt.Printf("table %s: %d rollouts, version %d\n", info.Table, info.Present, info.Version)
	return nil
}

type tableList struct {
	Service    address    `arg:"" help:"grpc://host:port."`
	JSON       bool       `name:"json" help:"Print the list as JSON."`
	Connection connection `embed:""`
}

// Run prints the tables.
func (c *tableList) Run(ctx context.Context) error {
	connected, err := client.Dial(ctx, string(c.Service), c.Connection.options())
	if err != nil {
		return err
	}
	defer connected.Close()
	tables, err := connected.List(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(tables)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "table\trollouts\tpayload\tsampler\tcapacity")
	for _, t := range tables {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\n", t.Name, t.Rows, size(t.Bytes), t.Definition.Sampler,
			t.Definition.Capacity)
	}
	return w.Flush()
}

type tableDrop struct {
	Table      address    `arg:"" help:"grpc://host:port/table."`
	Yes        bool       `help:"Do not ask. Without a terminal nothing is asked either."`
	Connection connection `embed:""`
}

// Run drops the table. In a terminal it asks before.
func (c *tableDrop) Run(ctx context.Context) error {
	connected, table, err := c.Connection.table(ctx, string(c.Table))
	if err != nil {
		return err
	}
	defer connected.Close()
	info, err := table.Info(ctx)
	if err != nil {
		return err
	}
	if !c.Yes && terminal(os.Stdin) {
		question := fmt.Sprintf("drop %s with %s, and its journal?", c.Table, words.Plural(int64(info.Present), "rollout"))
		if agreed, err := agree(ctx, question); err != nil || !agreed {
			return cmp.Or(err, errors.New("nothing was dropped: answer y, or give --yes"))
		}
	}
	if err := connected.Drop(ctx, table.Name()); err != nil {
		return err
	}
	fmt.Printf("table %s is dropped, with %d rollouts\n", info.Table, info.Present)
	return nil
}

// agree asks a question on the terminal and reports whether the answer is yes. Ctrl-C, as the end of the context, is
// an error.
func agree(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // reading a terminal cannot be interrupted; the process ends soon
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

type tableStats struct {
	Table      address    `arg:"" help:"grpc://host:port/table."`
	Connection connection `embed:""`
}

// Run prints the statistics.
func (c *tableStats) Run(ctx context.Context) error {
	connected, table, err := c.Connection.table(ctx, string(c.Table))
	if err != nil {
		return err
	}
	defer connected.Close()
	statistics, err := table.Statistics(ctx)
	if err != nil {
		return err
	}
	return printJSON(statistics)
}

type tableScrub struct {
	Table      address    `arg:"" help:"grpc://host:port/table."`
	JSON       bool       `name:"json" help:"Print what was found as JSON."`
	Connection connection `embed:""`
}

// Run prints what was found in each copy. Damage, or a copy that was not read, is an error.
func (c *tableScrub) Run(ctx context.Context) error {
	connected, table, err := c.Connection.table(ctx, string(c.Table))
	if err != nil {
		return err
	}
	defer connected.Close()
	answer, err := table.Scrub(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return errors.Join(remedy(answer.Copies), printJSON(answer))
	}
	for _, copied := range answer.Copies {
		fmt.Print(scrubbed(copied))
	}
	return remedy(answer.Copies)
}

// remedy is the error that says what to do about copies of a journal.
func remedy(copies []wire.ScrubbedCopy) error {
	damaged, doubted, unread, all := 0, 0, 0, len(copies)
	for _, copied := range copies {
		if len(copied.Damage) > 0 {
			damaged++
		}
		if copied.Doubt != "" {
			doubted++
		}
		if copied.Unread != "" {
			unread++
		}
	}
	switch {
	case all == 0:
		return errors.New("no node has a copy that is up to date: retry")
	case damaged == all:
		return errors.New("the journal is damaged: save a checkpoint of the table and restore it, which writes the " +
			"journal anew")
	case damaged > 0:
		return fmt.Errorf("%d of %d copies are damaged: replace their nodes (docs/scale.md, cluster.replaces)", damaged,
			all)
	case doubted > 0:
		return fmt.Errorf("%d of %d copies differ, and which are right is not known: start the other nodes and scrub "+
			"again, or save a checkpoint of the table and restore it", doubted, all)
	case unread > 0:
		return fmt.Errorf("%d of %d copies were not read: retry once their nodes are up, and replace one whose copy "+
			"stays out of date (docs/scale.md, cluster.replaces)", unread, all)
	}
	return nil
}

// scrubbed says what was found in a copy of a journal.
func scrubbed(c wire.ScrubbedCopy) (text string) {
	name := "the journal"
	if c.Node != "" {
		name = "node " + c.Node
	}
	switch {
	case c.Unread != "":
		return words.Wrap(name+": ", "not read: "+c.Unread)
	case c.Doubt != "":
		return words.Wrap(name+": ", "in doubt: "+c.Doubt)
	case len(c.Damage) == 0:
		return name + ": whole\n"
	}
	for _, what := range c.Damage {
		text += words.Wrap(name+": ", "damaged: "+what)
	}
	return text
}
