package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// rawCodec sends bytes as they are, and keeps those that come.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}
func (rawCodec) Name() string { return "proto" }

// fuzzed is a service that messages of any kind come to, over a connection in memory.
type fuzzed struct {
	t       testing.TB
	service *Service
	conn    *grpc.ClientConn
	timeout time.Duration // ends calls that would wait for something
}

// fuzzTable has a bit of everything.
func fuzzTable() wire.Table {
	return wire.Table{Name: "t", Options: replay.Options{Capacity: 64, Sampler: "prioritized", MaxUses: 4,
		MaxStaleness: 8, Vocab: 1000, MaxTokens: 256, LeaseSeconds: 60, PromptIndex: true},
		Gate: &wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 2}, Prompts: &prompts.Options{Fraction: 0.5, Band: 0.4,
			Cooldown: 1, MaxReuse: 2}, Columns: []wire.Column{{Name: "x_note", Type: "utf8"},
			{Name: "x_list", Type: "list<float32>"}}}
}

// fuzzService serves one table.
func fuzzService(t testing.TB) *fuzzed {
	t.Helper()
	s, err := New(Options{Logger: quiet(), MaxMessageBytes: 1 << 20, MaxInFlightBytes: 1 << 21,
		Tables: []wire.Table{fuzzTable()}})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.Listener(l)) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := s.Stop(ctx); err != nil {
			t.Errorf("stopping: %v", err)
		}
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return &fuzzed{t, s, conn, 100 * time.Millisecond}
}

// reset returns the service for another test, with a new table and no other.
func (z *fuzzed) reset(t testing.TB) *fuzzed {
	t.Helper()
	for _, table := range z.service.list() {
		if err := z.service.drop(table.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := z.service.create(fuzzTable(), 1); err != nil {
		t.Fatal(err)
	}
	again := *z
	again.t = t
	return &again
}

// call sends messages and returns the answers. Whatever they are, the error says what is wrong with them: it is no
// defect.
func (z *fuzzed) call(method string, messages ...[]byte) [][]byte {
	z.t.Helper()
	answers, err := z.send(method, messages...)
	if err != nil {
		z.checkError(method, err)
	}
	return answers
}

// send sends messages and returns the answers, and the error that ended the call.
func (z *fuzzed) send(method string, messages ...[]byte) (answers [][]byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), z.timeout)
	defer cancel()
	stream, err := z.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/arrow.flight.protocol.FlightService/"+method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if stream.SendMsg(&m) != nil {
			break // RecvMsg says why
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	for {
		var answer []byte
		err := stream.RecvMsg(&answer)
		if errors.Is(err, io.EOF) {
			return answers, nil
		}
		if err != nil {
			return answers, err
		}
		answers = append(answers, answer)
	}
}

// checkError holds that an error is one of those that a caller can understand. Messages that are not protocol buffers are
// grpc's to refuse.
func (z *fuzzed) checkError(method string, err error) {
	s := status.Convert(err)
	if code := s.Code(); (code == codes.Internal || code == codes.Unknown) &&
		!strings.HasPrefix(s.Message(), "grpc: ") {
		z.t.Errorf("%s: %v: want an error that says what is wrong with the request", method, err)
	}
}

