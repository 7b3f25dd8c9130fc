package journal

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// crashes is how many processes are killed; REPRISE_CRASHES asks for more.
func crashes(t *testing.T) int {
	text := os.Getenv("REPRISE_CRASHES")
	if text == "" {
		return 8
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// Killed at whatever moment under load, a journal has all that was acknowledged, once, and books that balance; with interval it is a
// table as it was at some moment.
func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	for _, mode := range []Sync{Always, Off, Interval} {
		for _, kind := range []string{"queue", "window"} {
			t.Run(fmt.Sprintf("%s/%s", mode, kind), func(t *testing.T) {
				o := in(t)
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

// kill runs a child, listens to it, and kills it a while after its first promise.
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
	cmd.Env = append(os.Environ(), childPath+"="+path, childSync+"="+string(mode), childTable+"="+kind, childLife+"="+life, childRounds+"="+strconv.Itoa(rounds))
	return cmd
}

// recoverChild opens what a child left, and holds it to its promises.
func recoverChild(t *testing.T, o Options, mode Sync, kind string, p *promises) {
	t.Helper()
	j, table, recovery := reopen(t, o, childKind(kind))
	balanced(t, table)
	held := make(map[rollout.ID]*rollout.Rollout)
	for _, h := range table.Inspect().Held() {
		held[h.ID] = h.Rollout
	}
	last := rollout.ID(statsOf(table).Inserted)
	if mode == Interval { // whose acknowledgements promise nothing yet
		*p = *newPromises()
		for id, r := range held {
			if i, err := strconv.Atoi(r.Text); err != nil || !same(r, childRollout(r.PromptID, i)) {
				t.Fatalf("rollout %d is not what was inserted", id)
			}
		}
	}
	if problem := p.broken(kind, held, last); problem != "" {
		t.Fatalf("%s\n%s", problem, recovery)
	}
	for batch, first := range p.acked { // none twice: a client that got no answer asks again
		if last-first > 4*90_000 {
			continue // too many came since for it to be remembered
		}
		ids, err := table.Server().InsertOnce(ctx, batch, childBatch(batch))
		if err != nil || ids[0] != first {
			t.Fatalf("batch %s again got %v, %v, at first %d", batch, ids, err, first)
		}
	}
	if n := rollout.ID(statsOf(table).Inserted); n != last {
		t.Fatalf("%d rollouts were inserted twice", n-last)
	}
	must(t, j.Close())
}

// Once the disk takes no more, nothing is acknowledged any more, and what was acknowledged before is there.
func TestAFullDiskStopsEverything(t *testing.T) {
	o := in(t)
	must(t, create(t, o, newTable(t, childKind("window"))).Close())
	p := newPromises()
	cmd := childCommand(o.Path, Always, "window", "full", 0)
	cmd.Args = append([]string{"sh", "-c", "ulimit -f 200; exec \"$0\"", os.Args[0]}, cmd.Args[1:]...) // 200 blocks
	cmd.Path = must2(exec.LookPath("sh"))(t)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err == nil || !bytes.Contains(problems.Bytes(), []byte("writing the journal")) {
		t.Fatalf("the child gave %v and said %s", err, &problems)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
		p.hear(t, string(line))
	}
	recoverChild(t, o, Always, "window", p)
}

// A file that is cut short under the journal is an error, not the end of the process.
func TestAFileCutShortUnderneathIsAnError(t *testing.T) {
	o := in(t)
	table, random := newTable(t, replay.Options{Capacity: 200}), rollout.Stream(1, "test", 0)
	j := create(t, o, table)
	insert := func() error {
		_, err := table.Insert(ctx, aGroup(random, 8, 500, 0))
		must(t, err)
		return j.Commit(ctx)
	}
	for range 40 {
		must(t, insert())
	}
	must(t, os.Truncate(o.Path, 3*4096))
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = insert()
	}
	if err == nil {
		t.Fatal("insertions went on into a file that was cut short")
	}
	if again := insert(); again == nil || again.Error() != err.Error() || j.Stats().Err == nil {
		t.Errorf("after %v a commit gave %v", err, again)
	}
	if closing := j.Close(); closing == nil {
		t.Error("closing it gave no error")
	}
}
