package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/wire/flightdata"
)

// mostKept is how many streams of a kind a table keeps for later; each costs the service a goroutine.
const mostKept = 16

// kept is streams that nobody uses at the moment, the one used last on top.
type kept[S interface{ end() }] struct {
	mu      sync.Mutex
	streams []S
}

func (k *kept[S]) take() (s S, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.streams)
	if n == 0 {
		return s, false
	}
	s = k.streams[n-1]
	k.streams = k.streams[:n-1]
	return s, true
}

func (k *kept[S]) keep(s S) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.streams) >= mostKept {
		s.end()
		return
	}
	k.streams = append(k.streams, s)
}

// drop ends all of them: where one broke, the others did or will.
func (k *kept[S]) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.streams {
		s.end()
	}
	k.streams = nil
}

// life is how long a stream goes on: until it is ended, whatever the contexts of the calls that use it.
type life struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newLife() life {
	ctx, cancel := context.WithCancel(context.Background())
	return life{ctx, cancel}
}

func (l life) end() { l.cancel() }

// during uses the stream for one exchange, which the end of ctx breaks off. A stream that came through it unharmed is kept.
func (l life) during(ctx context.Context, use func() error, keep func()) error {
	unhook := context.AfterFunc(ctx, l.cancel)
	err := use()
	whole := unhook()
	switch {
	case err == nil && whole:
		keep()
	case err == nil: // the answer came all the same
	default:
		l.cancel()
		if !whole {
			return context.Cause(ctx)
		}
	}
	return err
}

// putting is a DoPut stream.
type putting struct {
	life
	schema *arrow.Schema
	stream flight.FlightService_DoPutClient
	writer *flightdata.Writer
}

// openPut returns a stream for record batches of a schema: one that is kept, or a new one.
func (t *Table) openPut(schema *arrow.Schema) (*putting, error) {
	if p, ok := t.puts.take(); ok {
		if p.schema == schema || p.schema.Equal(schema) {
			return p, nil
		}
		p.end()
	}
	p := &putting{life: newLife(), schema: schema}
	var err error
	if p.stream, err = t.client.flight.DoPut(p.ctx); err != nil {
		p.end()
		return nil, err
	}
	p.writer = flightdata.NewWriter(p.stream, schema, t.descriptor())
	return p, nil
}

// cause returns why a stream could not be written to, which only reading it tells.
func (p *putting) cause(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := p.stream.Recv(); err != nil {
			return err
		}
	}
}

func (t *Table) descriptor() *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{t.name}}
}
