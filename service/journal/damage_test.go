package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal/segments"
)

// Of segments: the bytes of a header, and of a frame's.
const (
	segmentHeader = 24
	frameHeader   = 40
)

// frame is a frame of an intact segment.
type frame struct {
	offset   int
	position uint64
	message  []byte
}

func (f frame) end() int { return f.offset + frameHeader + len(f.message) }

// framesOf returns the frames of a segment, which end where another id begins.
func framesOf(b []byte) (list []frame) {
	for at := segmentHeader; at+frameHeader <= len(b); {
		if len(list) > 0 && !bytes.Equal(b[at+8:at+16], b[segmentHeader+8:][:8]) {
			break
		}
		end := at + frameHeader + int(binary.LittleEndian.Uint32(b[at:]))
		list = append(list, frame{at, binary.LittleEndian.Uint64(b[at+16:]), b[at+frameHeader : end]})
		at = end
	}
	return list
}

// sample returns a small journal of several segments that was closed, and what its table was. ever is every rollout
// that was in it. With slack it may be trimmed so often that segments are written over others.
func sample(t testing.TB, sync Sync, kind replay.Options, groups int, slack int64) (o Options, want string,
	ever map[rollout.ID]replay.Stored) {
	t.Helper()
	o = in(t)
	o.Sync, o.segment, o.slack, o.page = sync, 1500, slack, 16
	u := newUser(t, kind, 5)
	j := create(t, o, u.table)
	ever = make(map[rollout.ID]replay.Stored)
	for range groups {
		u.insert()
		for _, h := range u.table.Inspect().Held() {
			ever[h.ID] = storedOf(h)
		}
		_, err := u.table.Sample(ctx, rollout.Request{Size: 1})
		must(t, err)
		must(t, j.Commit(ctx))
	}
	must(t, j.Close())
	return o, describe(t, u.table), ever
}

// unneeded counts the bytes of a journal's segments that are no frames, but what their files had before, and those
// before its front.
func unneeded(t testing.TB, o Options) (old, trimmed int) {
	t.Helper()
	front := uint64(0)
	for _, path := range slices.Backward(segmentsIn(t, o)) {
		b := simulated(o).Content(path)
		frames := framesOf(b)
		last := frames[len(frames)-1]
		old += len(b) - last.end()
		front = max(front, binary.LittleEndian.Uint64(b[last.offset+32:]))
		for _, f := range frames {
			if f.position < front {
				trimmed += f.end() - f.offset
			}
		}
	}
	return old, trimmed
}

// Whichever byte of a journal changes, it is refused with the segment named, or its table is what it was. Salvage keeps
// all but what was in the frame, and nothing comes back that was never there. This holds for segments that were written
// over others too.
func TestNoDamageGoesUnnoticed(t *testing.T) {
	tests.OneGoroutine(t)
	t.Run("as created", func(t *testing.T) { noDamageGoesUnnoticed(t, Always, 3, 0, tests.Rounds(1, 3, 17)) })
	t.Run("sync interval", func(t *testing.T) { noDamageGoesUnnoticed(t, Interval, 3, 0, tests.Rounds(1, 3, 17)) })
	t.Run("written over others", func(t *testing.T) {
		noDamageGoesUnnoticed(t, Always, 40, 1500, tests.Rounds(13, 61, 131))
	})
}

