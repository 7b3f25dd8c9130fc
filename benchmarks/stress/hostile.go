package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
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

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// hostileTable is the table that hostile clients work on. Nobody counts its rollouts.
const hostileTable = "hostile"

// hostileClient sends what no client would, directly to the service.
type hostileClient struct {
	target     string // host:port
	web        string // host:port of HTTP
	maxMessage int    // the service's limit, bytes
	verdict    *Verdict
	done       *counter
	random     *rand.Rand
	number     int // of insertions
}

func newHostileClient(s *server, maxMessage int, v *Verdict, done *counter, seed uint64, number int) *hostileClient {
	return &hostileClient{
		target: s.listen, web: s.web, maxMessage: maxMessage, verdict: v, done: done,
		random: rollout.Stream(seed, "hostile client", uint64(number)), number: number << 32,
	}
}

// attack is one kind of misuse. An attack that is refused must fail: it can never be served.
type attack struct {
	name    string
	refused bool
	do      func(*hostileClient, context.Context, *grpc.ClientConn) error
}

func attacks() []attack {
	return []attack{
		{"noise", false, (*hostileClient).sendNoise},
		{"frames", false, (*hostileClient).sendFrames},
		{"bytes", true, (*hostileClient).sendBytes},
		{"corrupt insertion", false, (*hostileClient).sendCorruptInsertion},
		{"corrupt request", false, (*hostileClient).sendCorruptRequest},
		{"corrupt action", false, (*hostileClient).sendCorruptAction},
		{"invalid row", true, (*hostileClient).sendInvalidRow},
		{"too large", true, (*hostileClient).sendTooLarge},
		{"half a call", false, (*hostileClient).stopHalfway},
		{"deaf reader", false, (*hostileClient).neverRead},
		{"many calls", false, (*hostileClient).openMany},
		{"web noise", false, (*hostileClient).sendWebNoise},
	}
}

// run attacks until the context ends.
func (h *hostileClient) run(ctx context.Context) {
	kinds := attacks()
	for ctx.Err() == nil {
		conn, err := rawConnection(h.target)
		if err != nil {
			h.verdict.violation("hostile client: %v", err)
			return
		}
		for range 1 + h.random.IntN(30) {
			if ctx.Err() == nil {
				h.attack(ctx, kinds[h.random.IntN(len(kinds))], conn)
				wait(ctx, time.Duration(h.random.IntN(50))*time.Millisecond)
			}
		}
		conn.Close()
	}
}

func (h *hostileClient) attack(ctx context.Context, a attack, conn *grpc.ClientConn) {
	err := a.do(h, ctx, conn)
	if ctx.Err() != nil {
		return
	}
	h.done.add(a.name)
	switch {
	case a.refused && err == nil:
		h.verdict.violation("%s: the service accepted what it must refuse", a.name)
	case a.refused && (status.Code(err) == codes.Internal || status.Code(err) == codes.Unknown):
		h.done.add("vague")
	case status.Code(err) == codes.Internal:
		h.done.add("internal")
	}
}

// sendNoise sends random bytes to the port.
func (h *hostileClient) sendNoise(ctx context.Context, _ *grpc.ClientConn) error {
	return h.toSocket(ctx, h.target, noise(h.random, 1+h.random.IntN(32<<10)))
}

// sendFrames sends frames of HTTP/2 of any type, length and stream.
func (h *hostileClient) sendFrames(ctx context.Context, _ *grpc.ClientConn) error {
	message := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for range 1 + h.random.IntN(40) {
		payload := noise(h.random, h.random.IntN(256))
		n := len(payload)
		head := []byte{byte(n >> 16), byte(n >> 8), byte(n), byte(h.random.IntN(12)), byte(h.random.Uint32()), 0, 0, 0,
			byte(h.random.IntN(16))}
		message = append(append(message, head...), payload...)
	}
	return h.toSocket(ctx, h.target, message)
}

// sendWebNoise sends random bytes, or a request with a random path, to the HTTP port.
func (h *hostileClient) sendWebNoise(ctx context.Context, _ *grpc.ClientConn) error {
	message := noise(h.random, 1+h.random.IntN(4<<10))
	if h.random.IntN(2) == 0 {
		message = fmt.Appendf(nil, "GET /%x?%x=%q HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", noise(h.random, 8),
			noise(h.random, 4), noise(h.random, 64))
	}
	return h.toSocket(ctx, h.web, message)
}

