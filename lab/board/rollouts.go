package board

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
)

// Tables restores the tables of runs for the board's pages of rollouts. Package run does it; this one may not import
// it, as it brings tensors.
type Tables struct {
	// Files lists, below a run's folder, all files that Last may read.
	Files []string
	// Last returns the table in a run's last checkpoint, with its tokenizer if it has one, or the address of a table in
	// a service. Nil: no page shows rollouts.
	Last func(dir string) (table browse.Table, address string, err error)

	// PolicyFiles lists, below a run's folder, all files that Policy may read.
	PolicyFiles []string
	// Policy returns what scores rollouts as the policy of a run's last checkpoint. Nil: rollouts are not scored.
	Policy func(dir string) (Scorer, error)
}

// Scorer scores rollouts. Its method may be called concurrently.
type Scorer interface {
	Score(ctx context.Context, r *rollout.Rollout) (logprobs []float32, err error)
}

// Bounds of the restored tables that a board keeps. A table takes about as much memory as its files.
const (
	maxTables     = 2
	maxTableBytes = 1 << 30 // of the files that they were restored from

	maxPolicyBytes = 2 << 30 // of the files of the one policy that it keeps
)

// restored keeps the tables that readers looked at last.
type restored struct {
	mu   sync.Mutex // held while a table is restored: one at a time
	list []restoredTable

	scoring *semaphore.Weighted // held while a policy is read and scores: one at a time
	policy  Scorer              // the one that was asked last; nil: none
	of      string              // its run and stamp
}

type restoredTable struct {
	dir, stamp string // stamp: sizes and times of the files it was restored from
	bytes      int64
	table      browse.Table
}

// rollouts returns the rollouts of the run that a request names.
func (b *Board) rollouts(r *http.Request) (browse.Source, error) {
	dir := r.URL.Query().Get("run")
	if !fs.ValidPath(dir) {
		return nil, fmt.Errorf("run=%.100s: %w: want the folder of a run inside %s", dir, fs.ErrInvalid, b.dir)
	}
	if results.IsComparison(b.full(dir)) {
		return nil, fmt.Errorf("run=%s: %w: it is a comparison: choose one of its runs in the list", dir, fs.ErrInvalid)
	}
	stamp, bytes, err := b.checkTableFiles(dir)
	if err != nil {
		return nil, err
	}
	found, err := b.restore(dir, stamp, bytes)
	if err == nil && b.tables.Policy != nil {
		found.Policy = &lastPolicy{b, dir, stamp}
	}
	return found, err
}

// restore returns the table of a run, as it was kept if the files have not changed.
func (b *Board) restore(dir, stamp string, bytes int64) (browse.Table, error) {
	c := &b.restored
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(k restoredTable) bool { return k.dir == dir })
	if i >= 0 && c.list[i].stamp == stamp {
		return c.list[i].table, nil
	}
	if i >= 0 {
		c.list = slices.Delete(c.list, i, i+1)
	}
	c.makeRoom(bytes)
	table, address, err := b.tables.Last(b.full(dir))
	if err != nil {
		return browse.Table{}, err
	}
	if table.Table == nil {
		return browse.Table{}, fmt.Errorf("the rollouts of %s are in table %s of a service: see its dashboard, or "+
			"call reprise rollouts %[2]s", dir, address)
	}
	c.list = append(c.list, restoredTable{dir, stamp, bytes, table})
	return table, nil
}

// lastPolicy is the policy of the checkpoint whose files had a stamp.
type lastPolicy struct {
	board      *Board
	dir, stamp string
}

// Score implements [browse.Policy].
func (p *lastPolicy) Score(ctx context.Context, r *rollout.Rollout) ([]float32, string, error) {
	c := &p.board.restored
	if err := c.scoring.Acquire(ctx, 1); err != nil {
		return nil, "", err
	}
	defer c.scoring.Release(1)
	if of := p.dir + "\x00" + p.stamp; c.policy == nil || c.of != of {
		c.policy = nil // so that its memory is free for the next
		policy, err := p.read()
		if err != nil {
			return nil, "", err
		}
		c.policy, c.of = policy, of
	}
	logprobs, err := c.policy.Score(ctx, r)
	return logprobs, "the policy of the last checkpoint of " + p.dir, err
}

// read reads the policy, which must be of the same checkpoint as the table.
func (p *lastPolicy) read() (Scorer, error) {
	_, bytes, err := p.board.checkFiles(p.dir, p.board.tables.PolicyFiles)
	if err != nil {
		return nil, err
	}
	if bytes > maxPolicyBytes {
		return nil, fmt.Errorf("the policy of %s has %d MB: the board reads policies of up to %d MB: call reprise rollouts "+
			"%s --show ID --policy %[4]s", p.dir, bytes>>20, maxPolicyBytes>>20, p.board.full(p.dir))
	}
	policy, err := p.board.tables.Policy(p.board.full(p.dir))
	if err != nil {
		return nil, err
	}
	if now, _, err := p.board.checkFiles(p.dir, p.board.tables.Files); err != nil || now != p.stamp {
		return nil, errors.Join(fmt.Errorf("the run %s saved another checkpoint meanwhile: ask again", p.dir), err)
	}
	return policy, nil
}

// makeRoom lets go of the oldest tables, so that another may be restored.
func (c *restored) makeRoom(bytes int64) {
	for _, k := range c.list {
		bytes += k.bytes
	}
	for len(c.list) > 0 && (len(c.list) >= maxTables || bytes > maxTableBytes) {
		bytes -= c.list[0].bytes
		c.list = slices.Delete(c.list, 0, 1)
	}
}

// checkTableFiles refuses a run whose table would be read from outside the board's folder, or is too large.
func (b *Board) checkTableFiles(dir string) (stamp string, bytes int64, err error) {
	if _, err := b.root.Stat(path.Join(dir, results.ConfigFile)); err != nil {
		return "", 0, fmt.Errorf("run=%s is no folder of a run: %w", dir, err)
	}
	stamp, bytes, err = b.checkFiles(dir, b.tables.Files)
	if err == nil && bytes > maxTableBytes {
		err = fmt.Errorf("the checkpoint of %s has %d MB: the board restores tables of up to %d MB: call reprise rollouts %s",
			dir, bytes>>20, maxTableBytes>>20, b.full(dir))
	}
	return stamp, bytes, err
}

// checkFiles refuses files of a run that are outside the board's folder. What is not there is left out.
func (b *Board) checkFiles(dir string, names []string) (stamp string, bytes int64, err error) {
	for _, name := range names {
		file := path.Join(dir, name)
		info, err := b.root.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", 0, err
		case !info.Mode().IsRegular():
			return "", 0, fmt.Errorf("%s: is no regular file: want one as a run writes it", file)
		}
		bytes += info.Size()
		stamp += fmt.Sprintln(name, info.Size(), info.ModTime().UnixNano())
	}
	return stamp, bytes, nil
}

// rolloutsAddress returns the address of the page of a run's rollouts; "" if the board shows none.
func (b *Board) rolloutsAddress(dir string) string {
	if b.tables.Last == nil {
		return ""
	}
	return "/rollouts?" + url.Values{"run": {dir}}.Encode()
}
