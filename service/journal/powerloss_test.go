package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	losses    = flag.Int("losses", 0, "losses of power; 0: as many as the way in which tests run says")
	firstLoss = flag.Uint64("loss", 1, "seed of the first")
)

// After a loss of power at any moment, with what was not synced lost, torn into sectors or in another order, and with
// writes that fail and a disk that is full now and then, the table is the one of a moment: with always not before the
// last commit, with interval not before the last sync, which an interval ago was over, with off not before the last
// flush. With always, what was committed to be shown is there. No rollout and no batch gets an id that another had,
// whether that was committed, lost or undone by a restore.
func TestAcknowledgedDataSurvivesPowerLoss(t *testing.T) {
	n := cmp.Or(*losses, tests.Rounds(10_000, 2000, 250))
	for _, mode := range []Sync{Always, Interval, Off} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // for the intervals
				outcomes := make(map[string]int)
				for seed := *firstLoss; seed < *firstLoss+uint64(n/9+1); seed++ {
					p := newPower(t, mode, seed)
					if broken := p.run(3); broken != nil {
						t.Fatalf("seed %d: %v\n%s", seed, broken, strings.Join(p.log, "\n"))
					}
					for what, times := range p.outcomes {
						outcomes[what] += times
					}
				}
				t.Logf("%v", outcomes)
				if outcomes["torn"]*outcomes["holes"]*outcomes["written over"] == 0 && n > 100 {
					t.Errorf("%d losses of power do not show everything: %v", n, outcomes)
				}
			})
		})
	}
}

// A disk that does not sync breaks the promises, and the test finds it.
func TestPowerLossFindsMissingSyncs(t *testing.T) {
	for _, mode := range []Sync{Always, Interval, Off} {
		synctest.Test(t, func(t *testing.T) {
			for seed := range uint64(300) {
				p := newPower(t, mode, seed)
				p.Simulated.Lazy = true
				if broken := p.run(3); broken != nil {
					return
				}
			}
			t.Errorf("%s: 300 losses of power do not find that nothing is synced", mode)
		})
	}
}

// power is a table that is used while the power is lost.
type power struct {
	*user
	*disktest.Simulated
	options Options
	journal *Journal

	moments  []moment   // what the table was at each cut
	shown    rollout.ID // the newest that was committed to be shown
	least    int        // the earliest that may be recovered
	log      []string
	outcomes map[string]int
}

// Rename counts the segments that are written over others.
func (p *power) Rename(from, to string) error {
	err := p.Simulated.Rename(from, to)
	if err == nil && filepath.Base(from) == "spare" {
		p.outcomes["written over"]++
	}
	return err
}

// moment is what a table was, and the newest id that it had given.
type moment struct {
	table string
	last  rollout.ID
}

func newPower(t *testing.T, mode Sync, seed uint64) *power {
	random := rollout.Stream(seed, "power", 0)
	d := new(disktest.Simulated)
	must(t, d.MakeFolder("/data"))
	must(t, errors.Join(d.SyncFolder("/"), d.SyncFolder("/data")))
	all := kinds()
	p := &power{user: newUser(t, all[random.IntN(len(all))], seed), Simulated: d, outcomes: make(map[string]int)}
	p.random = random
	p.options = Options{Path: "/data/j", Sync: mode, Interval: time.Second, Disk: p, slack: 2 << 10 << random.IntN(5),
		segment: 1 << 10 << random.IntN(5), page: 1 << random.IntN(13)}
	return p
}

// run goes through lives that losses of power end, and returns the promise that was broken.
func (p *power) run(lives int) error {
	defer func() {
		if p.journal != nil {
			_ = p.journal.Close()
		}
	}()
	for range lives {
		p.Simulated.LosePower(1 + p.random.IntN(120))
		p.live()
		if p.twice != nil {
			return p.twice
		}
		p.Simulated.LosePower(0)
		if p.journal != nil {
			_ = p.journal.Close() // the power is gone
			p.journal = nil
		}
		p.Simulated.Restore(p.random)
		if err := p.recover(); err != nil {
			return err
		}
	}
	return nil
}

// live uses the table until the journal fails.
func (p *power) live() {
	if p.journal == nil {
		p.moment()
		j, err := Create(p.options, []byte("a definition"), p.table)
		p.note("create: %v", err)
		if err != nil {
			return
		}
		p.journal, p.least = j, len(p.moments)-1
	}
	for range 80 {
		if err := p.act(); err != nil && !errors.Is(err, ErrNoSpace) {
			p.note("%v", err)
			return
		}
	}
}