// toSocket sends bytes over a new connection and reads answers for a moment.
func (h *hostileClient) toSocket(ctx context.Context, address string, message []byte) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Duration(20+h.random.IntN(300)) * time.Millisecond))
	if _, err := c.Write(message); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	for err == nil {
		_, err = c.Read(answer)
	}
	return err
}

// sendBytes sends random bytes as the messages of a call.
func (h *hostileClient) sendBytes(ctx context.Context, conn *grpc.ClientConn) error {
	methods := []string{"DoPut", "DoGet", "DoExchange", "DoAction", "GetFlightInfo", "GetSchema", "NoSuchMethod"}
	message := noise(h.random, 16+h.random.IntN(4<<10))
	message[0] = 0xff // an unknown field number with an invalid wire type
	_, err := send(ctx, conn, methods[h.random.IntN(len(methods))], message)
	return err
}

// sendCorruptInsertion sends a corrupt insertion.
func (h *hostileClient) sendCorruptInsertion(ctx context.Context, conn *grpc.ClientConn) error {
	h.number++
	messages, err := insertion(hostileTable, h.number, 1+h.random.IntN(3), 256, h.random.IntN(4) == 0)
	if err != nil {
		return err
	}
	encoded, err := corruptInsertion(h.random, messages)
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, "DoPut", encoded...)
	return err
}

// sendCorruptRequest sends a corrupt request for a batch, and sometimes a valid one.
func (h *hostileClient) sendCorruptRequest(ctx context.Context, conn *grpc.ClientConn) error {
	request := []byte(`{"table":"hostile","size":4,"fresh":1,"timeout_ms":50,"columns":["id","tokens"],"prefetch":2,"acknowledge":[1,2]}`)
	if h.random.IntN(3) > 0 {
		request = corrupt(h.random, request)
	}
	method, message := "DoGet", proto.Message(&flight.Ticket{Ticket: request})
	if h.random.IntN(2) == 0 {
		descriptor := &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{hostileTable}}
		method, message = "DoExchange", &flight.FlightData{FlightDescriptor: descriptor, AppMetadata: request}
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, method, encoded)
	return err
}

// actionBodies are valid actions on the hostile clients' table.
func actionBodies() map[string]string {
	return map[string]string{
		wire.CreateTable:      `{"name":"hostile","capacity":512,"max_uses":64,"vocab":32000,"max_tokens":65536,"lease_seconds":1}`,
		wire.DropTable:        `{"table":"hostile"}`,
		wire.Advance:          `{"table":"hostile","version":3}`,
		wire.Rewind:           `{"table":"hostile","version":0}`,
		wire.UpdatePriorities: `{"table":"hostile","ids":[1,2,3],"priorities":[0.5,1,2]}`,
		wire.ReportDraws:      `{"table":"hostile","draws":[{"id":1,"staleness":0,"advantage":0.5,"tokens":10,"ratio_sum":10,"ratio_squares":11}]}`,
		wire.Acknowledge:      `{"table":"hostile","batches":[1,2]}`,
		wire.Release:          `{"table":"hostile","batches":[3]}`,
		wire.Statistics:       `{"table":"hostile"}`,
		wire.Info:             `{"table":"hostile"}`,
		wire.Checkpoint:       `{"table":"hostile","name":"hostile"}`,
		wire.Restore:          `{"table":"hostile","name":"hostile"}`,
		wire.ListCheckpoints:  `{"table":"hostile"}`,
		wire.DeleteCheckpoint: `{"table":"hostile","name":"hostile"}`,
		wire.Scrub:            `{"table":"hostile"}`,
		wire.Start:            `{"table":"hostile","groups":2,"group_size":4,"timeout_ms":20}`,
		wire.Abandon:          `{"table":"hostile","grant":1,"groups":1}`,
		wire.PromptsNext:      `{"table":"hostile","batch":8}`,
		wire.PromptsReport:    `{"table":"hostile","results":[{"id":"a","correct":1,"total":4}]}`,
	}
}