func noDamageGoesUnnoticed(t *testing.T, sync Sync, groups int, slack int64, step int) {
	kind := replay.Options{Capacity: 12}
	o, want, ever := sample(t, sync, kind, groups, slack)
	old, trimmed := unneeded(t, o)
	for ; slack > 0 && old == 0 && groups < 60; groups++ {
		o, want, ever = sample(t, sync, kind, groups, slack)
		old, trimmed = unneeded(t, o)
	}
	whole := must2(verify(o.withDefaults()))(t)
	if !whole.Whole() || whole.Segments < 3 || whole.Torn != 0 || (slack > 0) != (old > 0) {
		t.Fatalf("a journal just written, with %d bytes of old content: %s", old, whole)
	}
	refused, recovered, total := 0, 0, 0
	for _, path := range segmentsIn(t, o) {
		for at := 0; at < len(simulated(o).Content(path)); at += step {
			o := killed(o)
			simulated(o).Content(path)[at] ^= 1 << (at % 8)
			total++
			report := must2(verify(o.withDefaults()))(t)
			saved := killed(o)
			j, table, _, err := Open(o, builder(kind, nil))
			if err == nil {
				must(t, j.Close())
				if recovered++; describe(t, table) != want || !report.Whole() {
					t.Fatalf("byte %d of %s went unnoticed: %s", at, path, report)
				}
				continue
			}
			named := strings.Contains(err.Error(), filepath.Base(path)) ||
				slack > 0 && strings.Contains(err.Error(), " missing") // the front that the last frame states
			if refused++; !errors.Is(err, ErrDamaged) || !named ||
				!strings.Contains(err.Error(), "reprise journal salvage "+o.Path) || report.Whole() {
				t.Fatalf("byte %d of %s: %v\n%s", at, path, err, report)
			}
			if missing := whole.Messages - report.Messages; missing > 1 {
				t.Fatalf("byte %d of %s costs %d messages", at, path, missing)
			}
			if total%4 == 0 && report.Definition != nil {
				salvaged(t, saved, kind, ever)
			}
		}
	}
	t.Logf("of %d changes %d were refused, %d changed nothing; %d bytes are old content, %d trimmed", total, refused,
		recovered, old, trimmed)
	// The last frame states that all is synced, and nothing says that of itself.
	if recovered > (old+trimmed)/step+2*frameHeader {
		t.Errorf("%d of %d changes are no damage", recovered, total)
	}
}

// With sync interval, a flipped bit in what was synced costs its message alone, whether or not commits follow that
// nothing syncs. In what came after the sync it may cost all that follows, as if that had never reached the disk.
func TestAFlippedBitInWhatWasSyncedCostsItsMessageAlone(t *testing.T) {
	tests.OneGoroutine(t)
	for _, after := range []int{0, 4} {
		t.Run(fmt.Sprintf("%d commits after the sync", after), func(t *testing.T) {
			damageBesideAnUnsyncedTail(t, after, tests.Rounds(1, 3, 17))
		})
	}
}

func damageBesideAnUnsyncedTail(t *testing.T, after, step int) {
	kind := replay.Options{Capacity: 1000}
	o := in(t)
	o.Sync, o.segment, o.page = Interval, 1500, 16
	u := newUser(t, kind, 5)
	j := create(t, o, u.table)
	for range 3 {
		u.insert()
		must(t, j.Commit(ctx))
	}
	synced := make(map[string]int) // path -> bytes
	for _, path := range segmentsIn(t, o) {
		synced[path] = len(simulated(o).Content(path))
	}
	must(t, j.Flush(ctx))
	moments := []string{describe(t, u.table)}
	for range after {
		u.insert()
		must(t, j.Commit(ctx))
		moments = append(moments, describe(t, u.table))
	}
	ever := make(map[rollout.ID]replay.Stored)
	for _, h := range u.table.Inspect().Held() {
		ever[h.ID] = storedOf(h)
	}
	o = killed(o)
	must(t, j.Close())
	whole := must2(verify(o.withDefaults()))(t)
	refused, cut, total := 0, 0, 0
	for _, path := range segmentsIn(t, o) {
		for at := 0; at < len(simulated(o).Content(path)); at += step {
			o := killed(o)
			simulated(o).Content(path)[at] ^= 1 << (at % 8)
			total++
			report := must2(verify(o.withDefaults()))(t)
			saved := killed(o)
			j, table, _, err := Open(o, builder(kind, nil))
			switch {
			case err == nil && at < synced[path]:
				t.Fatalf("byte %d of %s, which was synced, went unnoticed: %s", at, path, report)
			case err == nil:
				must(t, j.Close())
				if cut++; !slices.Contains(moments, describe(t, table)) {
					t.Fatalf("byte %d of %s: the table is none that was since the sync: %s", at, path, report)
				}
			case !errors.Is(err, ErrDamaged) || whole.Messages-report.Messages > 1:
				t.Fatalf("byte %d of %s costs %d messages: %v", at, path, whole.Messages-report.Messages, err)
			default:
				if refused++; total%4 == 0 && report.Definition != nil {
					salvaged(t, saved, kind, ever)
				}
			}
		}
	}
	t.Logf("of %d flipped bits %d cost a message, %d what followed the sync or nothing", total, refused, cut)
}

