package service

import (
	"context"
	"encoding/json"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

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

// Recv gives the reader what was looked at first: arrow-go's reader, unlike other languages', takes no messages of metadata alone.
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
