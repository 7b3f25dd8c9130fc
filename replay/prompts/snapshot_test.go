package prompts_test

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

func snapshotOf(t testing.TB, b interface{ Snapshot(io.Writer) error }) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := b.Snapshot(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// small is what the buffers of these tests have.
func small() prompts.Options {
	return prompts.Options{Fraction: 1, Band: 0.3, Cooldown: 3, MaxReuse: 1}
}

// used is a buffer with prompts in every state: ready, cooling, spent, removed after a use.
func used(t testing.TB) *prompts.Buffer {
	t.Helper()
	b := mustNew(t, small())
	report(t, b, 0, result("spent", 1, 2), result("removed", 9, 16))
	b.Next(3, 2)
	report(t, b, 4, again("spent", 1, 2), again("removed", 16, 16))
	report(t, b, 4, result("ready", 7, 16))
	report(t, b, 6, result("cooling", 1, 2))
	b.Next(7, 0)
	return b
}

// sealed puts the header of a snapshot before a body.
func sealed(magic string, body []byte) []byte {
	b := append([]byte(magic), 1)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(body)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, body...)
}

const header = 7 + 1 + 8 + 4

// Snapshots older than max_prompts name no bound, and no result of a prompt that left.
func TestASnapshotOfBeforeMaxPromptsIsRead(t *testing.T) {
	type options struct {
		Fraction, Band     float64
		Cooldown, MaxReuse int
	}
	type estimate struct {
		Correct, Total int32
		Version        rollout.Version
		Sequence       uint64
	}
	type entry struct {
		Prompt   prompts.Prompt
		Estimate estimate
		LastUsed rollout.Version
		Reuses   int
	}
	type image struct {
		Options  options
		At       rollout.Version
		Sequence uint64
		Entries  []entry
	}
	o := small()
	var body bytes.Buffer
	err := gob.NewEncoder(&body).Encode(image{Options: options{o.Fraction, o.Band, o.Cooldown, o.MaxReuse}, At: 3,
		Sequence: 9, Entries: []entry{
			{prompts.Prompt{ID: "early"}, estimate{1, 2, 1, 4}, 0, 0},
			{prompts.Prompt{ID: "late"}, estimate{1, 2, 1, 9}, 0, 0},
			{prompts.Prompt{ID: "left"}, estimate{}, 1, 1},
		}})
	if err != nil {
		t.Fatal(err)
	}
	o.MaxPrompts = 1
	b := mustNew(t, o)
	if err := b.Restore(bytes.NewReader(sealed("reprprm", body.Bytes()))); err != nil {
		t.Fatal(err)
	}
	if got := b.Next(9, 3); len(got) != 1 || got[0].ID != "late" {
		t.Errorf("got %v, want the prompt reported last", got)
	}
}