// checkHealth checks that the counts add up, and that the table can be exported and sampled still.
func (z *fuzzed) checkHealth() {
	z.t.Helper()
	for _, v := range z.service.Observe().Tables {
		s := v.Stats
		evicted := uint64(0)
		for _, n := range s.Evicted {
			evicted += n
		}
		if s.Inserted != uint64(s.Present)+evicted || s.Drawn != s.Acknowledged+s.Returned+v.OnLease ||
			float64(s.Acknowledged) != s.UsesPresent.Sum()+s.UsesAtEviction.Sum() {
			z.t.Errorf("the counts of %s do not add up: %+v, on lease %d", v.Name, s, v.OnLease)
		}
	}
	for _, ticket := range []string{`{"table":"t","export":true}`, `{"table":"t","size":1,"timeout_ms":0}`} {
		z.call("DoGet", encode(z.t, &flight.Ticket{Ticket: []byte(ticket)}))
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// join puts messages into one text for the fuzzer, each after its length; split takes them apart, whatever the lengths
// say.
func join(messages ...[]byte) (script []byte) {
	for _, m := range messages {
		script = append(binary.BigEndian.AppendUint16(script, uint16(len(m))), m...)
	}
	return script
}

func split(script []byte) (messages [][]byte) {
	for len(script) >= 2 && len(messages) < 16 {
		n := min(int(binary.BigEndian.Uint16(script)), len(script)-2)
		messages = append(messages, script[2:2+n])
		script = script[2+n:]
	}
	return messages
}

// recorder keeps what a stock writer sends.
type recorder struct {
	t        testing.TB
	messages [][]byte
}

// Send keeps a message.
func (k *recorder) Send(m *flight.FlightData) error {
	k.messages = append(k.messages, encode(k.t, m))
	return nil
}

// goodInsertion is what a stock client sends to insert a few rollouts.
func goodInsertion(t testing.TB, metadata string, options ...ipc.Option) [][]byte {
	t.Helper()
	fields, err := wire.ExtraFields([]wire.Column{{Name: "x_note", Type: "utf8"},
		{Name: "x_list", Type: "list<float32>"}})
	if err != nil {
		t.Fatal(err)
	}
	x := &rollout.Rollout{
		PromptID: "p", Tokens: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float32{0, -1},
		Versions: []rollout.Version{-1, 0}, Temperature: 1, TopP: 1,
		Turns: []rollout.Turn{{Start: 0, End: 2, Done: true}}, Text: "text", Meta: map[string]string{"a": "b"},
		Images: [][]byte{{1, 2}}, RoutedExperts: []uint16{0, 1, 2, 3},
	}
	x.SamplingMask.Append()
	x.SamplingMask.Append(2, 7)
	rec, err := wire.Rows([]rollout.Group{{Rollouts: []*rollout.Rollout{x, x}}, {Rollouts: []*rollout.Rollout{x}}},
		fields)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	k := &recorder{t: t}
	w := flight.NewRecordWriter(k, append(options, ipc.WithSchema(rec.Schema()))...)
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"t"}})
	if err := w.WriteWithAppMetadata(rec, []byte(metadata)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return k.messages
}

func TestWhatTheFuzzersBeginWithIsGood(t *testing.T) {
	z := fuzzService(t)
	z.timeout = 10 * time.Second
	for i, insertion := range [][][]byte{goodInsertion(t, ""),
		goodInsertion(t, `{"batch_id":"b","timeout_ms":0}`, ipc.WithLZ4())} {
		if answers := z.call("DoPut", split(join(insertion...))...); len(answers) != 1 {
			t.Errorf("insertion %d had %d answers, want 1", i, len(answers))
		}
	}
	if n := z.service.Observe().Tables[0].Stats.Inserted; n != 6 {
		t.Errorf("inserted %d, want 6", n)
	}
	if answers := z.call("DoExchange", exchangeMessages(t, `{"size":2,"prefetch":0}`,
		`{"size":2}`)...); len(answers) < 3 {
		t.Errorf("an exchange of two requests had %d answers, want a schema and two batches", len(answers))
	}
	for name, body := range actionSeeds() {
		answers := z.call("DoAction", encode(t, &flight.Action{Type: name, Body: []byte(body)}))
		none := []string{wire.Checkpoint, wire.Restore, wire.ListCheckpoints, wire.DeleteCheckpoint, wire.Acknowledge,
			wire.Release, wire.Abandon, wire.DropTable, wire.Scrub}
		if !slices.Contains(none, name) && len(answers) != 1 {
			t.Errorf("%s %s had no answer", name, body)
		}
	}
	z.checkHealth()
}

