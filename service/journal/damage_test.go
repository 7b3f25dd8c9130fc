package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// sample returns a small journal with pages of every kind: branches and leaves of each bucket, free pages, two meta
// pages. ever is every rollout that was in it. Seeds differ in the order of the pages.
func sample(t testing.TB, seed uint64) (file []byte, kind replay.Options, ever map[rollout.ID]replay.Stored) {
	t.Helper()
	o := in(t)
	o.Sync, o.Interval = Off, time.Hour // transactions do not hang on the clock
	kind = replay.Options{Capacity: 400}
	u := newUser(t, kind, seed)
	j := create(t, o, u.table)
	ever = make(map[rollout.ID]replay.Stored)
	for range 260 {
		u.insert()
		for _, h := range u.table.Inspect().Held() {
			ever[h.ID] = storedOf(h)
		}
		if u.random.IntN(4) == 0 {
			if _, err := u.table.Sample(ctx, rollout.Request{Size: 3}); err != nil &&
				!errors.Is(err, rollout.ErrStarved) {
				t.Fatal(err)
			}
		}
		if u.random.IntN(20) == 0 {
			must(t, j.Commit(ctx))
		}
	}
	_, err := u.table.Sample(ctx, rollout.Request{Size: 400})
	must(t, err)
	must(t, j.Close())
	file = fileOf(t, o.Path)
	report := verifyBytes(t, file)
	if !report.Whole() || report.Rollouts != 400 || report.Uses < 300 {
		t.Fatalf("a journal just written: %s", report)
	}
	return file, kind, ever
}

// fileOf returns the pages of a file that were ever in use, without the part that it has grown by in advance.
func fileOf(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	must(t, err)
	report := verifyBytes(t, file)
	return file[:int(report.Pages)*report.PageSize]
}

func verifyBytes(t testing.TB, file []byte) *Report {
	t.Helper()
	_, _, report := examineBytes(bytes.NewReader(file), int64(len(file)), false)
	return report
}

// facts returns a hash of each record, by name.
func facts(t testing.TB, c *content) map[string]uint64 {
	t.Helper()
	m := make(map[string]uint64)
	if c == nil {
		return m
	}
	for _, k := range c.rollouts {
		b, err := appendStored(nil, &k)
		must(t, err)
		m[fmt.Sprint("rollout ", k.ID)] = maphash.Bytes(fixed, b[useLength:]) // the use that counts is the last, below
		m[fmt.Sprint("use ", k.ID)] = maphash.Bytes(fixed, b[:useLength])
	}
	for _, q := range c.requests {
		m[fmt.Sprint("request ", q.number)] = maphash.Bytes(fixed, appendRequest(nil, &q.Insertion))
	}
	for key, payload := range c.state {
		m["state "+key] = maphash.Bytes(fixed, payload)
	}
	return m
}

var fixed = maphash.MakeSeed()

// Whatever bits are flipped, bytes lost or sectors cleared, either damage is reported or the content is unchanged. No
// record counts as intact that was never written: a wrong branch can at worst lead to rollouts that had been removed.
func TestNoDamageGoesUnnoticed(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("pages laid out by seed ", seed), func(t *testing.T) { noDamageGoesUnnoticed(t, seed) })
	}
}

