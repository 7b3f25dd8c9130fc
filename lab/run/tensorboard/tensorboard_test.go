package tensorboard_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/run/tensorboard"
)

// fields decodes a message into its fields by number, numbers of fixed size as their bits.
func fields(t *testing.T, message []byte) map[protowire.Number][]any {
	t.Helper()
	all := make(map[protowire.Number][]any)
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		var v any
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			v, n = protowire.ConsumeFixed32(message)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(message)
		default:
			v, n = protowire.ConsumeBytes(message)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		all[number] = append(all[number], v)
	}
	return all
}

// records splits a file of TFRecords and checks its checksums, as TensorFlow unmasks them.
func records(t *testing.T, file []byte) (list [][]byte) {
	t.Helper()
	check := func(data, sum []byte) {
		masked := binary.LittleEndian.Uint32(sum) - 0xa282ead8
		if masked>>17|masked<<15 != crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) {
			t.Errorf("record %d: checksum %x is not that of %x", len(list), sum, data)
		}
	}
	for len(file) > 0 {
		check(file[:8], file[8:12])
		end := 12 + binary.LittleEndian.Uint64(file)
		check(file[12:end], file[end:end+4])
		list = append(list, file[12:end])
		file = file[end+4:]
	}
	return list
}

// point is a scalar at a step.
type point struct {
	step  int
	value float32
}

// event is an Event as a test reads it.
type event struct {
	wall    float64 // seconds
	step    int
	version string
	started bool
	values  map[string]float32
}

// readFile decodes an event file.
func readFile(t *testing.T, path string) (list []event) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records(t, file) {
		f := fields(t, r)
		e := event{wall: math.Float64frombits(f[1][0].(uint64)), values: make(map[string]float32)}
		if f[2] != nil {
			e.step = int(f[2][0].(uint64))
		}
		if f[3] != nil {
			e.version = string(f[3][0].([]byte))
		}
		if f[5] != nil {
			for _, v := range fields(t, f[5][0].([]byte))[1] {
				value := fields(t, v.([]byte))
				e.values[string(value[1][0].([]byte))] = math.Float32frombits(value[2][0].(uint32))
			}
		}
		e.started = f[7] != nil && fields(t, f[7][0].([]byte))[1][0] == uint64(1)
		list = append(list, e)
	}
	return list
}

