package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// crashes returns how many processes are killed. REPRISE_CRASHES sets it.
func crashes(t *testing.T) int {
	text := os.Getenv("REPRISE_CRASHES")
	if text == "" {
		return 8
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// After a kill at any moment under load, everything acknowledged is there, once, and the counts balance.
func TestAcknowledgedDataSurvivesKill(t *testing.T) {
	for _, mode := range []Sync{Always, Off, Interval} {
		for _, kind := range []string{"queue", "window"} {
			t.Run(fmt.Sprintf("%s/%s", mode, kind), func(t *testing.T) {
				o := onDisk(t)
				must(t, create(t, o, newTable(t, childKind(kind))).Close())
				p, random := newPromises(), rollout.Stream(uint64(time.Now().UnixNano()), "crash", 0)
				for life := range max(1, crashes(t)/6) {
					kill(t, o.Path, mode, kind, life, p, time.Duration(5+random.IntN(120))*time.Millisecond)
					if report := must2(Verify(o.Path))(t); !report.Whole() {
						t.Fatalf("%s", report)
					}
					recoverChild(t, o, mode, kind, p)
				}
				t.Logf("%d batches were acknowledged, %d rollouts consumed", len(p.acked), len(p.consumed))
			})
		}
	}
}

// kill runs a child, records its promises, and kills it a while after the first.
func kill(t *testing.T, path string, mode Sync, kind string, life int, p *promises, after time.Duration) {
	t.Helper()
	cmd := childCommand(path, mode, kind, fmt.Sprint("life", life), 0)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		p.hear(t, lines.Text())
		if first {
			time.AfterFunc(after, func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended
		}
	}
	if err := cmd.Wait(); err == nil || problems.Len() > 0 {
		t.Fatalf("the child ended by itself: %v\n%s", err, &problems)
	}
}

func childCommand(path string, mode Sync, kind, life string, rounds int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childPath+"="+path, childSync+"="+string(mode), childTable+"="+kind,
		childLife+"="+life, childRounds+"="+strconv.Itoa(rounds))
	return cmd
}

// recoverChild opens the journal that a child left, and checks the promises.
func recoverChild(t *testing.T, o Options, mode Sync, kind string, p *promises) {
	t.Helper()
	j, table, recovery := reopen(t, o, childKind(kind))
	balanced(t, table)
	held := make(map[rollout.ID]*rollout.Rollout)
	for _, h := range table.Inspect().Held() {
		held[h.ID] = h.Rollout
	}
	inserted := statsOf(table).Inserted
	if problem := p.broken(kind, held); problem != "" {
		t.Fatalf("%s\n%s", problem, recovery)
	}
	for batch, first := range p.acked { // none twice: a client that got no answer asks again
		if len(p.given)-p.given[first].number > 90_000 {
			continue // too many came since for it to be remembered
		}
		ids, err := table.ServiceView().InsertOnce(ctx, batch, childBatch(batch))
		if err != nil || ids[0] != first {
			t.Fatalf("batch %s again got %v, %v, at first %d", batch, ids, err, first)
		}
	}
	if n := statsOf(table).Inserted; n != inserted {
		t.Fatalf("%d rollouts were inserted twice", n-inserted)
	}
	must(t, j.Close())
}

// On a full disk nothing more is acknowledged, and everything acknowledged before is there.
func TestAFullDiskStopsAcknowledgements(t *testing.T) {
	o := onDisk(t)
	must(t, create(t, o, newTable(t, childKind("window"))).Close())
	p := newPromises()
	cmd := childCommand(o.Path, Always, "window", wholeLife, 0)
	cmd.Args = append([]string{"sh", "-c", "ulimit -f 200; exec \"$0\"", os.Args[0]}, cmd.Args[1:]...) // 200 blocks
	cmd.Path = must2(exec.LookPath("sh"))(t)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	// The limit is met by a write of an insertion, or by what is written when it is synced.
	if err == nil || !bytes.Contains(problems.Bytes(), []byte("ing the journal "+o.Path)) ||
		!bytes.Contains(problems.Bytes(), []byte("file too large")) {
		t.Fatalf("the child gave %v and said %s", err, &problems)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
		p.hear(t, string(line))
	}
	recoverChild(t, o, Always, "window", p)
}

// A child is a process that inserts under load and is killed. It prints each promise with one write: "given B I N" when
// batch B of N rollouts gets the IDs from I on; "acked B I N" once it is committed; "handed I…" before rollouts of a
// queue are consumed, and "consumed I…" once that is committed.
const (
	childPath   = "REPRISE_JOURNAL_CHILD"        // of the journal, which exists
	childSync   = "REPRISE_JOURNAL_CHILD_SYNC"   // its Options.Sync
	childTable  = "REPRISE_JOURNAL_CHILD_TABLE"  // queue, window, or anew for a process that makes the file
	childLife   = "REPRISE_JOURNAL_CHILD_LIFE"   // names its batches
	childRounds = "REPRISE_JOURNAL_CHILD_ROUNDS" // insertions of each client; 0: for ever
	wholeLife   = "full"                         // the name of a life whose log is not trimmed all the time
)

const (
	childClients = 6
	childGroup   = 4
	childWindow  = 64 // capacity of the window
)

// childKind returns the table of a child: a queue, whose rollouts leave when consumed, or a window of the newest.
func childKind(name string) replay.Options {
	if name == "queue" {
		return replay.Options{Sampler: replay.FIFO, Capacity: 2000}
	}
	return replay.Options{Capacity: childWindow}
}

// childRollout returns the i-th rollout of a batch. Its content follows from the names.
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

// runChild is the main function of a child.
func runChild(path string) {
	if os.Getenv(childTable) == "anew" {
		makeAnew(path)
	}
	kind := childKind(os.Getenv(childTable))
	o := Options{Path: path, Sync: Sync(os.Getenv(childSync)), Interval: 3 * time.Millisecond}
	if os.Getenv(childLife) != wholeLife {
		o.slack, o.segment = 8<<10, 8<<10 // segments are written over others
	}
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

// makeAnew creates a journal, rewrites it several times, and reports each.
func makeAnew(path string) {
	table, err := replay.New(childKind("window"))
	check(err)
	var j *Journal
	for i := range 5 {
		ids, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint("anew-", i), childBatch(fmt.Sprint("anew-", i)))
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
	ids, err := table.ServiceView().InsertOnce(ctx, batch, childBatch(batch))
	if errors.Is(err, rollout.ErrFull) {
		time.Sleep(time.Millisecond)
		return
	}
	check(err)
	say("given %s %d %d", batch, ids[0], len(ids))
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

// promises records what children printed.
type promises struct {
	given    map[rollout.ID]given  // by first id
	acked    map[string]rollout.ID // first id of each batch
	handed   map[rollout.ID]bool
	consumed map[rollout.ID]bool
}

// given is a batch that got ids, and how many did before.
type given struct {
	batch  string
	number int
}

func newPromises() *promises {
	return &promises{make(map[rollout.ID]given), make(map[string]rollout.ID), make(map[rollout.ID]bool),
		make(map[rollout.ID]bool)}
}

// hear records one line.
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
	case "given":
		if before, ok := p.given[ids[0]]; ok {
			t.Fatalf("batch %s got the id %d, which batch %s had", words[1], ids[0], before.batch)
		}
		p.given[ids[0]] = given{words[1], len(p.given)}
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

// broken returns how a recovered table breaks the promises, "" if it keeps them.
func (p *promises) broken(kind string, held map[rollout.ID]*rollout.Rollout) string {
	oldest := rollout.ID(math.MaxUint64)
	for id := range held {
		oldest = min(oldest, id)
	}
	for batch, first := range p.acked {
		for i := range childGroup {
			id := first + rollout.ID(i)
			r := held[id]
			switch {
			case r == nil && kind == "queue" && !p.handed[id]:
				return fmt.Sprintf("rollout %d of %s was acknowledged and never handed out, and is lost", id, batch)
			case r == nil && kind == "window" && (id > oldest || len(held) < childWindow):
				return fmt.Sprintf("rollout %d of %s was acknowledged, is newer than rollout %d, and is lost", id, batch,
					oldest)
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