// sendCorruptAction sends an action, mostly a corrupt one.
func (h *hostileClient) sendCorruptAction(ctx context.Context, conn *grpc.ClientConn) error {
	bodies := actionBodies()
	names := []string{
		wire.CreateTable, wire.Advance, wire.Rewind, wire.UpdatePriorities, wire.ReportDraws, wire.Acknowledge,
		wire.Release, wire.Statistics,
		wire.Info, wire.Checkpoint, wire.Restore, wire.ListCheckpoints, wire.DeleteCheckpoint, wire.Start, wire.Abandon,
		wire.PromptsNext, wire.PromptsReport, wire.Scrub,
		wire.CreateTable, wire.DropTable,
	}
	name := names[h.random.IntN(len(names))]
	body := []byte(bodies[name])
	if h.random.IntN(3) > 0 && name != wire.DropTable &&
		name != wire.CreateTable { // which could drop or make another table
		body = corrupt(h.random, body)
	}
	message, err := proto.Marshal(&flight.Action{Type: name, Body: body})
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, "DoAction", message)
	return err
}

// invalidRows are rows that no table accepts, as JSON with the fields of its columns.
func invalidRows() map[string][]arrow.Field {
	list := func(t arrow.DataType) arrow.DataType { return arrow.ListOf(t) }
	field := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	tokens, mask, logprobs := field("tokens", list(arrow.PrimitiveTypes.Int64)), field("mask",
		list(arrow.PrimitiveTypes.Uint8)), field("logprobs", list(arrow.PrimitiveTypes.Float64))
	version, reward := field("version", arrow.PrimitiveTypes.Int64), field("reward", arrow.PrimitiveTypes.Float64)
	good := []arrow.Field{tokens, mask, logprobs, version, reward}
	return map[string][]arrow.Field{
		`{"mask":[1],"logprobs":[-1],"version":0,"reward":1}`: {mask, logprobs, version,
			reward},
		`{"tokens":[1],"mask":[1],"logprobs":[-1],"version":0,"reward":1,"rewrad":2}`: append(good[:5:5],
			field("rewrad", arrow.PrimitiveTypes.Float64)),
		`{"tokens":"one","mask":[1],"logprobs":[-1],"version":0,"reward":1}`: {field("tokens",
			arrow.BinaryTypes.String), mask, logprobs, version, reward},
		`{"tokens":[1,null],"mask":[1,1],"logprobs":[-1,-1],"version":0,"reward":1}`:       good,
		`{"tokens":[1,2],"mask":[1],"logprobs":[-1,-1],"version":0,"reward":1}`:            good,
		`{"tokens":[1,2],"mask":[0,1],"logprobs":[0,0.5],"version":0,"reward":1}`:          good,
		`{"tokens":[1,2],"mask":[0,2],"logprobs":[0,-0.5],"version":0,"reward":1}`:         good,
		`{"tokens":[1,2],"mask":[0,0],"logprobs":[0,0],"version":0,"reward":1}`:            good,
		`{"tokens":[1,32000],"mask":[0,1],"logprobs":[0,-1],"version":0,"reward":1}`:       good,
		`{"tokens":[1,99999999999],"mask":[0,1],"logprobs":[0,-1],"version":0,"reward":1}`: good,
		`{"tokens":[1,2],"mask":[0,1],"logprobs":[0,-1],"version":-2,"reward":1}`:          good,
		`{"tokens":[1,2],"mask":[0,1],"logprobs":[0,-1],"version":0,"reward":null}`:        good,
		`{"tokens":[1,2],"mask":[0,1],"logprobs":[0,-1],"version":0,"reward":1e300}`:       good,
		`{"tokens":[],"mask":[],"logprobs":[],"version":0,"reward":1}`:                     good,
		// a group of one instead of four
		`{"tokens":[1,2],"mask":[0,1],"logprobs":[0,-1],"version":0,"reward":1}` + "\n": good,
		`{"tokens":[1],"mask":[1],"logprobs":[-1],"version":0,"reward":1,"x_unknown":1}`: append(good[:5:5],
			field("x_unknown", arrow.PrimitiveTypes.Int64)),
	}
}

// sendInvalidRow sends a row that can never be inserted, to a table whose rollouts are all accounted for.
func (h *hostileClient) sendInvalidRow(ctx context.Context, conn *grpc.ClientConn) error {
	rows := invalidRows()
	at := h.random.IntN(len(rows))
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		if at--; at < 0 {
			return h.sendRow(ctx, conn, "queue", row, rows[row])
		}
	}
	return nil
}

