package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/wire"
)

// sendBytes sends random bytes as the messages of a call.
func (v *vandal) sendBytes(ctx context.Context, conn *grpc.ClientConn) error {
	methods := []string{"DoPut", "DoGet", "DoExchange", "DoAction", "GetFlightInfo", "GetSchema", "NoSuchMethod"}
	message := noise(v.random, 16+v.random.IntN(4<<10))
	message[0] = 0xff // a field number that no message has, of a wire type that there is not
	_, err := send(ctx, conn, methods[v.random.IntN(len(methods))], message)
	return err
}

// sendBent sends an insertion that was changed on the way.
func (v *vandal) sendBent(ctx context.Context, conn *grpc.ClientConn) error {
	v.number++
	messages, err := insertion(wreckName, v.number, 1+v.random.IntN(3), 256, v.random.IntN(4) == 0)
	if err != nil {
		return err
	}
	encoded, err := bent(v.random, messages)
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, "DoPut", encoded...)
	return err
}

// sendBentRequest sends a request for a batch that was changed on the way.
func (v *vandal) sendBentRequest(ctx context.Context, conn *grpc.ClientConn) error {
	request := []byte(`{"table":"wreck","size":4,"fresh":1,"timeout_ms":50,"columns":["id","tokens"],"prefetch":2,"acknowledge":[1,2]}`)
	if v.random.IntN(3) > 0 {
		request = bend(v.random, request)
	}
	method, message := "DoGet", proto.Message(&flight.Ticket{Ticket: request})
	if v.random.IntN(2) == 0 {
		descriptor := &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{wreckName}}
		method, message = "DoExchange", &flight.FlightData{FlightDescriptor: descriptor, AppMetadata: request}
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, method, encoded)
	return err
}

// actionBodies are good bodies of actions on the table that is there for this.
func actionBodies() map[string]string {
	return map[string]string{
		wire.CreateTable:      `{"name":"wreck","capacity":512,"max_uses":64,"vocab":32000,"max_tokens":65536,"lease_seconds":1}`,
		wire.DropTable:        `{"table":"wreck"}`,
		wire.Advance:          `{"table":"wreck","version":3}`,
		wire.Rewind:           `{"table":"wreck","version":0}`,
		wire.UpdatePriorities: `{"table":"wreck","ids":[1,2,3],"priorities":[0.5,1,2]}`,
		wire.ReportDraws:      `{"table":"wreck","draws":[{"id":1,"staleness":0,"advantage":0.5,"tokens":10,"ratio_sum":10,"ratio_squares":11}]}`,
		wire.Acknowledge:      `{"table":"wreck","batches":[1,2]}`,
		wire.Release:          `{"table":"wreck","batches":[3]}`,
		wire.Statistics:       `{"table":"wreck"}`,
		wire.Info:             `{"table":"wreck"}`,
		wire.Checkpoint:       `{"table":"wreck","name":"wrecked"}`,
		wire.Restore:          `{"table":"wreck","name":"wrecked"}`,
		wire.Start:            `{"table":"wreck","groups":2,"group_size":4,"timeout_ms":20}`,
		wire.Abandon:          `{"table":"wreck","grant":1,"groups":1}`,
		wire.PromptsNext:      `{"table":"wreck","batch":8}`,
		wire.PromptsReport:    `{"table":"wreck","results":[{"id":"a","correct":1,"total":4}]}`,
	}
}

// sendBentAction sends an action, mostly one that was changed on the way.
func (v *vandal) sendBentAction(ctx context.Context, conn *grpc.ClientConn) error {
	bodies := actionBodies()
	names := []string{
		wire.CreateTable, wire.Advance, wire.Rewind, wire.UpdatePriorities, wire.ReportDraws, wire.Acknowledge, wire.Release, wire.Statistics,
		wire.Info, wire.Checkpoint, wire.Restore, wire.Start, wire.Abandon, wire.PromptsNext, wire.PromptsReport, wire.CreateTable, wire.DropTable,
	}
	name := names[v.random.IntN(len(names))]
	body := []byte(bodies[name])
	if v.random.IntN(3) > 0 && name != wire.DropTable && name != wire.CreateTable { // which could hit or make another table
		body = bend(v.random, body)
	}
	message, err := proto.Marshal(&flight.Action{Type: name, Body: body})
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, "DoAction", message)
	return err
}

