package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// consumer takes batches from a queue over a stream of the stock client, which hides no lost connection: once a batch has come,
// the one before it on the stream was consumed for certain.
type consumer struct{ *crasher }

func (c *consumer) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.session(ctx)
		if ctx.Err() != nil || err == nil {
			continue
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
			c.verdict.violate("consume: %v", err)
		}
		c.answers.add("stream lost")
		wait(ctx, c.Pace)
	}
}

// session takes batches until the connection is lost.
func (c *consumer) session(ctx context.Context) error {
	conn, err := stockClient(c.server.listen)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.DoExchange(ctx)
	if err != nil {
		return err
	}
	requests := requester{stream: stream}
	if err := requests.ask(); err != nil {
		return err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer reader.Release()
	var held []key
	for reader.Next() {
		var info wire.BatchInfo
		if err := json.Unmarshal(reader.LatestAppMetadata(), &info); err != nil {
			return fmt.Errorf("app_metadata %.100q: %w", reader.LatestAppMetadata(), err)
		}
		draws, err := wire.Draws(reader.RecordBatch(), nil)
		if err != nil {
			return err
		}
		c.fates[1].consumed(held)
		held = c.note(held[:0], draws)
		wait(ctx, c.Pace)
		if err := requests.ask(); err != nil {
			return err
		}
	}
	return reader.Err()
}

// note notes what was delivered and returns the keys.
func (c *consumer) note(keys []key, draws []rollout.Draw) []key {
	for _, d := range draws {
		k, err := check(d.Rollout, c.Longest)
		if err == nil {
			err = c.fates[1].delivered(k, d.ID)
		}
		if err != nil {
			c.verdict.violate("consume: id %d: %v", d.ID, err)
		}
		keys = append(keys, k)
	}
	return keys
}

// requester asks for one batch after the other, each of which acknowledges the one before.
type requester struct {
	stream flight.FlightService_DoExchangeClient
	asked  bool
}

func (r *requester) ask() error {
	request, err := json.Marshal(wire.SampleRequest{Size: 8})
	if err != nil {
		return err
	}
	m := &flight.FlightData{AppMetadata: request}
	if !r.asked {
		m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"queue"}}
	}
	r.asked = true
	if err := r.stream.Send(m); err != nil {
		var lost error
		if _, lost = r.stream.Recv(); lost != nil {
			return lost
		}
		return errors.New("the stream was closed by the service")
	}
	return nil
}