// recordOf is a record batch of one row.
func recordOf(row string, fields []arrow.Field, from memory.Allocator) (arrow.RecordBatch, error) {
	rec, _, err := array.RecordFromJSON(from, arrow.NewSchema(fields, nil), strings.NewReader("["+row+"]"))
	return rec, err
}

func (h *hostileClient) sendRow(ctx context.Context, conn *grpc.ClientConn, table, row string,
	fields []arrow.Field) error {
	rec, err := recordOf(row, fields, memory.DefaultAllocator)
	if err != nil {
		h.verdict.violation("the row %s cannot be sent: %v", row, err)
		return err
	}
	defer rec.Release()
	var c collector
	w := flight.NewRecordWriter(&c, ipc.WithSchema(rec.Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{table}})
	if err := w.Write(rec); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	var messages [][]byte
	for _, m := range c.messages {
		encoded, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		messages = append(messages, encoded)
	}
	answers, err := send(ctx, conn, "DoPut", messages...)
	if answers > 0 {
		return nil // the service acknowledged it
	}
	return err
}

// sendTooLarge sends a message above the service's limit.
func (h *hostileClient) sendTooLarge(ctx context.Context, conn *grpc.ClientConn) error {
	message, err := proto.Marshal(&flight.FlightData{DataBody: make([]byte, h.maxMessage+1)})
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, []string{"DoPut", "DoExchange"}[h.random.IntN(2)], message)
	return err
}

// stopHalfway opens a call, sends a part of the messages, and stays silent for a while.
func (h *hostileClient) stopHalfway(ctx context.Context, conn *grpc.ClientConn) error {
	h.number++
	messages, err := insertion(hostileTable, h.number, 2, 1024, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := flight.NewFlightServiceClient(conn).DoPut(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(messages[0]); err != nil {
		return err
	}
	wait(ctx, time.Duration(h.random.IntN(2000))*time.Millisecond)
	return nil
}

// neverRead asks for a whole table and for prefetched batches, and reads nothing.
func (h *hostileClient) neverRead(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := flight.NewFlightServiceClient(conn)
	for range 1 + h.random.IntN(4) {
		ticket, err := json.Marshal(wire.SampleRequest{Table: "uniform", Export: true, Size: 64})
		if err != nil {
			return err
		}
		if _, err := client.DoGet(ctx, &flight.Ticket{Ticket: ticket}); err != nil {
			return err
		}
	}
	stream, err := client.DoExchange(ctx)
	if err != nil {
		return err
	}
	for i := range 8 {
		m := &flight.FlightData{AppMetadata: []byte(`{"size":32,"prefetch":8,"timeout_ms":100}`)}
		if i == 0 {
			m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"uniform"}}
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	wait(ctx, time.Duration(500+h.random.IntN(4000))*time.Millisecond)
	return nil
}

// openMany opens many calls at once and abandons them.
func (h *hostileClient) openMany(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client := flight.NewFlightServiceClient(conn)
	for range 100 + h.random.IntN(200) {
		if _, err := client.DoExchange(ctx); err != nil {
			return fmt.Errorf("opening a call: %w", err)
		}
	}
	return nil
}

// rawCodec sends and receives bytes as they are, as *[]byte.
type rawCodec struct{}

// Marshal returns the bytes.
func (rawCodec) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("%T: want *[]byte", v)
}

// Unmarshal copies the bytes.
func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T: want *[]byte", v)
	}
	*b = append((*b)[:0], data...)
	return nil
}

// Name is the name of the codec that servers expect.
func (rawCodec) Name() string { return "proto" }

// callTimeout bounds one call of a hostile client.
const callTimeout = 3 * time.Second

// send makes a call of raw messages and returns the number of answers before its end.
func send(ctx context.Context, conn *grpc.ClientConn, method string, messages ...[]byte) (answers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/arrow.flight.protocol.FlightService/"+method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if err := stream.SendMsg(&m); err != nil {
			break // RecvMsg returns the reason
		}
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	for {
		var answer []byte
		if err := stream.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return answers, nil
		} else if err != nil {
			return answers, err
		}
		answers++
	}
}

// rawConnection is a connection for raw messages.
func rawConnection(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20), grpc.MaxCallSendMsgSize(256<<20)))
}