// salvaged salvages a journal, checks what comes back, and that it is a journal as any other from then on.
func salvaged(t *testing.T, o Options, kind replay.Options, ever map[rollout.ID]replay.Stored) (*replay.Table,
	*Report, *Recovery) {
	t.Helper()
	report := must2(salvage(o.withDefaults(), "/data/saved"))(t)
	o.Path, o.Sync = "/data/saved", Off
	j, table, recovery := reopen(t, o, kind)
	balanced(t, table)
	for _, h := range table.Inspect().Held() {
		if was, known := ever[h.ID]; !known || !sameStored(t, storedOf(h), was) {
			t.Fatalf("rollout %d came back as %+v", h.ID, h)
		}
	}
	if !recovery.Salvaged {
		t.Fatal("it does not count as salvaged")
	}
	_, err := table.Insert(ctx, aGroup(rollout.Stream(1, "more", 0), 2, 4, 0))
	must(t, err)
	must(t, j.Close())
	j, again, second := reopen(t, o, kind)
	if describe(t, again) != describe(t, table) || second.Salvaged {
		t.Fatalf("opened again it is another table: %s", second)
	}
	must(t, j.Close())
	return table, report, recovery
}

// breakLast changes the last message of a journal, and returns it.
func breakLast(t *testing.T, o Options) frame {
	t.Helper()
	for _, path := range slices.Backward(segmentsIn(t, o)) {
		for _, f := range slices.Backward(framesOf(simulated(o).Content(path))) {
			if len(f.message) > 0 {
				simulated(o).Content(path)[f.end()-1] ^= 1
				return f
			}
		}
	}
	t.Fatal("there is no message")
	return frame{}
}

// The last message of a journal costs itself alone, like any other: the rest of its cut is kept, and the report does
// not take it for an interrupted write.
func TestDamageToTheLastMessageCostsNoOther(t *testing.T) {
	kind := replay.Options{Capacity: 1000}
	o, _, ever := sample(t, Always, kind, 4, 0)
	whole := must2(verify(o.withDefaults()))(t)
	last := breakLast(t, o)
	if p := must2(decodePiece(Message{Position: last.position, Data: last.message}, true)); p(t).piece == 0 {
		t.Fatal("the last cut has one message")
	}
	_, report, recovery := salvaged(t, o, kind, ever)
	if report.Torn != 0 || report.Left != 0 || report.Messages != whole.Messages-1 || report.FollowRollouts != 0 ||
		report.Rollouts != len(ever) || report.Surplus != 0 || recovery.Rollouts != len(ever) || recovery.Lost != 0 {
		t.Errorf("of %d rollouts: %s\n%s", len(ever), report, recovery)
	}
	if said := "what was lost there is not known"; !strings.Contains(report.String(), said) {
		t.Errorf("it does not say %q: %s", said, report)
	}
}

// A restore that was interrupted never happened, even if what it wrote last is damaged.
func TestDamageToAnInterruptedRestoreKeepsTheTable(t *testing.T) {
	kind := replay.Options{Capacity: 1000}
	o, _, ever := sample(t, Always, kind, 4, 0)
	l := must2(segments.Open(o.Path, o.withDefaults().segments(), false))(t)
	f := newFold(true)
	must(t, l.Read(f.add))
	must(t, l.Resume())
	w := newLogWriter(l, o.withDefaults())
	w.ledger = f.ledger
	b := f.batch()
	b.all = b.all[:1]
	must(t, w.complete(b)) // all but the end
	must(t, l.Sync())
	must(t, l.Close())
	breakLast(t, o)
	_, report, recovery := salvaged(t, o, kind, ever)
	if report.Rollouts != len(ever) || recovery.Rollouts != len(ever) || report.FollowRollouts != 0 {
		t.Errorf("of %d rollouts: %s\n%s", len(ever), report, recovery)
	}
}

