package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Sizes of the transport: windows let a whole batch travel without waiting for the other side.
const (
	streamWindow = 32 << 20
	connWindow   = 64 << 20
	socketBuffer = 256 << 10
)

// keepalivePeriod is how long a connection may be silent before it is tried, and how long it then has to answer: one whose other
// end is gone without a word is found out and replaced.
const keepalivePeriod = 20 * time.Second

// dialPatience is how long Dial tries to reach a service, where its context and Options.Patience allow more.
const dialPatience = 5 * time.Second

// Client is a connection to a service. Its methods may be called concurrently.
type Client struct {
	address address
	options Options
	conn    *grpc.ClientConn
	flight  flight.FlightServiceClient
	name    uint64        // random; batch and request ids begin with it
	numbers atomic.Uint64 // of the ids given
}

// Dial connects to a service at grpc://host:port, grpc+tls://host:port or grpc+unix:///path/of/socket and makes sure that it
// answers. An error wraps [ErrUnreachable] if nothing does within five seconds.
func Dial(ctx context.Context, address string, o Options) (*Client, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Client{address: a, options: o.withDefaults()}
	var random [8]byte
	rand.Read(random[:]) // never fails
	c.name = binary.LittleEndian.Uint64(random[:])
	if err := c.connect(); err != nil {
		return nil, err
	}
	if err := c.greet(ctx); err != nil {
		c.conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) connect() error {
	transport, err := c.options.transport(c.address)
	if err != nil {
		return err
	}
	token, err := c.options.bearer(c.address)
	if err != nil {
		return err
	}
	limit := c.options.MaxMessageBytes
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithNoProxy(), grpc.WithUserAgent("reprise-go"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit), flightdata.CallOption()),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithWriteBufferSize(socketBuffer), grpc.WithReadBufferSize(socketBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepalivePeriod, Timeout: keepalivePeriod}),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: 5 * time.Second,
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestPause},
		}),
	}
	if token != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(token))
	}
	if c.conn, err = grpc.NewClient(c.address.target(), dial...); err != nil {
		return fmt.Errorf("address: %s: %w", c.address, err)
	}
	c.flight = flight.NewFlightServiceClient(c.conn)
	return nil
}

// greet asks for something that every service answers.
func (c *Client) greet(ctx context.Context) error {
	patience := dialPatience
	if p := c.options.Patience; p > 0 {
		patience = min(patience, p)
	}
	err := c.repeat(ctx, patience, 0, func(ctx context.Context, _ int) error {
		stream, err := c.flight.ListActions(ctx, &flight.Empty{})
		if err != nil {
			return err
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Unimplemented {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("service %s: connect: %w", c.address, err)
	}
	return nil
}

// Close ends the connection; batches of streams that were not acknowledged go back.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("service %s: close: %w", c.address, err)
	}
	return nil
}

// Address returns where the service is, as [Dial] took it.
func (c *Client) Address() string { return c.address.String() }

// nextID returns an id that no other request of any client has.
func (c *Client) nextID() string { return fmt.Sprintf("%016x-%d", c.name, c.numbers.Add(1)) }

// Table returns a table by its name, whether the service has it or not.
func (c *Client) Table(name string) *Table { return &Table{client: c, name: name, shared: newShared()} }

// Create makes a table. One that is there with the same definition is left alone; one with another is an error that wraps
// wire.ErrExists.
func (c *Client) Create(ctx context.Context, definition wire.Table) (wire.TableInfo, error) {
	var info wire.TableInfo
	err := c.act(ctx, definition.Name, wire.CreateTable, definition, &info, 0)
	return info, err
}

// Drop removes a table and everything it holds, its journal included.
func (c *Client) Drop(ctx context.Context, name string) error {
	return c.act(ctx, name, wire.DropTable, wire.TableRequest{Table: name}, nil, 0)
}

// Listed is a table in a service's list.
type Listed struct {
	Name  string
	Rows  int64 // rollouts that it holds
	Bytes int64 // of their payload
}

// List returns the tables that the service shows to this client.
func (c *Client) List(ctx context.Context) ([]Listed, error) {
	var list []Listed
	err := c.repeat(ctx, c.options.Patience, 0, func(ctx context.Context, _ int) error {
		list = nil
		stream, err := c.flight.ListFlights(ctx, &flight.Criteria{})
		if err != nil {
			return err
		}
		for {
			info, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if path := info.GetFlightDescriptor().GetPath(); len(path) == 1 {
				list = append(list, Listed{path[0], info.GetTotalRecords(), info.GetTotalBytes()})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("service %s: list: %w", c.address, err)
	}
	return list, nil
}