func noDamageGoesUnnoticed(t *testing.T, seed uint64) {
	file, _, ever := sample(t, seed)
	_, whole, _ := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	want := facts(t, whole)
	random := rollout.Stream(3, "damage", 0)
	found, missed := 0, 0
	check := func(what string, damaged []byte) {
		t.Helper()
		_, c, report := examineBytes(bytes.NewReader(damaged), int64(len(damaged)), true)
		if report.Whole() {
			missed++
			if !maps.Equal(facts(t, c), want) {
				t.Fatalf("%s went unnoticed: %s", what, report)
			}
			return
		}
		found++
		if c == nil {
			return
		}
		got := facts(t, c)
		for _, k := range c.rollouts {
			key := fmt.Sprint("rollout ", k.ID)
			if was, ok := want[key]; ok && was != got[key] || !ok && !sameStored(t, k, ever[k.ID]) {
				t.Fatalf("%s: %s counts as whole, and is not what was written: %s", what, key, report)
			}
		}
	}
	for range 200 {
		damaged := bytes.Clone(file)
		what := damage(random, damaged)
		check(what, damaged)
	}
	pages := len(file) / 4096
	for p := range pages { // what a branch leads to first may be any other page: an older one of the same keys, too
		if (page{pageID(p), file[p*4096:]}).flags() != branchPage {
			continue
		}
		for to := range pages {
			damaged := bytes.Clone(file)
			binary.NativeEndian.PutUint64(damaged[p*4096+pageHeader+8:], uint64(to))
			check(fmt.Sprintf("branch page %d leads to page %d first", p, to), damaged)
		}
	}
	for p := range pages { // headers and the first elements of each page, where all is structure
		for range 2 {
			damaged := bytes.Clone(file)
			at := p*4096 + random.IntN(96)
			damaged[at] ^= 1 << random.IntN(8)
			check(fmt.Sprintf("byte %d of page %d", at%4096, p), damaged)
		}
	}
	for _, n := range []int{0, 1, 79, 80, 4095, 4096, 8191, 8192, 12288, len(file) / 2, len(file) - 4096,
		len(file) - 1} {
		_, _, report := examineBytes(bytes.NewReader(file[:n]), int64(n), false)
		if report.Whole() {
			t.Errorf("a file cut short to %d of %d bytes counts as whole", n, len(file))
		}
	}
	t.Logf("%d damages were found, %d did no harm", found, missed)
	if found < 200 {
		t.Errorf("only %d damages were found", found)
	}
}

// older reports whether the last transaction's meta page is damaged, so that a report is of the one before.
func older(r *Report) bool {
	return slices.ContainsFunc(r.Damage, func(d Damage) bool { return d.Bucket == "" && d.Page < 2 })
}

// stateLost reports whether the table's state may be lost. Without it the number of missing rollouts is unknown.
func stateLost(r *Report) bool {
	return older(r) || slices.ContainsFunc(r.Damage,
		func(d Damage) bool { return d.Bucket == stateBucket || d.Bucket == "" })
}

// damage changes a few bits, a sector, or a stretch of bytes.
func damage(r *rand.Rand, file []byte) string {
	switch k := r.IntN(10); {
	case k < 7:
		var at []int
		for range 1 + r.IntN(3) {
			at = append(at, r.IntN(len(file)))
			file[at[len(at)-1]] ^= 1 << r.IntN(8)
		}
		return fmt.Sprintf("bits of bytes %v", at)
	case k < 8:
		at := r.IntN(len(file)/512) * 512
		clear(file[at : at+512])
		return fmt.Sprintf("sector at %d cleared", at)
	case k < 9:
		from, to := r.IntN(len(file)/4096)*4096, r.IntN(len(file)/4096)*4096
		copy(file[to:to+4096], bytes.Clone(file[from:from+4096]))
		return fmt.Sprintf("page at %d written to %d", from, to)
	default:
		at, n := r.IntN(len(file)-100), r.IntN(100)
		for i := range n {
			file[at+i] = byte(r.Uint32())
		}
		return fmt.Sprintf("%d bytes at %d", n, at)
	}
}

