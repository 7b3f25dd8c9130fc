package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
	v.grpc = grpc.NewServer(s.GRPCOptions()...)
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
	c, err := flight.NewClientWithMiddleware(v.address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()),
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
			r.Mask, r.Logprobs, r.Versions = append(r.Mask, 0), append(r.Logprobs, 0), append(r.Versions, rollout.NoVersion)
			continue
		}
		r.Mask, r.Logprobs, r.Versions = append(r.Mask, 1), append(r.Logprobs, -0.5), append(r.Versions, version)
	}
	return r
}
