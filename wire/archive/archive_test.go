package archive

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// groupsOf returns groups of the given rollouts each, with every field set.
func groupsOf(sizes ...int) []rollout.Group {
	random := rollout.Stream(1, "archive test", uint64(len(sizes)))
	var groups []rollout.Group
	for number, n := range sizes {
		var g rollout.Group
		for range n {
			length := 4 + random.IntN(30)
			advantage := random.Float32() - 0.5
			r := &rollout.Rollout{
				PromptID: fmt.Sprintf("prompt-%d", number), Temperature: 0.7, TopP: 0.95, Reward: random.Float32(),
				Truncated: random.IntN(2) == 1,
				Advantage: &advantage, Text: "text", Meta: map[string]string{"k": "v"}, Images: [][]byte{{1, 2}, {3}},
				Turns: []rollout.Turn{{Start: 0, End: int32(length), Reward: 1, Done: true}},
			}
			for i := range length {
				r.Tokens = append(r.Tokens, random.Int32N(1000))
				policy := i >= 2
				if !policy {
					r.Mask, r.Versions, r.Logprobs = append(r.Mask, 0), append(r.Versions, rollout.NoVersion),
						append(r.Logprobs, 0)
				} else {
					r.Mask, r.Versions, r.Logprobs = append(r.Mask, 1), append(r.Versions, rollout.Version(number)),
						append(r.Logprobs, -random.Float32())
				}
				r.Values, r.RefLogprobs = append(r.Values, random.Float32()), append(r.RefLogprobs, -random.Float32())
			}
			r.Advantages = slices.Clone(r.Values)
			for i, m := range r.Mask {
				r.RoutedExperts = append(r.RoutedExperts, uint16(i), uint16(random.Uint32()))
				if m == 0 || i%3 == 0 {
					r.SamplingMask.Append()
				} else {
					r.SamplingMask.Append(r.Tokens[i], r.Tokens[i]+1+random.Int32N(9))
				}
			}
			g.Rollouts = append(g.Rollouts, r)
		}
		groups = append(groups, g)
	}
	return groups
}

// drawsOf returns the export of a table with these groups: ids from 1 on, groups from 100 on.
func drawsOf(groups []rollout.Group) []rollout.Draw {
	var draws []rollout.Draw
	for number, g := range groups {
		for _, r := range g.Rollouts {
			draws = append(draws, rollout.Draw{
				ID: rollout.ID(len(draws) + 1), Group: uint64(100 + number), Rollout: r, Advantage: *r.Advantage,
				Weight: 1, Probability: 1,
			})
		}
	}
	return draws
}

// write writes draws to a file, rows of them to a record batch, and returns its path.
func write(t testing.TB, rows int, draws []rollout.Draw, columns ...string) string {
	t.Helper()
	schema, err := wire.SampleSchema(columns)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "table.arrow")
	var gatherer wire.Gatherer
	rowsWritten, err := Write(path, schema, func(add func(arrow.RecordBatch) error) error {
		for part := range slices.Chunk(draws, rows) {
			rec, err := gatherer.Batch(part, schema)
			if err != nil {
				return err
			}
			if err := add(rec); err != nil {
				return err
			}
			rec.Release()
		}
		return nil
	})
	if err != nil || rowsWritten != int64(len(draws)) {
		t.Fatalf("%d rows were written, %v: want %d", rowsWritten, err, len(draws))
	}
	return path
}

// read returns a file's insertions.
func read(t testing.TB, path string, o Options) ([]Insertion, error) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	var all []Insertion
	o.Limits = rollout.Limits{UnknownLogprobs: true, PendingRewards: true}
	for in, err := range r.Insertions(o) {
		if err != nil {
			return all, err
		}
		all = append(all, in)
	}
	return all, nil
}

func mustRead(t testing.TB, path string, o Options) []Insertion {
	t.Helper()
	all, err := read(t, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// same checks that groups have the same rollouts, whatever their declared sizes.
func same(t *testing.T, got, want []rollout.Group) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d groups: want %d", len(got), len(want))
	}
	for i := range want {
		if len(got[i].Rollouts) != len(want[i].Rollouts) {
			t.Fatalf("group %d has %d rollouts: want %d", i, len(got[i].Rollouts), len(want[i].Rollouts))
		}
		for k, r := range want[i].Rollouts {
			if !reflect.DeepEqual(got[i].Rollouts[k], r) {
				t.Fatalf("group %d, rollout %d is\n%+v\nwant\n%+v", i, k, *got[i].Rollouts[k], *r)
			}
		}
	}
}

func groupsIn(all []Insertion) []rollout.Group {
	var groups []rollout.Group
	for _, in := range all {
		groups = append(groups, in.Groups...)
	}
	return groups
}

func TestAnExportIsReadBackUnchanged(t *testing.T) {
	want := groupsOf(3, 1, 8, 2)
	for _, rows := range []int{1, 2, 5, 100} { // groups that are cut by record batches, too
		same(t, groupsIn(mustRead(t, write(t, rows, drawsOf(want)), Options{})), want)
	}
}