// wrong are insertions that no table takes, as JSON of the columns' fields.
func wrong() map[string][]arrow.Field {
	list := func(t arrow.DataType) arrow.DataType { return arrow.ListOf(t) }
	field := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	tokens, mask, logprobs := field("tokens", list(arrow.PrimitiveTypes.Int64)), field("mask", list(arrow.PrimitiveTypes.Uint8)), field("logprobs", list(arrow.PrimitiveTypes.Float64))
	version, reward := field("version", arrow.PrimitiveTypes.Int64), field("reward", arrow.PrimitiveTypes.Float64)
	good := []arrow.Field{tokens, mask, logprobs, version, reward}
	return map[string][]arrow.Field{
		`{"mask":[1],"logprobs":[-1],"version":0,"reward":1}`:                              {mask, logprobs, version, reward},
		`{"tokens":[1],"mask":[1],"logprobs":[-1],"version":0,"reward":1,"rewrad":2}`:      append(good[:5:5], field("rewrad", arrow.PrimitiveTypes.Float64)),
		`{"tokens":"one","mask":[1],"logprobs":[-1],"version":0,"reward":1}`:               {field("tokens", arrow.BinaryTypes.String), mask, logprobs, version, reward},
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
		`{"tokens":[1,2],"mask":[0,1],"logprobs":[0,-1],"version":0,"reward":1}` + "\n":    good, // a group of one, where four are due
		`{"tokens":[1],"mask":[1],"logprobs":[-1],"version":0,"reward":1,"x_unknown":1}`:   append(good[:5:5], field("x_unknown", arrow.PrimitiveTypes.Int64)),
	}
}

// sendWrongColumns sends a row that can never be inserted to a table of which every rollout is counted.
func (v *vandal) sendWrongColumns(ctx context.Context, conn *grpc.ClientConn) error {
	at, kinds := v.random.IntN(len(wrong())), wrong()
	for _, row := range slices.Sorted(maps.Keys(kinds)) {
		if at--; at < 0 {
			return v.sendRow(ctx, conn, "queue", row, kinds[row])
		}
	}
	return nil
}

// recordOf is a record batch of one row.
func recordOf(row string, fields []arrow.Field, from memory.Allocator) (arrow.RecordBatch, error) {
	rec, _, err := array.RecordFromJSON(from, arrow.NewSchema(fields, nil), strings.NewReader("["+row+"]"))
	return rec, err
}

func (v *vandal) sendRow(ctx context.Context, conn *grpc.ClientConn, table, row string, fields []arrow.Field) error {
	rec, err := recordOf(row, fields, memory.DefaultAllocator)
	if err != nil {
		v.verdict.violate("the row %s cannot be sent: %v", row, err)
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
		return nil // it was acknowledged
	}
	return err
}

// sendTooLarge sends a message above the service's limit.
func (v *vandal) sendTooLarge(ctx context.Context, conn *grpc.ClientConn) error {
	message, err := proto.Marshal(&flight.FlightData{DataBody: make([]byte, v.maxMessage+1)})
	if err != nil {
		return err
	}
	_, err = send(ctx, conn, []string{"DoPut", "DoExchange"}[v.random.IntN(2)], message)
	return err
}

// stopHalfway opens a call, sends a part of what is due, and stays silent for a while.
func (v *vandal) stopHalfway(ctx context.Context, conn *grpc.ClientConn) error {
	v.number++
	messages, err := insertion(wreckName, v.number, 2, 1024, false)
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
	wait(ctx, time.Duration(v.random.IntN(2000))*time.Millisecond)
	return nil
}

// neverRead asks for a whole table, and for batches ahead, and takes nothing.
func (v *vandal) neverRead(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := flight.NewFlightServiceClient(conn)
	for range 1 + v.random.IntN(4) {
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
	wait(ctx, time.Duration(500+v.random.IntN(4000))*time.Millisecond)
	return nil
}

// openMany opens many calls at once and leaves them.
func (v *vandal) openMany(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client := flight.NewFlightServiceClient(conn)
	for range 100 + v.random.IntN(200) {
		if _, err := client.DoExchange(ctx); err != nil {
			return fmt.Errorf("opening a call: %w", err)
		}
	}
	return nil
}
