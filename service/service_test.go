package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a service on a unix socket, with a stock Arrow Flight client.
type served struct {
	t       testing.TB
	ctx     context.Context
	service *Service
	grpc    *grpc.Server
	address string
	client  flight.Client
	ended   bool
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve starts a service, which ends with the test.
func serve(t testing.TB, o Options) *served {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	v := &served{t: t, ctx: ctx, service: s}
	v.grpc = grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(v.grpc)
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	v.address = "unix://" + path
	serving := make(chan error, 1)
	go func() { serving <- v.grpc.Serve(s.Listener(l)) }()
	v.client = v.dial()
	t.Cleanup(func() {
		cancel()
		v.stop()
		if err := <-serving; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Errorf("serving: %v", err)
		}
	})
	return v
}

// dial connects another client, which ends with the test.
func (v *served) dial() flight.Client {
	v.t.Helper()
	c, err := flight.NewClientWithMiddleware(v.address, nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<28), grpc.MaxCallSendMsgSize(1<<28)))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			v.t.Errorf("closing a client: %v", err)
		}
	})
	return c
}

// stop ends the service as the command does.
func (v *served) stop() Summary {
	if v.ended {
		return Summary{}
	}
	v.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	sum, err := v.service.Stop(ctx)
	if err != nil {
		v.t.Errorf("stopping: %v", err)
	}
	v.grpc.Stop()
	return sum
}

// try carries out an action and returns its answer.
func try[A any](v *served, kind string, body any) (A, error) {
	var answer A
	text, err := json.Marshal(body)
	if err != nil {
		v.t.Fatal(err)
	}
	if raw, ok := body.(string); ok {
		text = []byte(raw)
	}
	stream, err := v.client.DoAction(v.ctx, &flight.Action{Type: kind, Body: text})
	if err != nil {
		return answer, err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return answer, nil
		}
		if err != nil {
			return answer, wire.FromGRPC(err)
		}
		if err := json.Unmarshal(r.Body, &answer); err != nil {
			v.t.Fatalf("%s: %s: %v", kind, r.Body, err)
		}
	}
}

// do carries out an action that must succeed.
func do[A any](v *served, kind string, body any) A {
	v.t.Helper()
	answer, err := try[A](v, kind, body)
	if err != nil {
		v.t.Fatalf("%s %+v: %v", kind, body, err)
	}
	return answer
}

func (v *served) create(w wire.Table) wire.TableInfo {
	v.t.Helper()
	return do[wire.TableInfo](v, wire.CreateTable, w)
}

func (v *served) stats(table string) wire.TableStatistics {
	v.t.Helper()
	return do[wire.TableStatistics](v, wire.Statistics, wire.TableRequest{Table: table})
}

// putter is a stock insertion stream.
type putter struct {
	v      *served
	stream flight.FlightService_DoPutClient
	writer *flight.Writer
	cancel context.CancelFunc
}

func (v *served) putter(client flight.Client, table string, schema *arrow.Schema) *putter {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.ctx)
	v.t.Cleanup(cancel)
	stream, err := client.DoPut(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{table}})
	return &putter{v, stream, w, cancel}
}

// put inserts a record batch and returns the answer.
func (p *putter) put(rec arrow.RecordBatch, req wire.InsertRequest) (wire.InsertAnswer, error) {
	p.send(rec, req)
	return p.answer()
}

func (p *putter) send(rec arrow.RecordBatch, req wire.InsertRequest) {
	p.v.t.Helper()
	text, err := json.Marshal(req)
	if err != nil {
		p.v.t.Fatal(err)
	}
	// An error is the stream's end, whose reason answer returns.
	_ = p.writer.WriteWithAppMetadata(rec, text)
}

func (p *putter) answer() (answer wire.InsertAnswer, err error) {
	r, err := p.stream.Recv()
	if err != nil {
		return answer, wire.FromGRPC(err)
	}
	if err := json.Unmarshal(r.AppMetadata, &answer); err != nil {
		p.v.t.Fatal(err)
	}
	return answer, nil
}