// FuzzInsertions sends any messages to DoPut.
func FuzzInsertions(f *testing.F) {
	f.Add(join(goodInsertion(f, "")...))
	f.Add(join(goodInsertion(f, `{"batch_id":"b","group_size":2,"grant":1,"timeout_ms":5}`)...))
	f.Add(join(goodInsertion(f, `{"timeout_ms":0}`, ipc.WithLZ4())...))
	f.Add(join(goodInsertion(f, `{}`, ipc.WithZstd())...))
	served := fuzzService(f)
	f.Fuzz(func(t *testing.T, script []byte) {
		z := served.reset(t)
		z.call("DoPut", split(script)...)
		z.checkHealth()
	})
}

func exchangeMessages(t testing.TB, requests ...string) (messages [][]byte) {
	t.Helper()
	for i, r := range requests {
		m := &flight.FlightData{AppMetadata: []byte(r)}
		if i == 0 {
			m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"t"}}
		}
		messages = append(messages, encode(t, m))
	}
	return messages
}

// FuzzExchange sends any messages to DoExchange.
func FuzzExchange(f *testing.F) {
	f.Add(join(exchangeMessages(f, `{"size":1}`, `{"size":2}`)...))
	f.Add(join(exchangeMessages(f, `{"size":1,"columns":["id","tokens","x_note"],"prefetch":3,"timeout_ms":5}`,
		`{"size":1,"acknowledge":[1]}`, `{"size":1,"release":[2]}`)...))
	f.Add(join(exchangeMessages(f, `{"size":2,"fresh":1,"request_id":"a","use_at_draw":true}`,
		`{"size":2,"fresh":1,"request_id":"a","use_at_draw":true}`)...))
	f.Add(join(exchangeMessages(f, `{"prompts":["p"],"per_prompt":2,"where":"reward > 0","order":"-age"}`,
		`{"prompts":["p","q"],"per_prompt":1,"acknowledge":[1],"timeout_ms":0}`)...))
	served := fuzzService(f)
	f.Fuzz(func(t *testing.T, script []byte) {
		z := served.reset(t)
		z.call("DoPut", goodInsertion(t, "")...)
		z.call("DoExchange", split(script)...)
		z.checkHealth()
	})
}

// FuzzTickets sends any text as the ticket of a DoGet, and as descriptors' paths and commands.
func FuzzTickets(f *testing.F) {
	for _, ticket := range []string{
		`{"table":"t","size":2}`, `{"table":"t","size":1,"fresh":1,"shard":0,"request_id":"r","timeout_ms":0,"columns":["id","weight"],"use_at_draw":true}`,
		`{"table":"t","export":true,"size":1,"columns":["tokens"]}`, `{"table":"t","size":-1}`, `{}`, `t`,
	} {
		f.Add([]byte(ticket))
	}
	served := fuzzService(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		z := served.reset(t)
		z.call("DoPut", goodInsertion(t, "")...)
		z.call("DoGet", encode(t, &flight.Ticket{Ticket: text}))
		d := &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: text}
		z.call("GetFlightInfo", encode(t, d))
		z.call("GetSchema", encode(t, d))
		z.call("ListFlights", encode(t, &flight.Criteria{Expression: text}))
		z.call("GetFlightInfo", text)
		z.checkHealth()
	})
}