// bbolt must not fail on a file without reported damage: it opens and can be written to.
func TestAFileThatVerifiesCanBeOpened(t *testing.T) {
	file, kind, _ := sample(t, 5)
	random := rollout.Stream(4, "damage", 0)
	opened := 0
	for i := range 100 {
		damaged := bytes.Clone(file)
		what := damage(random, damaged)
		if !verifyBytes(t, damaged).Whole() {
			continue
		}
		o := Options{Path: filepath.Join(t.TempDir(), fmt.Sprint(i)), Sync: Off}
		must(t, os.WriteFile(o.Path, damaged, 0o600))
		j, table, _, err := Open(o, builder(kind, nil))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		random := rollout.Stream(uint64(i), "more", 0)
		for range 10 {
			_, err := table.Insert(ctx, aGroup(random, 8, 5, 0))
			must(t, err)
			must(t, j.Commit(ctx))
		}
		must(t, j.Close())
		if report := must2(Verify(o.Path))(t); !report.Whole() {
			t.Fatalf("%s, then written to: %s", what, report)
		}
		opened++
	}
	if opened < 8 {
		t.Errorf("only %d files were opened", opened)
	}
}

// A damaged journal is refused with the damage named. Salvage saves the rest, which opens and counts what is missing.
func TestSalvageSavesTheRestOfADamagedJournal(t *testing.T) {
	file, kind, ever := sample(t, 5)
	_, whole, _ := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	want := facts(t, whole)
	random := rollout.Stream(5, "damage", 0)
	saved, partly := 0, 0
	for i := range 40 {
		folder := t.TempDir()
		damaged := bytes.Clone(file)
		what := damage(random, damaged)
		if verifyBytes(t, damaged).Whole() {
			continue
		}
		o, salvaged := Options{Path: filepath.Join(folder, "damaged"), Sync: Off},
			Options{Path: filepath.Join(folder, "salvaged"), Sync: Off}
		must(t, os.WriteFile(o.Path, damaged, 0o600))
		_, _, _, err := Open(o, builder(kind, nil))
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "page ") ||
			!strings.Contains(err.Error(), "reprise journal salvage "+o.Path) {
			t.Fatalf("%s: opening it gave %v", what, err)
		}
		report, err := Salvage(o.Path, salvaged.Path)
		if err != nil {
			t.Fatalf("%d: %s: %v\n%s", i, what, err, report)
		}
		j, table, recovery := reopen(t, salvaged, kind)
		balanced(t, table)
		for _, h := range table.Inspect().Held() {
			// it may have been removed, where pages that lead to others are damaged
			if !sameStored(t, storedOf(h), ever[h.ID]) {
				t.Fatalf("%s: rollout %d came back as %+v", what, h.ID, h)
			}
		}
		if recovery.Lost+table.ServiceView().Flow().Present != 400 && !stateLost(report) ||
			table.ServiceView().Flow().Present < 300 {
			t.Fatalf("%s: %d rollouts and %d lost of 400\n%s", what, table.ServiceView().Flow().Present,
				recovery.Lost, report)
		}
		if recovery.Lost > 0 {
			partly++
		}
		_, err = table.Insert(ctx, aGroup(random, 4, 4, 0))
		must(t, err)
		must(t, j.Close())
		j, again, recovery := reopen(t, salvaged, kind) // by now a journal as any other
		sameTables(t, table, again)
		if recovery.Salvaged {
			t.Fatal("it counts as salvaged for ever")
		}
		must(t, j.Close())
		saved++
	}
	t.Logf("%d were saved, %d of them in part", saved, partly)
	if saved < 15 || partly < 6 || len(want) == 0 {
		t.Errorf("%d were saved, %d of them in part", saved, partly)
	}
}

// If the record of the definition is damaged, an older page still has it.
func TestSalvageFindsTheDefinitionOnAnOlderPage(t *testing.T) {
	file, kind, _ := sample(t, 5)
	_, whole, _ := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	r, err := newReader(bytes.NewReader(file), int64(len(file)))
	must(t, err)
	leaf := r.rootBuckets()[stateBucket].root
	definition := whole.state[definitionKey]
	at := bytes.Index(file[leaf*4096:], definition) + int(leaf)*4096
	file[at+len(definition)/2] ^= 4
	folder := t.TempDir()
	from, to := filepath.Join(folder, "from"), filepath.Join(folder, "to")
	must(t, os.WriteFile(from, file, 0o600))
	report, err := Salvage(from, to)
	if err != nil || report.Whole() {
		t.Fatalf("%v\n%s", err, report)
	}
	j, table, recovery := reopen(t, Options{Path: to, Sync: Off}, kind)
	if table.ServiceView().Flow().Present != 400 || recovery.Lost != 0 {
		t.Errorf("%d rollouts came back, %d lost: only the definition was damaged", table.ServiceView().Flow().Present,
			recovery.Lost)
	}
	must(t, j.Close())
}