// Each kind of damage is named, and salvage keeps what it says.
func TestDamageIsNamed(t *testing.T) {
	kind := replay.Options{Capacity: 1000}
	type files struct {
		*disktest.Simulated
		paths []string
	}
	frames := func(f files, i int) []frame { return framesOf(f.Content(f.paths[i])) }
	for name, c := range map[string]struct {
		harm func(f files)
		want []string // of the error; none: it is no damage
		lost int      // rollouts at least
	}{
		"a length that is too large": {func(f files) {
			binary.LittleEndian.PutUint32(f.Content(f.paths[1])[frames(f, 1)[0].offset:], 1<<30)
		}, []string{"cut 2, segment 000002", "offset 24, message 4: ", "message 4 is missing", "14 intact messages with 20 rollouts follow"}, 0},
		"a length that is too small": {func(f files) {
			binary.LittleEndian.PutUint32(f.Content(f.paths[1])[frames(f, 1)[0].offset:], 1)
		}, []string{"cut 2, segment 000002", "offset 24, message 4: ", "message 4 is missing"}, 0},
		"a sector of zeros": {func(f files) { clear(f.Content(f.paths[1])[1024:1536]) },
			[]string{"bytes are no message, and message", "intact messages with"}, 1},
		"a segment that is missing": {func(f files) { must(t, f.Remove(f.paths[2])) },
			[]string{"000004", "offset 24", "are missing"}, 1},
		"the first segment is missing": {func(f files) { must(t, f.Remove(f.paths[0])) },
			[]string{"000002", "cut 1, ", "message 1: ", "are missing"}, -1}, // with the definition
		"a segment cut short": {func(f files) { f.SetContent(f.paths[1], f.Content(f.paths[1])[:700]) },
			[]string{"000002", "the last", "bytes are no message, and message"}, 1},
		"a segment cut short at a frame": {func(f files) {
			f.SetContent(f.paths[1], f.Content(f.paths[1])[:frames(f, 1)[0].end()])
		}, []string{"000003", "is missing"}, 0},
		"an empty segment": {func(f files) { f.SetContent(f.paths[1], nil) }, []string{"000002", "are missing"}, 1},
		"a segment twice": {func(f files) { f.SetContent(f.paths[2], slices.Clone(f.Content(f.paths[1]))) },
			[]string{"000003", "bytes are no message", "are missing"}, 1},
		"a segment twice, at the end": {func(f files) {
			last, base := len(f.paths)-1, filepath.Base(f.paths[1])
			f.SetContent(filepath.Join(filepath.Dir(f.paths[0]), fmt.Sprintf("%06d", last+2)+base[6:]),
				slices.Clone(f.Content(f.paths[1])))
		}, []string{"it has a message that was there before"}, 0},
		"another segment's content at the end": {func(f files) {
			last, base := len(f.paths)-1, filepath.Base(f.paths[0])
			f.SetContent(filepath.Join(filepath.Dir(f.paths[0]), fmt.Sprintf("%06d", last+2)+base[6:]),
				slices.Clone(f.Content(f.paths[1])))
		}, nil, 0},
		"bytes between frames": {func(f files) {
			b := f.Content(f.paths[1])
			at := frames(f, 1)[0].end()
			f.SetContent(f.paths[1], slices.Concat(b[:at], []byte("something"), b[at:]))
		}, []string{"9 bytes are no message"}, 0},
		"another format": {func(f files) { f.Content(f.paths[1])[15]++ },
			[]string{"offset 0", `it begins with "reprise journal\x03"`}, 0},
		"a segment of another journal": {func(f files) {
			f.SetContent(filepath.Join(filepath.Dir(f.paths[0]), "000009-00000000000000ff-00000000000000fe.seg"),
				[]byte("x"))
		}, []string{"000009-00000000000000ff-00000000000000fe.seg", "it belongs to another journal"}, 0},
		"the content of another journal": {func(f files) {
			f.SetContent(f.paths[1], []byte("reprise journal\x0212345678 and so on"))
		}, []string{"000002", "it belongs to the journal with id 3837363534333231"}, 1},
		"no segments": {func(f files) {
			for _, path := range f.paths {
				must(t, f.Remove(path))
			}
		}, []string{"there are no segments"}, -1},
		"zeros at the end": {func(f files) {
			last := f.paths[len(f.paths)-1]
			f.SetContent(last, append(f.Content(last), make([]byte, 5000)...))
		}, nil, 0},
		"an empty segment at the end": {func(f files) {
			base := filepath.Base(f.paths[0])
			f.SetContent(filepath.Join(filepath.Dir(f.paths[0]), fmt.Sprintf("%06d", len(f.paths)+1)+base[6:]), nil)
		}, nil, 0},
		"what states the end is gone": {func(f files) {
			last := f.paths[len(f.paths)-1]
			f.SetContent(last, f.Content(last)[:len(f.Content(last))-frameHeader])
		}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o, want, ever := sample(t, Always, kind, 8, 0)
			c.harm(files{simulated(o), segmentsIn(t, o)})
			saved := killed(o)
			j, table, _, err := Open(o, builder(kind, nil))
			if len(c.want) == 0 {
				if err != nil || describe(t, table) != want {
					t.Fatalf("it is not as it was: %v", err)
				}
				must(t, j.Close())
				return
			}
			for _, part := range c.want {
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			if c.lost < 0 {
				if _, err := salvage(saved.withDefaults(), "/data/saved"); !errors.Is(err, ErrDamaged) {
					t.Errorf("salvaging it gave %v", err)
				}
				return
			}
			_, report, recovery := salvaged(t, saved, kind, ever)
			if recovery.Lost < c.lost || int(report.Lost.Rollouts) < recovery.Lost || recovery.Rollouts == 0 {
				t.Errorf("%s\n%s", report, recovery)
			}
		})
	}
}

