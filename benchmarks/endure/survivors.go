package main

import (
	"context"
	"os/exec"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/wire"
)

// judge looks for everything that was acknowledged.
func (c *crasher) judge(ctx context.Context) error {
	direct, err := c.server.dial(ctx)
	if err != nil {
		return err
	}
	defer direct.Close()
	for i, definition := range crashTables() {
		if err := c.judgeTable(ctx, direct.Table(definition.Name), &c.fates[i]); err != nil {
			return err
		}
	}
	c.verdict.fact("killed %d times; start until ready: %s; %s", c.Times, c.startTimes(), &c.answers)
	if err := c.server.stop(); err != nil {
		c.verdict.violate("stop: %v", err)
	}
	files, err := c.server.journals()
	if err != nil {
		return err
	}
	for _, f := range files {
		if out, err := exec.CommandContext(ctx, c.Program, "journal", "verify", f).CombinedOutput(); err != nil {
			c.verdict.violate("journal verify %s: %v: %.500s", f, err, out)
		}
	}
	return nil
}

func (c *crasher) judgeTable(ctx context.Context, table *client.Table, f *fates) error {
	err := table.Export(ctx, 256, nil, func(rec arrow.RecordBatch) error {
		draws, err := wire.Draws(rec, nil)
		if err != nil {
			return err
		}
		for _, d := range draws {
			k, err := check(d.Rollout, c.Longest)
			if err == nil {
				err = f.found(k, d.ID)
			}
			if err != nil {
				c.verdict.violate("table %s: id %d: %v", table.Name(), d.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	acknowledged := f.count(isAcknowledged)
	missing := f.missing()
	c.verdict.hold(len(missing) == 0, "table %s: %d acknowledged rollouts are lost %v", table.Name(), len(missing), missing[:min(len(missing), 8)])
	unasked := f.count(func(w *what) bool { return !w.answered })
	c.verdict.hold(unasked == 0, "table %s: %d rollouts are there that nobody inserted to the end", table.Name(), unasked)
	stats, err := table.Statistics(ctx)
	if err != nil {
		return err
	}
	if err := balance(stats); err != nil {
		c.verdict.violate("table %s: the books do not balance: %v", table.Name(), err)
	}
	present := f.count(func(w *what) bool { return w.present })
	c.verdict.hold(stats.Inserted == uint64(acknowledged), "table %s: inserted %d, acknowledged %d", table.Name(), stats.Inserted, acknowledged)
	c.verdict.hold(stats.Present == present, "table %s: present %d, found %d", table.Name(), stats.Present, present)
	c.verdict.hold(acknowledged > 0, "table %s: %d rollouts were acknowledged, %d handed out by the queue, %d consumed for certain", table.Name(), acknowledged,
		f.count(func(w *what) bool { return w.delivered > 0 }), f.count(isConsumed))
	return nil
}
