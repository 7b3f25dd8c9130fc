package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// startTables serves durable tables.
func startTables(t *testing.T, tables ...string) *served {
	t.Helper()
	args := []string{"--http", "off", "--data", filepath.Join(t.TempDir(), "data")}
	for _, table := range tables {
		args = append(args, "--table", table)
	}
	return startServe(t, args...)
}

// fill inserts groups of three rollouts that use every field, with versions up to 4.
func (s *served) fill(t *testing.T, table string, groups int) {
	t.Helper()
	c, err := client.Dial(t.Context(), s.at.GRPC, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Table(table).Advance(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	random := rollout.Stream(1, "transfer test", 0)
	for number := range groups {
		var g rollout.Group
		for range 3 {
			n := 3 + random.IntN(40)
			r := &rollout.Rollout{
				PromptID: fmt.Sprintf("prompt-%d", number), Temperature: 0.5, TopP: 0.9, Reward: random.Float32(),
				Truncated: random.IntN(2) == 0,
				Text:      fmt.Sprintf("text %d", number), Meta: map[string]string{"number": fmt.Sprint(number)},
				Images: [][]byte{{1}, {2, 3}},
			}
			for i := range n {
				r.Tokens = append(r.Tokens, random.Int32N(50000))
				mask, version, logprob := uint8(1), rollout.Version(number%5), -random.Float32()
				if i == 0 {
					mask, version, logprob = 0, rollout.NoVersion, 0
				}
				r.Mask, r.Versions, r.Logprobs = append(r.Mask, mask), append(r.Versions, version), append(r.Logprobs,
					logprob)
				r.RoutedExperts = append(r.RoutedExperts, uint16(i), uint16(number))
				if mask == 0 {
					r.SamplingMask.Append()
				} else {
					r.SamplingMask.Append(r.Tokens[i], r.Tokens[i]+1)
				}
			}
			g.Rollouts = append(g.Rollouts, r)
		}
		if _, err := c.Table(table).Insert(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
}

// rowsOf returns a file as one record batch for each of the file's.
func rowsOf(t *testing.T, path string) []arrow.RecordBatch {
	t.Helper()
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []arrow.RecordBatch
	for rec, err := range r.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		rec.Retain()
		all = append(all, rec)
	}
	return all
}

// sameRows demands that two files hold the same bits.
func sameRows(t *testing.T, a, b string) {
	t.Helper()
	left, right := rowsOf(t, a), rowsOf(t, b)
	if len(left) != len(right) || len(left) == 0 {
		t.Fatalf("%d and %d record batches", len(left), len(right))
	}
	for i := range left {
		if !left[i].Schema().Equal(right[i].Schema()) {
			t.Fatalf("the schemas are\n%v\nand\n%v", left[i].Schema(), right[i].Schema())
		}
		for k, column := range left[i].Columns() {
			if !array.Equal(column, right[i].Column(k)) {
				t.Errorf("record batch %d differs in %s:\n%v\n%v", i, left[i].ColumnName(k), column, right[i].Column(k))
			}
		}
	}
}

func TestAnExportAndItsImportKeepATable(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=from", "name=to", "name=anew")
	s.fill(t, "from", 90)
	dir := t.TempDir()
	first, second, third := filepath.Join(dir, "first.arrow"), filepath.Join(dir, "second.arrow"), filepath.Join(dir,
		"third.arrow")

	said := succeeds(t, "", "export", s.at.GRPC+"/from", "--out", first, "--rows", "50")
	if !strings.Contains(said, "270 rollouts") || !strings.Contains(said, "at version 4") {
		t.Errorf("export said %q", said)
	}
	for _, rec := range rowsOf(t, first) {
		for _, name := range []string{"sampling_mask", "routed_experts"} {
			if nulls := rec.Column(rec.Schema().FieldIndices(name)[0]).NullN(); nulls != 0 {
				t.Errorf("%d of %d rows were exported without %s", nulls, rec.NumRows(), name)
			}
		}
	}
	fails(t, call(t, "", "import", first, s.at.GRPC+"/to"), "version 4", "--advance")
	said = succeeds(t, "", "import", first, s.at.GRPC+"/to", "--advance", "--rows", "32")
	for _, want := range []string{"270 rollouts in 90 groups", "advanced to version 4", "insertions: 9",
		"it holds 270 rollouts, before it held 0"} {
		if !strings.Contains(said, want) {
			t.Errorf("import said %q: want %q", said, want)
		}
	}
	succeeds(t, "", "export", s.at.GRPC+"/to", "--out", second, "--rows", "50")
	// ids, groups, advantages and moments, too: the table was empty, and groups stayed together
	sameRows(t, first, second)

	succeeds(t, "", "import", first, s.at.GRPC+"/anew", "--advance", "--recompute")
	succeeds(t, "", "export", s.at.GRPC+"/anew", "--out", third, "--rows", "50")
	sameRows(t, first, third)
}

// Every way out and back in: a table is the same to the bit, whichever format it went through.
func TestADatasetAndItsImportKeepATable(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=from", "name=by_parquet", "name=by_jsonl", "name=parted")
	s.fill(t, "from", 90)
	dir := t.TempDir()
	first := filepath.Join(dir, "first.arrow")
	succeeds(t, "", "export", s.at.GRPC+"/from", "--out", first)
	for _, format := range []string{"parquet", "jsonl"} {
		folder, again := filepath.Join(dir, format), filepath.Join(dir, format+".arrow")
		said := succeeds(t, "", "export", s.at.GRPC+"/from", "--out", folder, "--format", format)
		if !strings.Contains(said, "270 rollouts") || !strings.Contains(said, "1 "+format+" file of ") {
			t.Errorf("export said %q", said)
		}
		card, err := os.ReadFile(filepath.Join(folder, "README.md"))
		for _, want := range []string{"configs:", "data/**/*." + format, "at version 4", "| `logprobs` | `list<float32>` |"} {
			if err != nil || !strings.Contains(string(card), want) {
				t.Errorf("the card lacks %q, %v:\n%s", want, err, card)
			}
		}
		succeeds(t, "", "import", folder, s.at.GRPC+"/by_"+format, "--advance", "--rows", "50")
		succeeds(t, "", "export", s.at.GRPC+"/by_"+format, "--out", again)
		sameRows(t, first, again)
		fails(t, call(t, "", "export", s.at.GRPC+"/from", "--out", folder, "--format", format), "exists; --force")
		succeeds(t, "", "export", s.at.GRPC+"/from", "--out", folder, "--format", format, "--force")
	}
	folder := filepath.Join(dir, "parted")
	said := succeeds(t, "", "export", s.at.GRPC+"/from", "--out", folder, "--format", "parquet", "--by-version",
		"--where", "version >= 1 && reward > 0.5")
	if !strings.Contains(said, "4 parquet files of ") || !strings.Contains(said, "4 versions from 1 to 4") {
		t.Errorf("export said %q", said)
	}
	said = succeeds(t, "", "import", filepath.Join(folder, "data", "version=3"), s.at.GRPC+"/parted", "--advance")
	if !strings.Contains(said, "advanced to version 3") {
		t.Errorf("import said %q", said)
	}
	for want, arguments := range map[string][]string{
		"--format parquet or jsonl": {"--by-version"},
		"add --format parquet":      {"--out", filepath.Join(dir, "x.parquet")},
		"is not a folder":           {"--out", first, "--format", "jsonl", "--force"},
		"use reward":                {"--where", "rewrd > 0", "--out", filepath.Join(dir, "y"), "--format", "parquet"},
		"versions is needed":        {"--columns", "id", "--by-version", "--format", "parquet"},
	} {
		arguments = append([]string{"export", s.at.GRPC + "/from", "--out", filepath.Join(dir, "y")}, arguments...)
		fails(t, call(t, "", arguments...), want)
	}
}

func TestTheTableOfARunIsExported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run, folder, file := filepath.Join(dir, "run"), filepath.Join(dir, "folder"), filepath.Join(dir, "run.arrow")
	succeeds(t, "", append(small(run), "--quiet")...)
	var listed browse.Page
	decode(t, succeeds(t, "", "rollouts", run, "--where", "reward == 0", "--json"), &listed)
	said := succeeds(t, "", "export", run, "--out", folder, "--format", "jsonl", "--where", "reward == 0")
	if listed.Matched == 0 || !strings.Contains(said, fmt.Sprintf("%d rollouts of ", listed.Matched)) {
		t.Errorf("export said %q: want %d", said, listed.Matched)
	}
	succeeds(t, "", "export", run, "--out", file)
	s := startTables(t, "name=copy")
	succeeds(t, "", "import", file, s.at.GRPC+"/copy", "--advance")
}

func TestTheExportOfAJournalIsThatOfItsTable(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := startServe(t, "--http", "off", "--data", data, "--table", "name=lab,sampler=uniform,capacity=100")
	s.fill(t, "lab", 50)
	dir := t.TempDir()
	served, kept := filepath.Join(dir, "served.arrow"), filepath.Join(dir, "kept.arrow")
	succeeds(t, "", "export", s.at.GRPC+"/lab", "--out", served)
	journal := filepath.Join(data, "tables", "lab.journal")
	fails(t, call(t, "", "export", journal, "--out", kept), "another process has it open")
	s.stop()

	moved := filepath.Join(dir, "moved")
	if err := os.Rename(journal, moved); err != nil {
		t.Fatal(err)
	}
	content := func() []byte {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(moved, "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("files %v, %v", files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before := content()
	succeeds(t, "", "export", moved, "--out", kept)
	sameRows(t, served, kept)
	if after := content(); string(after) != string(before) {
		t.Error("the journal was written to")
	}

	before[len(before)/2] ^= 1
	files, err := filepath.Glob(filepath.Join(moved, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], before, 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t, "", "export", moved, "--out", filepath.Join(dir, "never.arrow"))
	if got.code != 1 || !strings.Contains(got.stderr, "damaged") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "never.arrow")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a damaged journal was exported")
	}
}

func TestARepeatedImportEntersOnce(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=from", "name=to")
	s.fill(t, "from", 20)
	path := filepath.Join(t.TempDir(), "table.arrow")
	succeeds(t, "", "export", s.at.GRPC+"/from", "--out", path)
	for _, want := range []float64{60, 60, 120} {
		args := []string{"import", path, s.at.GRPC + "/to", "--advance", "--rows", "7", "--json"}
		if want == 60 {
			args = append(args, "--as", "once")
		}
		var done map[string]any
		if err := json.Unmarshal([]byte(succeeds(t, "", args...)), &done); err != nil {
			t.Fatal(err)
		}
		if done["present_after"] != want || done["rollouts"] != 60.0 || done["insertions"] != 10.0 {
			t.Errorf("%v: want %g present", done, want)
		}
	}
}

func TestAnImportIntoAFullQueueReportsItsProgress(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=from", "name=queue,sampler=fifo,capacity=30")
	s.fill(t, "from", 20)
	path := filepath.Join(t.TempDir(), "table.arrow")
	succeeds(t, "", "export", s.at.GRPC+"/from", "--out", path)
	fails(t, call(t, "", "import", path, s.at.GRPC+"/queue", "--advance", "--rows", "9", "--wait", "50ms"),
		"27 of 60 rollouts have entered", "--as import-")
}

func TestOnlyTheRolloutsAskedForAreExported(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=lab")
	s.fill(t, "lab", 10)
	path := filepath.Join(t.TempDir(), "some.arrow")
	said := succeeds(t, "", "export", s.at.GRPC+"/lab", "--out", path, "--ids", "30,2,3,999", "--columns", "reward,id",
		"--rows", "4")
	if !strings.Contains(said, "3 rollouts") || !strings.Contains(said, "not exported: [999]") {
		t.Errorf("export said %q", said)
	}
	var ids []uint64
	for _, rec := range rowsOf(t, path) {
		if rec.NumCols() != 2 {
			t.Errorf("columns %v", rec.Schema())
		}
		ids = append(ids, rec.Column(rec.Schema().FieldIndices("id")[0]).(*array.Uint64).Uint64Values()...)
	}
	if fmt.Sprint(ids) != "[2 3 30]" {
		t.Errorf("ids %v", ids)
	}
	fails(t, call(t, "", "export", s.at.GRPC+"/lab", "--out", path), "exists", "--force")
	succeeds(t, "", "export", s.at.GRPC+"/lab", "--out", path, "--force")
	fails(t, call(t, "", "export", s.at.GRPC+"/lab", "--out", path, "--force", "--columns", "tokenz"), "tokenz")
	fails(t, call(t, "", "export", s.at.GRPC+"/lab", "--out", path, "--force", "--ids", "1", "--columns", "reward"),
		"id")
	fails(t, call(t, "", "export", s.at.GRPC+"/nowhere", "--out", path, "--force"), "nowhere")
	fails(t, call(t, "", "export", filepath.Join(t.TempDir(), "none"), "--out", path, "--force"), "no such file")
	if n := len(rowsOf(t, path)); n == 0 {
		t.Error("an export that failed took the file that was there")
	}
}

func TestABadFileLeavesTheTableUnchanged(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=from", "name=to")
	s.fill(t, "from", 6)
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.arrow"), filepath.Join(dir, "bad.arrow")
	succeeds(t, "", "export", s.at.GRPC+"/from", "--out", good, "--rows", "6")
	spoil(t, good, bad, 13)
	fails(t, call(t, "", "import", bad, s.at.GRPC+"/to", "--advance", "--rows", "3"), "row 13", "reward", "NaN")
	empty := filepath.Join(dir, "empty.arrow")
	said := succeeds(t, "", "export", s.at.GRPC+"/to", "--out", empty)
	if !strings.Contains(said, "0 rollouts") {
		t.Errorf("rows of a file with a bad row entered: %q", said)
	}
	if said := succeeds(t, "", "import", empty, s.at.GRPC+"/to"); !strings.Contains(said, "0 rollouts in 0 groups") {
		t.Errorf("an empty file: %q", said)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no arrow ", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, call(t, "", "import", text, s.at.GRPC+"/to"), "no Arrow IPC file")
	fails(t, call(t, "", "import", good, "grpc://127.0.0.1:1"), "names no table")
}

func TestRolloutsThatWaitForRewardsAreExportedAndImported(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=from", "name=late,pending_rewards=600", "name=again,pending_rewards=600")
	s.fill(t, "from", 6)
	dir := t.TempDir()
	good, waits, again := filepath.Join(dir, "good"), filepath.Join(dir, "waits"), filepath.Join(dir, "again")
	succeeds(t, "", "export", s.at.GRPC+"/from", "--out", good)
	spoil(t, good, waits, 13)
	succeeds(t, "", "import", waits, s.at.GRPC+"/late", "--advance", "--recompute")
	succeeds(t, "", "export", s.at.GRPC+"/late", "--out", again)
	succeeds(t, "", "import", again, s.at.GRPC+"/again", "--advance")
	table := s.dial(s.at.GRPC, client.Options{}).Table("again")
	if stats, err := table.Stats(t.Context()); err != nil || stats.Present != 18 || stats.Waiting != 3 {
		t.Fatalf("the table holds %d rollouts, of which %d wait, %v: want 18 and 3", stats.Present, stats.Waiting, err)
	}
	done, err := table.Reward(t.Context(), rollout.Rewards{IDs: []rollout.ID{14}, Values: []float32{1}})
	if err != nil || done.Entered != 3 {
		t.Errorf("with the reward %d rollouts can be drawn, %v: want 3", done.Entered, err)
	}
}

// spoil copies a file and replaces the reward of one row by NaN.
func spoil(t *testing.T, from, to string, row int) {
	t.Helper()
	batches := rowsOf(t, from)
	var gatherer wire.Gatherer
	_, err := archive.Write(to, batches[0].Schema(), func(add func(arrow.RecordBatch) error) error {
		for _, rec := range batches {
			draws, err := wire.Draws(rec, nil)
			if err != nil {
				return err
			}
			if row >= 0 && row < len(draws) {
				bad := *draws[row].Rollout
				bad.Reward = float32(math.NaN())
				draws[row].Rollout = &bad
			}
			row -= len(draws)
			spoiled, err := gatherer.Batch(draws, rec.Schema())
			if err != nil {
				return err
			}
			if err := add(spoiled); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTablesOfARunningServiceAreManaged(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=math,capacity=4096")
	s.fill(t, "math", 2)
	at := s.at.GRPC
	if out := succeeds(t, "", "table", "create", at, "name=copy,capacity=64,sampler=fifo"); !strings.Contains(out,
		"table copy: 0 rollouts, version 0") {
		t.Errorf("created: %s", out)
	}
	fails(t, call(t, "", "table", "create", at, "name=copy,capacity=65"), "another definition", "capacity")
	fails(t, call(t, "", "table", "create", at, "capacity=65"), "want a name")
	list := strings.Fields(succeeds(t, "", "table", "list", at))
	if want := "table rollouts payload sampler capacity copy 0 0.0 KiB fifo 64 math 6"; !strings.HasPrefix(
		strings.Join(list, " "), want) {
		t.Errorf("listed %v, want %s", list, want)
	}
	var tables []client.Listed
	if err := json.Unmarshal([]byte(succeeds(t, "", "table", "list", at, "--json")), &tables); err != nil ||
		len(tables) != 2 || tables[1].Name != "math" || tables[1].Rows != 6 || tables[1].Definition.Capacity != 4096 {
		t.Errorf("listed as JSON: %+v, %v", tables, err)
	}
	var stats wire.TableStatistics
	if err := json.Unmarshal([]byte(succeeds(t, "", "table", "stats", at+"/math")), &stats); err != nil ||
		stats.Present != 6 {
		t.Errorf("statistics %+v, %v", stats, err)
	}
	if out := succeeds(t, "", "table", "drop", at+"/math"); !strings.Contains(out, "math is dropped, with 6 rollouts") {
		t.Errorf("dropped: %s", out)
	}
	for _, verb := range []string{"drop", "stats"} {
		fails(t, call(t, "", "table", verb, at+"/math"), `"math"`, "there is none of that name")
	}
}

func TestATablesJournalIsReadThroughOnRequest(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := startServe(t, "--http", "off", "--data", data, "--table", "name=math,capacity=4096")
	s.fill(t, "math", 2)
	if out := succeeds(t, "", "table", "scrub", s.at.GRPC+"/math"); out != "the journal: whole\n" {
		t.Errorf("scrubbed: %s", out)
	}
	segments, err := filepath.Glob(filepath.Join(data, "*", "*", "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	content, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(segments[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("T"), int64(bytes.Index(content, []byte("text 1"))))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	o := call(t, "", "table", "scrub", s.at.GRPC+"/math")
	fails(t, o, "the journal is damaged", "save a checkpoint of the table and restore it")
	if !strings.Contains(o.stdout, "the journal: damaged: ") || !strings.Contains(o.stdout, filepath.Base(segments[0])) {
		t.Errorf("found: %s", o.stdout)
	}
	var found wire.ScrubAnswer
	o = call(t, "", "table", "scrub", "--json", s.at.GRPC+"/math")
	if err := json.Unmarshal([]byte(o.stdout), &found); err != nil || o.code == 0 || len(found.Copies[0].Damage) != 1 {
		t.Errorf("as JSON: %+v, %v", found, err)
	}
	memory := startServe(t, "--http", "off", "--table", "name=math,capacity=64")
	fails(t, call(t, "", "table", "scrub", memory.at.GRPC+"/math"), `"math" has no journal`, "--data")
}

// What to do depends on what a scrub found: good copies are kept.
func TestAScrubSaysWhatToDo(t *testing.T) {
	whole, damaged := wire.ScrubbedCopy{Node: "a"}, wire.ScrubbedCopy{Node: "b", Damage: []string{"flipped"}}
	doubt, down := wire.ScrubbedCopy{Node: "c", Doubt: "it differs"}, wire.ScrubbedCopy{Node: "d", Unread: "it is down"}
	for _, each := range []struct {
		copies []wire.ScrubbedCopy
		want   string
	}{
		{nil, "no node has a copy"},
		{[]wire.ScrubbedCopy{damaged}, "restore it"},
		{[]wire.ScrubbedCopy{whole, damaged, whole}, "1 of 3 copies are damaged: replace their nodes"},
		{[]wire.ScrubbedCopy{doubt, doubt, down}, "2 of 3 copies differ, and which are right is not known: start the other"},
		{[]wire.ScrubbedCopy{whole, whole, down}, "1 of 3 copies were not read"},
	} {
		if err := remedy(each.copies); err == nil || !strings.Contains(err.Error(), each.want) {
			t.Errorf("%v: %v; want %q", each.copies, err, each.want)
		}
	}
	if err := remedy([]wire.ScrubbedCopy{whole, whole, whole}); err != nil {
		t.Errorf("whole copies: %v", err)
	}
	if text := scrubbed(doubt); text != "node c: in doubt: it differs\n" {
		t.Errorf("in doubt: %q", text)
	}
}