// eventFiles lists the event files of a folder in the order in which TensorBoard reads them.
func eventFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func TestAnEventFileHoldsWhatWasAppended(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	now := time.Unix(1_700_000_000, 250_000_000)
	w, err := tensorboard.Create(dir, now, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range [][]results.Scalar{
		{{Name: "train/loss", Value: -0.5}, {Name: "train/ess", Value: 1}},
		{{Name: "train/nan", Value: math.NaN()}, {Name: "train/inf", Value: math.Inf(-1)},
			{Name: "train/huge", Value: 1e300}, {Name: "train/least", Value: 5e-324}},
		nil,
	} {
		if err := w.Append(now.Add(time.Duration(i)*time.Second), i+1, line); err != nil {
			t.Fatal(err)
		}
	}
	want := []event{
		{wall: 1_700_000_000.25, version: "brain.Event:2", values: map[string]float32{}},
		{wall: 1_700_000_000.25, step: 1, started: true, values: map[string]float32{}},
		{wall: 1_700_000_000.25, step: 1, values: map[string]float32{"train/loss": -0.5, "train/ess": 1}},
		{wall: 1_700_000_001.25, step: 2, values: map[string]float32{"train/least": 0}},
		{wall: 1_700_000_002.25, step: 3, values: map[string]float32{}},
	}
	if got := readFile(t, eventFiles(t, dir)[0]); !reflect.DeepEqual(got, want) { // before it is closed: it is live
		t.Errorf("the file has\n%v\nwant\n%v", got, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err = tensorboard.Create(dir, now.Add(time.Minute), 2); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	resumed := readFile(t, eventFiles(t, dir)[1])
	if len(resumed) != 2 || resumed[0].version != want[0].version || !resumed[1].started || resumed[1].step != 3 {
		t.Errorf("after 2 updates the file of the resumed run begins with %v", resumed)
	}
}

// crashedAndResumed is a run of 20 updates that is killed after update 17, while it writes an event, and resumed from
// its last checkpoint.
func crashedAndResumed(t *testing.T, c run.Config, start *run.Start) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	hooks := run.Hooks{TensorBoard: dir}
	dying := hooks
	died := errors.New("died")
	dying.OnUpdate = func(u results.Update) {
		if u.Update == 17 {
			panic(died)
		}
	}
	func() {
		defer func() {
			if recover() != died { //nolint:errorlint // the very value that was thrown
				t.Fatal("the run did not die where it should")
			}
		}()
		run.Train(context.Background(), c, start, dir, dying)
	}()
	f, err := os.OpenFile(eventFiles(t, dir)[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(whole[:20]) // a torn record
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Resume(context.Background(), c, dir, hooks); err != nil {
		t.Fatal(err)
	}
	return dir
}

// small is a run with a checkpoint at the start, and every few updates.
func small(t *testing.T, checkpoint int) (run.Config, *run.Start) {
	t.Helper()
	c, err := run.Load("", []string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
		"policy.positions=32", "task.max=10", "task.held_out=20", "warmup.steps=0", "generate.max_tokens=4",
		"pipeline.batch=16", "pipeline.group=4", "pipeline.workers=3", "replay.capacity=48", "evaluate.every=4",
		"evaluate.samples=2", "evaluate.pass_at=[1, 2]", "budget.compute=0", "budget.updates=20",
		fmt.Sprint("checkpoint.every=", checkpoint),
	})
	if err != nil {
		t.Fatal(err)
	}
	start, err := run.Begin(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, start
}

// recorded returns what metrics.jsonl and eval.jsonl of a run hold, as points of each scalar.
func recorded(t *testing.T, dir string) map[string][]point {
	t.Helper()
	r, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]point)
	add := func(step int, list []results.Scalar) {
		for _, s := range list {
			all[s.Name] = append(all[s.Name], point{step, float32(s.Value)})
		}
	}
	for _, u := range r.Updates {
		add(u.Update, u.Scalars())
	}
	for _, e := range r.Evals {
		add(e.Update, e.Scalars())
	}
	return all
}

func TestARunIsLoggedAndWritesTheSameBytes(t *testing.T) {
	c, start := small(t, 7)
	plain := filepath.Join(t.TempDir(), "plain")
	if _, err := run.Train(context.Background(), c, start, plain, run.Hooks{}); err != nil {
		t.Fatal(err)
	}
	if files := eventFiles(t, plain); len(files) > 0 {
		t.Errorf("a run without a log wrote %v", files)
	}
	dir := crashedAndResumed(t, c, start)
	for _, name := range []string{results.MetricsFile, results.EvalFile, results.SummaryFile, results.ConfigFile} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(plain, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from that of a run without a log", name)
		}
	}
	files := eventFiles(t, dir)
	if len(files) != 2 {
		t.Fatalf("event files %v, want that of the run and that of the resumed one", files)
	}
	got := make(map[string][]point)
	for _, e := range readFile(t, files[1]) {
		if e.started && e.step != 15 {
			t.Errorf("TensorBoard would forget from step %d on, want 15", e.step)
		}
		for name, v := range e.values {
			got[name] = append(got[name], point{e.step, v})
		}
	}
	want := recorded(t, dir)
	if len(want["train/loss"]) != 20 || len(want["eval/pass1"]) < 3 || len(want["eval/pass_at_2"]) < 3 {
		t.Fatalf("the run recorded %v", want)
	}
	for name, points := range want {
		points = slices.DeleteFunc(points, func(p point) bool { return p.step < 15 })
		if !slices.Equal(got[name], points) {
			t.Errorf("%s: %v after the resume, want %v", name, got[name], points)
		}
	}
}

// readEvents prints the scalars that TensorBoard reads from a folder.
const readEvents = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
a.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}))`

func TestTheRealTensorBoardReadsARun(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import tensorboard").Run() != nil {
		t.Skip("python3 with the package tensorboard is not there; make test-python, on CI too, runs this with its own")
	}
	for _, checkpoint := range []int{7, 100} { // with 100 it is resumed from its start
		config, start := small(t, checkpoint)
		dir := crashedAndResumed(t, config, start)
		c := exec.Command(python, "-c", readEvents, dir)
		c.Stderr = new(bytes.Buffer)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, c.Stderr)
		}
		var read map[string][][2]float64
		if err := json.Unmarshal(out, &read); err != nil {
			t.Fatal(err)
		}
		got := make(map[string][]point)
		for name, points := range read {
			for _, p := range points {
				got[name] = append(got[name], point{int(p[0]), float32(p[1])})
			}
		}
		if want := recorded(t, dir); !reflect.DeepEqual(got, want) {
			t.Errorf("checkpoint.every=%d: TensorBoard reads\n%v\nwant\n%v", checkpoint, got, want)
		}
	}
}
