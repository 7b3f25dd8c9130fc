package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/wire"
)

// withDictionary returns n rollouts whose prompt_id comes by a dictionary.
func withDictionary(t testing.TB, n int, prompt string) arrow.RecordBatch {
	t.Helper()
	rec := rows(t, alone(n, 0)...)
	defer rec.Release()
	words := array.NewDictionaryBuilder(memory.DefaultAllocator, &arrow.DictionaryType{
		IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	for range n {
		if err := words.AppendString(prompt); err != nil {
			t.Fatal(err)
		}
	}
	fields, columns := rec.Schema().Fields(), rec.Columns()
	for i := range fields {
		if fields[i].Name == "prompt_id" {
			columns[i] = words.NewArray()
			fields[i].Type = columns[i].DataType()
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(n))
}

// A caller leaves while a dictionary of its next insertion gets its memory and the one before is being committed: what
// is reserved after the call has ended is given back too.
func TestAttackACallerThatLeavesWhileADictionaryIsReserved(t *testing.T) {
	var held sync.RWMutex // no commit succeeds while it is
	files := &disktest.Simulated{OnSync: func(string) {
		held.RLock()
		defer held.RUnlock()
	}}
	var armed atomic.Bool
	reserving, resume := make(chan struct{}), make(chan struct{})
	v := serve(t, Options{Data: t.TempDir(), Disk: files, Caller: func(context.Context) string {
		if armed.CompareAndSwap(true, false) {
			close(reserving)
			<-resume
		}
		return ""
	}})
	v.create(wire.Table{Name: "a"})
	first, second := withDictionary(t, 1, "p"), withDictionary(t, 1, "q")
	p := v.putter(v.dial(), "a", first.Schema())
	held.Lock()
	defer held.Unlock()
	p.send(first, wire.InsertRequest{})
	v.await("the first is inserted", func(o TableView) bool { return o.Stats.Inserted == 1 })
	armed.Store(true)
	p.send(second, wire.InsertRequest{})
	<-reserving
	p.cancel()
	v.await("the call has ended, but for its schema", func(TableView) bool {
		return v.service.calls.all.used.Load() < callOverhead
	})
	close(resume)
	v.memoryIsFree()
}

// A batch that takes a caller's whole share of the insertions does not wait for the dictionary of its own stream.
func TestADictionaryDoesNotHoldUpItsOwnBatches(t *testing.T) {
	v := serve(t, Options{MaxMessageBytes: 1 << 20, MaxInFlightBytes: 4 << 20, Caller: named}).as("alice")
	v.create(wire.Table{Name: "a"})
	rec := withDictionary(t, (1<<20)/replay.RolloutOverhead, "p")
	if share := v.service.incoming.byCaller.most; share > rec.NumRows()*replay.RolloutOverhead {
		t.Fatalf("a caller's share is %d bytes", share)
	}
	answer, err := v.putter(v.client, "a", rec.Schema()).put(rec, wire.InsertRequest{TimeoutMS: ms(1000)})
	if err != nil || len(answer.IDs) != int(rec.NumRows()) {
		t.Errorf("an answer of %d ids, %v", len(answer.IDs), err)
	}
}

// A negative row count would reserve a negative amount of memory.
func TestAttackNegativeRowCounts(t *testing.T) {
	z := fuzzService(t)
	z.timeout = 10 * time.Second
	bad := goodInsertion(t, "")
	var m flight.FlightData
	if err := proto.Unmarshal(bad[1], &m); err != nil {
		t.Fatal(err)
	}
	// A stock client's batch of 3 rows: the first number of 8 bytes that is 3 is the batch's length.
	at := bytes.Index(m.DataHeader, binary.LittleEndian.AppendUint64(nil, 3))
	for i := range 400 {
		count := []int64{-1, math.MinInt64}[i%2]
		binary.LittleEndian.PutUint64(m.DataHeader[at:], uint64(count))
		bad[1] = encode(t, &m)
		answers, err := z.send("DoPut", bad...)
		if want := fmt.Sprintf("it has length %d", count); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), want) || len(answers) > 0 {
			t.Fatalf("call %d: %d answers, error %v, want %q", i, len(answers), err, want)
		}
	}
	if o := z.service.Observe(); o.Panics > 0 || o.Tables[0].Stats.Inserted > 0 {
		t.Errorf("%d panics, %d rollouts inserted", o.Panics, o.Tables[0].Stats.Inserted)
	}
	if answers, err := z.send("DoPut", goodInsertion(t, "")...); err != nil || len(answers) != 1 {
		t.Errorf("an insertion after it: %d answers, error %v", len(answers), err)
	}
}

// The memory of answers that are not read stays taken, and who reads nothing is disconnected.
func TestAttackAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	many := rows(t, alone(20_000, 0)...) // their ids take more than a client receives unasked
	t.Cleanup(many.Release)
	for _, c := range []struct {
		name string
		data bool
	}{{"in memory", false}, {"durable", true}} {
		unread := func(t *testing.T, o Options) (*served, *putter) {
			if c.data {
				o.Data = t.TempDir()
			}
			v := serve(t, o)
			v.create(wire.Table{Name: "a"})
			client, err := flight.NewClientWithMiddleware(v.address, nil, nil, grpc.WithInitialWindowSize(1<<16),
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() }) // the service may have closed it
			p := v.putter(client, "a", many.Schema())
			p.send(many, wire.InsertRequest{})
			return v, p
		}
		t.Run(c.name+", held", func(t *testing.T) {
			t.Parallel()
			v, p := unread(t, Options{})
			v.await("a part of the answer is sent", func(TableView) bool {
				return slices.ContainsFunc(v.service.Observe().Connections,
					func(c Connection) bool { return c.SentBytes > 60_000 })
			})
			if used := v.service.incoming.all.used.Load(); used < 20_000*replay.RolloutOverhead {
				t.Errorf("%d bytes are taken while the answer is unread", used)
			}
			if a, err := p.answer(); err != nil || len(a.IDs) != 20_000 {
				t.Errorf("an answer of %d ids, %v", len(a.IDs), err)
			}
			v.memoryIsFree()
		})
		t.Run(c.name+", for long", func(t *testing.T) {
			t.Parallel()
			v, _ := unread(t, Options{SendTimeout: time.Second})
			v.await("it was disconnected", func(TableView) bool { return v.service.Observe().SlowReaders == 1 })
			v.memoryIsFree()
			v.await("no request is in flight", func(TableView) bool { return v.service.requests.inFlight() == 0 })
		})
		t.Run(c.name+", at a stop", func(t *testing.T) {
			t.Parallel()
			v, _ := unread(t, Options{})
			v.await("a batch is inserted", func(o TableView) bool { return o.Stats.Inserted == 20_000 })
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			v.ended = true
			if sum, err := v.service.Stop(ended); sum.Left == 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("%+v, %v", sum, err)
			}
			v.grpc.Stop()
		})
	}
}

