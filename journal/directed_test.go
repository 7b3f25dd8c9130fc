package journal

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// pagesOf returns the pages of a kind that a file's tree leads to.
func pagesOf(t testing.TB, file []byte, flags uint16) (list []pageID) {
	t.Helper()
	r, _, report := examineBytes(bytes.NewReader(file), int64(len(file)), false)
	if !report.Whole() {
		t.Fatalf("%s", report)
	}
	for p := pageID(2); p < r.meta.high; p++ {
		b := file[int(p)*report.PageSize:]
		if r.used[p/64]&(1<<(p%64)) != 0 && pageID(binary.NativeEndian.Uint64(b)) == p && (page{p, b}).flags() == flags {
			list = append(list, p)
		}
	}
	return list
}

// Searches that would go astray are found, though every record is there.
func TestABranchWhoseChildrenAreExchangedIsFound(t *testing.T) {
	file, _, _ := sample(t, 5)
	branches := pagesOf(t, file, branchPage)
	if len(branches) < 2 {
		t.Fatalf("the sample has %d branches", len(branches))
	}
	for _, p := range branches {
		damaged := bytes.Clone(file)
		b := damaged[int(p)*4096+pageHeader:]
		one, other := b[8:16], b[elementLength+8:elementLength+16]
		kept := bytes.Clone(one)
		copy(one, other)
		copy(other, kept)
		if report := verifyBytes(t, damaged); report.Whole() {
			t.Errorf("page %d: %s", p, report)
		}
	}
}

// A page that claims its neighbour is found: with it bbolt would free what is in use.
func TestAPageThatReachesIntoAnotherIsFound(t *testing.T) {
	file, _, _ := sample(t, 5)
	leaves := pagesOf(t, file, leafPage)
	found := 0
	for i, p := range leaves[:len(leaves)-1] {
		if leaves[i+1] != p+1 {
			continue
		}
		damaged := bytes.Clone(file)
		binary.NativeEndian.PutUint32(damaged[int(p)*4096+12:], 1)
		if report := verifyBytes(t, damaged); report.Whole() {
			t.Errorf("page %d: %s", p, report)
		}
		found++
	}
	if found < 5 {
		t.Errorf("only %d leaves have a neighbour", found)
	}
}

// What waits behind a cut that voids all before it is written too.
func TestBatchesAroundARewritingAreWrittenInOrder(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 16}
	u := newUser(t, kind, 1)
	j := newJournal(o.withDefaults(), []byte("a definition"), u.table)
	cut := func() *batch {
		b, err := j.cut(nil)
		must(t, err)
		return b
	}
	u.table.Durable().Track()
	s, err := writeAnew(o.Path, j.definition, DefaultLockTimeout, cut(), false)
	must(t, err)
	j.store = s
	u.insert()
	before := cut()
	u.table.Durable().Track()
	anew := cut()
	u.insert()
	after := cut()
	wrote, err := j.write([]*batch{before, anew, after})
	must(t, err)
	if !wrote {
		t.Error("nothing was written")
	}
	must(t, j.store.db.Close())
	_, again, _ := reopenAndClose(t, o, kind)
	sameTables(t, u.table, again)
}

func TestRewritingWhatDidNotChangeLosesNothing(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 16}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	j.Attach("prompts", func() ([]byte, error) { return []byte("content"), nil })
	u.insert()
	must(t, j.Flush(ctx))
	must(t, j.Rewrite(u.table))
	must(t, j.Rewrite(u.table))
	must(t, j.Close())
	_, again, recovery := reopenAndClose(t, o, kind)
	sameTables(t, u.table, again)
	if string(recovery.Blobs["prompts"]) != "content" {
		t.Errorf("the blobs are %q", recovery.Blobs)
	}
}

// What was consumed does not come back with the rest of a damaged queue, as long as its books are whole.
func TestWhatWasConsumedIsNotSaved(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 1000, Sampler: replay.FIFO}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	for range 50 {
		_, err := u.table.Insert(ctx, aGroup(u.random, 4, 200, 0))
		must(t, err)
	}
	must(t, j.Commit(ctx))
	_, err := u.table.Sample(ctx, rollout.Request{Size: 80})
	must(t, err)
	must(t, j.Close())
	file := fileOf(t, o.Path)
	for _, p := range pagesOf(t, file, branchPage) {
		clear(file[int(p)*4096 : int(p+1)*4096])
	}
	from := filepath.Join(t.TempDir(), "from")
	must(t, os.WriteFile(from, file, 0o600))
	report, err := Salvage(from, from+".to")
	must(t, err)
	if report.Orphans == 0 {
		t.Errorf("nothing was found beside the tree: %s", report)
	}
	_, again, recovery := reopenAndClose(t, Options{Path: from + ".to"}, kind)
	if again.Server().Flow().Present != 120 || recovery.Lost != 0 || again.Inspect().Held()[0].ID != 81 {
		t.Errorf("%d rollouts came back, the first is %d: %s", again.Server().Flow().Present, again.Inspect().Held()[0].ID, recovery)
	}
}
