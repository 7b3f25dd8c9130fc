package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected returns a fake service of a table and the client's end of it.
func connected(t testing.TB, o replay.Options, with Options) (*fake, *Table) {
	t.Helper()
	f := newFake(t, o)
	address, _ := f.listen(t)
	return f, dial(t, address, with).Table("lab")
}

// fake is a service of one table, made of the stock Flight server. It does what the protocol says and, where it is told
// to, fails before or after it has done it.
type fake struct {
	flight.BaseFlightServer
	table *replay.Table

	mu       sync.Mutex
	fail     func(moment string, n int) error // n counts the moments of a name from 1
	moments  map[string]int
	inserts  []wire.InsertRequest
	samples  []wire.SampleRequest
	actions  []string          // types and bodies, "info {…}"
	answers  map[string]string // JSON by type, of actions that the fake knows nothing of
	tokens   []string
	released []rollout.BatchID
	extra    int // rows that an answer announces but does not send
}

func newFake(t testing.TB, o replay.Options) *fake {
	t.Helper()
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &fake{table: table, moments: make(map[string]int), answers: make(map[string]string)}
}

// listen serves on a socket until the test ends, and returns its address and what ends it before.
func (f *fake) listen(t testing.TB, options ...grpc.ServerOption) (address string, stop func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	return "grpc+unix://" + path, f.serve(t, "unix", path, options...)
}

func (f *fake) serve(t testing.TB, network, place string, options ...grpc.ServerOption) (stop func()) {
	t.Helper()
	l, err := net.Listen(network, place)
	if err != nil {
		t.Fatal(err)
	}
	return f.serveOn(t, l, options...)
}

func (f *fake) serveOn(t testing.TB, l net.Listener, options ...grpc.ServerOption) (stop func()) {
	s := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(1<<28), flightdata.ServerOption())...)
	flight.RegisterFlightServiceServer(s, f)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	stop = sync.OnceFunc(func() { s.Stop(); <-done })
	t.Cleanup(stop)
	return stop
}

// at is called at each moment at which something may go wrong.
func (f *fake) at(moment string) error {
	f.mu.Lock()
	f.moments[moment]++
	n, fail := f.moments[moment], f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(moment, n)
}

func (f *fake) count(moment string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moments[moment]
}

// asked returns the requests of insertions so far.
func (f *fake) asked() []wire.InsertRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.inserts)
}

