package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// A child is a process of its own that inserts under load and is killed. What it was promised it says on its standard output, a
// line and a write each: "acked B I N" once batch B of N rollouts from ID I on is committed; "handed I…" before rollouts of
// a queue are consumed, and "consumed I…" once that is committed.
const (
	childPath   = "REPRISE_JOURNAL_CHILD"        // of the journal, which exists
	childSync   = "REPRISE_JOURNAL_CHILD_SYNC"   // its Options.Sync
	childTable  = "REPRISE_JOURNAL_CHILD_TABLE"  // queue, window, or anew for a process that makes the file
	childLife   = "REPRISE_JOURNAL_CHILD_LIFE"   // names its batches
	childRounds = "REPRISE_JOURNAL_CHILD_ROUNDS" // insertions of each client; 0: for ever
)

const (
	childClients = 6
	childGroup   = 4
	childWindow  = 64 // capacity of the window
)

// childKind is the table of a child: a queue, whose rollouts leave when they are consumed, or a window on the newest.
func childKind(name string) replay.Options {
	if name == "queue" {
		return replay.Options{Sampler: replay.FIFO, Capacity: 2000}
	}
	return replay.Options{Capacity: childWindow}
}

// childRollout is the i-th rollout of a batch: whoever knows the names knows the content.
func childRollout(batch string, i int) *rollout.Rollout {
	r := aRollout(rollout.Stream(1, batch, uint64(i)), 20+len(batch)*i, 0)
	r.PromptID, r.Text = batch, strconv.Itoa(i)
	return r
}

func childBatch(batch string) rollout.Group {
	g := rollout.Group{Size: childGroup}
	for i := range childGroup {
		g.Rollouts = append(g.Rollouts, childRollout(batch, i))
	}
	return g
}

// runChild never returns while it has work.
func runChild(path string) {
	if os.Getenv(childTable) == "anew" {
		makeAnew(path)
	}
	kind := childKind(os.Getenv(childTable))
	o := Options{Path: path, Sync: Sync(os.Getenv(childSync)), Interval: 3 * time.Millisecond}
	j, table, _, err := Open(o, func([]byte) (*replay.Table, error) { return replay.New(kind) })
	check(err)
	rounds, err := strconv.Atoi(os.Getenv(childRounds))
	check(err)
	var wg sync.WaitGroup
	for client := range childClients {
		wg.Go(func() {
			for i := 0; rounds == 0 || i < rounds; i++ {
				childInsert(j, table, fmt.Sprintf("%s-%d-%d", os.Getenv(childLife), client, i))
			}
		})
	}
	if kind.Sampler == replay.FIFO {
		for {
			childConsume(j, table)
		}
	}
	wg.Wait()
	os.Exit(0) // without closing anything
}

// makeAnew creates a journal and writes it anew, again and again, and says so each time.
func makeAnew(path string) {
	table, err := replay.New(childKind("window"))
	check(err)
	var j *Journal
	for i := range 5 {
		ids, err := table.Server().InsertOnce(ctx, fmt.Sprint("anew-", i), childBatch(fmt.Sprint("anew-", i)))
		check(err)
		if i == 0 {
			j, err = Create(Options{Path: path, Sync: Always}, nil, table)
		} else {
			err = j.Rewrite(table)
		}
		check(err)
		say("acked anew-%d %d %d", i, ids[0], len(ids))
	}
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(format string, args ...any) {
	_, err := os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
	check(err)
}

func childInsert(j *Journal, table *replay.Table, batch string) {
	ids, err := table.Server().InsertOnce(ctx, batch, childBatch(batch))
	if errors.Is(err, rollout.ErrFull) {
		time.Sleep(time.Millisecond)
		return
	}
	check(err)
	check(j.Commit(ctx))
	say("acked %s %d %d", batch, ids[0], len(ids))
}

func childConsume(j *Journal, table *replay.Table) {
	b, err := table.Lease(ctx, rollout.Request{Size: 5})
	if errors.Is(err, rollout.ErrStarved) {
		time.Sleep(time.Millisecond)
		return
	}
	check(err)
	var ids []string
	for _, d := range b.Draws {
		ids = append(ids, fmt.Sprint(d.ID))
	}
	say("handed %s", strings.Join(ids, " "))
	check(table.Acknowledge(context.Background(), b.ID))
	check(j.Commit(ctx))
	say("consumed %s", strings.Join(ids, " "))
}

// promises is what children said.
type promises struct {
	acked    map[string]rollout.ID // first id of each batch
	handed   map[rollout.ID]bool
	consumed map[rollout.ID]bool
}

func newPromises() *promises {
	return &promises{make(map[string]rollout.ID), make(map[rollout.ID]bool), make(map[rollout.ID]bool)}
}

// hear takes in one line.
func (p *promises) hear(t testing.TB, line string) {
	t.Helper()
	words := strings.Fields(line)
	var ids []rollout.ID
	for _, w := range words[1:] {
		if n, err := strconv.ParseUint(w, 10, 64); err == nil {
			ids = append(ids, rollout.ID(n))
		}
	}
	switch words[0] {
	case "acked":
		p.acked[words[1]] = ids[0]
	case "handed", "consumed":
		set := p.handed
		if words[0] == "consumed" {
			set = p.consumed
		}
		for _, id := range ids {
			set[id] = true
		}
	default:
		t.Fatalf("a child said %q", line)
	}
}

// broken returns what is wrong with a recovered table's content, by these promises; "" if nothing is.
func (p *promises) broken(kind string, held map[rollout.ID]*rollout.Rollout, last rollout.ID) string {
	for batch, first := range p.acked {
		for i := range childGroup {
			id := first + rollout.ID(i)
			r := held[id]
			switch {
			case id > last:
				return fmt.Sprintf("rollout %d of %s was acknowledged and is lost: the last id is %d", id, batch, last)
			case r == nil && kind == "queue" && !p.handed[id]:
				return fmt.Sprintf("rollout %d of %s was acknowledged and never handed out, and is lost", id, batch)
			case r == nil && kind == "window" && id > last-childWindow:
				return fmt.Sprintf("rollout %d of %s was acknowledged, is among the newest, and is lost", id, batch)
			case r != nil && p.consumed[id]:
				return fmt.Sprintf("rollout %d was consumed for good, and is there again", id)
			case r != nil && !same(r, childRollout(batch, i)):
				return fmt.Sprintf("rollout %d of %s is not what was inserted", id, batch)
			}
		}
	}
	return ""
}

func same(a, b *rollout.Rollout) bool {
	x, _ := a.MarshalBinary()
	y, _ := b.MarshalBinary()
	return string(x) == string(y)
}