// What was never synced may be lost in any order, and then the log ends before it: with a warning, and not as damage.
func TestAHoleInWhatWasNotSyncedIsTheEnd(t *testing.T) {
	kind := replay.Options{Capacity: 1000}
	o := in(t)
	o.Sync, o.segment = Interval, 2000
	u := newUser(t, kind, 5)
	j := create(t, o, u.table)
	u.insert()
	must(t, j.Flush(ctx))
	var moments []string
	for range 12 {
		moments = append(moments, describe(t, u.table))
		u.insert()
		must(t, j.Commit(ctx))
	}
	lost := killed(o)
	must(t, j.Close())
	paths := segmentsIn(t, lost)
	clear(simulated(lost).Content(paths[len(paths)/2])[segmentHeader:])
	report := must2(verify(lost.withDefaults()))(t)
	if !report.Whole() || report.Torn == 0 || report.Left == 0 {
		t.Errorf("%s", report)
	}
	var logged bytes.Buffer
	lost.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	j, table, recovery := reopen(t, lost, kind)
	if !slices.Contains(moments, describe(t, table)) || recovery.Left != report.Left {
		t.Errorf("the table is none that was: %s\n%s", recovery, report)
	}
	for _, part := range []string{"level=WARN", "before they were known to be on disk", "messages that can be read"} {
		if !strings.Contains(logged.String(), part) {
			t.Errorf("the log does not say %q: %s", part, &logged)
		}
	}
	u.table = table
	u.insert()
	must(t, j.Close())
	_, again, recovery := reopenAndClose(t, lost, kind) // what was left out is gone
	if describe(t, again) != describe(t, table) || recovery.Torn != 0 {
		t.Errorf("opened again: %s", recovery)
	}
}

// Of a queue, what is consumed does not come back in place of what is lost, as far as the oldest go first.
func TestSalvageDoesNotReviveConsumedRollouts(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 1000, Sampler: replay.FIFO}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	for range 50 {
		_, err := u.table.Insert(ctx, aGroup(u.random, 4, 20, 0))
		must(t, err)
	}
	must(t, j.Commit(ctx))
	_, err := u.table.Sample(ctx, rollout.Request{Size: 80})
	must(t, err)
	must(t, j.Commit(ctx))
	must(t, u.table.Advance(ctx, 1))
	must(t, j.Close())
	path := segmentsIn(t, o)[0]
	for _, f := range framesOf(simulated(o).Content(path)) {
		p := must2(decodePiece(Message{Position: f.position, Data: f.message}, true))
		if piece := p(t); len(piece.removals) == 80 {
			simulated(o).Content(path)[f.end()-1] ^= 1
			break
		}
	}
	report := must2(salvage(o.withDefaults(), "/data/saved"))(t)
	if report.Lost.Removals != 80 || report.Surplus != 80 || report.Rollouts != 120 ||
		!strings.Contains(report.String(), "may have come back") {
		t.Errorf("%s", report)
	}
	o.Path = "/data/saved"
	_, again, recovery := reopenAndClose(t, o, kind)
	if again.ServiceView().Flow().Present != 120 || recovery.Lost != 0 || again.Inspect().Held()[0].ID != 81 {
		t.Errorf("%d rollouts came back, the first is %d: %s", again.ServiceView().Flow().Present,
			again.Inspect().Held()[0].ID, recovery)
	}
}