// act does one thing with the table or the disk.
func (p *power) act() error {
	switch k := p.random.IntN(24); {
	case k < 10:
		p.step()
	case k < 16:
		return p.cut("commit", func() error { return p.journal.Commit(ctx) }, Always)
	case k < 17:
		return p.cut("flush", func() error { return p.journal.Flush(ctx) }, Always, Interval, Off)
	case k < 19:
		return p.cut("interval", func() error {
			time.Sleep(2 * p.options.Interval)
			synctest.Wait()
			return p.journal.Err()
		}, Always, Interval)
	case k < 20:
		p.Simulated.Fill(p.random.IntN(2) == 0)
		p.note("the disk is full, or not")
	case k < 21 && p.random.IntN(10) == 0:
		p.Simulated.Fail(1)
		p.note("a write or a sync will fail")
	case k < 22 && p.random.IntN(2) == 0:
		p.moment()
		last := p.moments[len(p.moments)-1].last
		err := p.journal.CommitUpTo(ctx, last)
		p.note("show up to %d: %v", last, err)
		if err == nil && p.options.Sync == Always {
			p.shown = last
		}
		return err
	case k < 22 && len(p.leases) == 0:
		var saved bytes.Buffer
		must(p.t, p.table.Snapshot(&saved))
		p.step()
		p.user.leases = nil
		must(p.t, p.table.Restore(&saved))
		return p.cut("rewrite", func() error { return p.journal.Rewrite(p.table) }, Always, Interval, Off)
	}
	return nil
}

// moment notes what the table is now, mostly without leases.
func (p *power) moment() {
	for len(p.leases) > 0 && p.random.IntN(8) > 0 {
		p.settle()
	}
	table := p.table
	if len(p.leases) > 0 {
		table = p.released()
	}
	p.moments = append(p.moments, moment{describe(p.t, table), p.table.ServiceView().LastID()})
}

// cut has the journal take a cut. With some modes it must be recovered.
func (p *power) cut(what string, how func() error, modes ...Sync) error {
	p.moment()
	err := how()
	p.note("%s: %v", what, err)
	if slices.Contains(modes, p.options.Sync) && err == nil && p.journal.Full() == nil {
		p.least = len(p.moments) - 1
	}
	return err
}

func (p *power) note(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

// recover opens the journal, and compares its table with those that were.
func (p *power) recover() error {
	j, table, found, err := Open(p.options, builder(p.o, nil))
	if errors.Is(err, os.ErrNotExist) && p.least == 0 && len(p.moments) == 1 {
		p.outcomes["not created"]++
		p.moments = nil
		return nil
	}
	if err != nil {
		return err
	}
	p.journal, p.table, p.leases = j, table, nil
	got := describe(p.t, table)
	for i := len(p.moments) - 1; i >= p.least; i-- {
		if p.moments[i].table == got {
			if last := p.moments[i].last; last < p.shown {
				return fmt.Errorf("the rollouts up to %d were shown: those after %d are lost: %s", p.shown, last, found)
			}
			p.outcomes["recovered"]++
			if i < len(p.moments)-1 {
				p.outcomes["as of earlier"]++
			}
			if found.Torn > 0 {
				p.outcomes["torn"]++
			}
			if found.Left > 0 {
				p.outcomes["holes"]++
			}
			p.note("recovered as of moment %d of %d: %s", i, len(p.moments), found)
			p.moments, p.least, p.shown = []moment{{got, table.ServiceView().LastID()}}, 0, 0
			return nil
		}
	}
	for i, m := range p.moments {
		if m.table == got {
			return fmt.Errorf("the table is that of moment %d: want moment %d at least: %s", i, p.least, found)
		}
	}
	return fmt.Errorf("the table is none that was: %s\n%s\nwant for example\n%s", found, got,
		p.moments[len(p.moments)-1].table)
}

// describe writes down everything that must be recovered of a table.
func describe(t testing.TB, table *replay.Table) string {
	t.Helper()
	var b strings.Builder
	stats := must2(json.Marshal(statsOf(table)))(t)
	fmt.Fprintf(&b, "%s %v\n", stats, table.Version())
	for _, h := range table.Inspect().Held() {
		content := must2(h.Rollout.MarshalBinary())(t)
		h.Rollout, h.Probability = nil, 0
		fmt.Fprintf(&b, "%v %x\n", h, rollout.Stream(1, string(content), 0).Uint64())
	}
	return b.String()
}
