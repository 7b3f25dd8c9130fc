package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// exchange is a DoExchange stream: requests out, batches in.
type exchange struct {
	life
	stream flight.FlightService_DoExchangeClient
	reader *flightdata.Reader
	first  *flight.FlightDescriptor // goes with the first request

	recycled
}

func (t *Table) openExchange() (*exchange, error) {
	x := &exchange{life: newLife(), first: t.descriptor()}
	var err error
	if x.stream, err = t.client.flight.DoExchange(x.ctx); err != nil {
		x.end()
		return nil, err
	}
	x.reader = flightdata.NewReader(x.stream, flightdata.Options{MaxBytes: int64(t.client.options.MaxMessageBytes)})
	return x, nil
}

// answered is what came for a request.
type answered struct {
	batch   *rollout.Batch
	present int
	status  *wire.Status // instead of a batch: the stream goes on
}

// ask sends a request and returns its answer. An error is the stream's end.
func (x *exchange) ask(req wire.SampleRequest) (answered, error) {
	if err := x.send(req); err != nil {
		return answered{}, err
	}
	return x.receive()
}

// send sends a request.
func (x *exchange) send(req wire.SampleRequest) error {
	text, err := json.Marshal(req)
	if err != nil {
		return err
	}
	message := &flight.FlightData{FlightDescriptor: x.first, AppMetadata: text}
	if err := x.stream.Send(message); err != nil && !errors.Is(err, io.EOF) { // which receive explains
		return err
	}
	x.first = nil
	return nil
}

// receive returns the answer to the oldest request without one.
func (x *exchange) receive() (answered, error) {
	x.takeBack()
	frame, err := x.reader.Next()
	if err != nil {
		return answered{}, err
	}
	var info wire.BatchInfo
	if err := json.Unmarshal(frame.Metadata, &info); err != nil {
		return answered{}, fmt.Errorf("reading the answer %.100q: %w", frame.Metadata, err)
	}
	if info.Error != nil {
		return answered{status: info.Error}, nil
	}
	if frame.Batch == nil {
		return answered{}, fmt.Errorf("the service answered %.100q without a batch: is it of another version?", frame.Metadata)
	}
	// The draws refer to the batch's memory: the garbage collector's, which needs no release, or what the next batch takes over.
	x.handOut(frame.Batch)
	draws, err := wire.Draws(frame.Batch, extraOf(frame.Batch.Schema()))
	if err != nil {
		return answered{}, fmt.Errorf("batch %d: %w", info.Batch, err)
	}
	if len(draws) != info.Rows {
		return answered{}, fmt.Errorf("batch %d has %d rows, %d were announced", info.Batch, len(draws), info.Rows)
	}
	batch := &rollout.Batch{ID: rollout.BatchID(info.Batch), Version: rollout.Version(info.Version), Shard: info.Shard, Draws: slices.Clip(draws)}
	return answered{batch: batch, present: info.Present}, nil
}

// askDuring is ask for as long as a context.
func (x *exchange) askDuring(ctx context.Context, req wire.SampleRequest, keep func()) (answered, error) {
	return x.answerDuring(ctx, func() (answered, error) { return x.ask(req) }, keep)
}

// answerDuring is what ask or receive returns, for as long as a context; what the service told instead of a batch is an error.
func (x *exchange) answerDuring(ctx context.Context, answer func() (answered, error), keep func()) (a answered, err error) {
	err = x.during(ctx, func() error {
		a, err = answer()
		return err
	}, keep)
	if err == nil && a.status != nil {
		err = a.status.Err()
		if err == nil {
			err = fmt.Errorf("%s: %s", a.status.Code, a.status.Message)
		}
	}
	return a, err
}