// A sampling stream keeps no dictionaries: nobody would give back their memory before its end.
func TestAttackDictionariesOnASamplingStream(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	rec := withDictionary(t, 1, "p")
	x := v.exchanger(v.client, "a")
	w := flight.NewRecordWriter(&beforeBatches{FlightService_DoExchangeClient: x.stream}, ipc.WithSchema(rec.Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"a"}})
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	_, err := x.stream.Recv()
	checkRefusal(t, wire.FromGRPC(err), wire.Invalid, "dictionary", "sampling stream", "DoPut")
}

// beforeBatches is a stream that sends a schema and a dictionary alone: batches would be refused in any case.
type beforeBatches struct {
	flight.FlightService_DoExchangeClient
	sent int
}

func (s *beforeBatches) Send(d *flight.FlightData) error {
	if s.sent++; s.sent > 2 {
		return nil
	}
	return s.FlightService_DoExchangeClient.Send(d)
}

// Requests of streams are small. Large ones, which take memory of their own, are refused before they are decoded.
func TestAttackLargeRequestsOnStreams(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(1, 0)...)
	settled := make([]uint64, maxStreamRequestBytes/21)
	for i := range settled {
		settled[i] = math.MaxUint64
	}
	sample := func(batches []uint64) error {
		_, err := v.exchanger(v.client, "a").sample(wire.SampleRequest{Acknowledge: batches})
		return err
	}
	checkRefusal(t, sample(settled[100:]), wire.NoLease, "18446744073709551615")
	settled = append(settled, settled[:100]...)
	checkRefusal(t, sample(settled), wire.TooLarge, "app_metadata", "1048576")
	_, err := v.get(wire.SampleRequest{Table: "a", Size: 1, Columns: make([]string, maxStreamRequestBytes/3)})
	checkRefusal(t, err, wire.TooLarge, "ticket", "1048576")
	_, err = v.insert("a", wire.InsertRequest{BatchID: strings.Repeat("x", maxStreamRequestBytes)}, alone(1, 0)...)
	checkRefusal(t, err, wire.TooLarge, "app_metadata", "1048576")
}