func TestGroupsAreAssembledFromRowsInAnyOrder(t *testing.T) {
	random := rollout.Stream(2, "archive test", 0)
	want := groupsOf(4, 4, 1, 7)
	for range 20 {
		draws := drawsOf(want)
		random.Shuffle(len(draws), func(i, k int) { draws[i], draws[k] = draws[k], draws[i] })
		got := groupsIn(mustRead(t, write(t, 1+random.IntN(9), draws), Options{}))
		var members []int
		for _, g := range got {
			members = append(members, len(g.Rollouts))
			for _, r := range g.Rollouts {
				if r.PromptID != g.Rollouts[0].PromptID {
					t.Fatalf("a group has rollouts of %s and %s", r.PromptID, g.Rollouts[0].PromptID)
				}
			}
		}
		slices.Sort(members)
		if !slices.Equal(members, []int{1, 4, 4, 7}) {
			t.Fatalf("groups of %v rollouts", members)
		}
	}
}

func TestWithoutGroupsEveryRolloutIsAlone(t *testing.T) {
	draws := drawsOf(groupsOf(3, 2))
	path := write(t, 2, draws, "tokens", "mask", "logprobs", "versions", "reward")
	got := groupsIn(mustRead(t, path, Options{}))
	if len(got) != 5 {
		t.Errorf("%d groups of 5 rollouts", len(got))
	}
}

func TestInsertionsAreBoundedAndHaveWholeGroups(t *testing.T) {
	groups := groupsOf(4, 4, 4, 9, 1, 1)
	path := write(t, 3, drawsOf(groups))
	var got []int
	for _, in := range mustRead(t, path, Options{Rollouts: 8}) {
		got = append(got, in.Rollouts)
		var n int
		var bytes int64
		newest := rollout.NoVersion
		for _, g := range in.Groups {
			n += len(g.Rollouts)
			for _, r := range g.Rollouts {
				bytes += r.Bytes()
				newest = max(newest, slices.Max(r.Versions))
			}
		}
		if n != in.Rollouts || bytes != in.Bytes || newest != in.Newest {
			t.Errorf("an insertion says %d rollouts, %d bytes, version %d: it has %d, %d, %d", in.Rollouts, in.Bytes,
				in.Newest, n, bytes, newest)
		}
	}
	if want := []int{8, 4, 9, 2}; !slices.Equal(got, want) {
		t.Errorf("insertions of %v rollouts: want %v", got, want)
	}
	if n := len(mustRead(t, path, Options{Bytes: 1})); n != len(groups) {
		t.Errorf("%d insertions where every group is too large: want %d", n, len(groups))
	}
}

func TestAdvantagesAreKeptUnlessTheyAreRecomputed(t *testing.T) {
	path := write(t, 4, drawsOf(groupsOf(2)))
	if r := mustRead(t, path, Options{})[0].Groups[0].Rollouts[0]; r.Advantage == nil || r.Advantages == nil {
		t.Error("advantages were left out")
	}
	if r := mustRead(t, path, Options{Recompute: true})[0].Groups[0].Rollouts[0]; r.Advantage != nil ||
		r.Advantages != nil {
		t.Error("advantages were given")
	}
}

func TestABadRowIsNamedByItsNumberInTheFile(t *testing.T) {
	draws := drawsOf(groupsOf(4, 4))
	bad := *draws[5].Rollout
	bad.Logprobs = slices.Clone(bad.Logprobs)
	bad.Logprobs[3] = 0.25
	draws[5].Rollout = &bad
	all, err := read(t, write(t, 4, draws), Options{})
	var field *rollout.FieldError
	if !errors.As(err, &field) || field.Row != 5 || field.Field != "logprobs[3]" {
		t.Errorf("%v", err)
	}
	if len(all) != 0 {
		t.Errorf("%d insertions came before it", len(all))
	}
}

func TestGroupNumbersAreIntegersOfAnyType(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b array.Builder)
		kind  arrow.DataType
		want  int // groups
	}{
		"int64": {func(b array.Builder) { b.(*array.Int64Builder).AppendValues([]int64{-1, 5, -1}, nil) },
			arrow.PrimitiveTypes.Int64, 2},
		"int32 with a null": {func(b array.Builder) {
			b.(*array.Int32Builder).AppendValues([]int32{7, 7, 7}, []bool{true, false, true})
		}, arrow.PrimitiveTypes.Int32, 2},
		"uint32": {func(b array.Builder) { b.(*array.Uint32Builder).AppendValues([]uint32{1, 2, 3}, nil) },
			arrow.PrimitiveTypes.Uint32, 3},
		"nulls": {func(b array.Builder) { b.AppendNulls(3) }, arrow.Null, 3},
	} {
		b := array.NewBuilder(memory.DefaultAllocator, c.kind)
		c.build(b)
		column := b.NewArray()
		rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "group", Type: c.kind, Nullable: true}}, nil),
			[]arrow.Array{column}, 3)
		labels, err := labelsOf(rec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		groups := 0
		seen := make(map[uint64]bool)
		for _, l := range labels {
			if l.alone || !seen[l.group] {
				groups++
			}
			seen[l.group] = seen[l.group] || !l.alone
		}
		if groups != c.want {
			t.Errorf("%s: %d groups: want %d", name, groups, c.want)
		}
	}
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.Append(math.Pi)
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "group", Type: arrow.PrimitiveTypes.Float64}},
		nil), []arrow.Array{b.NewArray()}, 1)
	if _, err := labelsOf(rec); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("numbers with fractions: %v", err)
	}
}

func TestAFileGetsItsNameOnceItIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "table.arrow")
	schema, err := wire.SampleSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	cancelled := errors.New("cancelled")
	if _, err := Write(path, schema, func(func(arrow.RecordBatch) error) error { return cancelled }); !errors.Is(err,
		cancelled) {
		t.Errorf("a cancelled export gave %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a cancelled export left %v", left)
	}
	_, err = Write(path, schema, func(func(arrow.RecordBatch) error) error {
		_, err := os.Stat(path)
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an unfinished file is there: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 || left[0].Name() != "table.arrow" {
		t.Errorf("the folder has %v", left)
	}
	if all := mustRead(t, path, Options{}); len(all) != 0 {
		t.Errorf("an empty table's file has %d insertions", len(all))
	}
}

func TestRowsAreChosenByID(t *testing.T) {
	draws := drawsOf(groupsOf(6, 4))
	r, err := Open(write(t, 5, draws))
	if err != nil {
		t.Fatal(err)
	}
	choice := NewChoice([]uint64{9, 1, 2, 4, 77, 50})
	var got []uint64
	for rec, err := range r.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		part, err := choice.Of(rec)
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := wire.Draws(part, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range chosen {
			got = append(got, uint64(d.ID))
			if !reflect.DeepEqual(d.Rollout.Tokens, draws[d.ID-1].Rollout.Tokens) {
				t.Errorf("rollout %d has the tokens of another", d.ID)
			}
		}
		part.Release()
	}
	if want := []uint64{1, 2, 4, 9}; !slices.Equal(got, want) {
		t.Errorf("chosen: %v: want %v", got, want)
	}
	if want := []uint64{50, 77}; !slices.Equal(choice.Missing(), want) {
		t.Errorf("missing: %v: want %v", choice.Missing(), want)
	}
}

func TestAttackOnlyRegularFilesAreRead(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), folder+" has no .parquet or .jsonl file") {
		t.Errorf("a folder: %v", err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{"PAR1": "table: ", "no arrow": "no Arrow IPC file"} {
		path := filepath.Join(t.TempDir(), "table")
		if err := os.WriteFile(path, []byte(strings.Repeat(text, 20)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTruncatedFilesAreRefused(t *testing.T) {
	whole, err := os.ReadFile(write(t, 2, drawsOf(groupsOf(2, 1))))
	if err != nil {
		t.Fatal(err)
	}
	for length := 0; length < len(whole); length += 1 + length/50 {
		damaged := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(damaged, whole[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t, damaged, Options{}); err == nil {
			t.Errorf("the first %d of %d bytes were taken for the file", length, len(whole))
		}
	}
}

func TestDamagedFilesAreRefusedOrHoldValidRollouts(t *testing.T) {
	whole, err := os.ReadFile(write(t, 2, drawsOf(groupsOf(2, 1))))
	if err != nil {
		t.Fatal(err)
	}
	random := rollout.Stream(3, "archive test", 0)
	path := filepath.Join(t.TempDir(), "damaged")
	refused := 0
	files := tests.Count(400, 100)
	for range files {
		damaged := slices.Clone(whole)
		damaged[random.IntN(len(damaged))] ^= byte(1 + random.IntN(255))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := read(t, path, Options{})
		if err != nil {
			refused++
			continue
		}
		for _, g := range groupsIn(all) {
			for _, r := range g.Rollouts {
				if err := r.Validate(rollout.Limits{}); err != nil {
					t.Fatalf("a bad rollout came out: %v", err)
				}
			}
		}
	}
	if refused < files/10 {
		t.Errorf("%d of %d damaged files were refused", refused, files)
	}
}

func FuzzReadingAFile(f *testing.F) {
	whole, err := os.ReadFile(write(f, 2, drawsOf(groupsOf(2, 1))))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, 0, byte(0))
	f.Add(whole, len(whole)-20, byte(1))
	folder, _ := dataset(f, 100, drawsOf(awkward()), DatasetOptions{Format: Parquet})
	parquet, err := os.ReadFile(filepath.Join(folder, "data", "part-00000.parquet"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(parquet, 100, byte(0))
	f.Fuzz(func(t *testing.T, file []byte, at int, flip byte) {
		file = slices.Clone(file)
		if at >= 0 && at < len(file) {
			file[at] ^= flip
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := read(t, path, Options{})
		if err != nil {
			return
		}
		for _, in := range all {
			for _, g := range in.Groups {
				for _, r := range g.Rollouts {
					if err := r.Validate(rollout.Limits{UnknownLogprobs: true}); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}