// Without the root page, or with the older of two meta pages, rollouts are found.
func TestSalvageFindsRolloutsWithoutTheRoot(t *testing.T) {
	file, kind, _ := sample(t, 5)
	m, _, err := readMetas(bytes.NewReader(file), int64(len(file)))
	must(t, err)
	for what, harm := range map[string]func(b []byte){
		"the root page": func(b []byte) { clear(b[int(m.root)*4096 : int(m.root+1)*4096]) },
		"the later meta page": func(b []byte) {
			if binary.NativeEndian.Uint64(b[16+48:]) == m.transaction {
				clear(b[:4096])
			} else {
				clear(b[4096:8192])
			}
		},
	} {
		damaged := bytes.Clone(file)
		harm(damaged)
		folder := t.TempDir()
		from, to := filepath.Join(folder, "from"), filepath.Join(folder, "to")
		must(t, os.WriteFile(from, damaged, 0o600))
		report, err := Salvage(from, to)
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, report)
		}
		j, table, _ := reopen(t, Options{Path: to, Sync: Off}, kind)
		balanced(t, table)
		if table.ServiceView().Flow().Present < 350 {
			t.Errorf("%s lost: %d rollouts came back\n%s", what, table.ServiceView().Flow().Present, report)
		}
		must(t, j.Close())
	}
}

func TestSalvageNeedsAMetaPage(t *testing.T) {
	file, _, _ := sample(t, 5)
	clear(file[:8192])
	from := filepath.Join(t.TempDir(), "from")
	must(t, os.WriteFile(from, file, 0o600))
	if _, err := Salvage(from, from+".to"); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "neither of its two meta pages") {
		t.Errorf("salvaging it gave %v", err)
	}
}

func TestSalvageCopiesAnIntactJournal(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 20}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	j.Attach("prompts", func() ([]byte, error) { return []byte("content"), nil })
	for range 100 {
		u.step()
	}
	must(t, j.Close())
	report, err := Salvage(o.Path, o.Path+".copy")
	must(t, err)
	if !report.Whole() || !strings.Contains(report.String(), "; whole") {
		t.Errorf("%s", report)
	}
	if _, err := Salvage(o.Path, o.Path+".copy"); !errors.Is(err, os.ErrExist) {
		t.Errorf("salvaging into a file that exists gave %v", err)
	}
	j, table, recovery := reopen(t, Options{Path: o.Path + ".copy"}, kind)
	sameTables(t, u.released(), table)
	if recovery.Salvaged || string(recovery.Blobs["prompts"]) != "content" {
		t.Errorf("%s, %q", recovery, recovery.Blobs)
	}
	must(t, j.Close())
}

func TestOtherFilesAreRefused(t *testing.T) {
	o := in(t)
	for _, content := range []string{"", "hello", strings.Repeat("x", 100_000)} {
		must(t, os.WriteFile(o.Path, []byte(content), 0o600))
		if _, _, _, err := Open(o, builder(replay.Options{}, nil)); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), "this is no journal") {
			t.Errorf("opening %d bytes gave %v", len(content), err)
		}
		if _, err := Salvage(o.Path, o.Path+".out"); !errors.Is(err, ErrDamaged) {
			t.Errorf("salvaging %d bytes gave %v", len(content), err)
		}
	}
	if _, err := Verify(filepath.Dir(o.Path)); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("verifying a folder gave %v", err)
	}
}