// A rollout in several messages of which one is lost is lost, and no other.
func TestALostPartOfARolloutCostsTheRollout(t *testing.T) {
	kind := replay.Options{Capacity: 100}
	o := in(t)
	table, random := newTable(t, kind), rollout.Stream(1, "large", 0)
	j := create(t, o, table)
	for _, tokens := range []int{10, 250_000, 10} {
		_, err := table.Insert(ctx, rollout.Group{Rollouts: []*rollout.Rollout{aRollout(random, tokens, 0)}})
		must(t, err)
		must(t, j.Commit(ctx))
	}
	must(t, j.Close())
	path := segmentsIn(t, o)[0]
	cost := 0
	for _, f := range framesOf(simulated(o).Content(path)) {
		if len(f.message) < 100_000 {
			continue
		}
		o := killed(o)
		simulated(o).Content(path)[f.offset+1000] ^= 1
		report := must2(salvage(o.withDefaults(), "/data/saved"))(t)
		o.Path = "/data/saved"
		_, again, recovery := reopenAndClose(t, o, kind)
		if report.Lost.Rollouts != 1 || recovery.Lost != 1 || again.ServiceView().Flow().Present != 2 {
			t.Errorf("message %d: %s\n%s", f.position, report, recovery)
		}
		cost++
	}
	if cost < 4 {
		t.Errorf("the rollout was in %d messages", cost)
	}
}

func TestSalvageCopiesAnIntactJournal(t *testing.T) {
	o, kind := onDisk(t), replay.Options{Capacity: 20}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	j.Attach("prompts", func() ([]byte, error) { return []byte("content"), nil })
	for range 100 {
		u.step()
	}
	must(t, j.Close())
	report, err := Salvage(o.Path, o.Path+".copy")
	must(t, err)
	if !report.Whole() || !strings.Contains(report.String(), "; whole") || string(report.Definition) != "a definition" {
		t.Errorf("%s", report)
	}
	if _, err := Salvage(o.Path, o.Path+".copy"); !errors.Is(err, os.ErrExist) {
		t.Errorf("salvaging into a journal that exists gave %v", err)
	}
	j, table, recovery := reopen(t, Options{Path: o.Path + ".copy"}, kind)
	sameTables(t, u.released(), table)
	if recovery.Salvaged || string(recovery.Blobs["prompts"]) != "content" {
		t.Errorf("%s, %q", recovery, recovery.Blobs)
	}
	must(t, j.Close())
}

// A journal of an earlier build is a file.
func TestAFileIsRefusedWithTheRemedy(t *testing.T) {
	o := onDisk(t)
	must(t, os.WriteFile(o.Path, []byte("hello"), 0o600))
	_, _, _, opening := Open(o, builder(replay.Options{}, nil))
	_, verifying := Verify(o.Path)
	_, salvaging := Salvage(o.Path, o.Path+".out")
	for _, err := range []error{opening, verifying, salvaging} {
		if err == nil || !strings.Contains(err.Error(), o.Path) || !strings.Contains(err.Error(), "of an earlier build") ||
			!strings.Contains(err.Error(), "import the table") {
			t.Errorf("a file gave %v", err)
		}
	}
	if _, err := Create(o, nil, newTable(t, replay.Options{})); !errors.Is(err, os.ErrExist) {
		t.Errorf("creating a journal in its place gave %v", err)
	}
}