// actionSeeds are bodies of every action.
func actionSeeds() map[string]string {
	return map[string]string{
		wire.CreateTable:      `{"name":"u","capacity":8,"sampler":"fifo","unit":"rollout","limiter":null,"columns":[{"name":"x_a","type":"list<int64>"}]}`,
		wire.DropTable:        `{"table":"u"}`,
		wire.Advance:          `{"table":"t","version":3}`,
		wire.Rewind:           `{"table":"t","version":0}`,
		wire.UpdatePriorities: `{"table":"t","ids":[1,2],"priorities":[0.5,2]}`,
		wire.ReportDraws:      `{"table":"t","draws":[{"id":1,"staleness":0,"advantage":0.5,"td_error":1,"grad_norm":2,"tokens":2,"ratio_sum":2,"ratio_squares":2}]}`,
		wire.Acknowledge:      `{"table":"t","batches":[1]}`,
		wire.Release:          `{"table":"t","batches":[1]}`,
		wire.Statistics:       `{"table":"t"}`,
		wire.Info:             `{"table":"t"}`,
		wire.Checkpoint:       `{"table":"t","name":"c"}`,
		wire.Restore:          `{"table":"t","name":"c"}`,
		wire.ListCheckpoints:  `{"table":"t"}`,
		wire.DeleteCheckpoint: `{"table":"t","name":"c"}`,
		wire.Scrub:            `{"table":"t"}`,
		wire.Start:            `{"table":"t","groups":2,"group_size":2,"timeout_ms":5}`,
		wire.Abandon:          `{"table":"t","grant":1,"groups":1}`,
		wire.PromptsNext:      `{"table":"t","batch":4}`,
		wire.PromptsReport:    `{"table":"t","results":[{"id":"p","ref":3,"correct":1,"total":2,"replayed":false}]}`,
	}
}

// FuzzActions sends any body to any action, twice, to a table from which a batch is on lease.
func FuzzActions(f *testing.F) {
	for name, body := range actionSeeds() {
		f.Add(name, []byte(body))
	}
	f.Add(wire.CreateTable, []byte(`{"name":"v","sampler":"prioritized","priority":{"base":"td_error","epsilon":0.1,"exponent":0.6,"age_decay":"inf","target_ess":0.5},"gate":{"rollouts_per_update":2,"max_staleness":1}}`))
	served := fuzzService(f)
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		z := served.reset(t)
		z.call("DoPut", goodInsertion(t, "")...)
		if !validText(name) {
			return // protocol buffers refuse it at the sender
		}
		for range 2 {
			z.call("DoAction", encode(t, &flight.Action{Type: name, Body: body}))
			z.call("DoExchange", exchangeMessages(t, `{"size":2,"prefetch":1,"timeout_ms":0}`,
				`{"size":1,"timeout_ms":0}`)...)
		}
		z.checkHealth()
	})
}

func validText(s string) bool { return strings.ToValidUTF8(s, "") == s && len(s) < 1<<10 }

// FuzzCheckpoints reads any bytes as a checkpoint: they are refused, or restored whole.
func FuzzCheckpoints(f *testing.F) {
	served := fuzzService(f)
	served.call("DoPut", goodInsertion(f, "")...)
	table, err := served.service.table("t")
	if err != nil {
		f.Fatal(err)
	}
	var good bytes.Buffer
	if err := table.writeState(&good); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes(), 0, byte(0))
	f.Add(good.Bytes()[:good.Len()/2], 3, byte(255))
	f.Fuzz(func(t *testing.T, file []byte, at int, flip byte) {
		z := served.reset(t)
		z.call("DoPut", goodInsertion(t, "")...)
		table, err := z.service.table("t")
		if err != nil {
			t.Fatal(err)
		}
		if len(file) > 0 {
			file = bytes.Clone(file)
			file[uint(at)%uint(len(file))] ^= flip
		}
		before := fmt.Sprint(table.rollouts.ServiceView().Flow(), table.gate.Load().State(time.Time{}, table.version()))
		if err := table.readState(bytes.NewReader(file)); err != nil {
			if after := fmt.Sprint(table.rollouts.ServiceView().Flow(),
				table.gate.Load().State(time.Time{}, table.version())); after != before {
				t.Errorf("a checkpoint that was refused (%v) changed the table from %s to %s", err, before, after)
			}
		}
		z.checkHealth()
	})
}