// insert inserts groups on a stream of their own.
func (v *served) insert(table string, req wire.InsertRequest, groups ...rollout.Group) (wire.InsertAnswer, error) {
	v.t.Helper()
	rec := rows(v.t, groups...)
	defer rec.Release()
	p := v.putter(v.client, table, rec.Schema())
	defer p.cancel()
	return p.put(rec, req)
}

// fill inserts groups that must enter.
func (v *served) fill(table string, groups ...rollout.Group) []uint64 {
	v.t.Helper()
	answer, err := v.insert(table, wire.InsertRequest{}, groups...)
	if err != nil {
		v.t.Fatal(err)
	}
	return answer.IDs
}

func rows(t testing.TB, groups ...rollout.Group) arrow.RecordBatch {
	t.Helper()
	rec, err := wire.Rows(groups, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// alone returns n rollouts of a version, each a group of its own, with rewards from 0 up.
func alone(n int, version rollout.Version) []rollout.Group {
	groups := make([]rollout.Group, n)
	for i := range groups {
		groups[i].Rollouts = []*rollout.Rollout{answer(4, version, float32(i))}
	}
	return groups
}

// group returns one group of n rollouts.
func group(n int, version rollout.Version) rollout.Group {
	var g rollout.Group
	for i := range n {
		g.Rollouts = append(g.Rollouts, answer(4, version, float32(i)))
	}
	return g
}

// answer returns a rollout of a prompt of two tokens and a completion of n.
func answer(n int, version rollout.Version, reward float32) *rollout.Rollout {
	r := &rollout.Rollout{PromptID: "p", Temperature: 1, TopP: 1, Reward: reward}
	for i := range n + 2 {
		r.Tokens = append(r.Tokens, int32(i))
		if i < 2 {
			r.Mask, r.Logprobs, r.Versions = append(r.Mask, 0), append(r.Logprobs, 0), append(r.Versions,
				rollout.NoVersion)
			continue
		}
		r.Mask, r.Logprobs, r.Versions = append(r.Mask, 1), append(r.Logprobs, -0.5), append(r.Versions, version)
	}
	return r
}

// batch is a batch as a client got it.
type batch struct {
	wire.BatchInfo
	draws []rollout.Draw
}

// get samples with DoGet.
func (v *served) get(req wire.SampleRequest) (batch, error) {
	v.t.Helper()
	text, err := json.Marshal(req)
	if err != nil {
		v.t.Fatal(err)
	}
	stream, err := v.client.DoGet(v.ctx, &flight.Ticket{Ticket: text})
	if err != nil {
		return batch{}, err
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		return batch{}, wire.FromGRPC(err)
	}
	defer r.Release()
	var b batch
	for r.Next() {
		draws, err := wire.Draws(r.RecordBatch(), nil)
		if err != nil {
			v.t.Fatal(err)
		}
		b.draws = append(b.draws, draws...)
		if err := json.Unmarshal(r.LatestAppMetadata(), &b.BatchInfo); err != nil {
			v.t.Fatal(err)
		}
	}
	return b, wire.FromGRPC(r.Err())
}

// exchanger is a stock sampling stream.
type exchanger struct {
	v      *served
	stream flight.FlightService_DoExchangeClient
	reader *flight.Reader
	cancel context.CancelFunc
	begun  bool
	table  string
	front  []*flight.FlightData // looked at, and not read yet
}

// Recv gives the reader what was looked at first: arrow-go's reader, unlike other languages', takes no messages of
// metadata alone.
func (x *exchanger) Recv() (*flight.FlightData, error) {
	if len(x.front) > 0 {
		m := x.front[0]
		x.front = x.front[1:]
		return m, nil
	}
	return x.stream.Recv()
}

func (v *served) exchanger(client flight.Client, table string) *exchanger {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.ctx)
	v.t.Cleanup(cancel)
	stream, err := client.DoExchange(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	return &exchanger{v: v, stream: stream, cancel: cancel, table: table}
}

func (x *exchanger) send(req wire.SampleRequest) {
	x.v.t.Helper()
	text, err := json.Marshal(req)
	if err != nil {
		x.v.t.Fatal(err)
	}
	m := &flight.FlightData{AppMetadata: text}
	if !x.begun {
		m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{x.table}}
		x.begun = true
	}
	_ = x.stream.Send(m) // an error is the stream's end, whose reason recv returns
}

// recv returns the next answer.
func (x *exchanger) recv() (b batch, err error) {
	x.v.t.Helper()
	if x.reader == nil {
		if x.reader, err = flight.NewRecordReader(x); err != nil {
			return b, wire.FromGRPC(err)
		}
		x.v.t.Cleanup(x.reader.Release)
	}
	m, err := x.stream.Recv()
	if err != nil {
		return b, wire.FromGRPC(err)
	}
	if len(m.DataHeader) == 0 {
		if err := json.Unmarshal(m.AppMetadata, &b.BatchInfo); err != nil {
			x.v.t.Fatal(err)
		}
		if b.Error != nil {
			return b, b.Error.Err()
		}
		return b, nil
	}
	x.front = append(x.front, m)
	if !x.reader.Next() {
		if err := x.reader.Err(); err != nil {
			return b, wire.FromGRPC(err)
		}
		return b, io.EOF
	}
	if err := json.Unmarshal(x.reader.LatestAppMetadata(), &b.BatchInfo); err != nil {
		x.v.t.Fatal(err)
	}
	b.draws, err = wire.Draws(x.reader.RecordBatch(), nil)
	return b, err
}

func (x *exchanger) sample(req wire.SampleRequest) (batch, error) {
	x.v.t.Helper()
	x.send(req)
	return x.recv()
}

func ms(n int64) *int64 { return &n }
func count(n int) *int  { return &n }

func TestAStopDrainsReleasesAndFlushes(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 8}})
	v.fill("q", alone(8, 0)...)
	x := v.exchanger(v.client, "q")
	v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	rec := rows(t, alone(1, 0)...)
	defer rec.Release()
	p := v.putter(v.client, "q", rec.Schema())
	p.send(rec, wire.InsertRequest{})
	v.await("an insertion waits, and the sample is over",
		func(o TableView) bool { return o.InsertsWaiting == 1 && v.service.requests.inFlight() == 1 })
	sum, err := v.service.Stop(v.ctx)
	if err != nil || sum.Drained != 1 || sum.Left != 0 || sum.Released != 1 || sum.Rollouts != 8 {
		t.Errorf("summary %+v, %v", sum, err)
	}
	_, err = p.answer()
	checkRefusal(t, err, wire.Closing, "stopping")
	_, err = x.sample(wire.SampleRequest{Size: 1})
	checkRefusal(t, err, wire.Closing, "stopping")
	_, err = v.insert("q", wire.InsertRequest{}, alone(1, 0)...)
	checkRefusal(t, err, wire.Closing, "stopping")
	if o := v.service.Observe(); !o.Stopping || o.Err != nil {
		t.Errorf("stopping %v, error %v", o.Stopping, o.Err)
	}
	if again, err := v.service.Stop(v.ctx); err != nil || again != sum {
		t.Errorf("stopped again: %+v, %v", again, err)
	}
}

func TestAStopThatRunsOutOfTimeSaysSo(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.requests.begin(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sum, err := s.Stop(ctx)
	if !errors.Is(err, context.Canceled) || sum.Left != 1 || !strings.Contains(sum.String(), "1 cut off") {
		t.Errorf("summary %+v, %v", sum, err)
	}
	s.requests.end()
}
