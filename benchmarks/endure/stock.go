package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// stockClient is a Flight client with nothing of ours in it.
func stockClient(address string) (flight.Client, error) {
	return flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
}

// get takes batches by DoGet with the stock client, which knows neither retries nor leases.
func (t *trainer) get(ctx context.Context, batches int) error {
	c, err := stockClient(t.load.address[len("grpc://"):])
	if err != nil {
		return err
	}
	defer c.Close()
	for range batches {
		t.load.pause(ctx, t.random)
		began := time.Now()
		b, err := getBatch(ctx, c, t.Name, t.extra())
		if err != nil {
			return t.load.stockError(err)
		}
		t.load.samples.add(time.Since(began))
		t.inspect(b)
	}
	return nil
}

// extra is the columns of the table's own.
func (p *place) extra() []arrow.Field {
	fields, err := wire.ExtraFields(p.Columns)
	if err != nil {
		panic(err) // of a table that was created with them
	}
	return fields
}

// stockError sorts the errors of a client without retries: those of broken connections are part of the game.
func (l *load) stockError(err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		l.answers.add("stock " + code.String())
		return errAgain
	}
	if ours := wire.FromGRPC(err); errors.Is(ours, rollout.ErrStarved) {
		return ours
	}
	return err
}

// getBatch takes one batch by DoGet.
func getBatch(ctx context.Context, c flight.Client, table string, extra []arrow.Field) (*rollout.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ms := patience.Milliseconds()
	ticket, err := json.Marshal(wire.SampleRequest{Table: table, Size: batchSize, TimeoutMS: &ms})
	if err != nil {
		return nil, err
	}
	stream, err := c.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		return nil, err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	var b rollout.Batch
	for reader.Next() {
		draws, err := wire.Draws(reader.RecordBatch(), extra)
		if err != nil {
			return nil, err
		}
		for i := range draws { // which refer to memory that the reader takes back
			draws[i].Rollout = cloneOf(draws[i].Rollout)
		}
		b.Draws = append(b.Draws, draws...)
		var info wire.BatchInfo
		if err := json.Unmarshal(reader.LatestAppMetadata(), &info); err != nil {
			return nil, fmt.Errorf("app_metadata %.100q: %w", reader.LatestAppMetadata(), err)
		}
		b.ID, b.Version = rollout.BatchID(info.Batch), rollout.Version(info.Version)
	}
	return &b, reader.Err()
}

// cloneOf copies what check looks at.
func cloneOf(r *rollout.Rollout) *rollout.Rollout {
	c := *r
	c.PromptID, c.Text = string([]byte(r.PromptID)), string([]byte(r.Text))
	c.Tokens, c.Mask = append([]int32(nil), r.Tokens...), append([]uint8(nil), r.Mask...)
	c.Logprobs, c.Versions = append([]float32(nil), r.Logprobs...), append([]rollout.Version(nil), r.Versions...)
	return &c
}