func (f *fake) failing(fail func(moment string, n int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *fake) ListActions(_ *flight.Empty, s flight.FlightService_ListActionsServer) error {
	f.mu.Lock()
	md, _ := metadata.FromIncomingContext(s.Context())
	f.tokens = append(f.tokens, md.Get("authorization")...)
	f.mu.Unlock()
	return f.at("greet")
}

func (f *fake) DoPut(s flight.FlightService_DoPutServer) error {
	if err := f.at("put"); err != nil {
		return err
	}
	r, err := flight.NewRecordReader(s)
	if err != nil {
		return err
	}
	defer r.Release()
	for r.Next() {
		var req wire.InsertRequest
		if err := json.Unmarshal(r.LatestAppMetadata(), &req); err != nil {
			return err
		}
		f.mu.Lock()
		f.inserts = append(f.inserts, req)
		f.mu.Unlock()
		if err := f.at("before insert"); err != nil {
			return err
		}
		groups, order, err := wire.Groups(r.RecordBatch(), nil)
		if err != nil {
			return wire.ToGRPC(err)
		}
		ids, err := f.table.ServiceView().InsertOnce(s.Context(), req.BatchID, groups...)
		if err != nil {
			return wire.ToGRPC(err)
		}
		if err := f.at("after insert"); err != nil {
			return err
		}
		answer := wire.InsertAnswer{BatchID: req.BatchID, IDs: make([]uint64, len(ids)),
			Version: int32(f.table.Version()), Present: f.table.ServiceView().Flow().Present}
		for row, position := range order {
			answer.IDs[row] = uint64(ids[position])
		}
		text, _ := json.Marshal(answer)
		if err := s.Send(&flight.PutResult{AppMetadata: text}); err != nil {
			return err
		}
	}
	return r.Err()
}

func (f *fake) DoExchange(s flight.FlightService_DoExchangeServer) error {
	if err := f.at("exchange"); err != nil {
		return err
	}
	defer f.at("end")
	var gather wire.Gatherer
	var w *flightdata.Writer
	var held []rollout.BatchID
	defer func() {
		for _, id := range held {
			f.release(id)
		}
	}()
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var req wire.SampleRequest
		if err := json.Unmarshal(m.AppMetadata, &req); err != nil {
			return err
		}
		f.mu.Lock()
		f.samples = append(f.samples, req)
		f.mu.Unlock()
		for _, id := range req.Release {
			if !slices.Contains(held, rollout.BatchID(id)) {
				return wire.ToGRPC(fmt.Errorf("batch %d: %w", id, rollout.ErrNoLease))
			}
		}
		for _, id := range held {
			if len(req.Release) > 0 {
				f.release(id)
			} else if err := f.table.Acknowledge(context.Background(), id); err != nil {
				return wire.ToGRPC(err)
			}
		}
		held = nil
		if !req.OnlySettles() {
			if err := f.at("before sample"); err != nil {
				return err
			}
		}
		if req.OnlySettles() {
			if err := f.at("after acknowledge"); err != nil {
				return err
			}
			if err := s.Send(&flight.FlightData{AppMetadata: []byte("{}")}); err != nil {
				return err
			}
			continue
		}
		b, err := f.table.ServiceView().Lease(s.Context(), req.Draw())
		if err != nil {
			text, _ := json.Marshal(wire.BatchInfo{Error: wire.StatusOf(err)})
			if err := s.Send(&flight.FlightData{AppMetadata: text}); err != nil {
				return err
			}
			continue
		}
		if !b.Repeated {
			held = append(held, b.ID)
		}
		if err := f.at("after sample"); err != nil {
			return err
		}
		schema, err := wire.SampleSchema(nil)
		if err != nil {
			return err
		}
		rec, err := gather.Batch(b.Draws, schema)
		if err != nil {
			return err
		}
		if w == nil {
			w = flightdata.NewWriter(s, schema, nil)
		}
		text, _ := json.Marshal(wire.BatchInfo{Batch: uint64(b.ID), Version: int32(b.Version), Shard: b.Shard,
			LogWeightScale: b.LogWeightScale, PromptCounts: b.PromptCounts, SourceCounts: b.SourceCounts,
			Rows: len(b.Draws) + f.extra, Repeated: b.Repeated, Present: f.table.ServiceView().Flow().Present})
		err = w.Write(rec, text)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

// restart replaces the table by what a journal would have recovered of it. Call it once, before any other change.
func (f *fake) restart(t testing.TB, o replay.Options) {
	t.Helper()
	f.table.JournalView().Track()
	cut := f.table.JournalView().Cut()
	recovered, err := replay.New(o)
	if err == nil {
		_, err = recovered.JournalView().Rebuild(replay.Recovered{State: cut.State, Stored: cut.Inserted,
			Requests: cut.Requests, Consumed: cut.Consumed})
	}
	if err != nil {
		t.Error(err)
	}
	recovered.JournalView().Cut().OnDisk()
	f.table = recovered
}

// release gives a batch back and notes it.
func (f *fake) release(id rollout.BatchID) {
	if f.table.Release(context.Background(), id) != nil {
		return // it was settled by an action
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, id)
}

func (f *fake) DoAction(a *flight.Action, s flight.FlightService_DoActionServer) error {
	f.mu.Lock()
	f.actions = append(f.actions, a.Type+" "+string(a.Body))
	answer, known := f.answers[a.Type]
	f.mu.Unlock()
	if err := f.at("before " + a.Type); err != nil {
		return err
	}
	if !known {
		var err error
		if answer, err = f.act(s.Context(), a); err != nil {
			return wire.ToGRPC(err)
		}
	}
	if err := f.at("after " + a.Type); err != nil {
		return err
	}
	return s.Send(&flight.Result{Body: []byte(answer)})
}

// act carries out the few actions that a table has to answer for.
func (f *fake) act(ctx context.Context, a *flight.Action) (string, error) {
	var err error
	switch a.Type {
	case wire.Info:
	case wire.Advance:
		var req wire.VersionRequest
		if err = json.Unmarshal(a.Body, &req); err == nil {
			err = f.table.Advance(ctx, rollout.Version(req.Version))
		}
	case wire.Acknowledge, wire.Release:
		var req wire.SettleRequest
		err = json.Unmarshal(a.Body, &req)
		for _, id := range req.Batches {
			settle := f.table.Acknowledge
			if a.Type == wire.Release {
				settle = f.table.Release
			}
			err = errors.Join(err, settle(context.Background(), rollout.BatchID(id)))
		}
	default:
		err = wire.Errorf(wire.NotFound, "action %s", a.Type)
	}
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(wire.TableInfo{Table: "lab", Version: int32(f.table.Version()),
		Present: f.table.ServiceView().Flow().Present})
	return string(text), err
}

// broken is what a client sees of a connection that is cut.
func broken() error { return status.Error(codes.Unavailable, "connection reset") }

// dial connects to an address until the test ends.
func dial(t testing.TB, address string, o Options) *Client {
	t.Helper()
	c, err := Dial(context.Background(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// group returns rollouts of one prompt.
func group(prompt string, rewards ...float32) rollout.Group {
	g := rollout.Group{Size: len(rewards)}
	for i, reward := range rewards {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: prompt, Tokens: []int32{1, 2, int32(i)}, Mask: []uint8{0, 1, 1},
			Logprobs: []float32{0, -0.5, -0.25},
			Versions: []rollout.Version{rollout.NoVersion, 0, 0}, Temperature: 1, TopP: 1, Reward: reward, Text: "so",
		})
	}
	return g
}
