package service_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

var (
	seeds     = flag.Int("simulations", 60, "number of simulations")
	firstSeed = flag.Int("simulation", 1, "seed of the first simulation")
)

// A service, its journals and its clients are run against a simulated disk, clock and network. One seed is one sequence
// of operations and faults:
//
//	go test ./service -run TestSimulation -simulations 10000
//	go test ./service -run TestSimulation -simulation 4711 -simulations 1 -v
func TestSimulation(t *testing.T) {
	for seed := range tests.Count(*seeds, *seeds/4) {
		if broken := simulate(t, uint64(*firstSeed+seed), none); broken != nil {
			t.Fatalf("seed %d: %v", *firstSeed+seed, broken)
		}
	}
}

// Each planted defect is found.
func TestSimulationFindsDefects(t *testing.T) {
	for d := noSync; d <= newIDs; d++ {
		t.Run(d.String(), func(t *testing.T) {
			for seed := range uint64(1000) {
				if broken := simulate(t, seed, d); broken != nil {
					t.Logf("seed %d: %v", seed, broken)
					return
				}
			}
			t.Error("1000 seeds do not find it")
		})
	}
}

// defect is planted to see whether the simulation finds it.
type defect int

const (
	none         defect = iota
	noSync              // the journal does not sync
	earlyAnswers        // insertions are answered before they are written
	newIDs              // a client repeats an insertion under another id
)

func (d defect) String() string { return [...]string{"none", "no sync", "early answers", "new ids"}[d] }

// world is one simulation.
type world struct {
	t      *testing.T
	random *rand.Rand
	defect defect
	folder string

	definition wire.Table
	caller     string // of every call; "": nobody knows
	disk       *disktest.Simulated
	now        atomic.Int64 // unix seconds
	service    *service.Service
	grpc       *grpc.Server
	client     *client.Client

	insertions map[string]*insertion
	order      []string              // ids of insertions
	ids        map[string]rollout.ID // of rollouts that were answered, drawn or exported, by text
	texts      map[rollout.ID]string // of those
	states     map[string]state      // of the rollouts of answered insertions, by text
	delivered  map[string]bool       // by text
	leased     *rollout.Batch
	samples    int
	gone       [][2]rollout.ID // first and last ids of consumed batches that the service named, and does not have
	version    rollout.Version
	log        []string
}

type insertion struct {
	groups   []rollout.Group
	answered bool
}

// state is what a client knows of a rollout of the queue.
type state int

const (
	present  state = iota
	perhaps        // its acknowledgement was not answered
	consumed       // for certain
)

const simulatedTable = "queue"

// simulate runs one seed and returns the promise that was broken.
func simulate(t *testing.T, seed uint64, d defect) (broken error) {
	w := newWorld(t, seed, d)
	return w.run(func() error {
		for range 10 + w.random.IntN(40) {
			if err := w.step(); err != nil {
				return err
			}
		}
		if err := w.restart(); err != nil {
			return err
		}
		return w.check()
	})
}

func newWorld(t *testing.T, seed uint64, d defect) *world {
	w := &world{
		t: t, random: rollout.Stream(seed, "simulation", 0), defect: d, folder: t.TempDir(),
		definition: wire.Table{Name: simulatedTable, Options: replay.Options{Capacity: 256, Sampler: replay.FIFO,
			LeaseSeconds: 60}},
		disk: &disktest.Simulated{Lazy: d == noSync}, insertions: make(map[string]*insertion),
		ids: make(map[string]rollout.ID), texts: make(map[rollout.ID]string),
		states: make(map[string]state), delivered: make(map[string]bool),
	}
	w.now.Store(1e9)
	return w
}

// run starts the service, does something with it, and returns the promise that was broken.
func (w *world) run(do func() error) (broken error) {
	if memory, err := os.MkdirTemp("/dev/shm", "reprise-simulation"); err == nil { // a simulated disk need not be slow
		w.folder = memory
		defer os.RemoveAll(memory)
	}
	defer func() {
		if w.service != nil {
			w.end()
		}
		if broken != nil {
			broken = fmt.Errorf("%w\nafter:\n%s", broken, strings.Join(w.log, "\n"))
		}
	}()
	if err := w.start(); err != nil {
		return err
	}
	return do()
}