// So are segments without ids of their own.
func TestASegmentOfAnEarlierBuildIsRefusedWithTheRemedy(t *testing.T) {
	kind := replay.Options{Capacity: 12}
	o, _, _ := sample(t, Always, kind, 3, 0)
	for _, path := range segmentsIn(t, o) {
		name := filepath.Base(path)
		must(t, o.Disk.Rename(path, filepath.Join(o.Path, name[:len("000001-0123456789abcdef")]+".seg")))
	}
	_, _, _, opening := Open(o, builder(kind, nil))
	_, verifying := verify(o.withDefaults())
	_, salvaging := salvage(o.withDefaults(), o.Path+".out")
	for _, err := range []error{opening, verifying, salvaging} {
		if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), o.Path) ||
			!strings.Contains(err.Error(), "a segment of an earlier build") ||
			!strings.Contains(err.Error(), "import the table") {
			t.Errorf("a journal of an earlier build gave %v", err)
		}
	}
}

// A journal of another build's messages is intact, and refused with its format.
func TestAJournalOfAnotherFormatIsRefusedWithTheRemedy(t *testing.T) {
	o := in(t).withDefaults()
	j := create(t, o, newTable(t, replay.Options{}))
	var messages [][]byte
	must(t, j.log.Read(func(list []Message) error {
		for _, m := range list {
			messages = append(messages, slices.Clone(m.Data))
		}
		return nil
	}))
	must(t, errors.Join(j.Close(), Remove(o)))
	for _, b := range messages {
		b[0] = messageFormat - 1
	}
	l := must2(segments.Create(o.Path, o.segments()))(t)
	_, err := l.Append(messages, true)
	must(t, errors.Join(l.MoveInPlace(err), l.Sync(), l.Close()))
	_, _, _, opening := Open(o, builder(replay.Options{}, nil))
	_, verifying := verify(o)
	_, salvaging := salvage(o, o.Path+".out")
	for _, err := range []error{opening, verifying, salvaging} {
		if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), o.Path) ||
			strings.Count(err.Error(), "format 2, and this build reads format 3") != 1 ||
			!strings.Contains(err.Error(), "import the table") {
			t.Errorf("a journal of another format gave %v", err)
		}
	}
}

// FuzzDamage changes bytes of a journal. An edit is a position (4 bytes) and a mask (1 byte). Either damage is
// reported, or the table is as of one of its moments.
func FuzzDamage(f *testing.F) {
	kind := replay.Options{Capacity: 12}
	o, _, ever := sample(f, Always, kind, 8, 0)
	for _, at := range []uint32{8, 24, 30, 60, 1500, 4000} {
		f.Add(append(binary.LittleEndian.AppendUint32(nil, at), 1))
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		o := killed(o)
		paths := segmentsIn(t, o)
		for ; len(edits) >= 5; edits = edits[5:] {
			at := binary.LittleEndian.Uint32(edits)
			b := simulated(o).Content(paths[int(at)%len(paths)])
			b[int(at)/len(paths)%len(b)] ^= edits[4]
		}
		report := must2(verify(o.withDefaults()))(t)
		j, table, _, err := Open(o, builder(kind, nil))
		if (err == nil) != report.Whole() || err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("%v\n%s", err, report)
		}
		if err != nil {
			if _, err := salvage(o.withDefaults(), "/data/saved"); err != nil && report.Definition != nil {
				t.Fatal(err)
			}
			return
		}
		for _, h := range table.Inspect().Held() {
			if !sameStored(t, storedOf(h), ever[h.ID]) {
				t.Fatalf("rollout %d is not what was written", h.ID)
			}
		}
		must(t, j.Close())
	})
}

// FuzzMessage decodes arbitrary messages.
func FuzzMessage(f *testing.F) {
	u := newUser(f, replay.Options{Capacity: 4}, 1)
	u.table.JournalView().Track()
	u.insert()
	messages := must2(encodeRollouts(newArena(), u.table.JournalView().Cut().Inserted, true))(f)
	(&head{flags: flagLast, number: 1}).put(messages[0].b)
	f.Add(messages[0].b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePiece(Message{Position: 1, Data: b}, true)
		if err != nil || len(p.stored) == 0 || len(p.apart) > 0 {
			return
		}
		again := must2(encodeRollouts(newArena(), p.stored, true))(t)
		var stored []replay.Stored
		for _, m := range again {
			(&head{}).put(m.b)
			stored = append(stored, must2(decodePiece(Message{Position: 1, Data: m.b}, true))(t).stored...)
		}
		if len(stored) != len(p.stored) {
			t.Fatalf("%d rollouts became %d", len(p.stored), len(stored))
		}
	})
}