// pagesOf returns the pages with given flags that a file's tree leads to.
func pagesOf(t testing.TB, file []byte, flags uint16) (list []pageID) {
	t.Helper()
	r, _, report := examineBytes(bytes.NewReader(file), int64(len(file)), false)
	if !report.Whole() {
		t.Fatalf("%s", report)
	}
	for p := pageID(2); p < r.meta.high; p++ {
		b := file[int(p)*report.PageSize:]
		if r.used[p/64]&(1<<(p%64)) != 0 && pageID(binary.NativeEndian.Uint64(b)) == p &&
			(page{p, b}).flags() == flags {
			list = append(list, p)
		}
	}
	return list
}

// Lookups would fail, although every record is there.
func TestSwappedChildrenOfABranchAreDetected(t *testing.T) {
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

// bbolt would free both pages, although one is in use.
func TestOverlappingPagesAreDetected(t *testing.T) {
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

// The state of the table tells how many rollouts it held.
func TestSalvageDoesNotReviveConsumedRollouts(t *testing.T) {
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
	if again.ServiceView().Flow().Present != 120 || recovery.Lost != 0 || again.Inspect().Held()[0].ID != 81 {
		t.Errorf("%d rollouts came back, the first is %d: %s", again.ServiceView().Flow().Present,
			again.Inspect().Held()[0].ID, recovery)
	}
}

// FuzzDamage changes bytes of a journal. An edit is a position (4 bytes) and a mask (1 byte). Either damage is
// reported, or the content is unchanged.
func FuzzDamage(f *testing.F) {
	file, _, _ := sample(f, 5)
	_, whole, _ := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	want := facts(f, whole)
	for _, at := range []uint32{8, 16, 4096 + 70, 8192 + 10, 3 * 4096, uint32(whole.totals.Commit) * 4096} {
		f.Add(append(binary.LittleEndian.AppendUint32(nil, at), 1))
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		damaged := bytes.Clone(file)
		for ; len(edits) >= 5; edits = edits[5:] {
			damaged[int(binary.LittleEndian.Uint32(edits))%len(damaged)] ^= edits[4]
		}
		_, c, report := examineBytes(bytes.NewReader(damaged), int64(len(damaged)), true)
		if report.Whole() && !maps.Equal(facts(t, c), want) {
			t.Fatalf("unnoticed: %s", report)
		}
	})
}

// FuzzFile reads and salvages arbitrary files.
func FuzzFile(f *testing.F) {
	o := in(f)
	u := newUser(f, replay.Options{Capacity: 4}, 1)
	j := create(f, o, u.table)
	u.insert()
	must(f, j.Close())
	file := fileOf(f, o.Path)
	f.Add(file)
	f.Add(file[:8192])
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, c, report := examineBytes(bytes.NewReader(file), int64(len(file)), true)
		if c == nil {
			if report.Whole() {
				t.Fatal("what is no journal counts as whole")
			}
			return
		}
		if len(r.lost) > 0 {
			r.adoptOrphans(c)
		}
		if _, err := c.batch(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRecord decodes arbitrary records.
func FuzzRecord(f *testing.F) {
	u := newUser(f, replay.Options{Capacity: 4}, 1)
	u.table.JournalView().Track()
	u.insert()
	entries, err := encodeRollouts(newArena(), u.table.JournalView().Cut().Inserted, true)
	must(f, err)
	for _, en := range entries {
		f.Add(en.key, en.record)
	}
	f.Fuzz(func(t *testing.T, key, record []byte) {
		for _, bucket := range buckets() {
			var c content
			if _, err := c.decode(bucket, element{key: key, value: record}, true); err != nil {
				continue
			}
			if len(c.rollouts) == 1 { // written again it is the same
				again, err := encodeRollouts(newArena(), c.rollouts, true)
				must(t, err)
				if !bytes.Equal(again[0].key, key) || len(again[0].record) < headerLength {
					t.Fatalf("%x became %x", key, again[0].key)
				}
			}
		}
	})
}