// start starts the service and a client.
func (w *world) start() error {
	sync := journal.Always
	if w.defect == earlyAnswers {
		sync = journal.Interval
	}
	s, err := service.New(service.Options{Data: w.folder, Disk: w.disk, Sync: sync, Interval: time.Hour,
		Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return time.Unix(w.now.Load(), 0) },
		MemoryBytes: 256 << 20, DiskReserveBytes: 4096,
		Caller: func(context.Context) string { return w.caller }, Tables: []wire.Table{w.definition}})
	if err != nil {
		return fmt.Errorf("the service does not start: %w", err)
	}
	path := filepath.Join(w.folder, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	w.service, w.grpc = s, grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(w.grpc)
	go func() { _ = w.grpc.Serve(s.Listener(l)) }()
	w.client, err = client.Dial(w.t.Context(), "grpc+unix://"+path, client.Options{RetryFor: time.Millisecond})
	return err
}

// end ends the process as a loss of power does: nothing more reaches the disk.
func (w *world) end() {
	w.disk.LosePower(0)
	if w.client != nil {
		_ = w.client.Close()
	}
	w.grpc.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = w.service.Stop(ctx)
	w.service = nil
	w.leased = nil // it went back
}

// restart loses the power and gives it back.
func (w *world) restart() error {
	w.end()
	w.disk.Restore(w.random)
	return w.start()
}