func TestADamagedOrForeignSnapshotIsRefusedAndChangesNothing(t *testing.T) {
	b := used(t)
	whole := snapshotOf(t, b)
	spoilt := func(at int, x byte) []byte {
		c := bytes.Clone(whole)
		c[at] ^= x
		return c
	}
	other := b.Options()
	other.Cooldown = 9
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":   {nil, "reading the header"},
		"foreign": {[]byte("this is not a snapshot of any buffer"), "it begins with"},
		"newer":   {spoilt(7, 2), "its format is 3"},
		"cut off": {whole[:len(whole)-1], "it is cut off"},
		"damaged": {spoilt(len(whole)-1, 1), "it is damaged"},
		"no gob":  {sealed("reprprm", []byte("nonsense")), "decoding"},
		"other options": {snapshotOf(t, mustNew(t, other)),
			"Cooldown:9 MaxReuse:1 MaxPrompts:1048576 Keep: Score: Interval: Skip:} in the snapshot and {Fraction:1 " +
				"Band:0.3 Cooldown:3"},
	} {
		err := b.Restore(bytes.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if !bytes.Equal(snapshotOf(t, b), whole) {
		t.Error("a refused snapshot changed the buffer")
	}
}

// imageOf has the fields of a snapshot's body, which is all that its encoding goes by.
type imageOf struct {
	Options      prompts.Options
	At           rollout.Version
	Sequence     uint64
	Reported     uint64
	ZeroVariance uint64
	Replayed     uint64
	Entries      []entryOf
}

type entryOf struct {
	Prompt   prompts.Prompt
	Estimate estimateOf
	LastUsed rollout.Version
	Reuses   int
}

type estimateOf struct {
	Correct, Total int32
	Version        rollout.Version
	Sequence       uint64
}

func encoded(t *testing.T, x any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(x); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestStatesThatNoBufferReachesAreRefused(t *testing.T) {
	possible := func() *imageOf {
		return &imageOf{Options: small(), At: 7, Sequence: 2, Reported: 2, Entries: []entryOf{
			{Prompt: prompts.Prompt{ID: "a"}, Estimate: estimateOf{8, 16, 3, 1}, LastUsed: 3},
			{Prompt: prompts.Prompt{ID: "b"}, LastUsed: 5, Reuses: 1},
		}}
	}
	b := mustNew(t, small())
	if err := b.Restore(bytes.NewReader(sealed("reprprm", encoded(t, possible())))); err != nil {
		t.Fatal(err)
	}
	whole := snapshotOf(t, b)
	for name, spoil := range map[string]func(im *imageOf){
		"a version below 0":              func(im *imageOf) { im.At = -1 },
		"prompts out of order":           func(im *imageOf) { im.Entries[0].Prompt.ID = "c" },
		"a prompt twice":                 func(im *imageOf) { im.Entries[1].Prompt.ID = "a" },
		"a prompt without a name":        func(im *imageOf) { im.Entries[0].Prompt.ID = "" },
		"two estimates of one report":    func(im *imageOf) { im.Entries[1].Estimate = im.Entries[0].Estimate },
		"an estimate of a report ahead":  func(im *imageOf) { im.Entries[0].Estimate.Sequence = 3 },
		"an estimate of no report":       func(im *imageOf) { im.Entries[0].Estimate.Sequence = 0 },
		"an estimate before version 0":   func(im *imageOf) { im.Entries[0].Estimate.Version = -1 },
		"a pass rate outside the band":   func(im *imageOf) { im.Entries[0].Estimate.Correct = 1 },
		"a pass rate of none":            func(im *imageOf) { im.Entries[0].Estimate.Total = 0 },
		"a use before version 0":         func(im *imageOf) { im.Entries[0].LastUsed = -1 },
		"reuses below 0":                 func(im *imageOf) { im.Entries[0].Reuses = -1 },
		"reuses above the greatest":      func(im *imageOf) { im.Entries[1].Reuses = 2 },
		"a prompt neither held nor used": func(im *imageOf) { im.Entries[1].Reuses = 0 },
	} {
		im := possible()
		spoil(im)
		if err := b.Restore(bytes.NewReader(sealed("reprprm", encoded(t, im)))); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if !bytes.Equal(snapshotOf(t, b), whole) {
		t.Error("a refused snapshot changed the buffer")
	}

	c := newChooser(t, small(), 2)
	err := c.Restore(bytes.NewReader(sealed("reprcho", encoded(t, struct {
		Groups    int
		Threshold float32
		Block     []prompts.Prompt
		Buffer    imageOf
	}{2, 1, make([]prompts.Prompt, 3), *possible()}))))
	if err == nil || !strings.Contains(err.Error(), "3 prompts of a block are from the buffer, 2 may be") {
		t.Errorf("a block with too many prompts: error is %v", err)
	}
}

func TestNoMoreThanTheSnapshotIsRead(t *testing.T) {
	b := used(t)
	r := bytes.NewReader(append(snapshotOf(t, b), "more"...))
	if err := b.Restore(r); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "more" {
		t.Errorf("%q is left (error %v), want %q", rest, err, "more")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestASnapshotReportsThatItWasNotWritten(t *testing.T) {
	if err := used(t).Snapshot(brokenWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	if err := newChooser(t, open(), 4).Snapshot(brokenWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// FuzzRestore looks for input that makes restoring panic, changes the buffer with an error, or gives a buffer in a
// state that none can reach. Bodies are tried with a right header too, so that the checksum hides nothing.
func FuzzRestore(f *testing.F) {
	whole := snapshotOf(f, used(f))
	f.Add(whole)
	f.Add(whole[header:])
	f.Add(snapshotOf(f, mustNew(f, small()))[header:])
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, data := range [][]byte{in, sealed("reprprm", in)} {
			b := mustNew(t, small())
			if b.Restore(bytes.NewReader(data)) != nil {
				if s := b.Stats(); s.Held != 0 || s.Reported != 0 || s.Reuses.Count() != 0 {
					t.Fatal("a refused snapshot changed the buffer")
				}
				continue
			}
			b = restored(t, b)
			held := b.Stats().Held
			ps := b.Next(rollout.Version(1<<31-1), held+1)
			if len(ps) > held {
				t.Fatalf("%d of %d held prompts were handed out", len(ps), held)
			}
			for _, p := range ps {
				report(t, b, 1<<31-1, prompts.Result{Prompt: p, Correct: 1, Total: 1, Replayed: true})
			}
			if got, want := b.Stats().Held, held-len(ps); got != want {
				t.Fatalf("%d prompts are held, want %d", got, want)
			}
		}
	})
}