func (w *world) table() *client.Table {
	return w.client.Table(simulatedTable).Waiting(time.Millisecond)
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// step does one thing.
func (w *world) step() error {
	ctx := w.t.Context()
	switch k := w.random.IntN(21); {
	case k < 6:
		id := fmt.Sprint("batch-", len(w.order))
		w.insertions[id] = &insertion{groups: w.groups(id)}
		w.order = append(w.order, id)
		return w.insert(ctx, id)
	case k < 8:
		if len(w.order) > 0 { // one that was answered, or not
			return w.insert(ctx, w.order[w.random.IntN(len(w.order))])
		}
	case k < 11:
		return w.lease(ctx)
	case k == 11:
		return w.sample(ctx)
	case k < 14:
		return w.settle(ctx)
	case k == 14:
		w.now.Add(int64(w.random.IntN(100)))
		w.note("the clock goes on")
	case k == 15:
		w.disk.LosePower(1 + w.random.IntN(12))
		w.note("the power will go")
	case k == 16:
		w.disk.Fail(1)
		w.note("a write or a sync will fail")
	case k == 17:
		full := w.random.IntN(2) == 0
		w.disk.Fill(full)
		w.note("disk full: %v", full)
	case k == 18:
		w.note("the power goes")
		if err := w.restart(); err != nil {
			return err
		}
		return w.check()
	case k == 19:
		return w.advance(ctx)
	case k == 20:
		return w.export(ctx)
	}
	return nil
}

// recovered restarts the service after an error that only a restart ends.
func (w *world) recovered(err error) error {
	if err == nil || errors.Is(err, rollout.ErrStarved) || errors.Is(err, rollout.ErrFull) ||
		errors.Is(err, wire.ErrDiskFull) {
		return nil
	}
	w.note("restart after: %.60q", err)
	return w.restart()
}

// lost reports whether the network loses something.
func (w *world) lost() bool { return w.random.IntN(6) == 0 }

func (w *world) groups(id string) []rollout.Group {
	groups := make([]rollout.Group, 1+w.random.IntN(3))
	for i := range groups {
		for j := range 1 + w.random.IntN(3) {
			r := rollout.New("prompt", []int32{1}, rollout.Completion{Tokens: make([]int32, 1+w.random.IntN(300)),
				Logprobs: nil})
			r.Logprobs = make([]float32, len(r.Tokens))
			r.Text = fmt.Sprintf("%s-%d-%d", id, i, j)
			groups[i].Rollouts = append(groups[i].Rollouts, r)
		}
	}
	return groups
}

// insert inserts a batch, for the first time or again. The network may lose the request, or the answer, or repeat it.
func (w *world) insert(ctx context.Context, id string) error {
	in := w.insertions[id]
	if w.lost() {
		return nil // the request
	}
	sent := id
	if w.defect == newIDs {
		sent = fmt.Sprint(id, w.random.Uint32())
	}
	ids, err := w.table().InsertOnce(ctx, sent, in.groups...)
	if err == nil && w.lost() { // the answer; the client repeats it
		if w.defect == newIDs {
			sent += "x"
		}
		ids, err = w.table().InsertOnce(ctx, sent, in.groups...)
	}
	w.note("insert %s: %v", id, err)
	if err != nil {
		return w.recovered(err)
	}
	n := 0
	for _, g := range in.groups {
		for _, r := range g.Rollouts {
			if err := w.show(r.Text, ids[n]); err != nil {
				return err
			}
			n++
			if _, known := w.states[r.Text]; !known {
				w.states[r.Text] = present
			}
		}
	}
	in.answered = true
	return nil
}

// lease draws a batch. What was consumed for certain does not come again.
func (w *world) lease(ctx context.Context) error {
	if w.leased != nil {
		return nil
	}
	b, err := w.table().Lease(ctx, rollout.Request{Size: 1 + w.random.IntN(5)})
	w.note("lease: %v", err)
	if err != nil {
		return w.recovered(err)
	}
	w.leased = b
	return w.deliver(b)
}

// deliver notes a batch. What was consumed for certain does not come again, and what was delivered before is so named.
func (w *world) deliver(b *rollout.Batch) error {
	for _, d := range b.Draws {
		text := d.Rollout.Text
		switch {
		case b.Repeated:
		case w.states[text] == consumed:
			return fmt.Errorf("rollout %s was consumed and is drawn again", text)
		case w.delivered[text] && !d.Redelivered:
			return fmt.Errorf("rollout %s was delivered before and is not named redelivered", text)
		}
		w.delivered[text] = true
		if err := w.show(text, d.ID); err != nil {
			return err
		}
	}
	return nil
}

// show notes a rollout that a client sees under an id. It has no other, and no other has it.
func (w *world) show(text string, id rollout.ID) error {
	if before, ok := w.ids[text]; ok && before != id {
		return fmt.Errorf("rollout %s has id %d, and had id %d", text, id, before)
	}
	if before, ok := w.texts[id]; ok && before != text {
		return fmt.Errorf("rollout %s has id %d, which rollout %s had", text, id, before)
	}
	w.ids[text], w.texts[id] = id, text
	return nil
}

// export shows all that is there, unless the journal has failed: then it also saves what no client can rely on.
func (w *world) export(ctx context.Context) error {
	var all []rollout.Draw
	err := w.table().Scan(ctx, 100, func(draws []rollout.Draw) error {
		all = append(all, draws...)
		return nil
	})
	w.note("export: %v", err)
	stats, asking := w.table().Statistics(ctx)
	if asking != nil || stats.Journal.Error != "" {
		return w.recovered(err)
	}
	for _, d := range all {
		if err := w.show(d.Rollout.Text, d.ID); err != nil {
			return err
		}
	}
	return w.recovered(err)
}

// sample draws a batch and acknowledges it, and repeats that under one request id until it is answered: with the batch,
// or with the ids of what was consumed.
func (w *world) sample(ctx context.Context) error {
	w.samples++
	request := rollout.Request{ID: fmt.Sprint("sample-", w.samples), Size: 1 + w.random.IntN(5)}
	for began := time.Now(); ; { // a journal tries again after a while
		if time.Since(began) > 30*time.Second {
			return fmt.Errorf("%s is not served", request.ID)
		}
		b, err := w.table().Sample(ctx, request)
		if err == nil && w.lost() { // the client dies with the batch, and its successor repeats the request
			b, err = w.table().Sample(ctx, request)
		}
		w.note("%s: %v", request.ID, err)
		switch {
		case err == nil:
			if err := w.deliver(b); err != nil {
				return err
			}
			for _, d := range b.Draws {
				w.states[d.Rollout.Text] = consumed
			}
			return nil
		case errors.Is(err, rollout.ErrNoLease):
			var first, last rollout.ID
			if found := named.FindStringSubmatch(err.Error()); found == nil {
				return fmt.Errorf("the error names nothing: %w", err)
			} else if _, err := fmt.Sscan(found[1], &first); err != nil {
				return err
			} else if _, err := fmt.Sscan(found[2], &last); err != nil {
				return err
			}
			w.gone = append(w.gone, [2]rollout.ID{first, last})
			return nil
		case errors.Is(err, rollout.ErrStarved):
			return nil
		case errors.Is(err, wire.ErrDiskFull):
			w.disk.Fill(false)
		}
		if err := w.recovered(err); err != nil {
			return err
		}
	}
}

var named = regexp.MustCompile("of ids ([0-9]+) to ([0-9]+)")

// settle acknowledges or releases the batch on lease.
func (w *world) settle(ctx context.Context) error {
	if w.leased == nil {
		return nil
	}
	b := w.leased
	w.leased = nil
	if w.random.IntN(4) == 0 {
		err := w.table().Release(ctx, b.ID)
		w.note("release: %v", err)
		if errors.Is(err, rollout.ErrNoLease) {
			return nil
		}
		return w.recovered(err)
	}
	err := w.table().Acknowledge(ctx, b.ID)
	w.note("acknowledge: %v", err)
	if errors.Is(err, rollout.ErrNoLease) {
		return nil
	}
	for _, d := range b.Draws {
		switch text := d.Rollout.Text; {
		case err == nil:
			w.states[text] = consumed
		case w.states[text] == present:
			w.states[text] = perhaps
		}
	}
	return w.recovered(err)
}

func (w *world) advance(ctx context.Context) error {
	v := w.version + 1
	err := w.table().Advance(ctx, v)
	w.note("advance: %v", err)
	if err == nil {
		w.version = v
	}
	return w.recovered(err)
}

// check compares what the service has with what clients know.
func (w *world) check() error {
	held := make(map[string]rollout.ID)
	var twice error
	err := w.table().Scan(w.t.Context(), 100, func(draws []rollout.Draw) error {
		for _, d := range draws {
			text := d.Rollout.Text
			if _, ok := held[text]; ok {
				twice = fmt.Errorf("rollout %s is there twice", text)
			}
			held[text] = d.ID
			if w.states[text] == consumed {
				twice = fmt.Errorf("rollout %s was consumed and is there again", text)
			}
		}
		return nil
	})
	if err := errors.Join(err, twice); err != nil {
		return err
	}
	for _, text := range slices.Sorted(maps.Keys(w.states)) {
		id, ok := held[text]
		if w.states[text] == present && !ok && !w.named(w.ids[text]) {
			return fmt.Errorf("rollout %s was acknowledged, and is lost", text)
		}
		if ok {
			if err := w.show(text, id); err != nil {
				return err
			}
		}
	}
	for _, id := range w.order {
		in, n, known := w.insertions[id], 0, 0
		for _, g := range in.groups {
			for _, r := range g.Rollouts {
				if _, ok := held[r.Text]; ok {
					n++
				}
				known++
			}
		}
		if !in.answered && n != 0 && n != known && !w.drawn(in) {
			return fmt.Errorf("of the %d rollouts of insertion %s %d are there: want all or none", known, id, n)
		}
	}
	if info, err := w.table().Info(w.t.Context()); err != nil || rollout.Version(info.Version) < w.version {
		return fmt.Errorf("the version is %d, want %d or more (%v)", info.Version, w.version, err)
	}
	s, err := w.table().Statistics(w.t.Context())
	if err != nil {
		return err
	}
	left := uint64(0)
	for _, n := range s.Evicted {
		left += n
	}
	if s.Inserted != uint64(s.Present)+left {
		return fmt.Errorf("the counts do not add up: %d inserted, %d present, %d left", s.Inserted, s.Present, left)
	}
	return nil
}

// named reports whether the service named a batch of such ids as consumed.
func (w *world) named(id rollout.ID) bool {
	return slices.ContainsFunc(w.gone, func(ids [2]rollout.ID) bool { return ids[0] <= id && id <= ids[1] })
}

// drawn reports whether a rollout of an insertion was drawn and perhaps consumed.
func (w *world) drawn(in *insertion) bool {
	for _, g := range in.groups {
		for _, r := range g.Rollouts {
			if s, ok := w.states[r.Text]; ok && s != present || len(w.gone) > 0 {
				return true
			}
		}
	}
	return false
}
